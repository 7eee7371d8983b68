"""Rows become shards, and shards the sums of tasks, whatever the memory and the partitions."""

import subprocess
import sys
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart import Evidence
from headstart.fleet.reading.hashing import hash_ids, partition_numbers, partition_range
from headstart.fleet.reading.rows import Rows
from headstart.fleet.summing import accumulator, grams
from headstart.fleet.summing import shards as shard_module
from headstart.fleet.summing.accumulator import Accumulator, TaskIndex
from headstart.fleet.summing.grams import add_by_threads, add_rows, group_rows
from headstart.fleet.summing.shards import merge, read_run, write_run
from headstart.kernels import forms
from headstart.model.evidence import packed_size
from headstart.transfer import task_order

DIM = 4


def some_rows(
    count=3000, tasks=40, seed=0, weighted=False, dtype=np.float32, hot=0.0, kind="string"
):
    rng = np.random.default_rng(seed)
    owner = np.where(rng.uniform(size=count) < hot, 0, rng.integers(0, tasks, count))
    ids, codes = np.unique(owner, return_inverse=True)
    return Rows(
        codes=codes.astype(np.int32),
        ids=pa.array(ids * 7 - 3).cast(kind),  # some are negative, and some are no small numbers
        rewards=rng.normal(size=count),
        features=rng.normal(size=(count, DIM)).astype(dtype),
        weights=rng.uniform(0.5, 3.0, count) if weighted else None,
    )


def expected(blocks):
    """Every task's packed sums, by the definition."""
    found = {}
    for rows in blocks:
        weights = np.ones(rows.count) if rows.weights is None else rows.weights
        for code, name in enumerate(rows.names):
            at = rows.codes == code
            root = np.sqrt(weights[at])
            one = Evidence.of(
                root[:, None] * rows.features[at].astype(float), root * rows.rewards[at]
            ).replace(rounds=float(weights[at].sum()))
            found[name] = found.get(name, 0) + one.pack()
    return found


def partitioned(blocks, memory, partitions, threads=1):
    """The sums of blocks by way of shards, and how many bytes of shards there were."""
    shards = [[] for _ in range(partitions)]
    spilled = []

    def spill(found):
        for place, shard in enumerate(found):
            shards[place].append(shard)
            spilled.append(shard.nbytes)

    sums = Accumulator(DIM, memory, partitions, spill, threads)
    for rows in blocks:
        sums.add(*sums.number_tasks(rows))
    sums.finish()
    return [merge(some, DIM) for some in shards], sum(spilled)


@given(
    seed=st.integers(0, 2**32 - 1),
    tasks=st.sampled_from([1, 7, 300]),
    memory=st.sampled_from([3000, 20_000, 1 << 24]),
    partitions=st.sampled_from([1, 4, 64]),
    threads=st.sampled_from([1, 3]),
    weighted=st.sampled_from(["none", "some", "all"]),
    mixed=st.booleans(),
    hot=st.sampled_from([0.0, 0.9]),
    kinds=st.sampled_from([["string"], ["int64"], ["int16", "string", "int64"]]),
)
@settings(max_examples=12, deadline=None)
def test_tasks_have_the_sums_of_their_rows(
    seed, tasks, memory, partitions, threads, weighted, mixed, hot, kinds
):
    blocks = [
        some_rows(
            400,
            tasks,
            seed + number,
            weighted == "all" or (weighted == "some" and number == 1),
            np.float64 if mixed and number == 2 else np.float32,
            hot,
            kinds[number % len(kinds)],
        )
        for number in range(4)
    ]
    with mock.patch.object(accumulator, "SMALL_IDS", 1000):
        found, _ = partitioned(blocks, memory, partitions, threads)
    names = [name for part in found for name in part.ids.to_pylist()]
    want = expected(blocks)
    assert set(names) == set(want)
    assert len(names) == len(want)
    packed = np.concatenate([part.rows for part in found])
    np.testing.assert_allclose(packed, [want[name] for name in names], rtol=1e-10, atol=1e-10)
    hashes = hash_ids(pa.array(names))
    assert (np.diff(hashes.astype(object)) > 0).all()  # one order, whatever the partitions
    for number, part in enumerate(found):
        assert (partition_numbers(hash_ids(part.ids), partitions) == number).all()


