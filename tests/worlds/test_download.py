"""Finding and downloading MovieLens, from a server on this machine that can also misbehave."""

import contextlib
import hashlib
import io
import socket
import subprocess
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import headstart as hs
from headstart.worlds import MovieLens, download, web
from headstart.worlds.download import RELEASES, fetch


class Server(ThreadingHTTPServer):
    """Serves ``content`` at ``path``; what it does wrong is set by the test."""

    daemon_threads = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.path, self.content = "/ml-1m.zip", b""
        self.breaks = []  # after how many bytes the next answers break off
        self.ranges = True  # whether it answers requests for a part with that part
        self.asked = []  # the Range header of every request

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append(asked)
        if self.path != server.path:
            self.send_error(404)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if not server.ranges:
            start = 0
        elif start >= len(server.content) > 0:
            self.send_error(416)
            return
        body = server.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.breaks.pop(0)] if server.breaks else body)

    def log_message(self, *words):
        pass


@pytest.fixture
def server(archive, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        server.content = archive
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def md5(content):
    return hashlib.md5(content).hexdigest()


def zipped(folder, **extra):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"{folder.name}/{path.name}")
        for name, text in extra.items():
            archive.writestr(name, text)
    return content.getvalue()


@pytest.fixture
def folder(files, table):
    """The small files, where a user may have put them."""
    folder = files("1m", table)
    (folder / "README").write_text("terms")
    return folder


@pytest.fixture
def archive(folder):
    return zipped(folder)


@pytest.fixture
def sums(archive, folder):
    return {
        "ml-1m.zip": md5(archive),
        **{name: md5((folder / name).read_bytes()) for name in RELEASES["1m"].files},
    }


@pytest.fixture
def get(server, sums, tmp_path, monkeypatch):
    """``get(…)``: fetch from the server into an empty cache."""

    def run(progress=None, **settings):
        if progress is not None:
            monkeypatch.setattr(web, "progress_bar", lambda name: contextlib.nullcontext(progress))
        settings = {
            "checksums": sums,
            "cache": tmp_path / "cache",
            "base": server.base,
            **settings,
        }
        return fetch("1m", None, **settings)

    return run


@pytest.fixture
def fails(get, tmp_path):
    """``fails("words", …)``: a download that fails says why, and what to do about it."""

    def check(*words, **settings):
        with pytest.raises(hs.FileError) as caught:
            get(**settings)
        message = str(caught.value)
        remedy = (str(tmp_path / "cache"), "folder ml-1m", "data=FOLDER", "--data FOLDER")
        for word in (*words, "ml-1m.zip", *remedy):
            assert word in message
        assert not (tmp_path / "cache" / "ml-1m").exists()
        assert not list((tmp_path / "cache").glob(".unpack-*"))

    return check


def test_first_use_downloads_and_later_ones_find_the_cache(get, server, folder, tmp_path):
    seen = []
    found = get(progress=lambda done, total: seen.append((done, total)))
    assert found == tmp_path / "cache" / "ml-1m"
    for name in (*RELEASES["1m"].files, "README"):
        assert (found / name).read_bytes() == (folder / name).read_bytes()
    assert seen[-1] == (len(server.content), len(server.content))
    assert get() == found
    assert server.asked == [None]
    left = {path.name for path in (tmp_path / "cache").iterdir()}
    assert left == {"ml-1m", "ml-1m.zip.lock"}
    population = MovieLens(data=found, arms=5, min_ratings=20, verify=False).population(0)
    assert np.isfinite(population.episode(0, 5).rewards).all()


def test_the_bar_is_silent_without_a_terminal(get, capsys):
    get()
    assert capsys.readouterr() == ("", "")


