"""Files of evidence: exact, streamed in little memory, and with a clear answer to every damage."""

import contextlib
import errno
import json
import os
import pickle
import resource
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.storage.archive import layout as parts
from headstart.storage.archive.writing import packed_batches

DIM = 3


def evidence_of(seed, dim=DIM, batch=(), forced=False):
    """Evidence with numbers of many sizes."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((*batch, 5, dim)) * 10.0 ** rng.integers(-3, 3)
    rewards = rng.standard_normal((*batch, 5))
    whole = hs.Evidence.of(contexts, rewards)
    part = hs.Evidence.of(contexts[..., :2, :], rewards[..., :2])
    return whole.replace(forced=part) if forced else whole


def tasks_of(count, **how):
    return [(f"täsk {number}", evidence_of(number, **how)) for number in range(count)]


def read_back(path, **how):
    """All tasks of a file, one by one, through the stream."""
    return [
        (name, hs.Evidence.unpack(row, evidence.dim))
        for ids, evidence in hs.read_evidence(path, **how)
        for name, row in zip(ids, evidence.pack(), strict=True)
    ]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of a few tasks, so that a small file has many."""
    monkeypatch.setattr(parts, "BLOCK", 4 * 11 * 8)


@pytest.fixture
def written(tmp_path, small_blocks):
    """A folder of its own with one good file of ten tasks in three blocks."""
    folder = tmp_path / "folder"
    folder.mkdir()
    hs.write_evidence(folder / "e", tasks_of(10), DIM)
    return folder / "e"


ids = st.one_of(st.integers(-(10**30), 10**30), st.text(min_size=1, max_size=30))
numbers = st.floats(-1e75, 1e75)


@st.composite
def populations(draw):
    """Tasks of any ids and sums, none, one or many."""
    dim = draw(st.integers(1, 4))
    forced = draw(st.booleans())
    names = draw(st.lists(ids.filter(encodable), max_size=12, unique_by=str))
    row = st.lists(numbers, min_size=dim + 1, max_size=dim + 1)
    items = []
    for name in names:
        rounds = np.array(draw(st.lists(row, max_size=4))).reshape(-1, dim + 1)
        whole = hs.Evidence.of(rounds[:, :-1], rounds[:, -1])
        part = hs.Evidence.of(rounds[:1, :-1], rounds[:1, -1])
        items.append((name, whole.replace(forced=part) if forced else whole))
    return dim, items


def encodable(id):
    try:
        str(id).encode()
    except UnicodeEncodeError:
        return False
    return True


