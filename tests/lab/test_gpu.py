"""On a GPU: the kernel's choices and random numbers, and experiments from end to end.

The checks themselves are in ``benchmarks/gpu/check.py``, which also runs where there is no pytest.
Where there is no GPU, only the yardstick is tested: the plain loop that the kernel is held to.
"""

import contextlib
import dataclasses
import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from headstart.lab.gpu import missing
from headstart.rules import LoopForm
from headstart.worlds import Synthetic

REASON = missing()
needs_gpu = pytest.mark.skipif(REASON is not None, reason=f"needs a GPU: {REASON}")


def reporting(function):
    """Progress that is given to a function, whatever its label."""
    return lambda label: contextlib.nullcontext(function)


def load_checks():
    path = Path(__file__).parents[2] / "benchmarks" / "gpu" / "check.py"
    spec = importlib.util.spec_from_file_location("gpu_check", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


check = load_checks()


@needs_gpu
@pytest.mark.parametrize("name", check.CHECKS)
def test_on_a_gpu(name):
    function, sizes = check.CHECKS[name]
    function(*sizes)


# --- Experiments --------------------------------------------------------------------------------


@needs_gpu
def test_an_experiment_runs_on_a_gpu_is_kept_and_resumed(tmp_path, monkeypatch):
    from headstart.lab import Execution, Plan, run
    from headstart.lab.policies import policy

    policies = tuple(policy(name) for name in check.PAPER)
    world = Synthetic(dim=8, rank=3, arms=6)
    plan = Plan(world, policies, tuple(range(16)), tasks=12, rounds=30, checkpoints=(10, 30))
    progress = []
    results = run(
        plan,
        tmp_path,
        Execution(engine="gpu", progress=reporting(lambda done, all: progress.append(done))),
    )
    assert results.plan == dataclasses.replace(plan, device="gpu")
    assert json.loads((tmp_path / "manifest.json").read_text())["device"] == "gpu"
    assert len(results.regret) == len(policies) * 16 * 12 * 2
    assert np.isfinite(results.regret["regret"].to_numpy()).all()
    assert (results.regret["regret"].to_numpy() >= 0).all()
    assert progress[-1] == plan.work

    def never(*args, **kwargs):
        raise AssertionError("played again")

    monkeypatch.setattr("headstart.lab.gpu.engine.simulate", never)
    again = run(plan, tmp_path, Execution(engine="gpu"))
    assert again.regret.equals(results.regret)
    assert run(plan, tmp_path, Execution(engine="gpu", stored_only=True)).regret.equals(
        results.regret
    )
    here = run(plan, tmp_path, Execution(workers=1))
    assert here.plan.device == "cpu"
    assert not here.regret.equals(results.regret)
    totals = {
        engine: each.totals().group_by("policy").mean().sort("policy")["total"].to_numpy()
        for engine, each in (("gpu", results), ("cpu", here))
    }
    np.testing.assert_allclose(totals["gpu"], totals["cpu"], rtol=0.25)


# --- The yardstick ------------------------------------------------------------------------------

DIM, ARMS, ROUNDS = 4, 6, 50


@pytest.fixture(scope="module")
def record():
    """A task as the kernel would leave it, played by the CPU's compiled loops."""
    from headstart.kernels import compiled

    rng = np.random.default_rng(1)
    rules, noise = list(check.RULES.values()), 0.3
    theta = rng.standard_normal((1, DIM))
    contexts = rng.standard_normal((1, ROUNDS, ARMS, DIM)) / 3
    rewards = np.einsum("srkd,sd->srk", contexts, theta) + noise * rng.standard_normal(
        (1, ROUNDS, 1)
    )
    means, roots = check.random_priors(len(rules), 1, DIM)
    draws = rng.standard_normal((len(rules), 1, ROUNDS, DIM))
    arms = np.empty((len(rules), 1, ROUNDS), dtype=np.intp)
    for at, rule in enumerate(rules):
        compiled.play(
            contexts[0],
            rewards[0],
            means[at, 0].copy(),
            roots[at, 0].copy(),
            rule.code,
            rule.multiplier,
            rule.forced,
            draws[at, 0],
            rng.random(ROUNDS),
            noise,
            0,
            ROUNDS,
            arms[at, 0],
        )
    chosen_contexts = np.stack([contexts[0, np.arange(ROUNDS), each[0]][None] for each in arms])
    chosen_rewards = np.stack([rewards[0, np.arange(ROUNDS), each[0]][None] for each in arms])
    values = np.einsum("srkd,sd->srk", contexts, theta)
    lost = np.stack([values.max(-1) - values[0, np.arange(ROUNDS), each[0]] for each in arms])
    marks = np.array([3, ROUNDS])
    return SimpleNamespace(
        contexts=contexts,
        rewards=rewards,
        draws=draws,
        arms=arms,
        chosen_contexts=chosen_contexts,
        chosen_rewards=chosen_rewards,
        regret=lost.cumsum(-1)[..., marks - 1],
        theta=theta,
        means=means,
        roots=roots,
        rules=rules,
        marks=marks,
        noise=noise,
    )


def with_changes(record, **changes):
    return SimpleNamespace(**{**vars(record), **changes})


def test_the_plain_loop_decides_as_the_cpus_engine_does(record):
    for policy in range(len(record.rules)):
        assert check.replay(record, policy, 0, 1e-12) == []
    check.assert_in_order(record)


@pytest.mark.parametrize("name", [name for name in check.RULES if name != "Uniform"])
def test_the_plain_loop_notices_another_arm(record, name):
    policy = list(check.RULES).index(name)
    arms = record.arms.copy()
    arms[policy, 0, 45] = (arms[policy, 0, 45] + 1) % ARMS
    results = check.replay(with_changes(record, arms=arms), policy, 0, 1e-12)
    assert results[0] == 45
    amounts = [rule._replace(multiplier=rule.multiplier + 3) for rule in record.rules]
    assert check.replay(with_changes(record, rules=amounts), policy, 0, 1e-12)
    assert check.replay(with_changes(record, means=record.means + 1), policy, 0, 1e-12)
    assert check.replay(with_changes(record, roots=3 * record.roots), policy, 0, 1e-12)


def test_the_checks_of_a_task_notice_what_does_not_fit(record):
    for name in ("chosen_contexts", "chosen_rewards", "regret"):
        with pytest.raises(AssertionError, match=f"{name} is off"):
            check.assert_in_order(with_changes(record, **{name: getattr(record, name) + 0.01}))
        with pytest.raises(AssertionError, match=f"{name} has numbers"):
            check.assert_in_order(
                with_changes(record, **{name: np.full_like(getattr(record, name), np.nan)})
            )


def test_the_checks_of_numbers_notice_what_is_not_normal():
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal(100_000)
    check.assert_standard(numbers, "these")
    for wrong in (
        numbers + 0.03,
        1.03 * numbers,
        rng.uniform(-(3**0.5), 3**0.5, 100_000),
        np.where(np.arange(100_000) == 7, np.nan, numbers),
        rng.standard_t(9, 100_000) / (9 / 7) ** 0.5,
    ):
        with pytest.raises(AssertionError, match="these"):
            check.assert_standard(wrong, "these")
    check.assert_unrelated(numbers[1:], numbers[:-1], "these")
    with pytest.raises(AssertionError, match="these are correlated"):
        check.assert_unrelated(numbers, rng.standard_normal(100_000) + 0.05 * numbers, "these")


def test_beliefs_with_a_noise_of_their_own_are_the_cpus_without_a_gpu_too():
    pytest.importorskip("jax")
    assert check.check_own_noise(5).startswith("102 beliefs")


def test_every_size_and_rule_is_checked():
    assert {(30, 20), (18, 10), (5, 3), (40, 50), (31, 33), (63, 20), (1, 1)} <= set(check.SIZES)
    assert {rule.kind for rule in check.RULES.values()} == {"ucb", "thompson", "uniform"}
    assert any(rule.forced for rule in check.RULES.values())
    assert LoopForm("thompson", 0.5, 37) in check.RULES.values()
    assert len(check.PAPER) == 8


def test_without_a_gpu_the_script_says_so_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr("headstart.lab.gpu.missing", lambda: "there is no GPU")
    assert check.main() == 2
    assert capsys.readouterr().out == "nothing was checked: there is no GPU\n"


def test_the_script_exits_with_1_where_a_check_fails(monkeypatch, capsys):
    def good():
        return "fine"

    def bad():
        raise AssertionError("it is off by 3")

    def broken():
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("headstart.lab.gpu.missing", lambda: None)
    checks = {"one": (good, ()), "two": (bad, ()), "three": (broken, ())}
    monkeypatch.setattr(check, "CHECKS", checks)
    assert check.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line[:6] for line in lines[:3]] == ["ok    ", "FAILED", "FAILED"]
    assert "it is off by 3" in lines[1]
    assert "ZeroDivisionError: by zero" in lines[2]
    assert lines[3] == "1 of 3 checks passed"
    monkeypatch.setattr(check, "CHECKS", {"one": (good, ())})
    assert check.main() == 0


def test_the_script_needs_little(tmp_path):
    """A machine with a GPU may have neither Polars nor Typer nor headstart's own metadata."""
    import os
    import subprocess
    import sys

    root = Path(__file__).parents[2]
    code = (
        "import sys, runpy, importlib.metadata\n"
        "for name in ('polars', 'typer', 'hypothesis', 'pytest', 'matplotlib', 'numba', 'cupy'):\n"
        "    sys.modules[name] = None\n"
        "def version(name):\n"
        "    raise importlib.metadata.PackageNotFoundError(name)\n"
        "importlib.metadata.version = version\n"
        "runpy.run_module('benchmarks.gpu.check', run_name='__main__')\n"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert shown.returncode == 2, shown.stderr
    assert "cupy is not installed" in shown.stdout
