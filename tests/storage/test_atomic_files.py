"""What files may be written and read: regular ones, never more readable than what they replace."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import headstart as hs

DIM = 2


def save(path):
    hs.Bandit(DIM, seed=0).save(path)


def write(path):
    hs.write_evidence(path, [("a", hs.Evidence.zero(DIM))], DIM)


def merge(path):
    source = Path(path).parent / "source of a merge"
    write(source)
    try:
        hs.merge_evidence([source], path)
    finally:
        source.unlink()


def stream(path):
    return list(hs.read_evidence(path))


WRITERS = {"save": save, "write_evidence": write, "merge_evidence": merge}
READERS = {"load": hs.load, "EvidenceFile": hs.EvidenceFile, "read_evidence": stream}


def fifo(path):
    os.mkfifo(path)


def listening(path):
    with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(path.parent):
        server.bind(path.name)


def folder(path):
    path.mkdir()


def device(path):
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 3))  # as /dev/null
    except OSError:
        pytest.skip("may not make a device here")


def looping(path):
    path.symlink_to(path.name)


ODD = {
    "FIFO": (fifo, "FIFO"),
    "socket": (listening, "socket"),
    "folder": (folder, "folder"),
    "device": (device, "device"),
    "link to itself": (looping, "symbolic links"),
}


@pytest.fixture
def soon():
    """Whatever waits for a FIFO's other end is interrupted."""

    def late(*_):
        raise AssertionError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("soon")