class TestRoundTrip:
    @settings(max_examples=60)
    @given(populations(), st.integers(1, 20), st.integers(1, 5))
    def test_every_bit_and_the_order_are_kept(self, tmp_path_factory, population, batch, block):
        dim, items = population
        path = tmp_path_factory.mktemp("archive") / "e"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts, "BLOCK", block * 8 * (dim * (dim + 1) // 2 + dim + 2))
            assert hs.write_evidence(path, iter(items), dim) == len(items)
        expected = [(str(id), evidence) for id, evidence in items]
        assert read_back(path, batch=batch) == expected
        sizes = [len(names) for names, _ in hs.read_evidence(path, batch=batch)]
        assert all(size == batch for size in sizes[:-1])
        assert all(0 < size <= batch for size in sizes)
        with hs.EvidenceFile(path) as file:
            assert list(file.items()) == expected
            assert [file.at(place) for place in range(len(file))] == expected
            assert [(name, file[name]) for name in file] == expected

    def test_batches_make_the_same_file_as_single_tasks(self, tmp_path, small_blocks):
        evidence = evidence_of(0, batch=(11,))
        names = [f"t{number}" for number in range(11)]
        rows = evidence.pack()
        singles = [(n, hs.Evidence.unpack(r, DIM)) for n, r in zip(names, rows, strict=True)]
        some = [
            (names[:3], hs.Evidence.unpack(rows[:3], DIM)),
            singles[3],
            ([], hs.Evidence.zero(DIM, (0,))),
            (np.array(names[4:]), hs.Evidence.unpack(rows[4:], DIM)),
        ]
        for name, items in [("a", singles), ("b", [(names, evidence)]), ("c", some)]:
            assert hs.write_evidence(tmp_path / name, items, DIM) == 11
        assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
        assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()

    def test_none_at_all(self, tmp_path):
        assert hs.write_evidence(tmp_path / "e", [], DIM) == 0
        assert list(hs.read_evidence(tmp_path / "e")) == []
        with hs.EvidenceFile(tmp_path / "e") as file:
            assert (len(file), file.dim, list(file), "a" in file) == (0, DIM, [], False)

    def test_forced_rounds_are_kept_apart(self, tmp_path):
        items = tasks_of(5, forced=True)
        hs.write_evidence(tmp_path / "e", items, DIM)
        assert read_back(tmp_path / "e") == items
        with hs.EvidenceFile(tmp_path / "e") as file:
            assert file.forced
            assert file["täsk 2"].forced == items[2][1].forced

    @pytest.mark.parametrize(
        "id", ["任务", "🎲", "a/b\\c", '"q"', "\u2028\n\t\x00", " ", "é" * 999]
    )
    def test_ids_of_any_alphabet(self, id, tmp_path):
        hs.write_evidence(tmp_path / "e", [("first", evidence_of(0)), (id, evidence_of(1))], DIM)
        with hs.EvidenceFile(tmp_path / "e") as file:
            assert list(file) == ["first", id]
            assert file[id] == evidence_of(1)

    def test_a_bandits_tasks_go_through_a_file(self, tmp_path, world, play):
        bandit = hs.Bandit(DIM, seed=0)
        for id in range(6):
            play(bandit, id, world(seed=id, rounds=4, dim=DIM))
        items = ((id, bandit.task(id).evidence) for id in bandit)
        hs.write_evidence(tmp_path / "e", items, DIM + 1)  # with the intercept
        with hs.EvidenceFile(tmp_path / "e") as file:
            assert all(file[id] == bandit.task(id).evidence for id in bandit)

    def test_one_file_can_be_written_from_another(self, written):
        with hs.EvidenceFile(written) as file:
            hs.write_evidence(written.with_name("copy"), file.items(), file.dim)
            hs.write_evidence(written.with_name("batches"), file.batches(3), file.dim)
        assert written.with_name("copy").read_bytes() == written.read_bytes()
        assert written.with_name("batches").read_bytes() == written.read_bytes()


class TestSinglePrecision:
    def test_half_the_room_and_seven_digits(self, tmp_path):
        items = [(str(number), evidence_of(number, dim=10)) for number in range(50)]
        for precision in ("single", "double"):
            hs.write_evidence(tmp_path / precision, items, 10, precision=precision)
        size = {name: (tmp_path / name).stat().st_size for name in ("single", "double")}
        assert size["double"] - size["single"] == 50 * 67 * 4
        for (_, rounded), (_, exact) in zip(read_back(tmp_path / "single"), items, strict=True):
            assert rounded.gram.dtype == rounded.moment.dtype == np.float64
            np.testing.assert_allclose(rounded.pack(), exact.pack(), rtol=2.0**-24, atol=1e-44)
            assert rounded.rounds == exact.rounds

    @pytest.mark.parametrize("transfer", [hs.Subspace(), hs.EmpiricalBayes()], ids=repr)
    def test_is_ample_for_a_prior(self, transfer, tmp_path):
        """What a new task starts from changes by far less than any task could tell."""
        rng = np.random.default_rng(0)
        contexts = rng.standard_normal((60, 40, 5))
        thetas = 1.0 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 5))
        rewards = (contexts @ thetas[..., None])[..., 0] + 0.5 * rng.standard_normal((60, 40))
        items = [(range(60), hs.Evidence.of(contexts, rewards))]
        priors = {}
        for precision in ("single", "double"):
            hs.write_evidence(tmp_path / precision, items, 5, precision=precision)
            with hs.EvidenceFile(tmp_path / precision) as file:
                priors[precision] = transfer.prior(transfer.refit(e for _, e in file.items()))
        exact, rounded = priors["double"], priors["single"]
        spread = np.sqrt(np.diag(exact.covariance))
        assert (np.abs(rounded.mean - exact.mean) / spread).max() < 1e-5
        np.testing.assert_allclose(rounded.noise, exact.noise, rtol=1e-5)
        scale = np.abs(exact.covariance).max()
        np.testing.assert_allclose(rounded.covariance, exact.covariance, atol=1e-5 * scale)

    def test_numbers_too_large_for_it_are_refused(self, tmp_path):
        items = [("fits", evidence_of(0)), ("large", evidence_of(1).discount(1e40))]
        with pytest.raises(hs.InputError, match=r"single precision.*'large'"):
            hs.write_evidence(tmp_path / "e", items, DIM, precision="single")
        hs.write_evidence(tmp_path / "e", items, DIM)
        assert read_back(tmp_path / "e") == items


