"""Small MovieLens files in the true formats, made up here."""

from types import SimpleNamespace

import numpy as np
import pytest

from headstart.worlds.ratings import GENRES


def make_table(seed=0, users=12, movies=40):
    """Users, movies and ratings such as GroupLens' files have them; ids have gaps."""
    rng = np.random.default_rng(seed)
    people = [
        SimpleNamespace(
            id=2 * row + 1,
            gender="MF"[row % 3 == 0],
            years=(17, 18, 24, 25, 34, 56, 73)[row % 7],
            bracket=(1, 18, 18, 25, 25, 56, 56)[row % 7],
            occupation=("programmer", "writer")[row % 2],
        )
        for row in range(users)
    ]
    films = [
        SimpleNamespace(
            id=3 * row + 2,
            title=f"Misérables, Les: {row} (1995)",
            genres=sorted(rng.choice(18, size=rng.integers(1, 7), replace=False)),
        )
        for row in range(movies)
    ]
    ratings = [
        (person.id, film.id, int(rng.integers(1, 6)))
        for row, person in enumerate(people)
        for film in films
        if rng.random() < (0.3 if row == 0 else 0.8)
    ]
    order = rng.permutation(len(ratings))
    return SimpleNamespace(users=people, movies=films, ratings=[ratings[row] for row in order])


def write_1m(folder, table):
    numbers = {"programmer": 12, "writer": 20}
    files = {
        "users.dat": [
            f"{user.id}::{user.gender}::{user.bracket}::{numbers[user.occupation]}::48067"
            for user in table.users
        ],
        "movies.dat": [
            f"{movie.id}::{movie.title}::{'|'.join(GENRES[genre] for genre in movie.genres)}"
            for movie in table.movies
        ],
        "ratings.dat": [
            f"{user}::{movie}::{stars}::978300760" for user, movie, stars in table.ratings
        ],
    }
    return write(folder, files)


def write_100k(folder, table):
    def flags(movie):
        known = [str(int(genre in movie.genres)) for genre in range(18)]
        return "|".join(["01"[not movie.genres], *known])

    files = {
        "u.user": [
            f"{user.id}|{user.years}|{user.gender}|{user.occupation}|T8H1N" for user in table.users
        ],
        "u.item": [
            f"{movie.id}|{movie.title}|01-Jan-1995||http://us.imdb.com/M/x|{flags(movie)}"
            for movie in table.movies
        ],
        "u.data": [f"{user}\t{movie}\t{stars}\t881250949" for user, movie, stars in table.ratings],
    }
    return write(folder, files)


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode("latin-1"))
    return folder


@pytest.fixture
def table():
    return make_table()


@pytest.fixture
def files(tmp_path):
    """``files(version, table)``: the folder they were written to."""
    writers = {"1m": write_1m, "100k": write_100k}

    def make(version, table, folder=None):
        return writers[version](folder or tmp_path / f"ml-{version}", table)

    return make


@pytest.fixture
def new_table():
    return make_table
