"""Rounds with all arms on offer, and ways to go along them.

Tasks go side by side, as in :mod:`headstart.fleet.evaluation.forecasts`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.fleet.evaluation.forecasts import CHUNK, AnyPrior, start_beliefs
from headstart.records import Array
from headstart.rules import Rule

__all__ = ["Mask", "Offers", "Policy", "Step", "follow", "replay"]

Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Offers(NamedTuple):
    """Rounds with all arms on offer, task after task.

    The arms of round i are the rows ``starts[i]`` to ``starts[i + 1]`` of ``features``; the rounds
    of task t are ``tasks[t]`` to ``tasks[t + 1]``. ``chosen`` is the place of the arm shown among
    them, ``propensities`` the probability with which it was. ``totals`` adds up the propensities of
    each round's arms, NaN where an arm has none.
    """

    features: Array
    starts: Whole
    tasks: Whole
    chosen: Whole
    rewards: Array
    propensities: Array
    totals: Array | None = None

    @classmethod
    def of_rows(cls, rows: dict[str, npt.NDArray[Any]]) -> Offers:
        """From rows in the order of tasks and rounds; rounds without one chosen arm are left out.

        The columns are key (whose it is), round, chosen, features, reward and propensity.
        """
        new = np.ones(len(rows["key"]), dtype=bool)
        new[1:] = (np.diff(rows["key"]) != 0) | (np.diff(rows["round"]) != 0)
        group = np.cumsum(new) - 1
        good = np.bincount(group, rows["chosen"]) == 1
        new, rows = new[good[group]], {name: part[good[group]] for name, part in rows.items()}
        starts = np.append(np.flatnonzero(new), len(new))
        shown = np.flatnonzero(rows["chosen"])
        _, per_task = np.unique(rows["key"][new], return_counts=True)
        return cls(
            rows["features"],
            starts,
            np.append(0, np.cumsum(per_task)),
            shown - starts[:-1],
            rows["reward"][shown],
            rows["propensity"][shown],
            np.bincount(np.cumsum(new) - 1, rows["propensity"]).astype(np.float64),
        )

    @property
    def arms(self) -> Whole:
        """How many arms each round has."""
        return np.diff(self.starts)

    @property
    def owner(self) -> Whole:
        """Whose each round is."""
        return np.repeat(np.arange(len(self.tasks) - 1), np.diff(self.tasks))


class Policy(NamedTuple):
    """Where each task starts, and how to choose."""

    name: str
    prior: AnyPrior
    rule: Rule


class Step(NamedTuple):
    """The next round of several tasks: arms padded with zeros, those on offer marked."""

    rounds: Whole  # which logged rounds; meaningless where not ``here``
    here: Mask  # whether the task has such a round
    chosen: Whole  # the arm that was shown, likewise
    contexts: Array
    allowed: Mask


Visit = Callable[[Any, Step], Mask]


def walk(offers: Offers, prior: AnyPrior, visit: Visit) -> None:
    """Go along the logs of all tasks, from a prior.

    ``visit(belief, step)`` looks at the next round of tasks, about equally long, side by side, and
    says which of these rounds their beliefs learn from.
    """
    by_length = np.argsort(-np.diff(offers.tasks), kind="stable")
    for at in range(0, len(by_length), CHUNK):
        tasks = by_length[at : at + CHUNK]
        belief = start_beliefs(prior, len(tasks))
        for step in logged_steps(offers, tasks):
            learned = visit(belief, step)
            # The others learn x = 0, which teaches nothing, and is no round.
            x = step.contexts[np.arange(len(tasks)), step.chosen] * learned[:, None]
            after = belief.update(x, offers.rewards[step.rounds] * learned)
            belief = after.with_rounds(np.asarray(belief.rounds) + learned)


def logged_steps(offers: Offers, tasks: Whole) -> Iterator[Step]:
    """The first round of these tasks, the second, and so on."""
    begins, ends = offers.tasks[tasks], offers.tasks[tasks + 1]
    arms = offers.arms
    for at in range(int((ends - begins).max(initial=0))):
        here = begins + at < ends
        rounds = np.where(here, begins + at, 0)
        widest = int(arms[rounds[here]].max())
        place = np.arange(widest)
        many = np.where(here, arms[rounds], 1)[:, None]
        allowed = place < many
        rows = offers.starts[rounds][:, None] + np.minimum(place, many - 1)
        contexts = offers.features[rows].astype(np.float64)
        contexts *= (allowed & here[:, None])[..., None]
        yield Step(rounds, here, np.where(here, offers.chosen[rounds], 0), contexts, allowed)


def follow(offers: Offers, prior: AnyPrior, look: Callable[[Any, Step], Array]) -> Array:
    """Go along the logs and learn all that was logged.

    Gives what ``look(belief, step)`` says of every arm on offer, before the round's own reward.
    """
    found = np.zeros(offers.starts[-1])

    def visit(belief: Any, step: Step) -> Mask:
        on_offer = step.allowed & step.here[:, None]
        rows = offers.starts[step.rounds][:, None] + np.arange(on_offer.shape[1])
        found[rows[on_offer]] = look(belief, step)[on_offer]
        return step.here

    walk(offers, prior, visit)
    return found


def replay(policy: Policy, offers: Offers, rng: np.random.Generator, least: float | None) -> Mask:
    """Go along the logs and learn only where the policy picks the arm that was logged.

    Parameters
    ----------
    policy, offers
        Who walks, and through what.
    rng
        For the policy's picks, and the coins.
    least
        The least propensity p of all: a round in which they agree is kept with probability
        least/p, so that every pick is kept equally often. ``None`` keeps all of them.

    Returns
    -------
    Mask
        Which rounds were kept.
    """
    kept = np.zeros(len(offers.rewards), dtype=bool)

    def visit(belief: Any, step: Step) -> Mask:
        picked = policy.rule.choose(belief, step.contexts, rng, step.allowed).arm
        agree: Mask = (picked == step.chosen) & step.here
        if least is not None:
            agree &= rng.random(len(agree)) < least / offers.propensities[step.rounds]
        kept[step.rounds[agree]] = True
        return agree

    walk(offers, policy.prior, visit)
    return kept
