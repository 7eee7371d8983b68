"""Does a prior help new users of MovieLens-1M? Three logs, three verdicts.

Every user is a task, every rating a row with the movie's genres, in the order of time. Besides the
log as it is, there is one with the users' ids shuffled among the rows, so that all tasks are alike,
and one with every user's features turned by a rotation of their own, so that tasks share nothing.

Run with ``python examples/movielens_logs.py``; ``--data FOLDER`` if the files are there already
(otherwise they are downloaded from GroupLens, whose terms do not allow to pass them on).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

from headstart.fleet import Columns, Logs, evaluate
from headstart.worlds.download import fetch
from headstart.worlds.ratings import GENRES


def ratings(folder):
    """A row for each rating: user, stars, time, and a column for each genre."""
    lines = (folder / "ratings.dat").read_text("latin-1").splitlines()
    numbers = np.array([line.split("::") for line in lines], dtype=np.int64)
    genres = {}
    for line in (folder / "movies.dat").read_text("latin-1").splitlines():
        movie, _, names = line.split("::")
        genres[int(movie)] = [float(genre in names.split("|")) for genre in GENRES]
    flags = np.array([genres[movie] for movie in numbers[:, 1]], dtype=np.float32)
    return numbers[:, 0], numbers[:, 2].astype(float), numbers[:, 3], flags


def shuffled(user, flags, rng):
    """Any user may have any rating: tasks are all alike."""
    return rng.permutation(user), flags


def turned(user, flags, rng):
    """Every user's features in axes of their own: tasks share nothing."""
    found = np.empty_like(flags)
    for one in np.unique(user):
        axes, _ = np.linalg.qr(rng.standard_normal((flags.shape[1], flags.shape[1])))
        found[user == one] = flags[user == one] @ axes
    return user, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="a folder with ratings.dat and movies.dat")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    user, stars, when, flags = ratings(fetch("1m", given.data))
    rng = np.random.default_rng(given.seed)
    logs = {
        "as it is": (user, flags),
        "ids shuffled": shuffled(user, flags, rng),
        "features turned": turned(user, flags, rng),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, (task, features) in logs.items():
            columns = {f"g{place}": column for place, column in enumerate(features.T)}
            path = Path(folder) / "log.parquet"
            pl.DataFrame({"user": task, "stars": stars, "time": when, **columns}).write_parquet(
                path
            )
            # Shuffled ids have no beginning in time; their tasks are divided at random.
            timed = None if name == "ids shuffled" else "time"
            columns = Columns("user", "stars", "g*", timestamp=timed)
            found = evaluate(Logs(path, columns), seed=given.seed)
            print(f"\n{name}: {found.verdict.kind} ({found.seconds:.0f} s)")
            print(f"  {found.verdict.sentence}")
            print("  mean squared error of a new user's first ten ratings, 95 % interval")
            for model, error in found.measures.errors.items():
                print(f"  {model:<16} {error.value:.3f}  [{error.low:.3f}, {error.high:.3f}]")


if __name__ == "__main__":
    main()