class TestRandomAccess:
    def test_by_id_and_by_place_in_any_order(self, written):
        expected = tasks_of(10)
        with hs.EvidenceFile(written) as file:
            assert len(file) == 10
            assert file.dim == DIM
            assert file.precision == "double"
            for number in np.random.default_rng(0).integers(10, size=40):
                assert file[f"täsk {number}"] == expected[number][1]
                assert file.at(int(number)) == expected[number]
            assert "täsk 3" in file
            assert "täsk 10" not in file
            assert None not in file
            assert repr(file).endswith("with 10 tasks (dim 3, double precision)")

    def test_numbers_are_the_same_ids_as_their_digits(self, tmp_path):
        hs.write_evidence(tmp_path / "e", [(7, evidence_of(0)), ("8", evidence_of(1))], DIM)
        with hs.EvidenceFile(tmp_path / "e") as file:
            assert file["7"] == file[7] == evidence_of(0)
            assert 8 in file

    def test_what_is_not_there(self, written):
        with hs.EvidenceFile(written) as file:
            with pytest.raises(hs.TaskError, match="'nobody' is unknown here"):
                file["nobody"]
            with pytest.raises(hs.InputError, match="id must be"):
                file[""]
            for position in (-1, 10, 1.5, "a", True):
                with pytest.raises(hs.InputError, match="position must be"):
                    file.at(position)

    def test_a_closed_file_says_so(self, written):
        file = hs.EvidenceFile(written)
        file.close()
        file.close()
        for use in (lambda: file["täsk 1"], lambda: file.at(1), lambda: list(file)):
            with pytest.raises(hs.FileError, match="was closed"):
                use()

    def test_from_several_threads(self, written):
        expected, wrong = tasks_of(10), []

        def look(seed):
            for number in np.random.default_rng(seed).integers(10, size=100):
                if file[f"täsk {number}"] != expected[number][1]:
                    wrong.append(number)

        with hs.EvidenceFile(written) as file:
            threads = [threading.Thread(target=look, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert wrong == []

    def test_a_replaced_file_is_read_to_its_end(self, written):
        batches = hs.read_evidence(written, batch=2)
        first = next(batches)
        hs.write_evidence(written, tasks_of(3), DIM)
        names = [name for ids, _ in [first, *batches] for name in ids]
        assert names == [name for name, _ in tasks_of(10)]
        assert [name for name, _ in read_back(written)] == names[:3]


class TestMerging:
    @settings(max_examples=30)
    @given(st.lists(st.lists(st.integers(0, 15), unique=True, max_size=10), min_size=1, max_size=4))
    def test_sums_up_what_tasks_have_in_common(self, tmp_path_factory, files):
        folder = tmp_path_factory.mktemp("archive")
        sums, paths = {}, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parts, "BLOCK", 3 * 11 * 8)
            for number, file in enumerate(files):
                items = [(id, evidence_of(100 * number + id)) for id in file]
                paths.append(folder / str(number))
                hs.write_evidence(paths[-1], items, DIM)
                for id, evidence in items:
                    sums[str(id)] = sums[str(id)] + evidence if str(id) in sums else evidence
            assert hs.merge_evidence(paths, folder / "all") == len(sums)
        assert read_back(folder / "all") == list(sums.items())

    def test_into_one_of_them(self, written):
        other = written.with_name("more")
        hs.write_evidence(other, tasks_of(12), DIM)
        assert hs.merge_evidence([written, other], written) == 12
        with hs.EvidenceFile(written) as file:
            assert file["täsk 4"] == evidence_of(4) + evidence_of(4)
            assert file["täsk 11"] == evidence_of(11)

    def test_what_does_not_fit_is_refused(self, written):
        wide, forced = written.with_name("wide"), written.with_name("forced")
        hs.write_evidence(wide, tasks_of(2, dim=5), 5)
        hs.write_evidence(forced, tasks_of(2, forced=True), DIM)
        for other in (wide, forced):
            with pytest.raises(hs.InputError, match="paths must fit each other") as caught:
                hs.merge_evidence([written, other], written.with_name("out"))
            assert str(other) in str(caught.value)
        lazy = polars.LazyFrame({"path": [str(written)]})  # has entries, and cannot list them
        for paths in ([], str(written), written, 5, lazy):
            with pytest.raises(hs.InputError, match="paths must"):
                hs.merge_evidence(paths, written.with_name("out"))
        with pytest.raises(hs.InputError, match="items must"):
            hs.write_evidence(written.with_name("out"), lazy, DIM)
        with pytest.raises(hs.MissingFileError):
            hs.merge_evidence([written, written.with_name("none")], written.with_name("out"))
        assert sorted(os.listdir(written.parent)) == ["e", "forced", "wide"]


def infinite():
    """Sums that have overflowed, as only very large rewards can make them."""
    with np.errstate(over="ignore"):
        return evidence_of(0).discount(1e308).discount(1e308)


good = evidence_of(0)
REFUSED = {
    "twice": ([("a", good), ("b", good), ("a", good)], "got 'a' twice"),
    "twice, as number and text": ([(7, good), ("7", good)], "got '7' twice"),
    "twice in a batch": ([(["a", "a"], evidence_of(0, batch=(2,)))], "got 'a' twice"),
    "infinite": ([("a", good), ("b", infinite())], "finite.*'b'"),
    "fewer than none": ([("a", good), ("b", good.discount(-1.0))], "fewer than 0 rounds.*'b'"),
    "another dimension": ([("a", good), ("b", evidence_of(0, dim=4))], "dimension 3; got 4.*'b'"),
    "forced later": ([("a", good), ("b", evidence_of(0, forced=True))], "forced.*'b' differs"),
    "too few ids": ([(["a"], evidence_of(0, batch=(2,)))], "1 ids for 2"),
    "one id for many": ([("ab", evidence_of(0, batch=(2,)))], "items must be pairs.*got 'ab'"),
    "no ids": ([(None, evidence_of(0, batch=(2,)))], "items must be pairs.*got None"),
    "two batch axes": ([(["a"], evidence_of(0, batch=(1, 1)))], r"items must be.*\(1, 1, 3\)"),
    "no evidence": ([("a", np.zeros(11))], "items must be pairs"),
    "no pair": (["ab", "cd"], "items must be pairs.*got 'ab'"),
    "three": ([("a", good, good)], "items must be pairs.*got a tuple"),
    "nothing to go through": (5, "items must be pairs.*got 5"),
    "empty id": ([("", good)], "id must be text of 1 to 1000 characters"),
    "no id": ([(1.5, good)], "id must be"),
}


class TestRefusals:
    @pytest.mark.parametrize("case", REFUSED)
    def test_bad_items_leave_what_was_there(self, case, written):
        before = written.read_bytes()
        items, message = REFUSED[case]
        with pytest.raises(hs.InputError, match=message):
            hs.write_evidence(written, items, DIM)
        assert written.read_bytes() == before
        assert os.listdir(written.parent) == ["e"]

    @pytest.mark.parametrize(
        ("argument", "value"),
        [("dim", 0), ("dim", 2.0), ("precision", "half"), ("precision", None), ("path", 5)],
    )
    def test_bad_settings(self, argument, value, tmp_path):
        call = {"path": tmp_path / "e", "items": [], "dim": DIM} | {argument: value}
        with pytest.raises(hs.InputError, match=f"{argument} must be"):
            hs.write_evidence(**call)
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("batch", [0, -1, 2.5, None])
    def test_bad_batches(self, batch, written):
        with pytest.raises(hs.InputError, match="batch must be"):
            hs.read_evidence(written, batch)

    @pytest.mark.parametrize("error", [ValueError("mine"), OSError("mine"), KeyboardInterrupt()])
    def test_an_error_of_the_source_is_passed_on(self, error, written):
        before = written.read_bytes()

        def broken():
            yield from tasks_of(7)
            raise error

        with pytest.raises(type(error)) as caught:
            hs.write_evidence(written, broken(), DIM)
        assert caught.value is error
        assert written.read_bytes() == before
        assert os.listdir(written.parent) == ["e"]


def fails_with(code):
    def fail(*_, **__):
        raise OSError(code, os.strerror(code))

    return fail


class Unwritable:
    """A file on a disk that is full after so many bytes."""

    def __init__(self, handle, room):
        self.handle, self.room = handle, room

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.handle)

    def write(self, content):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = os.write(self.handle, content[: self.room])
        self.room -= done
        return done


