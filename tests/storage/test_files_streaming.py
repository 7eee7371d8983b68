"""Saving and loading many tasks takes little more memory than the tasks, in the same format."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors import safe_open
from safetensors.numpy import load_file, save

import headstart as hs
from headstart.storage import tensor_file


def written_in_one_piece(path, header, tensors, version=str(tensor_file.VERSION)):
    """How the safetensors library itself writes a file, without streaming rows."""
    ready = {
        name: matrix_of(tensor) if isinstance(tensor, list) else np.ascontiguousarray(tensor)
        for name, tensor in tensors.items()
    }
    text = json.dumps(header, ensure_ascii=False)
    hashed = hashlib.blake2b((version + text).encode(), digest_size=16)
    for name in sorted(ready):
        array = ready[name]
        hashed.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        hashed.update(array.tobytes())
    metadata = {"format": "headstart", "version": version, "header": text}
    path.write_bytes(save(ready, metadata | {"digest": hashed.hexdigest()}))


def matrix_of(rows):
    return np.array(rows) if rows else np.empty((0, 0))


def parts_of(path):
    """A safetensors file taken apart: what its header says, and the bytes that follow."""
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    assert start % 8 == 0
    return json.loads(whole[8:start]), whole[start:]


def busy(tasks=40):
    bandit = hs.Bandit(4, rule=hs.Thompson(), seed=0, cache_size=5)
    rng = np.random.default_rng(0)
    for id in range(tasks):
        task = bandit.task(f"täsk {id}")
        for _ in range(3):
            task.learn(task.choose(rng.standard_normal((4, 4))), float(rng.standard_normal()))
        if id % 3:
            task.close()
    return bandit


class TestSameFormat:
    def test_the_library_finds_what_it_would_have_written_itself(self, tmp_path, monkeypatch):
        bandit = busy()
        bandit.save(tmp_path / "new")
        monkeypatch.setattr(tensor_file, "write", written_in_one_piece)
        bandit.save(tmp_path / "old")
        new, old = load_file(tmp_path / "new"), load_file(tmp_path / "old")
        assert new.keys() == old.keys()
        for name, array in old.items():
            np.testing.assert_array_equal(new[name], array, strict=True)
        (new, content), (old, other) = parts_of(tmp_path / "new"), parts_of(tmp_path / "old")
        assert new["__metadata__"] == old["__metadata__"]
        assert len(content) == len(other)

    @pytest.mark.parametrize("tasks", [0, 1, 40])
    def test_files_written_in_one_piece_load_alike(self, tasks, tmp_path, monkeypatch, lasting):
        bandit = busy(tasks)
        with monkeypatch.context() as patch:
            patch.setattr(tensor_file, "write", written_in_one_piece)
            bandit.save(tmp_path / "old")
        loaded = hs.load(tmp_path / "old")
        assert lasting(loaded) == lasting(bandit)
        offer = np.random.default_rng(1).standard_normal((6, 4))
        for id in [*bandit, "new"]:
            assert loaded.task(id).choose(offer).score == bandit.task(id).choose(offer).score

    def test_files_of_an_older_format_are_refused_as_such(self, tmp_path):
        busy(3).save(tmp_path / "b")
        header, tensors = tensor_file.read(tmp_path / "b")
        written_in_one_piece(tmp_path / "old", header, tensors, version="1")
        with pytest.raises(hs.FileError) as caught:
            hs.load(tmp_path / "old")
        assert str(caught.value) == (
            f"path {str(tmp_path / 'old')!r} has format version 1, of an older headstart; "
            f"this one reads version {tensor_file.VERSION} and later"
        )

    @given(
        st.dictionaries(
            st.text("abcé.", min_size=1, max_size=4),
            arrays.arrays(
                st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_, ">f8"]),
                arrays.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3),
            ),
            max_size=5,
        )
    )
    def test_any_arrays_come_back_and_the_library_reads_them(self, tmp_path_factory, tensors):
        path = tmp_path_factory.mktemp("files") / "f"
        tensor_file.write(path, {"kind": "test"}, tensors)
        header, found = tensor_file.read(path)
        assert header == {"kind": "test"}
        theirs = load_file(path)
        assert found.keys() == theirs.keys() == tensors.keys()
        for name, array in tensors.items():
            for other in (found[name], theirs[name]):
                assert other.dtype == array.dtype.newbyteorder("<")
                assert other.shape == np.atleast_1d(array).shape
                np.testing.assert_array_equal(other, np.atleast_1d(array))

    def test_rows_make_the_matrix_they_are_the_rows_of(self, tmp_path):
        matrix = np.random.default_rng(0).standard_normal((700, 400))  # more than one block
        tensor_file.write(tmp_path / "a", {}, {"m": matrix, "x": np.arange(3)})
        tensor_file.write(tmp_path / "b", {}, {"m": list(matrix), "x": np.arange(3)})
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        _, found = tensor_file.read(tmp_path / "a", rows={"m"})
        assert np.array_equal(np.array(found["m"]), matrix)
        assert all(row.base is None for row in found["m"])
        with safe_open(tmp_path / "b", framework="numpy") as file:
            assert np.array_equal(file.get_tensor("m"), matrix)

    @pytest.mark.parametrize(
        "tensor",
        [[np.zeros(2), np.zeros(3)], [np.zeros(2), np.zeros(2, int)], np.array(["text"])],
        ids=["lengths", "types", "text"],
    )
    def test_what_is_no_matrix_of_numbers_is_refused_by_name(self, tensor, tmp_path):
        with pytest.raises(hs.InputError, match="odd must be"):
            tensor_file.write(tmp_path / "a", {}, {"odd": tensor})
        assert not (tmp_path / "a").exists()


class TestForgedHeaders:
    """Headers that no digest protects, because they are read before it."""

    @pytest.mark.parametrize(
        "change",
        [
            {"shape": [2, 3]},
            {"shape": [-1, -6]},
            {"shape": [6.0]},
            {"shape": [10**40, 0], "data_offsets": [48, 48]},
            {"shape": "6"},
            {"data_offsets": [0, 40]},
            {"data_offsets": [8, 56]},
            {"data_offsets": [-48, 0]},
            {"data_offsets": [0]},
            {"data_offsets": None},
            {"dtype": "I64"},
            {"dtype": "F8_E4M3"},
            {"dtype": []},
        ],
        ids=repr,
    )
    @pytest.mark.parametrize("rows", [(), {"x"}])
    def test_are_refused(self, change, rows, tmp_path):
        path = tmp_path / "f"
        tensor_file.write(path, {}, {"x": np.arange(6.0)})
        header, content = parts_of(path)
        header["x"] |= change
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + content)
        with pytest.raises(hs.FileError, match=r"must be a headstart file|corrupted"):
            tensor_file.read(path, rows=rows)

    @pytest.mark.parametrize(
        "text",
        [
            b"[" * 200_000,
            b"5",
            b'{"__metadata__": []}',
            b'{"__metadata__": {"format": 5}}',
            b"\xff",
        ],
        ids=["deep", "number", "list", "no text", "no unicode"],
    )
    def test_that_are_none(self, text, tmp_path):
        (tmp_path / "f").write_bytes(len(text).to_bytes(8, "little") + text)
        with pytest.raises(hs.FileError, match="must be a headstart file"):
            tensor_file.read(tmp_path / "f")


MEASURE = """
import gc, sys, tracemalloc
import numpy as np
import headstart as hs