def test_a_spill_is_never_much_larger_than_the_rows():
    scattered = [some_rows(2000, 10**6, seed) for seed in range(5)]
    size = 5 * 2000 * (4 * DIM + 8)
    assert partitioned(scattered, 20_000, 4)[1] < 3 * size  # ids and hashes, and a small table
    dense = [some_rows(2000, 20, seed) for seed in range(5)]
    assert partitioned(dense, 10_000, 4)[1] < size / 3  # sums in place of rows
    hot = [some_rows(2000, 10**6, seed, hot=1.0) for seed in range(5)]
    assert partitioned(hot, 1, 4)[1] < size


def test_runs_of_other_partitions_fit(tmp_path):
    blocks = [some_rows(tasks=500)]
    shards = []
    sums = Accumulator(DIM, 40_000, 8, lambda found: shards.append(list(found)))
    sums.add(*sums.number_tasks(blocks[0]))
    sums.finish()
    assert len(shards) > 2
    for number, run in enumerate(shards):
        write_run(tmp_path / str(number), run)
    runs = [tmp_path / str(number) for number in range(len(shards))]
    for partitions in (1, 2, 8, 64):
        parts = [
            merge(
                (
                    shard
                    for run in runs
                    for shard in read_run(run, *partition_range(place, partitions))
                ),
                DIM,
            )
            for place in range(partitions)
        ]
        names = [name for part in parts for name in part.ids.to_pylist()]
        want = expected(blocks)
        assert len(names) == len(want)
        packed = np.concatenate([part.rows for part in parts])
        np.testing.assert_allclose(packed, [want[name] for name in names], rtol=1e-10, atol=1e-10)


def test_ids_that_share_a_hash_stay_apart(monkeypatch):
    def few_hashes(ids, seed=0):
        return hash_ids(ids, seed) % np.uint64(5) << np.uint64(61)

    monkeypatch.setattr(accumulator, "hash_ids", few_hashes)
    blocks = [some_rows(300, 40, seed) for seed in range(4)]
    want = expected(blocks)
    for memory in (3000, 20_000, 1 << 24):
        found, _ = partitioned(blocks, memory, 4)
        names = [name for part in found for name in part.ids.to_pylist()]
        assert sorted(names) == sorted(want)
        packed = np.concatenate([part.rows for part in found])
        np.testing.assert_allclose(packed, [want[name] for name in names], rtol=1e-10, atol=1e-10)


def test_the_hash_is_that_of_the_text_and_the_same_everywhere():
    texts = ["", "a", "7", "12345678", "123456789", "ä" * 40, "user-42", "x" * 1000]
    found = hash_ids(pa.array(texts))
    assert len(set(found.tolist())) == len(texts)
    assert hash_ids(pa.array(texts)[3:6]).tolist() == found[3:6].tolist()
    assert hash_ids(pa.array([7, 12345678])).tolist() == found[[2, 3]].tolist()
    for text, value in zip(texts, found.tolist(), strict=True):  # by Python's whole numbers
        assert plain_hash(text) == value
    many = hash_ids(pa.array(np.arange(100_000)))
    assert len(np.unique(many)) == len(many)
    counts = np.bincount(partition_numbers(many, 64), minlength=64)
    assert abs(counts / (len(many) / 64) - 1).max() < 0.12  # four standard deviations and more


def plain_hash(text, seed=0):
    def mix(key):
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
        return key ^ key >> 31

    content = text.encode()
    value = mix((len(content) + mix((seed + task_order.HASH_START) % 2**64)) % 2**64)
    for at in range(0, len(content), 8):
        value = mix(value ^ int.from_bytes(content[at : at + 8], "little"))
    return value


