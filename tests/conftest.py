"""What several test files share: a settled Hypothesis, and a few ways to look at a bandit."""

import contextlib
import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

import headstart as hs
from headstart.records import flatten
from headstart.storage import tensor_file

settings.register_profile(
    "headstart",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("headstart")


def content_of(bandit, path):
    """All that a bandit's file holds, in a form that ``==`` compares exactly."""
    bandit.save(path)
    header, tensors = tensor_file.read(path)
    arrays = {
        name: (array.dtype.str, array.shape, array.tobytes()) for name, array in tensors.items()
    }
    return header, arrays


@pytest.fixture
def content(tmp_path):
    """``content(bandit)``: everything it would save, to be compared before and after."""
    return lambda bandit: content_of(bandit, tmp_path / "content.headstart")


@pytest.fixture
def lasting(content):
    """``lasting(bandit)``: what a loaded bandit and the saved one share: all but epochs."""

    def known(bandit):
        epochs = ("epoch", "task.epoch", "other_windows")
        return [
            {name: value for name, value in part.items() if name not in epochs}
            for part in content(bandit)
        ]

    return known


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 64 kB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "headstart-test", str(disk)]
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs to mount a small disk")
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def books_of(bandit):
    """All that decides what a bandit does next, to the last bit, in a form that ``==`` compares."""
    ledger, tasks = bandit._state.ledger, {}
    prior_state, cache = ledger.prior_state, ledger.cache
    for id, entry in ledger.entries.items():
        facts: dict = {name: getattr(entry, name) for name in ENTRY}
        if entry.cached is not None:
            facts |= {name: getattr(entry.cached, name) for name in ("alone", "other_rewards")}
            facts |= {"pending": len(entry.cached.pending), "belief": bits(entry.cached.belief)}
        tasks[id] = facts | {"evidence": bits(ledger.entries.evidence(id))}
    facts = {name: getattr(ledger.entries, name) for name in ("first_number", "reward_count")}
    facts |= {name: getattr(prior_state, name) for name in ("needs_refit", "removal_count")}
    facts |= {name: list(getattr(prior_state, name)) for name in ("closed", "unfolded")}
    cached = prior_state.cached
    prior = cached and (bits(cached.prior), cached.reward_count, list(cached.running))
    state = {"state": bits(prior_state.state), "cached prior": prior}
    return facts | state | {"tasks": tasks, "cached tasks": list(cache.tasks)}


ENTRY = ("first_number", "next_number", "window_start", "learned_bits", "reward_count")


def bits(state):
    return {name: (array.shape, array.tobytes()) for name, array in flatten(state).items()}


@pytest.fixture
def books():
    """``books(bandit)``: what it knows in memory; unlike :func:`content`, no file is written."""
    return books_of


@pytest.fixture
def refused(content):
    """``with refused(bandit, "argument", …)``: the call is refused, and has changed nothing."""

    @contextlib.contextmanager
    def check(bandit, *words, error=hs.InputError):
        before = content(bandit)
        with pytest.raises(error) as caught:
            yield caught
        assert isinstance(caught.value, hs.HeadstartError)
        assert isinstance(caught.value, ValueError)
        for word in words:
            assert word in str(caught.value)
        assert content(bandit) == before

    return check


def rounds_of(seed, rounds, dim, arms=4, theta=None, noise=0.1):
    """Contexts of a task, and a way to reward them: fixed by the seed, whatever is chosen."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(dim) if theta is None else np.asarray(theta)
    offers = rng.standard_normal((rounds, arms, dim))
    errors = noise * rng.standard_normal(rounds)
    return SimpleNamespace(
        theta=theta,
        offers=offers,
        rewards=offers @ theta + errors[:, None],
        regrets=(offers @ theta).max(1)[:, None] - offers @ theta,
    )


@pytest.fixture
def world():
    """``world(seed, rounds, dim)``: the rounds of one task."""
    return rounds_of


@pytest.fixture
def play():
    """``play(bandit, id, world)``: choose and learn every round of a task; gives the arms."""

    def through(bandit, id, rounds):
        task, arms = bandit.task(id), []
        for offer, rewards in zip(rounds.offers, rounds.rewards, strict=True):
            choice = task.choose(offer)
            task.learn(choice, rewards[choice.arm])
            arms.append(choice.arm)
        return arms

    return through


@pytest.fixture
def same_prior():
    """``same_prior(a, b)``: one starting point, up to rounding."""

    def check(left, right, tolerance=1e-9):
        scale = max(1e-300, float(np.abs(right.mean).max()), float(right.noise))
        np.testing.assert_allclose(left.mean, right.mean, rtol=tolerance, atol=tolerance * scale)
        spread = max(1e-300, float(np.abs(right.covariance).max()))
        np.testing.assert_allclose(
            left.covariance, right.covariance, rtol=tolerance, atol=tolerance * spread
        )
        for name in ("noise", "bias", "printed_bias"):
            np.testing.assert_allclose(getattr(left, name), getattr(right, name), rtol=tolerance)

    return check


@pytest.fixture
def same_belief():
    """``same_belief(a, b)``: equal mean and covariance (roots are not unique), up to rounding."""

    def check(left, right, tolerance=1e-9):
        np.testing.assert_allclose(left.mean, right.mean, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(left.covariance, right.covariance, rtol=tolerance, atol=1e-12)
        np.testing.assert_allclose(left.noise, right.noise, rtol=tolerance)
        assert left.rounds == right.rounds

    return check


@pytest.fixture
def headstart(monkeypatch, capsys):
    """``headstart("fit", …)``: the command in this process, as the script runs it."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def run(*words):
        from headstart.cli import main

        monkeypatch.setattr(sys, "argv", ["headstart", *map(str, words)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as leave:
            code = leave.code or 0
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run
