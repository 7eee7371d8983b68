"""Saving and loading: exact, atomic, and with a clear answer to every file that is not one."""

import contextlib
import dataclasses
import errno
import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import headstart as hs
from headstart.rules import Indexed
from headstart.settings import SETTINGS, full_name
from headstart.storage import tensor_file

DIM = 3


class Tally(NamedTuple):
    count: float
    total: np.ndarray


class MeanOnly(hs.Transfer):
    """A transfer as a user writes one: tasks share their mean moment; nothing fancy."""

    def init(self, dim, noise=None, batch=()):
        return Tally(0.0, np.zeros(dim))

    def fold(self, state, evidence, weight=1.0):
        return Tally(state.count + weight, state.total + weight * evidence.ridge(1.0))

    def prior(self, state):
        return hs.Prior.isotropic(len(state.total), mean=state.total / max(state.count, 1.0))


class FirstRow(hs.Rule):
    """A rule as a user writes one."""

    def choose(self, belief, contexts, rng, allowed=None):
        from headstart.rules import Pick

        return Pick(0, float(belief.predict(contexts)[0]))

    def propensities(self, belief, contexts, rng, allowed=None):
        from headstart.rules import Propensities

        return Propensities((np.arange(len(contexts)) == 0).astype(float))


@dataclasses.dataclass(frozen=True, repr=False)
class Shifted(hs.Independent):
    """A transfer that a file can name: a dataclass."""

    shift: float = 0.0

    def prior(self, state):
        prior = super().prior(state)
        return prior.replace(mean=prior.mean + self.shift)


@dataclasses.dataclass(frozen=True, repr=False)
class Cautious(Indexed):
    """A rule that a file can name."""

    margin: float = 1.0
    notes: tuple = ()

    def index(self, belief, contexts, rng):
        return belief.predict(contexts) - self.margin * belief.width(contexts)


SETUPS = {
    "default": {},
    "thompson": {"rule": hs.Thompson()},
    "thompson, few live": {"rule": hs.Thompson(), "cache_size": 2},
    "exploring": {"rule": hs.UCB(explore=0.3), "noise": 0.5},
    "theory": {"transfer": hs.Bias(), "rule": hs.UCB("theory", delta=0.05), "noise": 0.5},
    "ccipca": {
        "rule": hs.Thompson(0.5),
        "transfer": hs.Subspace(pca="ccipca", rank=1, warmup=2, min_rounds=1),
    },
    "weng": {"transfer": hs.Subspace(pca=hs.CCIPCA("weng", amnesia=1.0), warmup=2, rank=2)},
    "to the mean": {"transfer": hs.Subspace(shrink="mean", warmup=2), "rule": hs.Thompson()},
    "bias": {"transfer": hs.Bias(), "rule": hs.Thompson()},
    "pooled": {"transfer": hs.Bias(method="pooled")},
    "independent": {
        "transfer": hs.Independent("plug-in"),
        "rule": hs.Thompson(),
        "choice_window": 7,
    },
    "meta": {"transfer": hs.Gaussian(warmup=2), "rule": hs.Forced(4, hs.Thompson())},
    "oracle": {"transfer": hs.Oracle.gaussian([1.0, 0.0, 0.5], 0.3 * np.eye(3))},
    "subspace oracle": {"transfer": hs.Oracle.subspace(np.ones(3), np.eye(3)[:, :1])},
    "frozen": {"frozen": True, "rule": hs.Thompson()},
    "own transfer": {"transfer": MeanOnly(), "rule": hs.Thompson()},
    "own rule": {"rule": FirstRow()},
}


def busy(seed=0, frozen=False, dim=DIM, **setup):
    """A bandit in the middle of everything, and choices whose rewards are still to come."""
    bandit = hs.Bandit(dim, seed=seed, **setup)
    rng = np.random.default_rng(seed)
    pending = []
    for id in range(9):
        task = bandit.task(f"täsk {id}")
        theta = rng.standard_normal(dim)
        for _ in range(6):
            choice = task.choose(rng.standard_normal((4, dim)))
            if rng.random() < 0.2:
                pending.append(choice)
            else:
                task.learn(choice, float(choice.context @ theta + 0.1 * rng.standard_normal()))
        if id % 3 < 2:
            task.close()
    bandit.task("closed without rewards").close()
    bandit.delete("täsk 4")
    pending = [choice for choice in pending if choice.task in bandit]
    pending += [bandit.task(f"täsk {id}").choose(np.eye(dim)) for id in (8, 2, 5)]
    late = pending.pop(0)
    bandit.learn(late, 1.0)  # the transfer's state is behind now, if it cannot be taken back
    if frozen:
        bandit.freeze()
    return bandit, pending


