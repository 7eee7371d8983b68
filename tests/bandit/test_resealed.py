"""Files whose digest was made right again: refused by a FileError, or as good as any other."""

import json
import random
import tracemalloc

import numpy as np
import pytest
from tests import resealed

import headstart as hs
from headstart.storage import tensor_file

FEW = 40  # cases of each file; ``python -m tests.resealed`` goes through all of them


@pytest.mark.parametrize("setup", resealed.SETUPS)
def test_bandits(setup, tmp_path):
    resealed.SETUPS[setup]().save(tmp_path / "source")
    cases = list(resealed.bandit_cases(tmp_path / "source"))
    found = [
        resealed.attempt(case, tmp_path / "file", resealed.use_bandit)
        for case in random.Random(setup).sample(cases, FEW)
    ]
    assert found.count("refused") > FEW / 2


@pytest.mark.parametrize("forced", [False, True])
def test_evidence(forced, tmp_path):
    resealed.evidence(tmp_path / "source", forced=forced)
    found = [
        resealed.attempt(case, tmp_path / "file", resealed.use_archive)
        for case in resealed.archive_cases(tmp_path / "source")
    ]
    assert found.count("refused") > len(found) / 2


@pytest.mark.parametrize("setup", resealed.SETUPS)
def test_what_is_unchanged_works(setup, changed):
    case = resealed.Case(setup, lambda path: None)
    path = changed(make=resealed.SETUPS[setup])
    assert resealed.attempt(case, path, resealed.use_bandit) == "works"


@pytest.fixture
def changed(tmp_path):
    """``changed(arrays=…, **header)``: a saved bandit with these changes, resealed."""

    def change(arrays=None, make=resealed.bandit, **header):
        make().save(tmp_path / "b")
        old, tensors = tensor_file.read(tmp_path / "b")
        text = json.dumps(old | header)
        tensors |= {name: fill(tensors[name].copy()) for name, fill in (arrays or {}).items()}
        (tmp_path / "b").write_bytes(resealed.sealed(text, tensors))
        return tmp_path / "b"

    return change


def lopsided(matrices):
    matrices[..., 1, 2] = 2.0**62
    return matrices


def fewer_rounds(rows):
    rows[0, -2] = -5.0
    return rows


