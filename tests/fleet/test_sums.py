"""Rows add up to the evidence of their tasks, in memory and on disk."""

import errno
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from headstart import Evidence
from headstart.errors import FileError
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing import loops as loader
from headstart.fleet.summing import sums as module
from headstart.fleet.summing.shelf import BUCKETS, bucket_of, mark_of
from headstart.fleet.summing.sums import Sums
from headstart.model.evidence import packed_size


def some_rows(count=3000, tasks=40, dim=5, seed=0, weights=False, dtype=np.float32):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, tasks, count).astype(np.int32)
    return Rows(
        codes=codes,
        ids=pa.array([f"task {n}" for n in range(tasks)]),
        rewards=rng.normal(size=count),
        features=rng.normal(size=(count, dim)).astype(dtype),
        weights=rng.uniform(0.5, 3.0, count) if weights else None,
    )


def expected(rows):
    weights = np.ones(len(rows.codes)) if rows.weights is None else rows.weights
    found = {}
    for code, name in enumerate(rows.names):
        at = rows.codes == code
        if at.any():
            root = np.sqrt(weights[at])
            x = rows.features[at].astype(float)
            one = Evidence.of(root[:, None] * x, root * rows.rewards[at])
            found[name] = one.replace(rounds=float(weights[at].sum()))
    return found


def content(sums):
    return {
        name: evidence.pack()[place]
        for names, evidence in sums.items()
        for place, name in enumerate(names)
    }


def check(sums, rows):
    found, want = content(sums), expected(rows)
    assert found.keys() == want.keys()
    for name, packed in found.items():
        np.testing.assert_allclose(packed, want[name].pack(), rtol=1e-12, atol=1e-12)


def no_space(handle):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("loops", ["plain", "compiled"])
@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("dim", [1, 5, 13])
def test_rows_add_up_to_evidence(loops, weights, dim, monkeypatch):
    if loops == "compiled":
        pytest.importorskip("numba")
        monkeypatch.setattr(loader, "MANY", 0)
        monkeypatch.setattr(module, "TOGETHER", 1000 * 4 * dim)
    else:
        monkeypatch.setattr(loader, "_found", [None])
    rows = some_rows(dim=dim, weights=weights, dtype=np.float64 if dim == 5 else np.float32)
    sums = Sums(dim)
    sums.add(rows)
    check(sums, rows)


@pytest.mark.parametrize("loops", ["plain", "compiled"])
def test_blocks_threads_and_files_change_nothing(tmp_path, loops, monkeypatch):
    if loops == "compiled":
        pytest.importorskip("numba")
        monkeypatch.setattr(loader, "MANY", 0)
    rows = some_rows()
    parts = [rows.take(np.arange(start, 3000, 7)) for start in range(7)]
    sums = Sums(5, 12 * 8 * packed_size(5), tmp_path, workers=3)  # ten tasks of forty
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(sums.add, parts))
    assert len(sums.runs) > 3
    check(sums, rows)
    assert not list(tmp_path.glob("run-*"))


@pytest.mark.parametrize("keep", [0, 1 << 30])
@pytest.mark.parametrize("spilled", [False, True])
def test_rows_that_come_while_loops_are_loaded_are_kept(tmp_path, monkeypatch, keep, spilled):
    monkeypatch.setattr(module, "loading", lambda: True)
    monkeypatch.setattr(module, "EARLY", keep)
    rows = some_rows()
    sums = Sums(5, 12 * 8 * packed_size(5), tmp_path)  # ten tasks of forty
    sums.add(rows)
    assert bool(sums.early) == (keep > 0)
    assert bool(sums.runs) == (keep == 0)
    if spilled:
        sums.spill()
        assert not sums.early
        assert not len(sums)
    check(sums, rows)


def test_a_full_disk_loses_no_row_that_was_kept(tmp_path, monkeypatch):
    rows = some_rows()
    sums = Sums(5, 12 * 8 * packed_size(5), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "loading", lambda: True)
        sums.add(rows)
        patch.setattr(os, "fsync", no_space)
        with pytest.raises(FileError, match="No space left"):
            sums.spill()
    check(sums, rows)  # when there is space again


def test_packed_sums_add_up_too(tmp_path):
    rows = some_rows()
    sums = Sums(5, 12 * 8 * packed_size(5), tmp_path)
    for start in range(2):
        some = Sums(5)
        some.add(rows.take(np.arange(start, 3000, 2)))
        for names, evidence in some.items():
            sums.add_packed(pa.array(names), evidence.pack())
    check(sums, rows)


def test_tasks_come_in_the_order_of_their_marks():
    sums = Sums(5)
    sums.add(some_rows())
    names = [name for names, _ in sums.items() for name in names]
    assert names == sorted(names, key=mark_of)
    buckets = [bucket_of(mark_of(name)) for name in names]
    assert buckets == sorted(buckets)
    assert max(buckets) < BUCKETS


def test_only_what_was_shown_is_evidence():
    rows = some_rows(6, 2)
    chosen = np.array([True, False, True, False, True, True])
    rewards = np.where(chosen, rows.rewards, np.nan)
    sums = Sums(5)
    sums.add(rows._replace(chosen=chosen, rewards=rewards))
    check(sums, rows.take(chosen))


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path, monkeypatch):
    rows = some_rows()
    sums = Sums(5, 10 * 8 * packed_size(5), tmp_path)
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(FileError, match="No space left"):
        sums.add(rows)
    assert not list(tmp_path.iterdir())