path, tasks, dim = sys.argv[1], 4_000, 30
bandit = hs.Bandit(dim, hs.Subspace(), seed=0, cache_size=16)
rng = np.random.default_rng(0)
for n in range(tasks):
    bandit.task(f"user-{n:07}")
for n in range(100):
    task = bandit.task(f"user-{n:07}")
    task.learn(task.choose(rng.standard_normal((3, dim))), 1.0)
    if n < 50:
        task.close()
entries = bandit._state.ledger.entries.values()
evidence = sum(entry.packed.nbytes for entry in entries if entry.packed is not None)
hs.Bandit(2).save(path)  # once, for the imports
hs.load(path)

def growth(call):
    gc.collect()
    tracemalloc.start()
    kept = call()
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after, peak

saved = growth(lambda: bandit.save(path))[1]
loaded, most = growth(lambda: hs.load(path))
print(evidence, saved, loaded, most)
"""


def test_memory_of_saving_and_loading_beyond_the_bandit(tmp_path):
    """4,000 tasks at d = 30 are 16 MB: saving copies none of it, loading makes it once."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, tmp_path / "b"], capture_output=True, text=True, check=True
    )
    evidence, saved, loaded, most = map(int, done.stdout.split())
    assert evidence > 15_000_000
    assert saved < 0.2 * evidence
    assert loaded < 1.2 * evidence
    assert most - loaded < 0.2 * evidence


def test_a_save_holds_what_was_there_when_it_began(tmp_path):
    """Rows are written after the bandit was let go on; what it learns meanwhile is not in them."""
    bandit = hs.Bandit(2, seed=0, cache_size=1)
    choices = [bandit.task(id).choose(np.eye(2)) for id in "abc"]
    bandit.learn(choices, [1.0, 2.0, 3.0])
    plain_write, expected = tensor_file.write, {id: bandit.task(id).evidence for id in "abc"}

    def meanwhile(path, header, tensors):
        for id in "abc":
            bandit.learn(bandit.task(id).choose(np.eye(2)), 5.0)
        bandit.delete("b")
        plain_write(path, header, tensors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_file, "write", meanwhile)
        bandit.save(tmp_path / "b")
    loaded = hs.load(tmp_path / "b")
    assert {id: loaded.task(id).evidence for id in loaded} == expected
