"""Rollouts of priors and policies over tasks: each reward is predicted, then learned from.

Tasks go side by side: the j-th reward of all of them is predicted, then learned, at once. A row
that a task does not have is learned as x = 0, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.model.base import BaseBelief
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.own_noise import has_own_noise, reward_dof
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.rules import Rule

__all__ = ["AnyPrior", "Episodes", "Forecast", "Offers", "Policy", "follow", "forecast", "replay"]

AnyPrior = Prior | MixturePrior

CHUNK = 256  # tasks side by side: as many as fit the processor's cache
LOG_TWO_PI = float(np.log(2.0 * np.pi))


class Episodes(NamedTuple):
    """The first rounds of tasks, side by side.

    Attributes
    ----------
    features, rewards
        Shapes ``(tasks, rounds, d)`` and ``(tasks, rounds)``; zeros beyond a task's end.
    weights
        How often each round counts; 0 beyond a task's end.
    lengths
        How many rounds of each task are here.
    """

    features: Array
    rewards: Array
    weights: Array
    lengths: Any

    def take(self, tasks: Any) -> Episodes:
        """Some of the tasks."""
        return Episodes(*(values[tasks] for values in self))


class Forecast(NamedTuple):
    """How well rewards were predicted, each before it was learned: shapes ``(tasks, rounds)``.

    ``errors`` are squared; ``scores`` are log densities; ``pit`` are the rewards' places in
    their predicted distributions, from 0 to 1 (the probability integral transform). Beyond a task's
    end all are 0.
    """

    errors: Array
    scores: Array
    pit: Array


Score = Callable[[Any, Array, Array, tuple[slice, int]], tuple[Array, Array, Array]]
Learn = Callable[[Any, Array, Array, Array], Any]


def learn_rewards(belief: Any, x: Array, r: Array, weight: Array) -> Any:
    """The belief after a round; one that counts w times is one of √w times the size."""
    scale = np.sqrt(weight)
    return belief.update(x * scale[:, None], r * scale)


def score_rewards(
    belief: Belief | MixtureBelief, x: Array, r: Array, at: tuple[slice, int]
) -> tuple[Array, Array, Array]:
    """The squared error, the log density and the place of rewards in their distributions."""
    from scipy.special import logsumexp  # only for those who evaluate: it takes a while

    log_weights: Array
    dof = np.full((1, 1), np.inf)
    if isinstance(belief, Belief):  # a mixture of one
        log_weights, means = np.zeros((len(x), 1)), (x * belief.mean).sum(-1)[:, None]
        width, noise = belief.width(x[:, None, :]), np.asarray(belief.noise)[..., None]
        degrees = (np.asarray(each)[..., None] for each in belief.degrees_of_freedom())
        dof = reward_dof(width, *degrees)
    else:
        log_weights, means = belief.log_weights, (x[:, None, :] * belief.parts.mean).sum(-1)
        width, noise = belief.parts.width(x[:, None, None, :])[..., 0], belief.parts.noise
    variance, weights = np.square(noise) * (1.0 + width**2), np.exp(log_weights)
    error = (r[:, None] - means) / np.sqrt(variance)
    densities, places = t_distribution(error, dof)
    return (
        (r - (weights * means).sum(-1)) ** 2,
        logsumexp(log_weights + densities - 0.5 * np.log(variance), axis=-1),
        (weights * places).sum(-1),
    )


def t_distribution(error: Array, dof: Array) -> tuple[Array, Array]:
    """Log densities and distribution functions of t distributions, normal with ∞ degrees."""
    from scipy.special import gammaln, ndtr, stdtr

    normal = -0.5 * (error**2 + LOG_TWO_PI)
    if np.isinf(dof).all():
        return normal, ndtr(error)
    degrees = np.where(np.isinf(dof), 1.0, dof)
    half = (degrees + 1.0) / 2.0
    constant = gammaln(half) - gammaln(degrees / 2.0) - 0.5 * np.log(np.pi * degrees)
    density = constant - half * np.log1p(error**2 / degrees)
    return (
        np.where(np.isinf(dof), normal, density),
        np.where(np.isinf(dof), ndtr(error), stdtr(degrees, error)),
    )


def forecast(
    prior: AnyPrior, episodes: Episodes, score: Score = score_rewards, learn: Learn = learn_rewards
) -> Forecast:
    """Predict and learn, round after round, from a prior.

    Parameters
    ----------
    prior
        Where every task starts.
    episodes
        The rounds.
    score
        ``score(belief, x, r, at)`` is the error, the score and the place of rewards at some places
        of the episodes; of a reward that is N(xᵀθ̂, R² (1 + ‖x‖²_{B⁻¹})), t where R is uncertain, or
        a mixture of such, unless given.
    learn
        ``learn(belief, x, r, weight)`` is the belief after a round.

    Examples
    --------
    A prior that is sure of θ = 2, and a task that agrees:

    >>> episodes = Episodes(np.ones((1, 2, 1)), np.array([[2.0, 3.0]]), np.ones((1, 2)), [2])
    >>> forecast(Prior.gaussian([2.0], [[1e-12]]), episodes).errors.round(6)
    array([[0., 1.]])
    """
    tasks, rounds = episodes.rewards.shape
    result = Forecast(*(np.zeros((tasks, rounds)) for _ in Forecast._fields))
    has_noise = isinstance(prior, Prior) and bool(has_own_noise(prior.noise_dof))
    for start in range(0, tasks, CHUNK):
        rows = slice(start, min(start + CHUNK, tasks))
        belief = start_beliefs(prior, rows.stop - rows.start)
        evidence = Evidence.zero(belief.dim, belief.batch[:1])
        longest = int(np.max(episodes.lengths[rows], initial=0))
        # Each row in double precision: the belief's roots must stay so.
        features = episodes.features[rows, :longest].astype(np.float64)
        for place in range(longest):
            at, x = (rows, place), features[:, place]
            r, weight = episodes.rewards[at], episodes.weights[at]
            for out, values in zip(result, score(belief, x, r, at), strict=True):
                out[at] = np.where(weight > 0, values, 0.0)
            if place + 1 < longest:
                belief = learn(belief, x, r, weight)
                if has_noise:
                    evidence = add_rounds(evidence, x, r, weight)
                    belief = Belief.of(belief.prior, evidence) if belief.needs_rebuild else belief
    return result


def add_rounds(evidence: Evidence, x: Array, r: Array, weight: Array) -> Evidence:
    """The evidence of every task and of one more round, which counts w times."""
    scale = np.sqrt(weight)
    after = evidence.add_unchecked(x * scale[:, None], r * scale)
    return after.replace(rounds=evidence.rounds + weight)


def start_beliefs(prior: AnyPrior, tasks: int) -> Any:
    """The belief before any reward, for so many tasks side by side."""
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    wide = Prior(
        np.broadcast_to(parts.mean, (tasks, *parts.mean.shape)),
        np.broadcast_to(parts.root, (tasks, *parts.root.shape)),
        noise=np.broadcast_to(np.asarray(parts.noise), (tasks, *parts.batch)),
    )
    if isinstance(prior, MixturePrior):
        weights = np.broadcast_to(prior.log_weights, (tasks, *prior.log_weights.shape))
        return MixturePrior(wide, weights).belief()
    return Belief.start(wide.replace(noise_dof=np.full(tasks, prior.noise_dof)))


Whole = npt.NDArray[np.int64]


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
    here: npt.NDArray[np.bool_]  # whether the task has such a round
    chosen: Whole  # the arm that was shown, likewise
    contexts: Array
    allowed: npt.NDArray[np.bool_]


def follow(
    policy: Policy, offers: Offers, model: AnyPrior, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """Go along the logs and learn all that was logged.

    Gives, for every logged round, the policy's probability of the arm shown, the model's reward of
    that arm, and the model's expectation of the policy's reward; before the round's own reward.
    """
    targets, shown, expected = (np.zeros(len(offers.rewards)) for _ in range(3))
    same = policy.prior is model
    for tasks in task_chunks(offers):
        belief = start_beliefs(policy.prior, len(tasks))
        modelled = belief if same else start_beliefs(model, len(tasks))
        for step in logged_steps(offers, tasks):
            rule = policy.rule.propensities(belief, step.contexts, rng, step.allowed)
            rewards = modelled.predict(step.contexts)
            at, here = step.rounds[step.here], step.here
            arm = step.chosen[:, None]
            targets[at] = np.take_along_axis(rule.values, arm, 1)[here, 0]
            shown[at] = np.take_along_axis(rewards, arm, 1)[here, 0]
            expected[at] = (rule.values * rewards).sum(1)[here]
            x = np.take_along_axis(step.contexts, arm[..., None], 1)[:, 0]
            belief = update_some(belief, x, offers.rewards[step.rounds], here)
            # Where both start alike they stay alike.
            rewards = offers.rewards[step.rounds]
            modelled = belief if same else update_some(modelled, x, rewards, here)
    return targets, shown, expected


def replay(policy: Policy, offers: Offers, rng: np.random.Generator, least: float | None) -> Whole:
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
    Whole
        The numbers of the rounds that were kept.
    """
    agreed = np.zeros(len(offers.rewards), dtype=bool)
    for tasks in task_chunks(offers):
        belief = start_beliefs(policy.prior, len(tasks))
        for step in logged_steps(offers, tasks):
            picked = policy.rule.choose(belief, step.contexts, rng, step.allowed).arm
            agree = (picked == step.chosen) & step.here
            if least is not None:
                chance = least / offers.propensities[step.rounds]
                agree &= rng.random(len(agree)) < chance
            x = step.contexts[np.arange(len(tasks)), picked]
            agreed[step.rounds[agree]] = True
            belief = update_some(belief, x, offers.rewards[step.rounds], agree)
    return np.flatnonzero(agreed)


def task_chunks(offers: Offers) -> Iterator[Whole]:
    """Tasks of about the same length together, the longest first."""
    order = np.argsort(-np.diff(offers.tasks), kind="stable")
    for at in range(0, len(order), CHUNK):
        yield order[at : at + CHUNK]


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


def update_some(
    belief: BaseBelief, x: Array, rewards: Array, where: npt.NDArray[np.bool_]
) -> BaseBelief:
    """The belief after one more round of some of the tasks; x = 0 teaches the others nothing."""
    after = belief.update(x * where[:, None], rewards * where)
    return after.with_rounds(np.asarray(belief.rounds) + where)
