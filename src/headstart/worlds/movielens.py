"""Movie ratings: every user is a task, every movie an arm, its genres the context."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.records import Array
from headstart.worlds import ratings as reading
from headstart.worlds.base import Episode, Population, World
from headstart.worlds.completion import complete, past_features
from headstart.worlds.download import RELEASES, fetch
from headstart.worlds.offers import draw_distinct

GENDERS = {"men": "M", "women": "F"}
AGES = {f"age:{age}": age for age in reading.AGES}
KINDS = ("gender", "age", "occupation")
MAX_GENRES = 6


@dataclasses.dataclass(frozen=True, repr=False)
class MovieLens(World):
    """The paper's MovieLens setting: users are tasks, and movies are offered by their genres.

    Contexts are 18 genre flags, scaled so that ‖x‖ ≤ 1. The reward of a movie is (stars − 1)/4. No
    linear model is exact: genres explain little of a rating.

    Parameters
    ----------
    version
        ``"1m"`` or ``"100k"``. Of the 19 flags in version 100k the first, "unknown", is left out,
        and so are the two movies that have no other.
    group
        Whose ratings: ``"everybody"``, ``"men"``, ``"women"``, an occupation by its name or number
        (see :meth:`groups`), or an age bracket such as ``"age:25"``.
    normalise
        A movie's flags are divided by their norm (``"l2"``), by the number of its genres
        (``"l1"``), or by √6, six being the most genres a movie has (``"sqrt6"``).
    features
        ``"genres"``; ``"learned"``: what the ratings of *other* users, those with fewer than
        ``min_ratings``, imply about a movie (its mean and ten factors of a low-rank model); or
        ``"both"``, side by side.
    intercept
        Appends a constant feature. Whatever is put side by side is divided by the root of how many
        parts there are, so that ‖x‖ ≤ 1 still holds: x = (flags, 1)/√2.
    arms
        K, how many movies a round offers; no movie twice in a round.
    min_ratings
        Users with fewer ratings are left out.
    candidates
        ``"rated"``: rounds offer movies that the user rated; the rating is both value and reward.
        ``"completed"``: rounds offer any movies. Values are those of a low-rank model fitted to all
        ratings (user and movie means and ten factors, cut to [0, 1]), also where a rating is known;
        rewards are values + N(0, s²), with s the model's residual standard deviation.
    noise
        R, as policies are given it: the residual standard deviation of a linear model of genres.
    data
        A folder with the files. By default they are in the platform's cache directory, downloaded
        on first use.
    verify
        Whether files must be those that GroupLens published.
    max_ratings
        Users with more ratings are left out, if given: to tune on users that are not reported on.
    """

    version: str = "1m"
    group: str | int = "everybody"
    normalise: str = "l2"
    intercept: bool = False
    arms: int = 10
    min_ratings: int = 250
    candidates: str = "rated"
    noise: float = 0.25
    data: str | os.PathLike[str] | None = None
    verify: bool = True
    max_ratings: int | None = None
    features: str = "genres"

    def __post_init__(self) -> None:
        checks.one_of("version", self.version, RELEASES)
        find_group(self.version, self.group)
        checks.one_of("normalise", self.normalise, ("l2", "l1", "sqrt6"))
        checks.one_of("features", self.features, ("genres", "learned", "both"))
        checks.one_of("candidates", self.candidates, ("rated", "completed"))
        checks.integer("arms", self.arms, 1)
        checks.integer("min_ratings", self.min_ratings, 1)
        if self.max_ratings is not None:
            checks.integer("max_ratings", self.max_ratings, self.min_ratings)
        checks.positive("noise", self.noise)
        for name in ("intercept", "verify"):
            checks.flag(name, getattr(self, name))
        if self.data is not None and not isinstance(self.data, (str, os.PathLike)):
            raise checks.invalid("data", "a folder", self.data)
        if self.candidates == "rated" and self.min_ratings < self.arms:
            want = f"{self.arms} or more, as many as arms={self.arms}"
            raise checks.invalid("min_ratings", want, self.min_ratings)

    @property
    def name(self) -> str:
        """A short name for tables and figures."""
        return "movielens" if self.group == "everybody" else f"movielens {self.describe_group()}"

    def describe_group(self) -> str:
        """The group, with an occupation's number replaced by its name."""
        kind, value = find_group(self.version, self.group)
        return reading.OCCUPATIONS[self.version][value] if kind == "occupation" else str(self.group)

    def ratings(self) -> reading.Ratings:
        """All ratings, downloaded if need be, read once."""
        folder = fetch(self.version, self.data, checksums=None if self.verify else {})
        return reading.read(folder, self.version)

    def has_enough_ratings(self, ratings: reading.Ratings) -> npt.NDArray[np.bool_]:
        """Which users have at least ``min_ratings`` and at most ``max_ratings``."""
        most = np.inf if self.max_ratings is None else self.max_ratings
        return (ratings.counts >= self.min_ratings) & (ratings.counts <= most)

    def groups(self, kind: str = "occupation") -> dict[str, int]:
        """The number of users with enough ratings in each group, the largest first.

        Parameters
        ----------
        kind
            ``"occupation"``, ``"gender"`` or ``"age"``. The names are those that ``group`` takes.
        """
        checks.one_of("kind", kind, KINDS)
        ratings = self.ratings()
        enough = self.has_enough_ratings(ratings)
        names: dict[str, Iterable[str]]
        names = {"gender": GENDERS, "age": AGES, "occupation": reading.OCCUPATIONS[self.version]}
        counts = {}
        for name in names[kind]:
            members = getattr(ratings, kind) == find_group(self.version, name)[1]
            counts[name] = int((enough & members).sum())
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def population(self, seed: int) -> MovieLensPopulation:
        """The population of a seed: the group's users, in an order drawn by the seed."""
        return MovieLensPopulation(self, checks.integer("seed", seed))


