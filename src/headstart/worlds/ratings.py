"""Reading MovieLens: the ratings, and the attributes of users and movies."""

from __future__ import annotations

import dataclasses
import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.errors import FileError
from headstart.records import Array
from headstart.worlds.download import RELEASES
from headstart.worlds.offers import Indices


def split_names(names: str) -> tuple[str, ...]:
    """Names that are separated by bars, as in the files."""
    return tuple(names.split("|"))


GENRES = split_names(
    "Action|Adventure|Animation|Children's|Comedy|Crime|Documentary|Drama|Fantasy|Film-Noir|"
    "Horror|Musical|Mystery|Romance|Sci-Fi|Thriller|War|Western"
)

#: The age brackets, by their youngest age.
AGES = (1, 18, 25, 35, 45, 50, 56)

#: Occupations by version, in the order of their numbers.
OCCUPATIONS = {
    "1m": split_names(
        "other|academic/educator|artist|clerical/admin|college/grad student|customer service|"
        "doctor/health care|executive/managerial|farmer|homemaker|K-12 student|lawyer|programmer|"
        "retired|sales/marketing|scientist|self-employed|technician/engineer|tradesman/craftsman|"
        "unemployed|writer"
    ),
    "100k": split_names(
        "administrator|artist|doctor|educator|engineer|entertainment|executive|healthcare|"
        "homemaker|lawyer|librarian|marketing|none|other|programmer|retired|salesman|scientist|"
        "student|technician|writer"
    ),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Ratings:
    """All ratings, user by user; movies without a genre are left out, with their ratings.

    Attributes
    ----------
    users, gender, age, occupation
        Of every user: the id in the files, ``"M"`` or ``"F"``, the bracket as in ``AGES``, and the
        number as in ``OCCUPATIONS``.
    genres
        Flags of every movie: shape ``(movies, 18)``.
    first
        Where each user's ratings begin in ``movie`` and ``reward``; user u has those from
        ``first[u]`` to ``first[u + 1]``.
    movie, reward
        Of every rating: the movie's row in ``genres``, and (stars − 1)/4.
    """

    users: Indices
    gender: npt.NDArray[np.str_]
    age: Indices
    occupation: Indices
    genres: Array
    first: Indices
    movie: Indices
    reward: Array

    @property
    def counts(self) -> Indices:
        """How many ratings each user has."""
        return np.diff(self.first)

    def of_user(self, user: int) -> tuple[Indices, Array]:
        """The movies a user rated, and the rewards."""
        own = slice(self.first[user], self.first[user + 1])
        return self.movie[own], self.reward[own]


def read(folder: Path, version: str) -> Ratings:
    """The ratings in a folder, remembered until the files change."""
    try:
        stats = [(folder / name).stat() for name in RELEASES[version].files]
        stamps = tuple((stat.st_mtime_ns, stat.st_size) for stat in stats)
        return parse(folder, version, stamps)
    except FileError:
        raise
    except OSError as error:
        raise FileError(f"{folder} could not be read ({error.strerror or error})") from error


@functools.lru_cache(maxsize=2)
def parse(folder: Path, version: str, stamps: tuple[tuple[int, int], ...]) -> Ratings:
    """Read the three files and put them together."""
    path, of_movies, of_users = (folder / name for name in RELEASES[version].files)
    movie_ids, genres = read_movies(of_movies, version)
    users, gender, age, occupation = read_users(of_users, version)
    text = path.read_bytes().replace(b"::", b"\t").decode("latin-1")
    if not text.strip():
        raise FileError(f"{path} must not be empty")
    try:
        user, movie_id, stars = np.loadtxt(
            io.StringIO(text),
            dtype=np.int64,
            delimiter="\t",
            usecols=(0, 1, 2),
            unpack=True,
            ndmin=2,
        )
    except ValueError as error:
        raise FileError(f"{path} must have user, movie and stars in every line; {error}") from error
    user_row = rows_of(path, "user", user, users)
    movie_row = rows_of(path, "movie", movie_id, movie_ids)
    refuse_line(path, "1 to 5 stars", stars, (stars < 1) | (stars > 5))
    # The data's two movies of unknown genre have no features.
    has_genre: npt.NDArray[np.bool_] = genres.sum(axis=1) > 0
    used = has_genre[movie_row]
    user_row, movie_row, stars = user_row[used], movie_row[used], stars[used]
    order = np.lexsort((movie_row, user_row))
    return Ratings(
        users=users,
        gender=gender,
        age=age,
        occupation=occupation,
        genres=genres[has_genre].astype(np.float64),
        first=np.searchsorted(user_row[order], np.arange(len(users) + 1)),
        movie=(np.cumsum(has_genre) - 1)[movie_row[order]],
        reward=(stars[order] - 1) / 4.0,
    )


def rows_of(path: Path, what: str, ids: Indices, known_ids: Indices) -> Indices:
    """The row of each id in a sorted list of ids."""
    rows = np.minimum(np.searchsorted(known_ids, ids), len(known_ids) - 1)
    refuse_line(path, f"a {what} of the other files", ids, known_ids[rows] != ids)
    return rows


def refuse_line(path: Path, want: str, values: Indices, bad: npt.NDArray[np.bool_]) -> None:
    """Name the first line that is not what it must be."""
    if bad.any():
        line = int(np.argmax(bad))
        raise FileError(f"{path}, line {line + 1}: must have {want}; got {values[line]}")


def read_lines(path: Path, separator: str, fields: int) -> list[list[str]]:
    """The lines of a small file, split; titles may contain the separator."""
    rows = []
    text = path.read_text("latin-1")
    for number, line in enumerate(text.splitlines(), start=1):
        parts = line.split(separator)
        if len(parts) < fields:
            raise FileError(
                f"{path}, line {number}: must have {fields} fields; got {len(parts)} in {line!r}"
            )
        rows.append(parts)
    if not rows:
        raise FileError(f"{path} must not be empty")
    return rows


def read_movies(path: Path, version: str) -> tuple[Indices, npt.NDArray[np.bool_]]:
    """Ids, sorted, and genre flags."""
    flags: npt.NDArray[np.bool_]
    if version == "1m":
        rows = read_lines(path, "::", 3)
        flags = np.array([[genre in row[-1].split("|") for genre in GENRES] for row in rows])
    else:
        # Nineteen flags, of which the first is "unknown": the others are those of version 1m.
        rows = read_lines(path, "|", 24)
        flags = np.array([row[-18:] for row in rows]) == "1"
    ids = whole_numbers(path, [row[0] for row in rows])
    order = np.argsort(ids)
    return ids[order], flags[order]


def read_users(path: Path, version: str) -> tuple[Indices, npt.NDArray[np.str_], Indices, Indices]:
    """Ids, sorted; gender, age bracket and number of the occupation."""
    names = OCCUPATIONS[version]
    if version == "1m":
        id, gender, age, work, _ = zip(*read_lines(path, "::", 5), strict=True)
        occupation = whole_numbers(path, work)
    else:
        id, age, gender, work, _ = zip(*read_lines(path, "|", 5), strict=True)
        numbers = {name: number for number, name in enumerate(names)}
        occupation = np.array([numbers.get(name, -1) for name in work])
    wrong = (occupation < 0) | (occupation >= len(names))
    refuse_line(path, "a known occupation", np.array(work), wrong)
    ids = whole_numbers(path, id)
    order = np.argsort(ids)
    # Version 100k has ages in years.
    bracket = np.searchsorted(AGES, whole_numbers(path, age), side="right") - 1
    brackets = np.array(AGES)[np.maximum(bracket, 0)]
    return ids[order], np.array(gender)[order], brackets[order], occupation[order]


def whole_numbers(path: Path, words: Any) -> Indices:
    """Words as whole numbers."""
    try:
        return np.array([int(word) for word in words], dtype=np.int64)
    except ValueError as error:
        raise FileError(f"{path} must have whole numbers; {error}") from error
