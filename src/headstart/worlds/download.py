"""Locating the MovieLens files: in a folder, in the cache, or at GroupLens.

The licence forbids redistribution, so the data are not part of headstart. The first use downloads
them from GroupLens, checks them and stores them in the platform's cache directory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import http.client
import os
import shutil
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from headstart import checks
from headstart.errors import FileError, MissingFileError
from headstart.worlds import web

GROUPLENS = "https://files.grouplens.org/datasets/movielens"
TERMS = (
    "MovieLens (GroupLens, University of Minnesota) is for research: it may not be passed on, nor "
    "used commercially without permission, and what you publish with it must cite F. M. Harper and "
    "J. A. Konstan, 2015, The MovieLens Datasets: History and Context, doi:10.1145/2827872."
)


class Release(NamedTuple):
    """One MovieLens data set: the folder in its archive, the files in that, and md5 by name.

    The files are those of ratings, of movies and of users.
    """

    folder: str
    files: tuple[str, str, str]
    checksums: Mapping[str, str]

    @property
    def archive(self) -> str:
        """The file that is downloaded."""
        return f"{self.folder}.zip"


RELEASES = {
    "1m": Release(
        "ml-1m",
        ("ratings.dat", "movies.dat", "users.dat"),
        {
            "ml-1m.zip": "c4d9eecfca2ab87c1945afe126590906",
            "ratings.dat": "a89aa3591bc97d6d4e0c89459ff39362",
            "movies.dat": "ef9fd9ff8d1b33faf73e2122c371e910",
            "users.dat": "681c0711d0d4548cd3d4718a49c2dcd8",
        },
    ),
    "100k": Release(
        "ml-100k",
        ("u.data", "u.item", "u.user"),
        # Only the archive's is published: a folder of these files is not verified.
        {"ml-100k.zip": "0e33842e24a9c977be4e0107933c0723"},
    ),
}


def fetch(
    version: str = "1m",
    folder: str | os.PathLike[str] | None = None,
    *,
    checksums: Mapping[str, str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    base: str = GROUPLENS,
) -> Path:
    """The folder that holds the files of a MovieLens release, downloaded if need be.

    The licence's terms are shown on the standard error stream the first time, and never again.

    Parameters
    ----------
    version
        ``"1m"`` or ``"100k"``.
    folder
        A folder that has the files, or that has them in a folder ``ml-1m`` or ``ml-100k``; then
        nothing is downloaded. By default the cache is searched, then GroupLens.
    checksums
        md5 by file name, of the archive and of the files in it. By default those published; ``{}``
        checks nothing.
    cache
        Where downloads are kept; by default the platform's cache directory.
    base
        The address that has the archives.
    """
    release = RELEASES[checks.one_of("version", version, RELEASES)]
    expected = release.checksums if checksums is None else checksums
    genuine = checksums is None  # the terms are those of the published files
    if folder is not None:
        place = find_files(Path(folder).expanduser(), release)
        if place is None:
            raise missing_files(Path(folder), release)
        problem = wrong_file(place, release, expected)
        if problem:
            raise FileError(f"in {place}, {problem}; to read it all the same, pass verify=False")
        if genuine:
            show_terms(cache)
        return place
    store = cache_folder() if cache is None else Path(cache)
    if genuine:
        show_terms(store)
    place = find_files(store, release)
    if place is None:
        with web.progress_bar(release.archive) as progress:
            return download_release(release, store, base, expected, progress)
    problem = wrong_file(place, release, expected)
    if problem:
        raise FileError(f"in {place}, {problem}; delete that folder, and it is downloaded again")
    return place


def cache_folder() -> Path:
    """Where downloads are kept: the platform's cache directory."""
    try:
        import platformdirs
    except ImportError as error:
        raise ImportError(
            "finding the cache directory needs platformdirs: pip install 'headstart[lab]', or say "
            "where the files are with data=FOLDER"
        ) from error
    return Path(platformdirs.user_cache_dir("headstart", appauthor=False))


def find_files(folder: Path, release: Release) -> Path | None:
    """The folder itself or the release's folder in it, whichever has all the files."""
    for candidate in (folder, folder / release.folder):
        if all((candidate / name).is_file() for name in release.files):
            return candidate
    return None