class MovieLensPopulation(Population):
    """Users in the order in which they come as tasks.

    Attributes
    ----------
    users
        Their ids in the files.
    """

    def __init__(self, world: MovieLens, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.noise = world.noise
        self.data = world.ratings()
        parts = []
        if world.features != "learned":
            parts.append(make_features(self.data.genres, world.normalise))
        if world.features != "genres":
            parts.append(past_features(self.data, world.min_ratings))
        if world.intercept:
            parts.append(np.ones((len(self.data.genres), 1)))
        self.features = np.hstack(parts) / np.sqrt(len(parts))
        self.dim = self.features.shape[1]
        members = self.find_members()
        if world.candidates == "completed" and world.arms > len(self.features):
            want = f"{len(self.features)} or fewer, as there are movies"
            raise checks.invalid("arms", want, world.arms)
        self.rows = self.population_rng().permutation(members)
        self.users = self.data.users[self.rows]
        self.tasks = len(self.rows)

    def find_members(self) -> npt.NDArray[np.int64]:
        """The rows of the users who are in the group and have enough ratings."""
        world = self.world
        kind, value = find_group(world.version, world.group)
        is_member = world.has_enough_ratings(self.data)
        if kind != "everybody":
            is_member = is_member & (getattr(self.data, kind) == value)
        if not is_member.any():
            limit = "" if world.max_ratings is None else f" and max_ratings={world.max_ratings}"
            most = int(self.data.counts.max(initial=0))
            raise InputError(
                f"group {world.group!r} must have users with min_ratings={world.min_ratings}"
                f"{limit}; it has none (the most that anybody has is {most})"
            )
        return np.flatnonzero(is_member)

    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task."""
        checks.integer("task", task, 0, len(self.rows) - 1)
        checks.integer("rounds", rounds, 1)
        world = self.world
        user = int(self.rows[task])
        rng = self.task_rng(task)
        if world.candidates == "rated":
            movies, ratings = self.data.of_user(user)
            offers = draw_distinct(rng, rounds, len(movies), world.arms)
            values = ratings[offers]
            return Episode(self.features[movies[offers]], values, values.copy())
        model = complete(self.data)
        offers = draw_distinct(rng, rounds, len(self.features), world.arms)
        values = model.values(user, offers)
        # One draw a round, whichever movie is picked: policies that pick alike see the same.
        rewards = values + model.noise * rng.standard_normal((rounds, 1))
        return Episode(self.features[offers], values, rewards)


def make_features(flags: Array, normalise: str) -> Array:
    """Genre flags as contexts.

    >>> make_features(np.array([[1.0, 0.0], [1.0, 1.0]]), "l1")
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    genres = flags.sum(axis=1, keepdims=True)
    scale = {
        "l2": np.sqrt(genres),
        "l1": genres,
        "sqrt6": np.sqrt(max(float(MAX_GENRES), float(genres.max()))),
    }[normalise]
    return flags / scale


def find_group(version: str, group: object) -> tuple[str, Any]:
    """What the members of a group have in common: an attribute, and its value.

    >>> find_group("1m", "women"), find_group("1m", "age:25"), find_group("1m", "programmer")
    (('gender', 'F'), ('age', 25), ('occupation', 12))
    """
    occupations = reading.OCCUPATIONS[version]
    if group == "everybody":
        return "everybody", None
    if isinstance(group, str):
        if group in GENDERS:
            return "gender", GENDERS[group]
        if group in AGES:
            return "age", AGES[group]
        names = {name.casefold(): number for number, name in enumerate(occupations)}
        if group.casefold() in names:
            return "occupation", names[group.casefold()]
        if not group.isdecimal():
            group_names = ["everybody", *GENDERS, *AGES, *occupations]
            close = difflib.get_close_matches(group, group_names, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise InputError(
                f"group must be 'everybody', 'men', 'women', an age ({', '.join(AGES)}), or an "
                f"occupation's number or name ({', '.join(occupations)}); got {group!r}{hint}"
            )
        group = int(group)
    return "occupation", checks.integer("group", group, 0, len(occupations) - 1)