class TestAtomic:
    @pytest.mark.parametrize("room", [0, 7, 60, 300, 900, 1000, 1250, 1400])
    @pytest.mark.parametrize("exists", [True, False])
    def test_a_disk_that_is_full_at_any_point(self, room, exists, written, monkeypatch):
        before = written.read_bytes()
        assert room < len(before)
        path = written if exists else written.with_name("other")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdopen", lambda handle, *_: Unwritable(handle, room))
            with pytest.raises(hs.FileError, match=os.strerror(errno.ENOSPC)) as caught:
                hs.write_evidence(path, tasks_of(10), DIM)
        assert str(path) in str(caught.value)
        assert written.read_bytes() == before
        assert os.listdir(written.parent) == ["e"]

    @pytest.mark.parametrize(
        ("step", "failure"),
        [("fsync", fails_with(errno.EIO)), ("replace", fails_with(errno.EACCES))],
    )
    def test_any_other_failure(self, step, failure, written, monkeypatch):
        before = written.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, step, failure)
            with pytest.raises(hs.FileError, match="could not be written"):
                hs.write_evidence(written, tasks_of(4), DIM)
        assert written.read_bytes() == before
        assert os.listdir(written.parent) == ["e"]

    def test_a_file_larger_than_the_system_allows(self, written):
        before = written.read_bytes()
        script = f"""
import resource, sys, headstart as hs
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, {resource.RLIM_INFINITY}))
try:
    hs.write_evidence(sys.argv[1], ((id, hs.Evidence.zero(30)) for id in range(900)), 30)
except hs.FileError as error:
    print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, written], capture_output=True, text=True, check=True
        )
        assert "could not be written" in done.stdout
        assert written.read_bytes() == before
        assert os.listdir(written.parent) == ["e"]

    def test_a_full_disk(self, small_disk):
        path = small_disk / "e"
        hs.write_evidence(path, tasks_of(10), DIM)
        before = path.read_bytes()
        with pytest.raises(hs.FileError, match=os.strerror(errno.ENOSPC)):
            hs.write_evidence(path, tasks_of(2000), DIM)
        assert path.read_bytes() == before
        assert os.listdir(small_disk) == ["e"]

    def test_a_killed_writer_leaves_the_old_file(self, written):
        before = written.read_bytes()
        script = """