def str_of(value):
    """A name for a case that is the same in every process: functions have addresses."""
    if isinstance(value, str):
        return value
    return "-".join(
        str(key) for part in (value, *value.values()) if isinstance(part, dict) for key in part
    )


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"rule": None}, "rule"),
        ({"rule": {"kind": "headstart.EmpiricalBayes", "settings": {}}}, "rule"),
        ({"rule": {"kind": "headstart.UCB", "settings": {"radius": -1.0}}}, "radius"),
        ({"rule": {"kind": "headstart.UCB", "settings": {"radius": "theory"}}}, "radius"),
        ({"rule": {"kind": "headstart.Forced", "settings": {"rounds": 3, "then": None}}}, "then"),
        ({"transfer": None}, "transfer"),
        ({"transfer": {"kind": "headstart.UCB", "settings": {}}}, "transfer"),
        ({"transfer": {"kind": "headstart.Mixture", "settings": {"groups": 10**9}}}, "groups"),
        ({"cache_size": -1}, "cache_size"),
        ({"cache_size": 1}, "cached_tasks"),
        ({"choice_window": 0}, "choice_window"),
        ({"choice_window": True}, "choice_window"),
        ({"origin": ""}, "origin"),
        ({"origin": "00" * 15}, "origin"),
        ({"seed": "-3"}, "seed"),
        ({"seed": 3}, "seed"),
        ({"noise": -1.0}, "noise"),
        ({"noise": float("nan")}, "noise"),
        ({"half_life": 0.0}, "half_life"),
        ({"frozen": 1}, "frozen"),
        ({"needs_refit": None}, "needs_refit"),
        ({"first_number": -1}, "first_number"),
        ({"first_number": 2**63}, "first_number"),
        ({"reward_count": 0}, "reward_count"),
        ({"tasks": ["a"] * 8}, "tasks"),
        ({"tasks": [f"t{n}" for n in range(7)] + [""]}, "tasks"),
        ({"closed": ["nobody"]}, "closed"),
        ({"unfolded": ["täsk 0"]}, "unfolded"),
        ({"learned_bits": {"täsk 0": "0x" + "f" * 50}}, "learned_bits"),
        ({"arrays": {"evidence": fewer_rounds}}, "rounds"),
        ({"arrays": {"evidence": lambda rows: rows * np.nan}}, "finite"),
        ({"arrays": {"state.fit.mean": lambda mean: mean * np.nan}}, "state.fit.mean"),
        ({"arrays": {"state.fit.mean": lambda mean: mean[:-1]}}, "state.fit.mean"),
        ({"arrays": {"state.tasks.moment": lambda rows: rows[:-1]}}, "state.tasks"),
        ({"arrays": {"state.tasks.weight": lambda many: many * 2.0**62}}, "state.tasks.weight"),
        ({"arrays": {"state.past.first": lambda sums: sums - 1e3}}, "state.past.first"),
        ({"arrays": {"state.past.second": lopsided}}, "state.past.second"),
        ({"arrays": {"state.tasks.gram": lopsided}}, "state.tasks.gram"),
        ({"arrays": {"state.fit.covariance": lambda matrix: -matrix}}, "state.fit.covariance"),
        ({"arrays": {"belief.0.root": lambda root: root[:, :-1]}}, "root"),
        ({"arrays": {"belief.0.noise": lambda noise: -noise}}, "noise"),
        ({"arrays": {"cached_prior.noise": lambda noise: noise * 0.0}}, "noise"),
        ({"arrays": {"task.next_number": lambda numbers: numbers - 9}}, "next_number"),
        ({"arrays": {"task.window_start": lambda numbers: numbers + 9}}, "choices"),
    ],
    ids=str_of,
)
def test_what_no_bandit_has_is_named(change, word, changed):
    path = changed(**change)
    with pytest.raises(hs.FileError, match=word) as caught:
        hs.load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    "features",
    [
        {"context_dim": 0},
        {"context_dim": 4},
        {"names": ["a", "b"]},
        {"names": ["a", "b", "a"]},
        {"names": ["a", "b", 3]},
        {"intercept": 1},
        {"shift": [0.0] * 3},
        {"shift": [0.0] * 3, "scale": [1.0, 1.0, 0.0]},
        {"shift": [0.0] * 3, "scale": [1.0, 1.0, float("nan")]},
        {"shift": [0.0] * 2, "scale": [1.0] * 2},
        {"other": 1},
    ],
    ids=repr,
)
def test_features(features, changed):
    path = changed()
    header, _ = tensor_file.read(path)
    path = changed(features=header["features"] | features)
    with pytest.raises(hs.FileError) as caught:
        hs.load(path)
    assert str(path) in str(caught.value)


SIZES = {
    "features": {"features": {"context_dim": 30_000}},
    "features of nobody": {
        "features": {"context_dim": 30_000},
        "make": lambda: hs.Bandit(3, seed=1),
    },
    "more than there are numbers": {"features": {"context_dim": 10**18}},
    "groups": {"transfer": {"kind": "headstart.Mixture", "settings": {"groups": 10**9}}},
    "rows": {"arrays": {"task.next_number": lambda numbers: np.zeros((2**40, 0), np.int64)}},
    "counts": {"cached_pending": [10**12] * 4},
    "window": {"choice_window": 10**18},
}


@pytest.mark.parametrize("case", SIZES)
def test_no_room_is_made_for_what_is_not_there(case, changed):
    path = changed(**SIZES[case])
    assert path.stat().st_size < 50_000
    hs.Bandit(3).save(path.with_name("other"))
    hs.load(path.with_name("other"))  # for what is imported and kept
    tracemalloc.start()
    try:
        if case == "window":
            hs.load(path)
        else:
            with pytest.raises(hs.FileError):
                hs.load(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


class Count(hs.Transfer):
    """A transfer of a user's own, whose state is one number that is not even finite."""

    def init(self, dim, noise=None, batch=()):
        return np.inf

    def fold(self, state, evidence, weight=1.0):
        return min(state, float(evidence.rounds))

    def prior(self, state):
        return hs.Prior.isotropic(1500 if state == np.inf else 2)


def test_a_transfer_of_ones_own_may_have_any_state(tmp_path):
    hs.Bandit(1500, Count()).save(tmp_path / "b")
    assert hs.load(tmp_path / "b", transfer=Count()).dim == 1500


def test_large_oracles_without_tasks_load(tmp_path):
    hs.Bandit(300, hs.Oracle.subspace(np.ones(300), np.eye(300)[:, :1])).save(tmp_path / "b")
    assert hs.load(tmp_path / "b").dim == 300