def life_after(bandit, pending, rounds=4):
    """What happens from here on, to the last bit."""
    rng = np.random.default_rng(99)
    trace = [bandit.learn(choice, 0.25) for choice in pending]
    for turn in range(rounds):
        for id in [*bandit, f"new {turn}"]:
            task = bandit.task(id)
            choice = task.choose(rng.standard_normal((5, bandit.dim)))
            task.learn(choice, float(rng.standard_normal()))
            trace.append((choice.task, choice.number, choice.arm, choice.score.hex()))
            if turn == 1 and rng.random() < 0.5:
                task.close()
        prior = bandit.prior
        trace.append((prior.mean.tolist(), prior.root.tolist(), float(prior.noise)))
    trace.append(str(bandit.report()))
    trace.append({id: bandit.task(id).belief.root.tolist() for id in bandit})
    return trace


def own_parts(setup):
    """What has to be handed to load because a file holds no code."""
    return {
        name: setup[name]
        for name in ("transfer", "rule")
        if type(setup.get(name)).__module__ == __name__
    }


class TestContinuing:
    def test_a_mixture_whose_units_have_changed_since_its_last_fit(self, tmp_path):
        """Its roots are then those of covariances in other units, and no longer symmetric."""
        rng, bandit = np.random.default_rng(0), hs.Bandit(3, hs.Mixture(), seed=0)
        for number in range(8):
            task = bandit.task(number)
            for _ in range(15):
                sparse = rng.normal(size=(4, 3)) * (rng.random((4, 3)) < 0.02)
                task.learn(task.choose(sparse), 0.0)
            if number % 2 == 0:
                task.close()
        roots = bandit._state.ledger.prior_state.state.fits[0].roots
        assert np.abs(roots - roots.swapaxes(-1, -2)).max() > 0.01
        bandit.save(tmp_path / "bandit")
        loaded = hs.load(tmp_path / "bandit")
        np.testing.assert_array_equal(loaded.prior.mean, bandit.prior.mean)

    @pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
    def test_a_loaded_bandit_continues_exactly_as_the_saved_one(self, setup, tmp_path):
        bandit, pending = busy(**setup)
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b", **own_parts(setup))
        assert type(loaded) is hs.Bandit
        assert loaded.frozen == bandit.frozen == setup.get("frozen", False)
        assert loaded.transfer == bandit.transfer
        assert loaded.rule == bandit.rule
        assert repr(loaded) == repr(bandit)
        assert list(loaded) == list(bandit)
        assert life_after(loaded, pending) == life_after(bandit, pending)

    @pytest.mark.parametrize("setup", ["default", "thompson, few live", "ccipca", "meta"])
    def test_in_a_fresh_process_too(self, setup, tmp_path):
        bandit, pending = busy(**SETUPS[setup])
        bandit.save(tmp_path / "b")
        tokens = [choice.token for choice in pending]
        script = f"""
import importlib.util, pickle, sys
spec = importlib.util.spec_from_file_location("here", {__file__!r})
here = importlib.util.module_from_spec(spec)
spec.loader.exec_module(here)
trace = here.life_after(here.hs.load(sys.argv[1]), sys.argv[2:])
sys.stdout.buffer.write(pickle.dumps(trace))
"""
        done = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "b", *tokens], capture_output=True, check=True
        )
        assert pickle.loads(done.stdout) == life_after(bandit, tokens)

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
    def test_before_any_task_is_finished(self, rule, tmp_path, world, play):
        """Then each task tells the noise by itself, and goes on doing so."""
        bandit = hs.Bandit(DIM, rule=rule, seed=0)
        for id in "cab":
            play(bandit, id, world(seed=ord(id), rounds=3, dim=DIM, noise=2.0))
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        for each in (bandit, loaded):
            for id in "abc":
                play(each, id, world(seed=ord(id) + 1, rounds=5, dim=DIM, noise=2.0))
        for id in "abc":
            assert loaded.task(id).belief == bandit.task(id).belief

    def test_saving_changes_nothing(self, tmp_path):
        plain, pending = busy(rule=hs.Thompson())
        saving, the_same = busy(rule=hs.Thompson())
        for _ in range(3):
            saving.save(tmp_path / "b")
        plain_trace, saving_trace = life_after(plain, pending), life_after(saving, the_same)
        assert [step[:3] for step in plain_trace if isinstance(step, tuple)] == [
            step[:3] for step in saving_trace if isinstance(step, tuple)
        ]

    def test_a_file_can_be_loaded_and_saved_over_and_over(self, tmp_path, content):
        bandit, _ = busy()
        before = content(bandit)
        for _ in range(3):
            bandit.save(tmp_path / "b")
            bandit = hs.load(tmp_path / "b")
        after = content(bandit)
        assert after[0].pop("epoch") > before[0].pop("epoch") == 0
        assert after == before

    def test_loading_does_not_touch_the_file(self, tmp_path):
        bandit, pending = busy()
        bandit.save(tmp_path / "b")
        before = (tmp_path / "b").read_bytes()
        loaded = hs.load(tmp_path / "b")
        life_after(loaded, pending)
        assert (tmp_path / "b").read_bytes() == before
        assert hs.load(tmp_path / "b").report().rounds == bandit.report().rounds

    def test_an_empty_bandit(self, tmp_path):
        bandit = hs.Bandit(dim=2, seed=5, rule=hs.Thompson(), intercept=True, noise=0.5)
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert len(loaded) == 0
        assert life_after(loaded, []) == life_after(bandit, [])

    @pytest.mark.parametrize(
        "id", ["任务", "🎲", "a/b\\c", '"quoted"', "\u2028\n\t\x00", " ", "é" * 999]
    )
    def test_task_ids_of_any_alphabet(self, id, tmp_path):
        bandit = hs.Bandit(dim=2, seed=0)
        choice = bandit.task(id).choose(np.eye(2))
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert list(loaded) == [id]
        loaded.learn(choice.token, 1.0)
        assert loaded.task(id).rounds == 1

    def test_seeds_larger_than_any_machine_number(self, tmp_path):
        bandit = hs.Bandit(dim=2, seed=2**300 + 7, rule=hs.Uniform())
        bandit.save(tmp_path / "b")
        assert life_after(hs.load(tmp_path / "b"), []) == life_after(bandit, [])

    @pytest.mark.parametrize("wrap", [str, Path, os.fspath])
    def test_paths_as_text_or_path(self, wrap, tmp_path):
        path = wrap(tmp_path / "b.headstart")
        hs.Bandit(dim=2).save(path)
        assert hs.load(path).dim == 2
        assert hs.Bandit.load(path).dim == 2

    def test_a_name_in_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        hs.Bandit(dim=2).save("b")
        assert hs.load("b").dim == 2
        assert os.listdir() == ["b"]

    def test_a_subclass_loads_as_itself(self, tmp_path):
        class Shop(hs.Bandit):
            pass

        Shop(dim=2).save(tmp_path / "b")
        assert type(Shop.load(tmp_path / "b")) is Shop


