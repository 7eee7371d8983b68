"""Tasks go side by side, round after round: what is predicted, and what is chosen, on the way.

A *forecast* predicts the j-th reward of all tasks from what was learned of each before, then learns
it. A row that a task does not have is learned as x = 0, which changes nothing. Where all arms on
offer were logged, a policy goes along them likewise: it learns what was logged (:func:`follow`), or
only where it picks the arm that was logged (:func:`replay`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.own_noise import has_own_noise, reward_scale
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.rules import Rule

AnyPrior = Prior | MixturePrior
Whole = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

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
Expand = Callable[[Any, Array, Array, Array], tuple[Array, Array]]


def forecast(
    prior: AnyPrior,
    episodes: Episodes,
    score: Score | None = None,
    expand: Expand | None = None,
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
        of the episodes; :func:`score_rewards` unless given.
    expand
        ``expand(belief, x, r, weight)`` is the round of a linear model that a round is learned as;
        one that counts w times is learned as one of √w times the size, unless given.

    Examples
    --------
    A prior that is sure of θ = 2, and a task that agrees:

    >>> episodes = Episodes(np.ones((1, 2, 1)), np.array([[2.0, 3.0]]), np.ones((1, 2)), [2])
    >>> forecast(Prior.gaussian([2.0], [[1e-12]]), episodes).errors.round(6)
    array([[0., 1.]])
    """
    score, expand = score or score_rewards, expand or weighted_round
    tasks, rounds = episodes.rewards.shape
    result = Forecast(*(np.zeros((tasks, rounds)) for _ in Forecast._fields))
    parts = prior.parts if isinstance(prior, MixturePrior) else prior
    has_noise = bool(np.any(has_own_noise(parts.noise_dof)))
    for start in range(0, tasks, CHUNK):
        rows = slice(start, min(start + CHUNK, tasks))
        belief = start_beliefs(prior, rows.stop - rows.start)
        evidence = Evidence.zero(belief.dim, belief.batch)
        longest = int(np.max(episodes.lengths[rows], initial=0))
        # Each row in double precision: the belief's roots must stay so.
        features = episodes.features[rows, :longest].astype(np.float64)
        for place in range(longest):
            at, x = (rows, place), features[:, place]
            r, weight = episodes.rewards[at], episodes.weights[at]
            for out, values in zip(result, score(belief, x, r, at), strict=True):
                out[at] = np.where(weight > 0, values, 0.0)
            if place + 1 < longest:
                learned = expand(belief, x, r, weight)
                belief = belief.update(*learned)
                if has_noise:
                    after = evidence.add_unchecked(*learned)
                    evidence = after.replace(rounds=evidence.rounds + weight)
                    belief = belief.prior.belief(evidence) if belief.needs_rebuild else belief
    return result


def start_beliefs(prior: AnyPrior, tasks: int) -> Any:
    """The belief before any reward, for so many tasks side by side."""
    stack: Any = type(prior).stack
    return stack([prior] * tasks).belief()


def weighted_round(belief: Any, x: Array, r: Array, weight: Array) -> tuple[Array, Array]:
    """A round that counts w times: one of √w times the size."""
    scale = np.sqrt(weight)
    return x * scale[:, None], r * scale


def score_rewards(
    belief: Belief | MixtureBelief, x: Array, r: Array, at: tuple[slice, int]
) -> tuple[Array, Array, Array]:
    """The squared error, the log density and the place of rewards in their distributions.

    A reward is N(xᵀθ̂, R² (1 + ‖x‖²_{B⁻¹})), or t where R is uncertain
    (:func:`~headstart.model.own_noise.reward_scale`), or a mixture of such.
    """
    from scipy.special import logsumexp  # only for those who evaluate: it takes a while

    if isinstance(belief, MixtureBelief):
        parts, log_weights, rows = belief.parts, belief.log_weights, x[:, None, None, :]
    else:  # a mixture of one
        parts, log_weights, rows = belief, np.zeros((len(x), 1)), x[:, None, :]

    def by_part(values: Any) -> Array:
        """Numbers of tasks and parts: shape ``(tasks, parts)``."""
        return np.broadcast_to(values, parts.batch).reshape(log_weights.shape)

    means, width = by_part(parts.predict(rows)[..., 0]), by_part(parts.width(rows)[..., 0])
    scale, dof = reward_scale(width, *map(by_part, parts.degrees_of_freedom()))
    variance, weights = np.square(by_part(parts.noise) * scale), np.exp(log_weights)
    densities, places = t_distribution((r[:, None] - means) / np.sqrt(variance), dof)
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