class TestOnlyRegularFiles:
    @pytest.mark.parametrize("writer", WRITERS)
    @pytest.mark.parametrize("kind", ODD)
    @pytest.mark.parametrize("linked", [False, True])
    def test_nothing_else_is_replaced(self, writer, kind, linked, tmp_path):
        make, word = ODD[kind]
        make(tmp_path / "odd")
        before = os.lstat(tmp_path / "odd")
        path = tmp_path / "odd"
        if linked:
            path = tmp_path / "link"
            path.symlink_to("odd")
        listed = sorted(os.listdir(tmp_path))
        with pytest.raises(hs.FileError, match=word) as caught:
            WRITERS[writer](path)
        assert "odd" in str(caught.value) or "link" in str(caught.value)
        after = os.lstat(tmp_path / "odd")
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
        assert sorted(os.listdir(tmp_path)) == listed

    @pytest.mark.parametrize("reader", READERS)
    @pytest.mark.parametrize("kind", ODD)
    def test_nothing_else_is_read_nor_waited_for(self, reader, kind, tmp_path):
        make, word = ODD[kind]
        make(tmp_path / "odd")
        with pytest.raises(hs.FileError, match=word) as caught:
            READERS[reader](tmp_path / "odd")
        assert str(tmp_path / "odd") in str(caught.value)

    def test_standard_input_and_output_as_pipes(self):
        script = """
import headstart as hs
for use in (hs.load, hs.Bandit(2).save, hs.EvidenceFile):
    for path in ("/dev/stdin", "/dev/fd/0"):
        try:
            use(path)
        except hs.FileError as error:
            print(error)
"""
        if not Path("/dev/stdin").exists():
            pytest.skip("needs /dev/stdin")
        done = subprocess.run(
            [sys.executable, "-c", script],
            stdin=subprocess.PIPE,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.count("FIFO") == 6

    def test_a_file_that_has_lost_its_name_is_not_written(self, tmp_path):
        if not Path("/proc/self/fd").exists():
            pytest.skip("names open files as Linux does")
        with (tmp_path / "lost").open("w") as file:
            (tmp_path / "lost").unlink()
            with pytest.raises(hs.FileError, match="has no name"):
                save(f"/proc/self/fd/{file.fileno()}")
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("use", [*WRITERS.values(), *READERS.values()])
    def test_a_slash_at_the_end_names_a_folder(self, use, tmp_path):
        save(tmp_path / "b")
        before = (tmp_path / "b").read_bytes()
        for name in ("b/", "new/"):
            with pytest.raises(hs.FileError, match="folder"):
                use(f"{tmp_path}/{name}")
        assert (tmp_path / "b").read_bytes() == before
        assert os.listdir(tmp_path) == ["b"]

    @pytest.mark.parametrize("writer", WRITERS)
    def test_a_file_in_place_of_a_folder(self, writer, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(hs.FileError, match="could not be"):
            WRITERS[writer](tmp_path / "file" / "b")

    def test_names_as_long_as_the_system_allows(self, tmp_path):
        longest = tmp_path / ("ä" * 127)
        for _ in range(2):
            save(longest)
        assert hs.load(longest).dim == DIM
        assert len(os.listdir(tmp_path)) == 1
        with pytest.raises(hs.FileError, match="could not be written"):
            save(tmp_path / ("b" * 300))
        with pytest.raises(hs.FileError, match="could not be read"):
            hs.load(tmp_path / ("b" * 300))


class TestLinks:
    @pytest.mark.parametrize("exists", [True, False])
    def test_what_a_link_points_to_is_written_and_the_link_stays(self, exists, tmp_path):
        (tmp_path / "real").mkdir()
        if exists:
            save(tmp_path / "real" / "b")
        (tmp_path / "one").symlink_to("two")
        (tmp_path / "two").symlink_to("real/b")
        hs.Bandit(5).save(tmp_path / "one")
        assert (tmp_path / "one").is_symlink()
        assert (tmp_path / "two").is_symlink()
        assert hs.load(tmp_path / "real" / "b").dim == hs.load(tmp_path / "one").dim == 5
        assert os.listdir(tmp_path / "real") == ["b"]

    def test_a_link_into_a_folder_that_is_not_there(self, tmp_path):
        (tmp_path / "link").symlink_to("none/b")
        with pytest.raises(hs.FileError, match="could not be written"):
            save(tmp_path / "link")
        with pytest.raises(hs.MissingFileError):
            hs.load(tmp_path / "link")


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@pytest.fixture(params=["as the system can", "with names"])
def drafts(request, monkeypatch):
    """Drafts without a name, where the system has these, and with one."""
    if request.param == "with names":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.usefixtures("drafts", "usual_umask")
class TestModes:
    @pytest.mark.parametrize("writer", WRITERS)
    @pytest.mark.parametrize("bits", [0o600, 0o640, 0o644, 0o400])
    def test_a_replaced_files_mode_is_kept(self, writer, bits, tmp_path):
        (tmp_path / "b").touch()
        (tmp_path / "b").chmod(bits)
        WRITERS[writer](tmp_path / "b")
        assert (tmp_path / "b").stat().st_size > 0
        assert mode(tmp_path / "b") == bits

    def test_a_new_bandit_is_for_its_owner_alone_as_it_holds_a_key(self, tmp_path):
        save(tmp_path / "b")
        assert mode(tmp_path / "b") == 0o600

    def test_new_evidence_has_the_usual_mode(self, tmp_path):
        write(tmp_path / "e")
        assert mode(tmp_path / "e") == 0o644
        os.umask(0o077)
        write(tmp_path / "f")
        assert mode(tmp_path / "f") == 0o600

    @pytest.mark.parametrize("writer", ["save", "write_evidence"])
    @pytest.mark.parametrize("bits", [0o600, 0o640])
    def test_a_draft_is_never_more_readable_than_what_it_replaces(
        self, writer, bits, tmp_path, monkeypatch
    ):
        (tmp_path / "b").touch()
        (tmp_path / "b").chmod(bits)
        seen, fsync, replace = [], os.fsync, os.replace

        def watched(handle):
            if stat.S_ISREG(os.fstat(handle).st_mode):
                seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
            return fsync(handle)

        def renamed(name, target):
            seen.append(mode(name))
            return replace(name, target)

        monkeypatch.setattr(os, "fsync", watched)
        monkeypatch.setattr(os, "replace", renamed)
        WRITERS[writer](tmp_path / "b")
        assert len(seen) == 2
        assert all(found & ~bits == 0 for found in seen)

    def test_owner_and_group_are_kept_where_that_is_allowed(self, tmp_path):
        if os.geteuid() != 0:
            pytest.skip("only root may give files away")
        save(tmp_path / "b")
        os.chown(tmp_path / "b", 65534, 65533)
        os.chmod(tmp_path / "b", 0o640)
        save(tmp_path / "b")
        found = os.stat(tmp_path / "b")
        assert (found.st_uid, found.st_gid, mode(tmp_path / "b")) == (65534, 65533, 0o640)

    def test_another_group_may_do_no_more_than_everybody(self, tmp_path, monkeypatch):
        if os.geteuid() != 0:
            pytest.skip("only root may give files away")
        save(tmp_path / "b")
        os.chown(tmp_path / "b", -1, 65533)
        os.chmod(tmp_path / "b", 0o664)

        def refused(*_):
            raise PermissionError

        monkeypatch.setattr(os, "fchown", refused)
        save(tmp_path / "b")
        assert mode(tmp_path / "b") == 0o644


KILLED = """
import os, signal, sys
import headstart as hs
if sys.argv[2] == "with names" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
if sys.argv[3] == "renaming":
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
else:
    os.fsync = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
hs.Bandit(2).save(sys.argv[1])
"""

SLOW = """
import os, sys, time
import headstart as hs
if sys.argv[2] == "with names" and hasattr(os, "O_TMPFILE"):
    del os.O_TMPFILE
replace = os.replace
def late(*names):
    print("now", flush=True)
    sys.stdin.readline()
    replace(*names)
os.replace = late
hs.Bandit(7).save(sys.argv[1])
"""


@pytest.mark.parametrize("how", ["as the system can", "with names"])
class TestDrafts:
    @pytest.mark.parametrize("step", ["writing", "renaming"])
    def test_of_a_killed_writer_are_private_and_gone_after_the_next_save(self, how, step, tmp_path):
        path = tmp_path / "b"
        save(path)
        before = path.read_bytes()
        for _ in range(2):
            done = subprocess.run([sys.executable, "-c", KILLED, path, how, step], check=False)
            assert done.returncode == -signal.SIGKILL
        assert path.read_bytes() == before
        left = [tmp_path / name for name in os.listdir(tmp_path) if name != "b"]
        assert all(mode(draft) == 0o600 for draft in left)
        if how == "with names" or step == "renaming":
            assert left
        save(path)
        assert os.listdir(tmp_path) == ["b"]

    def test_of_a_living_writer_are_left_alone(self, how, tmp_path):
        path = tmp_path / "b"
        writer = subprocess.Popen(
            [sys.executable, "-c", SLOW, path, how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert writer.stdout.readline() == "now\n"
        for _ in range(3):
            save(path)
        assert len(os.listdir(tmp_path)) == 2
        writer.communicate("go on\n", timeout=60)
        assert writer.returncode == 0
        assert os.listdir(tmp_path) == ["b"]
        assert hs.load(path).dim == 7

    def test_of_other_targets_and_what_only_looks_like_one_stay(self, how, tmp_path):
        others = [".b.txt", ".b.0123456789abcde", ".b.0123456789ABCDEF", "b.0123456789abcdef"]
        others += [".c.0123456789abcdef", ".b.c.0123456789abcdef"]
        for name in others:
            (tmp_path / name).touch()
        (tmp_path / "elsewhere").touch()
        (tmp_path / ".b.fedcba9876543210").symlink_to("elsewhere")
        (tmp_path / ".b.aaaaaaaaaaaaaaaa").mkdir()
        os.mkfifo(tmp_path / ".b.bbbbbbbbbbbbbbbb")
        listed = sorted(os.listdir(tmp_path))
        start = time.monotonic()
        save(tmp_path / "b")
        assert time.monotonic() - start < 10
        assert sorted(os.listdir(tmp_path)) == sorted([*listed, "b"])


def test_a_report_does_not_replace_a_fifo(tmp_path):
    pytest.importorskip("plotly")
    from headstart.lab.report import write_report

    os.mkfifo(tmp_path / "report.html")
    with pytest.raises(hs.FileError, match="FIFO"):
        write_report(tmp_path / "report.html", "title", [], {})
    assert stat.S_ISFIFO(os.stat(tmp_path / "report.html").st_mode)


def test_fit_refuses_before_it_reads(tmp_path):
    pytest.importorskip("polars")
    from headstart.fleet import Columns, Logs, fit

    log = tmp_path / "log.csv"
    rows = np.random.default_rng(0).standard_normal((40, 2))
    log.write_text(
        "user,x,reward\n" + "".join(f"u{n % 4},{x},{r}\n" for n, (x, r) in enumerate(rows))
    )
    os.mkfifo(tmp_path / "out")

    def told(*_):
        raise AssertionError("it reads")

    logs = Logs(log, Columns(task="user", features="x", reward="reward"))
    with pytest.raises(hs.FileError, match="FIFO"):
        fit(logs, out=tmp_path / "out", workers=1, progress=told)
    assert stat.S_ISFIFO(os.stat(tmp_path / "out").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["log.csv", "out"]