@dataclasses.dataclass(frozen=True)
class Nested(hs.Transfer):
    """A user's transfer whose state is whatever ``start`` and ``grow`` make it."""

    start: object = None
    grow: object = None

    def init(self, dim, noise=None, batch=()):
        return self.start(dim)

    def fold(self, state, evidence, weight=1.0):
        return self.grow(state, evidence)

    def prior(self, state):
        return hs.Prior.isotropic(2, mean=np.full(2, checksum(state)))


def checksum(state):
    """One number that changes with anything in a state."""
    if state is None:
        return 0.0
    if isinstance(state, dict):
        return checksum(tuple(state.values())) + sum(isinstance(key, int) for key in state)
    if isinstance(state, hs.Evidence):
        return checksum(tuple(state.pack()))
    if isinstance(state, (tuple, list)):
        return len(state) + sum((at + 1) * checksum(value) for at, value in enumerate(state))
    return float(np.sum(state))


STATES = {
    "number": (lambda dim: 0.0, lambda state, e: state + float(e.rounds)),
    "whole number": (lambda dim: 0, lambda state, e: state + int(e.rounds)),
    "flag": (lambda dim: False, lambda state, e: not state),
    "array": (np.zeros, lambda state, e: state + e.moment),
    "dict": (
        lambda dim: {"n": 0, "m": np.zeros(dim)},
        lambda s, e: {"n": s["n"] + 1, "m": e.moment},
    ),
    "nested": (lambda dim: (0.0, [np.zeros(dim)]), lambda s, e: (s[0] + 1, [s[1][0] + e.moment])),
    "growing tuple": (lambda dim: (), lambda state, e: (*state, e.moment)),
    "growing dict": (lambda dim: {}, lambda state, e: state | {f"t{len(state)}": e.moment}),
    "all evidence": (lambda dim: (), lambda state, e: (*state, e)),
    "keyed by number": (lambda dim: {}, lambda state, e: state | {len(state): e.moment}),
    "growing array": (lambda dim: np.zeros(0), lambda state, e: np.append(state, e.moment)),
    "filled later": (lambda dim: None, lambda state, e: e.moment),
    "filled later by more": (lambda dim: {"a": None}, lambda s, e: {"a": (e.moment, 2.0)}),
    "evidence": (lambda dim: hs.Evidence.zero(dim), lambda state, e: state + e),
}