def missing_files(folder: Path, release: Release) -> MissingFileError:
    """The error for a given folder without the files."""
    got = "does not have them all" if folder.expanduser().is_dir() else "is not a folder"
    for version, other in RELEASES.items():
        if other is not release and find_files(folder.expanduser(), other):
            got = f"has those of version={version!r}"
    return MissingFileError(
        f"data must be a folder with {', '.join(release.files)}, or with a folder {release.folder} "
        f"that has them; {str(folder)!r} {got}. They are in {GROUPLENS}/{release.archive}"
    )


def wrong_file(folder: Path, release: Release, checksums: Mapping[str, str]) -> str:
    """Which file is not the one published; empty if all are."""
    problems = (wrong_checksum(folder / name, name, checksums) for name in release.files)
    return next(filter(None, problems), "")


def wrong_checksum(path: Path, name: str, checksums: Mapping[str, str]) -> str:
    """What is wrong with the checksum of the file of this name; empty if nothing is."""
    want = checksums.get(name)
    got = None if want is None else md5_of(path)
    if got == want:
        return ""
    return f"{name} is not the file that GroupLens published: its md5 must be {want}; got {got}"


def md5_of(path: Path) -> str:
    """The md5 of a file, remembered until the file changes."""
    try:
        stamp = path.stat()
        return compute_md5(path, stamp.st_mtime_ns, stamp.st_size)
    except OSError as error:
        raise FileError(f"{path} could not be read ({error.strerror or error})") from error


@functools.lru_cache(maxsize=64)
def compute_md5(path: Path, changed: int, size: int) -> str:
    """The md5 of a file that was last changed then and has that size."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def show_terms(cache: str | os.PathLike[str] | None) -> None:
    """Show the licence's terms, the first time only."""
    # Where the cache cannot be written, the terms are shown each time.
    with contextlib.suppress(ImportError, OSError):
        folder = cache_folder() if cache is None else Path(cache)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            (folder / "movielens-terms-shown").touch(exist_ok=False)
        except FileExistsError:
            return
    print(TERMS, file=sys.stderr)


def download_release(
    release: Release, cache: Path, base: str, checksums: Mapping[str, str], progress: web.Progress
) -> Path:
    """Download, check and unpack a release, resuming an interrupted download."""
    url = f"{base.rstrip('/')}/{release.archive}"
    part = cache / f"{release.archive}.part"
    cause: Exception | None = None
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with web.file_lock(cache / f"{release.archive}.lock"):
            if place := find_files(cache, release):  # another process was first
                return place
            has_part = part.exists()
            web.download(url, part, progress)
            if has_part and wrong_checksum(part, release.archive, checksums):
                part.unlink()  # it was the part of another file
                web.download(url, part, progress)
            problem = wrong_checksum(part, release.archive, checksums)
            problem = problem or unpack(part, release, cache, checksums)
            part.unlink()
            if not problem:
                return cache / release.folder
    except (OSError, http.client.HTTPException) as error:
        cause, problem = error, web.describe_failure(error)
    raise FileError(
        f"MovieLens could not be downloaded from {url}: {problem}. Try again (a download resumes "
        f"where it stopped), or get {release.archive} by other means, unpack it, and either put "
        f"the folder {release.folder} into {cache}, or say where it is: data=FOLDER (on the "
        f"command line, --data FOLDER)"
    ) from cause


def unpack(part: Path, release: Release, cache: Path, checksums: Mapping[str, str]) -> str:
    """Put an archive's files into the cache; gives what is wrong with it, or an empty string.

    Only files named here are taken out, to names chosen here, so that no archive can write anywhere
    else. They are put in place when all of them are there and right.
    """
    try:
        with (
            zipfile.ZipFile(part) as archive,
            tempfile.TemporaryDirectory(prefix=".unpack-", dir=cache) as temporary,
        ):
            names = [*release.files]
            if f"{release.folder}/README" in archive.namelist():
                names.insert(0, "README")  # the licence is in it
            for name in names:
                with (
                    archive.open(f"{release.folder}/{name}") as source,
                    Path(temporary, name).open("wb") as target,
                ):
                    shutil.copyfileobj(source, target)
            problem = wrong_file(Path(temporary), release, checksums)
            if problem:
                return problem
            (cache / release.folder).mkdir(exist_ok=True)
            for name in names:
                os.replace(Path(temporary, name), cache / release.folder / name)
    except KeyError as error:
        return f"the archive is incomplete ({error.args[0]})"
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        return f"the archive is truncated or damaged ({error})"
    return ""