import os, signal, sys, headstart as hs
def items():
    for id in range(5000):
        if id == 4900:
            os.kill(os.getpid(), signal.SIGKILL)
        yield id, hs.Evidence.zero(30)
hs.write_evidence(sys.argv[1], items(), 30)
"""
        done = subprocess.run([sys.executable, "-c", script, written], check=False)
        assert done.returncode < 0
        assert written.read_bytes() == before
        hs.write_evidence(written, tasks_of(2), DIM)
        assert len(read_back(written)) == 2


def everything(path):
    """Use all of a file; gives what it holds."""
    with hs.EvidenceFile(path) as file:
        held = [(name, file[name]) for name in file]
        assert list(file.items()) == held
    return held


def assert_refused(path, *words, use=everything):
    with pytest.raises(hs.FileError) as caught:
        use(path)
    assert isinstance(caught.value, OSError)
    assert str(path) in str(caught.value)
    for word in words:
        assert word in str(caught.value)


class TestDamage:
    def test_truncated_anywhere_is_noticed_at_once(self, written):
        whole = written.read_bytes()
        for length in reversed(range(len(whole))):
            os.truncate(written, length)
            assert_refused(written, use=hs.read_evidence)
            assert_refused(written, use=hs.EvidenceFile)
        written.write_bytes(whole + b"\x00")
        assert_refused(written, use=hs.read_evidence)

    def test_any_byte_flipped(self, written):
        whole = written.read_bytes()
        with open(written, "r+b", buffering=0) as file:
            for at in range(len(whole)):
                file.seek(at)
                file.write(bytes([whole[at] ^ 1 << (at % 8)]))
                assert_refused(written)
                file.seek(at)
                file.write(whole[at : at + 1])
        assert everything(written) == tasks_of(10)

    def test_blocks_before_the_damage_are_given(self, written):
        """A stream checks as it goes: what it gave was right."""
        whole = bytearray(written.read_bytes())
        with hs.EvidenceFile(written) as file:
            last = file._index[-1]
        whole[last.start + 5] ^= 1
        written.write_bytes(whole)
        batches = hs.read_evidence(written, batch=4)
        assert [next(batches)[0][0], next(batches)[0][0]] == ["täsk 0", "täsk 4"]
        with pytest.raises(hs.FileError, match="rows in block 2 do not match their digest"):
            next(batches)
        with hs.EvidenceFile(written) as file:
            assert file["täsk 7"] == evidence_of(7)
            assert list(file)[9] == "täsk 9"
            with pytest.raises(hs.FileError, match="corrupted"):
                file["täsk 9"]

    def test_blocks_exchanged(self, written):
        whole = written.read_bytes()
        with hs.EvidenceFile(written) as file:
            first, second, third = (block.start for block in file._index)
        swapped = whole[:first] + whole[second:third] + whole[first:second] + whole[third:]
        assert len(swapped) == len(whole)
        written.write_bytes(swapped)
        assert_refused(written, "corrupted")

    def test_missing_and_folders(self, tmp_path):
        for use in (hs.EvidenceFile, hs.read_evidence):
            with pytest.raises(hs.MissingFileError, match="nothing is there"):
                use(tmp_path / "none")
            assert_refused(tmp_path, "folder", use=use)
            with pytest.raises(hs.InputError, match="path must be"):
                use(5)

    @pytest.mark.parametrize(
        "content",
        [b"", b"hello", bytes(500), np.random.default_rng(0).bytes(3000), parts.MAGIC + bytes(90)],
        ids=["empty", "text", "zeros", "noise", "only the start"],
    )
    def test_anything(self, content, tmp_path):
        (tmp_path / "e").write_bytes(content)
        assert_refused(tmp_path / "e", "must be an evidence file of headstart")

    def test_a_bandits_file_is_no_evidence_file_nor_the_other_way_round(self, written, tmp_path):
        hs.Bandit(DIM).save(tmp_path / "b")
        assert_refused(tmp_path / "b", "must be an evidence file", "another kind")
        assert_refused(written, "must be a headstart file", use=hs.load)

    def test_too_new(self, written):
        whole = written.read_bytes()
        written.write_bytes(whole.replace(b'"version": "1"', b'"version": "9"'))
        assert_refused(written, "version 9", "newer")

    @pytest.mark.parametrize(
        "change", [{"dim": 0}, {"dim": "3"}, {"precision": "half"}, {"dim": 4}, {"forced": True}]
    )
    def test_well_sealed_but_senseless(self, change, tmp_path):
        hs.write_evidence(tmp_path / "e", tasks_of(3), DIM)
        reseal(tmp_path / "e", change)
        assert_refused(tmp_path / "e", "must be an evidence file")

    def test_a_pickle_is_not_unpickled(self, tmp_path):
        class Bomb:
            def __reduce__(self):
                return os.system, (f"touch {tmp_path / 'exploded'}",)

        (tmp_path / "e").write_bytes(pickle.dumps(Bomb()))
        assert_refused(tmp_path / "e")
        assert not (tmp_path / "exploded").exists()


def reseal(path, change):
    """Change the header of a file, of the same length, and make its digest right again."""
    whole = path.read_bytes()
    start = len(parts.MAGIC) + 8
    length = int.from_bytes(whole[start - 8 : start], "little")
    header = json.dumps(json.loads(whole[start : start + length]) | change).encode()
    opening = whole[: start - 8] + length.to_bytes(8, "little") + header.ljust(length)
    assert len(opening) == start + length
    closing = whole[-parts.CLOSING.size :]
    blocks = parts.COUNTS.unpack(closing[: parts.COUNTS.size])[0]
    after = len(whole) - parts.CLOSING.size
    entries = whole[after - blocks * parts.INDEX.size : after]
    sealed = parts.digest(opening, entries, closing[: parts.COUNTS.size])
    kept = whole[start + length : after] + closing[: parts.COUNTS.size]
    path.write_bytes(opening + kept + sealed + parts.END)


@contextlib.contextmanager
def growth():
    """The most memory that Python and NumPy take on top of what they have, in bytes."""
    found = {}
    tracemalloc.start()
    try:
        yield found
        found["peak"] = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class TestMemory:
    def test_a_hundred_thousand_tasks_stream_in_little_memory(self, tmp_path):
        """At dim 10 they are 55 MB; what is kept of each is its hash."""
        count, dim, many = 100_000, 10, 500
        rows = evidence_of(0, dim=dim, batch=(many,))

        def items():
            for start in range(0, count, many):
                yield [f"user-{number}" for number in range(start, start + many)], rows

        with growth() as writing:
            assert hs.write_evidence(tmp_path / "e", items(), dim) == count
        assert (tmp_path / "e").stat().st_size > 54_000_000
        with growth() as reading:
            read = sum(len(ids) for ids, _ in hs.read_evidence(tmp_path / "e"))
        with growth() as one, hs.EvidenceFile(tmp_path / "e") as file:
            assert file["user-99999"] == hs.Evidence.unpack(rows.pack()[-1], dim)
        assert read == count
        assert writing["peak"] < 12_000_000
        assert reading["peak"] < 8_000_000
        assert one["peak"] < 8_000_000

    def test_the_process_does_not_grow_with_the_file(self, tmp_path):
        """Nothing is mapped into memory either."""
        if not Path("/proc/self/status").exists():
            pytest.skip("reads memory in use as Linux tells it")
        script = """