class TestOnesOwn:
    @pytest.mark.parametrize("kind", STATES)
    def test_any_state_that_the_interface_allows_is_saved_and_loaded_as_it_is(self, kind, tmp_path):
        """“Any nesting of dataclasses, (named) tuples, dicts, arrays and numbers.”"""
        transfer = Nested(*STATES[kind])
        bandit = hs.Bandit(2, transfer, seed=0)
        for id in range(13):
            task = bandit.task(id)
            task.learn(task.choose(np.eye(2) + id), 1.0 + id)
            task.close()
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b", transfer=transfer)
        assert loaded.prior == bandit.prior
        assert loaded.prior != hs.Bandit(2, transfer).prior
        for each in (bandit, loaded):
            task = each.task("more")
            task.learn(task.choose(np.eye(2)), 3.0)
            task.close()
        assert loaded.prior == bandit.prior

    @pytest.mark.parametrize(("name", "part"), [("transfer", MeanOnly()), ("rule", FirstRow())])
    def test_the_file_asks_for_a_part_of_your_own(self, name, part, tmp_path):
        hs.Bandit(2, **{name: part}).save(tmp_path / "b")
        with pytest.raises(hs.FileError, match=rf"load\(path, {name}=…\)") as caught:
            hs.load(tmp_path / "b")
        assert type(part).__name__ in str(caught.value)

    def test_a_dataclass_of_ones_own_is_found_where_it_is_imported(self, tmp_path):
        rule = hs.Forced(2, Cautious(0.5, (1.0, "x"), explore=0.2))
        bandit = hs.Bandit(2, Shifted(shift=3.0), rule, noise=0.3, seed=0)
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert (loaded.transfer, loaded.rule) == (Shifted(shift=3.0), rule)
        assert life_after(loaded, []) == life_after(bandit, [])

    @pytest.mark.parametrize("kind", ["Shifted", "Cautious"])
    def test_and_asked_for_where_it_is_not(self, kind, tmp_path, monkeypatch):
        hs.Bandit(2, Shifted(shift=3.0), Cautious(), noise=0.3).save(tmp_path / "b")
        script = "import sys, headstart as hs\nhs.load(sys.argv[1])"
        command = [sys.executable, "-c", script, tmp_path / "b"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert "load(path, transfer=…)" in done.stderr
        assert "test_files.Shifted" in done.stderr
        monkeypatch.delitem(SETTINGS, full_name(globals()[kind]))
        with pytest.raises(hs.FileError, match=rf"{kind}.*load\(path, "):
            hs.load(tmp_path / "b")
        again = hs.load(tmp_path / "b", transfer=Shifted(shift=3.0), rule=Cautious())
        assert again.transfer == Shifted(shift=3.0)

    def test_also_where_it_is_inside_another(self, tmp_path):
        bandit = hs.Bandit(2, rule=hs.Forced(3, FirstRow()), seed=0)
        bandit.save(tmp_path / "b")
        with pytest.raises(hs.FileError, match="rule=…"):
            hs.load(tmp_path / "b")
        loaded = hs.load(tmp_path / "b", rule=hs.Forced(3, FirstRow()))
        assert life_after(loaded, []) == life_after(bandit, [])

    def test_a_transfer_that_does_not_fit_the_file_is_refused(self, tmp_path):
        bandit, _ = busy(transfer=hs.Bias())
        bandit.save(tmp_path / "b")
        with pytest.raises(hs.FileError, match="does not fit the transfer"):
            hs.load(tmp_path / "b", transfer=MeanOnly())

    @pytest.mark.parametrize("name", ["transfer", "rule"])
    @pytest.mark.parametrize("part", ["ucb", 5, hs.UCB, []], ids=repr)
    def test_what_is_neither_transfer_nor_rule_is_refused(self, name, part, tmp_path):
        hs.Bandit(2).save(tmp_path / "b")
        with pytest.raises(hs.InputError, match=f"{name} must be"):
            hs.load(tmp_path / "b", **{name: part})


def fails_with(code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return fail


class Unwritable:
    """A file on a disk that is full."""

    def __init__(self, handle, *_):
        self.handle = handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.handle)

    def write(self, content):
        os.write(self.handle, content[: len(content) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def saved(tmp_path):
    """A folder of its own with one good file in it."""
    folder = tmp_path / "folder"
    folder.mkdir()
    bandit, _ = busy(seed=1)
    bandit.save(folder / "b")
    return folder / "b"


class TestAtomic:
    @pytest.mark.parametrize(
        ("step", "failure"),
        [
            ("fdopen", Unwritable),
            ("fsync", fails_with(errno.EIO)),
            ("replace", fails_with(errno.EACCES)),
        ],
    )
    @pytest.mark.parametrize("exists", [True, False])
    def test_a_failure_leaves_what_was_there(self, step, failure, exists, saved, monkeypatch):
        before = saved.read_bytes()
        path = saved if exists else saved.with_name("other")
        bandit, _ = busy(seed=2)
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failure)
            with pytest.raises(hs.FileError) as caught:
                bandit.save(path)
        assert str(path) in str(caught.value)
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == ["b"]
        bandit.save(path)
        assert hs.load(path).report().rounds == bandit.report().rounds

    def test_an_interruption_leaves_no_litter(self, saved, monkeypatch):
        before = saved.read_bytes()

        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                hs.Bandit(dim=2).save(saved)
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == ["b"]

    def test_a_file_larger_than_the_system_allows(self, saved):
        before = saved.read_bytes()
        script = f"""
import resource, sys, headstart as hs
bandit = hs.Bandit(dim=30, seed=0)
for id in range(40):
    bandit.task(id)
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, {resource.RLIM_INFINITY}))
try:
    bandit.save(sys.argv[1])
except hs.FileError as error:
    print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, saved], capture_output=True, text=True, check=True
        )
        assert "could not be written" in done.stdout
        assert saved.read_bytes() == before
        assert os.listdir(saved.parent) == ["b"]

    def test_a_full_disk(self, small_disk):
        small, _ = busy(seed=1)
        path = small_disk / "b"
        small.save(path)
        before = path.read_bytes()
        large, _ = busy(seed=2, dim=60)
        with pytest.raises(hs.FileError, match=os.strerror(errno.ENOSPC)):
            large.save(path)
        assert path.read_bytes() == before
        assert os.listdir(small_disk) == ["b"]
        assert hs.load(path).report().rounds == small.report().rounds

    def test_it_is_on_the_disk_before_it_takes_the_name(self, saved, monkeypatch):
        """Write, fsync, rename: in that order."""
        steps = []
        for step in ("fsync", "replace"):
            real = getattr(os, step)
            monkeypatch.setattr(
                os, step, lambda *a, _real=real, _step=step: (steps.append(_step), _real(*a))[1]
            )
        hs.Bandit(dim=2).save(saved)
        assert steps[:2] == ["fsync", "replace"]

    def test_two_processes_saving_to_one_path_do_not_mix(self, tmp_path):
        path = tmp_path / "b"
        script = """
import sys, headstart as hs
path, name, tasks = sys.argv[1], sys.argv[2], int(sys.argv[3])
bandit = hs.Bandit(dim=20, seed=0)
for id in range(tasks):
    bandit.task(f"{name} {id}")
for _ in range(60):
    bandit.save(path)
"""
        sizes = {"one": 30, "two": 90}
        writers = [
            subprocess.Popen([sys.executable, "-c", script, path, name, str(tasks)])
            for name, tasks in sizes.items()
        ]
        expected = {tuple(f"{name} {id}" for id in range(tasks)) for name, tasks in sizes.items()}
        seen = set()
        while any(writer.poll() is None for writer in writers):
            with contextlib.suppress(hs.MissingFileError):
                seen.add(tuple(hs.load(path)))
        assert [writer.returncode for writer in writers] == [0, 0]
        assert seen == expected
        assert tuple(hs.load(path)) in expected
        assert os.listdir(tmp_path) == ["b"]


def metadata_of(path):
    with safe_open(path, framework="numpy") as file:
        return file.metadata()


def assert_refused(path, *words):
    with pytest.raises(hs.FileError) as caught:
        hs.load(path)
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, OSError)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


class TestOtherFiles:
    def test_missing(self, tmp_path):
        with pytest.raises(hs.MissingFileError, match="nothing is there"):
            hs.load(tmp_path / "none")
        with pytest.raises(FileNotFoundError):
            hs.load(tmp_path / "no folder" / "none")

    def test_a_folder(self, tmp_path):
        assert_refused(tmp_path, "folder")

    def test_empty(self, tmp_path):
        (tmp_path / "b").touch()
        assert_refused(tmp_path / "b", "must be a headstart file")

    @pytest.mark.parametrize(
        "content",
        [b"hello", b"\x00" * 500, np.random.default_rng(0).bytes(3000), b"PK\x03\x04zip"],
        ids=["text", "zeros", "noise", "archive"],
    )
    def test_anything(self, content, tmp_path):
        (tmp_path / "b").write_bytes(content)
        assert_refused(tmp_path / "b", "must be a headstart file")

    def test_another_programs_safetensors(self, tmp_path):
        save_file({"weights": np.zeros(3)}, tmp_path / "b")
        assert_refused(tmp_path / "b", "another program")
        save_file({"weights": np.zeros(3)}, tmp_path / "b", {"format": "pt"})
        assert_refused(tmp_path / "b", "another program")

    @pytest.mark.parametrize("step", [0, 1])
    def test_truncated_anywhere(self, step, saved):
        whole = saved.read_bytes()
        for length in range(step, len(whole), 97):
            saved.write_bytes(whole[:length])
            assert_refused(saved)
        saved.write_bytes(whole + b"\x00")
        assert_refused(saved)

    def test_any_bit_flipped(self, saved):
        """Every third byte of the header, and every 29th of the arrays."""
        whole = saved.read_bytes()
        arrays = 8 + int.from_bytes(whole[:8], "little")
        with open(saved, "r+b", buffering=0) as file:
            for at in [*range(0, arrays, 3), *range(arrays, len(whole), 29)]:
                file.seek(at)
                file.write(bytes([whole[at] ^ 1 << (at % 8)]))
                assert_refused(saved)
                file.seek(at)
                file.write(whole[at : at + 1])
        assert hs.load(saved).report().rounds > 0

    @pytest.mark.parametrize("bit", range(8))
    def test_the_version_is_sealed_too(self, bit, saved):
        whole = bytearray(saved.read_bytes())
        whole[whole.index(b'"version":"') + len(b'"version":"')] ^= 1 << bit
        saved.write_bytes(whole)
        assert_refused(saved)

    def test_arrays_of_another_headstart_file(self, saved, tmp_path):
        other, _ = busy(seed=3)
        other.save(tmp_path / "other")
        save_file(load_file(tmp_path / "other"), saved, metadata_of(saved))
        assert_refused(saved, "corrupted")

    def test_too_new(self, saved):
        save_file(load_file(saved), saved, metadata_of(saved) | {"version": "99"})
        assert_refused(saved, "version 99", "newer")

    @pytest.mark.parametrize("version", ["", "x", "-1", "1.5"])
    def test_no_version(self, version, saved):
        save_file(load_file(saved), saved, metadata_of(saved) | {"version": version})
        assert_refused(saved)

    def test_a_headstart_file_of_another_kind(self, tmp_path):
        tensor_file.write(tmp_path / "b", {"kind": "experiment"}, {"x": np.zeros(2)})
        assert_refused(tmp_path / "b", "must hold a bandit", "experiment")

    @pytest.mark.parametrize(
        "lost", ["seed", "origin", "tasks", "features", "rule", "learned_bits"]
    )
    def test_well_sealed_but_incomplete(self, lost, saved):
        header, tensors = tensor_file.read(saved)
        header.pop(lost)
        tensor_file.write(saved, header, tensors)
        assert_refused(saved)

    @pytest.mark.parametrize("header", [[], 7, None, "bandit"])
    def test_well_sealed_but_no_header(self, header, tmp_path):
        tensor_file.write(tmp_path / "b", header, {"x": np.zeros(2)})
        assert_refused(tmp_path / "b")

    def test_a_pickle_is_not_unpickled(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return os.system, (f"touch {tmp_path / 'exploded'}",)

        (tmp_path / "b").write_bytes(pickle.dumps(Bomb()))
        assert_refused(tmp_path / "b")
        assert not (tmp_path / "exploded").exists()

    @pytest.mark.parametrize(
        "named",
        [
            {"kind": "os.system"},
            {"kind": "os.system", "settings": {}},
            {"kind": "Popen", "settings": {"args": "ls"}},
        ],
    )
    def test_a_file_cannot_name_code_to_run(self, named, saved):
        header, tensors = tensor_file.read(saved)
        tensor_file.write(saved, header | {"transfer": named}, tensors)
        with pytest.raises(hs.FileError):
            hs.load(saved)

    def test_nothing_is_compiled_imported_or_started_by_loading(self, saved):
        script = """
import sys, headstart as hs
hs.load(sys.argv[1])  # once, for the imports
watched = ("compile", "exec", "import", "pickle", "marshal", "os.system", "os.exec", "os.spawn",
           "os.posix_spawn", "subprocess", "ctypes", "code.__new__", "socket")
seen = []
sys.addaudithook(lambda event, _: seen.append(event) if event.startswith(watched) else None)
hs.load(sys.argv[1])
print(seen)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, saved], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "[]"

    def test_the_header_is_plain_text_that_other_tools_can_read(self, saved):
        header = json.loads(metadata_of(saved)["header"])
        assert header["kind"] == "bandit"
        assert "täsk 0" in header["tasks"]


@pytest.fixture
def open_folder():
    """A folder that other users may enter, unlike pytest's."""
    folder = Path(tempfile.mkdtemp(prefix="headstart-test-"))
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


def as_nobody(call):
    """The error that a user without any rights gets; root may read and write everything."""
    if os.geteuid() != 0:
        return outcome(call)
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads about
        child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os.write(writing, "\n".join(outcome(call)).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, encoding="utf-8") as answer:
        return tuple(answer.read().split("\n", 1))


def outcome(call):
    try:
        call()
    except BaseException as error:
        return type(error).__name__, str(error)
    return "nothing", ""


class TestPermissions:
    def test_a_file_that_may_not_be_read(self, open_folder):
        hs.Bandit(dim=2).save(open_folder / "b")
        (open_folder / "b").chmod(0)
        kind, message = as_nobody(lambda: hs.load(open_folder / "b"))
        assert kind == "FileError"
        assert str(open_folder / "b") in message
        assert os.strerror(errno.EACCES) in message

    def test_a_folder_that_may_not_be_entered(self, open_folder):
        hs.Bandit(dim=2).save(open_folder / "b")
        open_folder.chmod(0)
        kind, message = as_nobody(lambda: hs.load(open_folder / "b"))
        assert kind == "FileError"
        assert str(open_folder / "b") in message
        assert os.strerror(errno.EACCES) in message

    def test_a_folder_that_may_not_be_written(self, open_folder):
        bandit = hs.Bandit(dim=2)
        bandit.save(open_folder / "b")
        before = (open_folder / "b").read_bytes()
        open_folder.chmod(0o555)
        kind, message = as_nobody(lambda: bandit.save(open_folder / "b"))
        assert kind == "FileError"
        assert os.strerror(errno.EACCES) in message
        assert (open_folder / "b").read_bytes() == before

    def test_saving_where_there_is_no_folder(self, tmp_path, content):
        bandit = hs.Bandit(dim=2)
        with pytest.raises(hs.FileError, match="could not be written"):
            bandit.save(tmp_path / "none" / "b")
        with pytest.raises(hs.FileError, match="it is a folder"):
            bandit.save(tmp_path)
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("path", [None, 5, 1.5, b"b", [], "", "a\0b"], ids=repr)
    def test_what_is_no_path_is_refused(self, path, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(hs.HeadstartError, match="path"):
            hs.Bandit(dim=2).save(path)
        with pytest.raises(hs.HeadstartError, match="path"):
            hs.load(path)
        assert os.listdir(tmp_path) == []