def test_a_download_goes_on_where_it_stopped(get, server, archive, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").write_bytes(archive[:1000])
    seen = []
    get(progress=lambda done, total: seen.append((done, total)))
    assert server.asked == ["bytes=1000-"]
    assert seen[0][0] > 1000
    assert seen[-1] == (len(archive), len(archive))


def test_a_whole_part_is_not_downloaded_again(get, server, archive, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").write_bytes(archive)
    assert (get() / "users.dat").exists()
    assert server.asked == [f"bytes={len(archive)}-"]


@pytest.mark.parametrize("begun", [b"another file", b"x" * 1_000_000])
def test_a_part_of_another_file_is_started_over(get, server, tmp_path, begun):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").write_bytes(begun)
    assert (get() / "users.dat").exists()
    assert server.asked == [f"bytes={len(begun)}-", None]


def test_a_server_that_knows_no_parts_sends_all(get, server, archive, tmp_path):
    server.ranges = False
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").write_bytes(archive[:1000])
    seen = []
    assert (get(progress=lambda done, total: seen.append((done, total))) / "users.dat").exists()
    assert server.asked == ["bytes=1000-"]
    assert seen[-1] == (len(archive), len(archive))


def test_a_broken_connection_is_taken_up_again(get, server):
    server.breaks = [700, 50]
    assert (get() / "users.dat").exists()
    assert server.asked == [None, "bytes=700-", "bytes=750-"]


def test_a_connection_that_keeps_breaking_leaves_what_came(fails, get, server, tmp_path):
    server.breaks = [500, 100, 100]
    fails("broke after 700 of", server.base)
    assert (tmp_path / "cache" / "ml-1m.zip.part").stat().st_size == 700
    assert (get() / "users.dat").exists()
    assert server.asked[-1] == "bytes=700-"


def test_a_wrong_checksum_is_refused_and_not_kept(fails, get, server, sums, archive, tmp_path):
    server.content = archive[:-1] + b"?"
    fails(sums["ml-1m.zip"], md5(server.content), "md5")
    assert not (tmp_path / "cache" / "ml-1m.zip.part").exists()
    server.content = archive
    assert (get() / "users.dat").exists()


def test_a_wrong_file_in_the_archive_is_refused(fails, sums):
    fails("users.dat", "md5", checksums={"users.dat": "0" * 32})


def test_a_truncated_archive_is_refused(fails, server, archive):
    server.content = archive[: len(archive) // 2]
    fails("truncated or damaged", checksums={})


def test_a_damaged_member_is_refused(fails, server, archive):
    middle = archive.index(b"ratings.dat") + 200
    server.content = archive[:middle] + b"????" + archive[middle + 4 :]
    fails("truncated or damaged", checksums={})


def test_an_archive_without_the_files_is_refused(fails, server, folder):
    (folder / "users.dat").unlink()
    server.content = zipped(folder)
    fails("incomplete", "ml-1m/users.dat", checksums={})


def test_an_archive_writes_nowhere_else(get, server, folder, tmp_path):
    server.content = zipped(folder, **{"../../evil": "evil", "ml-1m/../../evil": "evil"})
    found = get(checksums={})
    assert {path.name for path in found.iterdir()} == {*RELEASES["1m"].files, "README"}
    assert not list(tmp_path.rglob("evil"))


def test_a_missing_archive_is_named(fails, server):
    server.path = "/elsewhere.zip"
    fails("404", f"{server.base}/ml-1m.zip")


def test_no_connection_is_named(fails):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        fails("no connection", base=f"http://127.0.0.1:{closed.getsockname()[1]}")


def test_a_silent_server_is_given_up(fails, monkeypatch):
    monkeypatch.setattr(web, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        fails("timed out", base=f"http://127.0.0.1:{silent.getsockname()[1]}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_a_full_disk_is_named(fails, tmp_path):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "ml-1m.zip.part").symlink_to("/dev/full")
    fails("No space left on device")


def test_a_cache_that_cannot_be_made_is_named(get, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(hs.FileError, match="data=FOLDER"):
        get(cache=tmp_path / "file" / "cache")


def test_two_first_uses_download_once(get, server):
    pytest.importorskip("fcntl")
    found = []
    threads = [threading.Thread(target=lambda: found.append(get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert server.asked == [None]


def test_a_folder_is_found_with_or_without_its_name(folder, sums):
    for given in (folder, folder.parent, str(folder)):
        assert fetch("1m", given, checksums=sums) == folder
    (folder / "users.dat").unlink()
    with pytest.raises(hs.MissingFileError, match=r"does not have them all.*ml-1m\.zip"):
        fetch("1m", folder)
    with pytest.raises(hs.MissingFileError, match="is not a folder"):
        MovieLens(data=folder / "nowhere").population(0)


def test_a_folder_of_the_other_version_is_recognised(files, table, tmp_path):
    files("100k", table)
    with pytest.raises(hs.MissingFileError, match=r"ratings\.dat.*has those of version='100k'"):
        fetch("1m", tmp_path)


def test_files_that_are_not_the_published_ones_need_verify_off(folder):
    with pytest.raises(hs.FileError, match=r"ratings\.dat.*md5 must be a89aa.*verify=False"):
        MovieLens(data=folder).population(0)
    assert MovieLens(data=folder, min_ratings=20, verify=False).population(0).tasks > 0


def test_a_damaged_cache_says_what_to_delete(get, tmp_path):
    path = get() / "users.dat"
    path.write_text("damaged")
    with pytest.raises(hs.FileError) as caught:
        get()
    assert f"in {tmp_path / 'cache' / 'ml-1m'}, users.dat" in str(caught.value)
    assert "delete that folder" in str(caught.value)


def test_terms_are_shown_once(get, folder, sums, monkeypatch, capsys, tmp_path):
    release = RELEASES["1m"]._replace(checksums=sums)
    monkeypatch.setitem(download.RELEASES, "1m", release)
    get(checksums=None)
    shown = capsys.readouterr().err
    for word in ("research", "may not be passed on", "Harper", "Konstan", "10.1145/2827872"):
        assert word in shown
    get(checksums=None)
    fetch("1m", folder, cache=tmp_path / "cache")
    assert capsys.readouterr().err == ""
    fetch("1m", folder, cache=tmp_path / "another")
    assert "Harper" in capsys.readouterr().err


def test_the_default_cache_is_the_platforms(monkeypatch, tmp_path, get, sums):
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: str(tmp_path / "cache"))
    assert download.cache_folder() == tmp_path / "cache"
    found = get()
    assert fetch("1m", checksums=sums) == found


def test_unknown_versions_are_refused():
    with pytest.raises(hs.InputError, match="version must be one of '1m', '100k'; got '20m'"):
        fetch("20m")


def test_worlds_need_no_extra_packages_to_be_imported():
    heavy = ["pandas", "platformdirs", "polars", "pyarrow", "rich"]
    code = (
        "import sys, headstart.worlds as w; w.Synthetic().population(0).episode(0, 2); "
        f"w.MovieLens(); print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