import sys, numpy as np, headstart as hs
def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0])
rows = hs.Evidence.zero(30, (250,))
def items(count):
    for start in range(0, count, 250):
        yield range(start, start + 250), rows
def go(count):
    hs.write_evidence(sys.argv[1], items(count), 30)
    assert sum(len(ids) for ids, _ in hs.read_evidence(sys.argv[1])) == count
go(10_000)  # several blocks: buffers have the size that they keep
before = peak()
go(20_000)
print(peak() - before)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "e"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert (tmp_path / "e").stat().st_size > 79_000_000
        assert int(done.stdout) < 10_000  # kB: one buffer more, where memory is in pieces

    def test_bytes_of_a_task_on_disk(self, tmp_path):
        """At dim 30 a million tasks stay below 5 GB."""
        count = 2_000
        items = [([f"user-{id:07}" for id in range(count)], hs.Evidence.zero(30, (count,)))]
        hs.write_evidence(tmp_path / "e", items, 30)
        assert (tmp_path / "e").stat().st_size / count < 3976 + 50

    def test_items_are_taken_one_by_one(self):
        taken = []

        def items():
            for number in range(5):
                taken.append(number)
                yield number, evidence_of(number)

        batches = packed_batches(items(), DIM)
        next(batches)
        assert taken == [0]

    def test_one_task_does_not_keep_its_batch_alive(self, tmp_path):
        hs.write_evidence(tmp_path / "e", tasks_of(3), DIM)
        with hs.EvidenceFile(tmp_path / "e") as file:
            evidence = dict(file.items())["täsk 1"]
        assert evidence.gram.base is None
        assert evidence.moment.base is None
