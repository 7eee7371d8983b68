"""The gain expected from a learned prior, by simulation."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from headstart.model.prior import Prior
from headstart.records import Array, Record

__all__ = ["Gain", "expected_gain"]

NEGLIGIBLE_REGRET = 0.01  # as a share of the regret of choosing at random
POPULATION_COUNT = 64  # populations that are drawn
MAX_TASKS = 512  # that are simulated of each population,
MAX_NUMBERS = 20_000  # and coordinates that these have together
MIN_VARIANCE_SHARE = 1e-12  # of the mean square; a smaller variance is rounding
ROUNDING_SHARE = 1e-13  # of a sum that may be rounding
RIVAL_NAMES = {"pooled": "one pooled model", "alone": "a task that learns alone"}


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gain(Record):
    """The gain that a new task is expected to have from a learned prior: :func:`expected_gain`.

    Attributes
    ----------
    saved
        The share of regret that the prior saves, compared with the better of a pooled model and a
        task that learns alone. 0 means that one of these is as good, below 0 that it is better. The
        median over the populations that may be the true one.
    low, high
        The 95 % interval of ``saved``.
    over
        Which of the two is the better: ``"pooled"`` or ``"alone"``.
    learned, pooled, alone
        Mean regret a round with the learned prior, of a pooled model and of a task that learns
        alone, each as a share of the regret of choosing at random.
    pooled_high
        The upper end of the 95 % interval of ``pooled``: how much tasks may differ, given the
        log.
    rounds, tasks
        The length of the task, and how many tasks the prior was learned from.
    times, curves
        Numbers of rounds, and the same three regrets after each: shapes ``(n,)`` and ``(3, n)``.
    """

    saved: float
    low: float
    high: float
    over: str
    learned: float
    pooled: float
    alone: float
    pooled_high: float
    rounds: float
    tasks: float
    times: Array
    curves: Array

    def over_rival(self, regret: float) -> float:
        """The share of regret saved compared with another way to choose, which has this regret."""
        return float(share_saved(np.array([self.learned, regret, regret]), 1.0))

    def summary(self) -> dict[str, Any]:
        """The gain as numbers and text, for JSON."""
        return {
            "regret_saved": self.saved,
            "low": self.low,
            "high": self.high,
            "over": self.over,
            "rounds": self.rounds,
            "regret": {"learned": self.learned, "pooled": self.pooled, "alone": self.alone},
            "sentence": str(self),
        }

    def __str__(self) -> str:
        if not self.tasks:
            return "not known yet"
        rival = RIVAL_NAMES[self.over]
        share = f"{percent(self.saved)} [{percent(self.low)} to {percent(self.high)}]"
        return f"{share} of the regret of {rival}, over {self.rounds:,.0f} rounds"


def percent(share: float) -> str:
    """A share in per cent, the sign as it is printed.

    >>> percent(0.123), percent(-0.04), percent(-0.001)
    ('12 %', '−4 %', '0 %')
    """
    return f"{round(100.0 * share) + 0:d} %".replace("-", "−")


def expected_gain(
    prior: Prior, gram: Array, rounds: float, tasks: float, intercept: int | None = None
) -> Gain:
    r"""The regret that a learned prior is expected to save, simulated from the prior itself.

    Tasks are drawn from the learned population, θ ~ N(m, Σ), and offered arms whose contexts have
    the log's second moments. With C the contexts' covariance and normal contexts, choosing the arm
    that is best under an estimate θ̂ loses, in expectation and for any number K of arms,

        e_K · (√(θᵀCθ) − θᵀCθ̂ / √(θ̂ᵀCθ̂)),        e_K the mean of the largest of K normals.

    Choosing at random loses e_K √(θᵀCθ). Its mean over tasks and over the rounds of a task
    is the regret ρ of a way to learn. Three are compared: the learned prior N(m, Σ); one pooled
    model, θ̂ = m throughout (an intercept of each task's own changes none of its choices); and a
    task that learns alone from N(0, s² diag(C)⁻¹), with s² such that rewards vary as much. After n
    rounds an estimate has seen the Gram matrix n M/(1+δ), M the mean Gram, where δ, the mean
    square width of a context, solves δ = Σ_j w_j / (1 + n w_j/(1+δ)) with w_j the eigenvalues of
    FᵀMF and F the prior's root (random contexts, to leading order in d). The gain is ::

        (ρ − ρ_learned) / max(ρ, ρ_learned),        ρ = min(ρ_pooled, ρ_alone)

    where 1 % of what choosing at random loses is added to every regret: where a rival loses less
    than that, there is nothing to gain. It lies between −1 and 1.

    The interval expresses the uncertainty of the estimated population: the gain is the median, and
    the interval the middle 95 %, over populations that may be the true one. In the coordinates in
    which FᵀMF is diagonal and Σ is 1, n̄ rounds of each of N tasks leave the mean with the variance
    (1 + 1/(n̄w_j))/N and a task variance with 2(1 + 1/(n̄w_j))²/N (Fisher's information for normal
    tasks). Populations are drawn so, all their variances too large or too small together, and the
    learner keeps the prior it has. It is an approximation: it takes rewards, contexts and tasks to
    be normal, and tasks to be of equal length.

    Parameters
    ----------
    prior
        What was learned: mean, root and noise.
    gram
        The mean Gram matrix M of the contexts.
    rounds
        The length of a task, n̄.
    tasks
        How many tasks the prior was learned from, N.
    intercept
        Which feature is constant; without one contexts are taken for centred.

    Examples
    --------
    Tasks that are all alike: a pooled model does as well, and learning alone is much worse.

    >>> alike = Prior.gaussian([1.0, 1.0], 1e-6 * np.eye(2))
    >>> gain = expected_gain(alike, np.eye(2), rounds=20, tasks=1000)
    >>> round(gain.saved, 2), gain.over, gain.alone > 0.05
    (0.0, 'pooled', True)

    Tasks that differ along one direction only: about two thirds of the regret are saved.

    >>> shared = Prior.gaussian(np.zeros(9), np.diag([1.0] + [1e-6] * 8))
    >>> gain = expected_gain(shared, np.eye(9), rounds=20, tasks=1000)
    >>> 0.5 < gain.low < gain.saved < gain.high < 0.8, gain.over
    (True, 'alone')
    """
    if tasks <= 0 or rounds <= 0:
        return NO_GAIN
    simulation = Simulation.of(prior, gram, intercept)
    # All arms are alike, but for rounding: nothing can be lost.
    if not simulation.reward_variance > ROUNDING_SHARE * (
        simulation.level + float(simulation.widths.sum())
    ):
        none = NO_GAIN.replace(learned=0.0, pooled=0.0, alone=0.0, pooled_high=0.0, over="pooled")
        return none.replace(tasks=float(tasks), rounds=float(rounds), curves=np.zeros((3, 1)))
    times, curves, random = simulation.run(float(rounds), float(tasks))
    # The sum over all rounds of what is interpolated between the times that were simulated.
    gaps = np.diff(times)
    weights = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2.0
    weights[0] += 0.5
    weights[-1] += 0.5
    mean = np.einsum("itp,t->ip", curves, weights / weights.sum())
    low, value, high = np.quantile(share_saved(mean, random), [0.025, 0.5, 0.975])
    shares = mean.mean(1) / random.mean()
    return Gain(
        saved=float(value),
        low=float(low),
        high=float(high),
        over="pooled" if shares[1] <= shares[2] else "alone",
        learned=float(shares[0]),
        pooled=float(shares[1]),
        alone=float(shares[2]),
        pooled_high=float(np.quantile(mean[1] / np.maximum(random, 1e-300), 0.975)),
        rounds=float(rounds),
        tasks=float(tasks),
        times=times,
        curves=curves.mean(2) / random.mean(),
    )


NO_GAIN = Gain(
    0.0, 0.0, 0.0, "alone", 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, times=np.zeros(1), curves=np.ones((3, 1))
)


def share_saved(regrets: Array, random: Any) -> Any:
    """The gain from the mean regrets of the three, and what choosing at random loses."""
    learned = regrets[0] + NEGLIGIBLE_REGRET * random
    rival = np.minimum(regrets[1], regrets[2]) + NEGLIGIBLE_REGRET * random
    return (rival - learned) / np.maximum(np.maximum(rival, learned), 1e-300)


class Simulation(NamedTuple):
    """Tasks and contexts in coordinates in which learning is diagonal, in units of the noise.

    A task is θ = m + G u with u ~ N(0, 1) each, and GᵀMG = diag(w). ``intercept_row`` is the
    intercept's row of G, which no choice depends on, and ``mean_product`` is GᵀCm. ``variances``
    and ``basis`` diagonalise the contexts' covariance C itself, for a task that learns alone.
    """

    widths: Array
    intercept_row: Array
    mean_product: Array
    level: float
    variances: Array
    basis: Array
    centre: Array
    dim: int

    @classmethod
    def of(cls, prior: Prior, gram: Array, intercept: int | None) -> Simulation:
        """Contexts centred and each feature in its own standard deviation: units do not matter."""
        moments, root, mean = np.array(gram, float), np.array(prior.root), prior.mean / prior.noise
        if intercept is not None and moments[intercept, intercept] > 0.0:
            shift = moments[intercept] / moments[intercept, intercept]
            shift[intercept] = 0.0
            moments = moments - np.outer(shift, moments[intercept])
            moments = moments - np.outer(moments[:, intercept], shift)
            root[intercept] += shift @ root
        square = np.maximum(np.diag(moments), 0.0)
        varies = square > np.maximum(MIN_VARIANCE_SHARE * np.diag(gram), 1e-30 * square.max())
        size = np.where(varies, np.sqrt(square), 0.0)
        moments = moments / np.outer(*[np.where(varies, size, 1.0)] * 2) * np.outer(varies, varies)
        mean, root = mean * size, root * size[:, None]
        widths, turn = eigenvectors(root.T @ moments @ root)
        root = root @ turn
        flat = np.zeros(prior.dim)
        if intercept is not None:
            flat = root[intercept]
            moments[intercept] = moments[:, intercept] = 0.0
            varies[intercept] = False
        own, basis = eigenvectors(moments[np.ix_(varies, varies)])
        return cls(
            np.maximum(widths, 0.0),
            flat,
            root.T @ (moments @ mean),
            float(mean @ moments @ mean),
            np.maximum(own, 0.0),
            root[varies].T @ basis,
            mean[varies] @ basis,
            int(varies.sum()),
        )

    @property
    def reward_variance(self) -> float:
        """The mean of θᵀCθ: how much rewards vary with the arm."""
        return (
            self.level + float(self.widths.sum()) - float(self.intercept_row @ self.intercept_row)
        )

    def product(self, one: Array, other: Array) -> Array:
        """θᵀCθ' of tasks in coordinates u."""
        joint = np.einsum("...i,...i,i->...", one, other, self.widths)
        both = (one + other) @ self.mean_product
        return self.level + both + joint - (one @ self.intercept_row) * (other @ self.intercept_row)

    def run(self, rounds: float, tasks: float) -> tuple[Array, Array, Array]:
        """Times up to ``rounds``, the regrets at each of every population, and those at random."""
        dim = len(self.widths)
        task_number = int(np.clip(MAX_NUMBERS // dim, 16, MAX_TASKS))
        rng = np.random.default_rng(0)  # the same for all, so that differences are their own
        widths = np.maximum(self.widths, 1e-8 * self.widths.max() + 1e-30)
        inflation = 1.0 + 1.0 / (rounds * widths)
        error = np.sqrt(2.0 / tasks) * inflation
        scale = np.maximum(1.0 + error * rng.standard_normal((POPULATION_COUNT, 1, 1)), 0.0)
        shift = rng.standard_normal((POPULATION_COUNT, 1, dim)) * np.sqrt(inflation / tasks)
        u = shift + np.sqrt(scale) * rng.standard_normal((task_number, dim))
        best = np.sqrt(np.maximum(self.product(u, u), 0.0))

        def regret(cross: Array, square: Array) -> Array:
            is_defined = square > 1e-24 * self.reward_variance
            gained = np.where(is_defined, cross / np.sqrt(np.where(is_defined, square, 1.0)), 0.0)
            return np.maximum(best - gained, 0.0).mean(-1)

        nothing = np.zeros(dim)
        pooled = regret(self.product(u, nothing), np.broadcast_to(self.level, best.shape))
        variance = self.reward_variance / max(self.dim, 1)
        lone_mean = self.centre + u @ self.basis
        own = np.append(variance * self.variances, self.intercept_row @ self.intercept_row)
        # Both learners have the same noise, each in its own coordinates.
        lone_noise = rng.standard_normal((task_number, len(self.variances)))
        reward_noise = (lone_noise * np.sqrt(self.variances)) @ self.basis.T
        reward_noise += rng.standard_normal((task_number, 1)) * self.intercept_row
        noise = reward_noise / np.sqrt(widths)
        last = max(round(rounds) - 1.0, 0.0)
        times = np.unique(np.round(np.append(0.0, np.geomspace(1.0, max(last, 1.0), 9))))
        times = times[times <= last]
        curves = np.zeros((3, len(times), POPULATION_COUNT))
        curves[1] = pooled
        for at, time in enumerate(times.tolist()):
            share = learned_share(self.widths, self.widths, time)
            v = share * u + np.sqrt(share * (1.0 - share)) * noise
            curves[0, at] = regret(self.product(u, v), self.product(v, v))
            share = learned_share(variance * self.variances, own, time)
            w = share * lone_mean + np.sqrt(share * (1.0 - share) * variance) * lone_noise
            cross = np.einsum("...i,...i,i->...", lone_mean, w, self.variances)
            curves[2, at] = regret(cross, np.einsum("...i,...i,i->...", w, w, self.variances))
        return times, curves, best.mean(-1)


def eigenvectors(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors whose signs do not depend on the machine, nor on rounding."""
    values, vectors = np.linalg.eigh(matrix)
    if len(values):
        sizes = np.abs(vectors)
        # Entries that are equal but for rounding (a flag and its complement) count as equal.
        first = (sizes > 0.999 * sizes.max(0)).argmax(0)
        largest = vectors[first, np.arange(len(values))]
        vectors = vectors * np.where(largest < 0.0, -1.0, 1.0)
    return values, vectors


def learned_share(widths: Array, every: Array, rounds: float) -> Array:
    """The share of the way from the prior's mean to θ that estimates have gone after ``rounds``."""
    information = widths * rounds / (1.0 + mean_square_width(every, rounds))
    return information / (1.0 + information)


def mean_square_width(widths: Array, rounds: float) -> float:
    """δ after ``rounds`` rounds, from the eigenvalues of F₀ᵀ M F₀."""
    low, high = 0.0, float(widths.sum())
    for _ in range(80):
        middle = (low + high) / 2.0
        above = float((widths / (1.0 + rounds * widths / (1.0 + middle))).sum()) > middle
        low, high = (middle, high) if above else (low, middle)
    return high