@given(st.lists(st.integers(-1, 6), max_size=60), st.integers(1, 5), st.booleans())
@settings(max_examples=60, deadline=None)
def test_threads_share_the_rows_of_a_task(codes, threads, weighted):
    rng = np.random.default_rng(len(codes))
    codes = np.array(codes, np.int64)
    features, rewards = rng.normal(size=(len(codes), DIM)), rng.normal(size=len(codes))
    weights = rng.uniform(1, 2, len(codes)) if weighted else np.zeros(0)
    one, several = np.ones((2, 7, packed_size(DIM)))
    order, starts = group_rows(codes, 7)
    add_rows(order, starts, np.arange(7), features, DIM, rewards, weights, one)
    add_by_threads(codes, features, DIM, rewards, weights, several, threads)
    np.testing.assert_allclose(several, one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_compiled_sums_are_the_plain_ones(weighted, dtype):
    tables = pytest.importorskip("headstart.kernels.tables", reason="needs Numba")
    rng = np.random.default_rng(0)
    for dim, count in ((1, 300), (7, 900), (31, 700)):
        codes = rng.integers(-1, 5, count)
        codes[: count // 2] = 3
        features = rng.normal(size=(count, dim + 2)).astype(dtype)
        rewards = rng.normal(size=count)
        weights = rng.uniform(1, 2, count) if weighted else np.zeros(0)
        plain, fast = np.ones((2, 6, packed_size(dim)))
        for module, sums in (((group_rows, add_rows), plain), (tables, fast)):
            group, add = (
                module if isinstance(module, tuple) else (module.group_rows, module.add_rows)
            )
            order, starts = group(codes, 5)
            add(order, starts, np.arange(5), features, dim, rewards, weights, sums)
        np.testing.assert_allclose(fast, plain, rtol=1e-12, atol=1e-12)


def test_a_kernel_is_compiled_where_there_is_work(monkeypatch):
    pytest.importorskip("numba")
    kernel = forms.Kernel(group_rows, "headstart.kernels.tables")
    assert kernel.form(forms.MIN_COMPILED_WORK) is not group_rows
    missing = forms.Kernel(group_rows, "headstart.kernels.nothing")
    assert missing.form(forms.MIN_COMPILED_WORK) is group_rows


def test_chunks_have_a_bounded_size(monkeypatch):
    monkeypatch.setattr(shard_module, "CHUNK_BYTES", 1)
    shards = []
    sums = Accumulator(DIM, 1 << 20, 1, shards.extend)
    sums.add(*sums.number_tasks(some_rows(tasks=100)))
    sums.finish()
    chunks = list(shard_module.merge_in_chunks(shards, DIM))
    assert [len(chunk.rows) for chunk in chunks] == [64, 36]


def test_an_index_numbers_tasks_once():
    index = TaskIndex()
    rng = np.random.default_rng(0)
    seen = {}
    for _ in range(20):
        names = [f"t{n}" for n in np.unique(rng.integers(0, 500, 60))]
        ids = pa.array(names, pa.large_string())
        for name, number in zip(names, index.numbers(ids, hash_ids(ids)).tolist(), strict=True):
            assert seen.setdefault(name, number) == number
    assert sorted(seen.values()) == list(range(len(index)))
    order = index.order()
    assert (np.diff(index.hashes[order].astype(object)) > 0).all()


def test_a_hot_task_is_added_up_by_all_threads(monkeypatch):
    rng = np.random.default_rng(0)
    calls = []

    def noted(order, starts, *rest):
        calls.append(starts[-1] - starts[0])
        add_rows(order, starts, *rest)

    monkeypatch.setattr(grams.ADD_ROWS, "form", lambda work: noted)
    codes = np.where(np.arange(4000) < 3900, 2, rng.integers(0, 5, 4000))
    features, rewards = rng.normal(size=(4000, DIM)), rng.normal(size=4000)
    sums = np.zeros((5, packed_size(DIM)))
    add_by_threads(codes, features, DIM, rewards, np.zeros(0), sums, threads=4)
    assert sum(calls) == 4000
    assert max(calls) <= 4000 / 4  # no thread has more than its share


LITTLE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import numpy as np
import headstart as hs
from headstart.fleet import Columns, Logs, fit
from headstart.kernels import forms, tables
tables.prepare()
loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
logs = Logs(sys.argv[1], Columns("task", "reward", "x*"))
found = fit(logs, hs.Independent(), memory=128 << 20, intercept=False, standardize=False)
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - loaded
assert found.tasks == 33_000, found.tasks
assert used < 128 << 10, f"{used >> 10} MiB"
print(*found.pooled.pack())
"""


def test_many_tasks_take_little_memory_and_few_files(tmp_path):
    pytest.importorskip("headstart.kernels.tables", reason="needs Numba")
    rng = np.random.default_rng(0)
    names = rng.permutation(np.repeat(np.arange(33_000) + 2**40, 2))  # 140 MB of sums
    x, rewards = rng.normal(size=(len(names), 30)).astype(np.float32), rng.normal(size=len(names))
    columns = {f"x{j}": x[:, j] for j in range(30)}
    table = pa.table({"task": names, "reward": rewards, **columns})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=30_000)
    words = [sys.executable, "-c", LITTLE, str(tmp_path / "log.parquet")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [float(word) for word in done.stdout.split()]
    np.testing.assert_allclose(
        found, Evidence.of(x.astype(float), rewards).pack(), rtol=1e-9, atol=1e-6
    )
