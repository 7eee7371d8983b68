"""The models that predict new tasks: a learned prior, and what it is compared with.

The others are Gaussian priors too, so that they differ in what they know and in nothing else::

    no prior         θ_i ~ N(0, diag(v))                  every task learns alone
    average only     θ_i ~ N(m e₀, diag(v))               … and knows the average reward m
    one pooled model θ_i = θ, its posterior from all past tasks
    random intercept θ_i = θ + b_i e₀, b_i ~ N(0, τ²)     … and each task has an offset of its own

v holds one variance for the intercept e₀ and one for all features. It, m and the noise R are chosen
by the marginal likelihood of the past tasks: a competitor that is regularised badly would prove
nothing. Features count in the units they come in, or each in units of its own root mean square,
whichever makes the past likelier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from headstart.fleet.evaluation.forecasts import AnyPrior
from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence, upper_triangle
from headstart.model.prior import Prior
from headstart.records import Array

__all__ = ["Refit", "fit_models", "independent_model", "random_intercept_model"]

Refit = Callable[[Array], Prior]  # of packed evidence

STEPS = 60  # of scoring, at most
CLOSE = 1e-5  # relative change at which it stops
MOST = 500  # past tasks that four numbers are fitted to
LEAST = 1e-6  # the least R², as a share of the mean square reward


def fit_models(
    learned: AnyPrior,
    fitted: Callable[[Refit, bool], tuple[Prior, Array]],
    dim: int,
    intercept: int | None,
    known_noise: float | None = None,
) -> dict[str, AnyPrior]:
    """All models, by name.

    Parameters
    ----------
    learned
        The learned prior.
    fitted
        ``fitted(refit, as_one)`` is the model that ``refit`` makes of the packed evidence of past
        tasks, or of all of them as one, and that evidence.
    dim, intercept
        How many features there are, and which is constant, if one is.
    known_noise
        R, if it is known.
    """
    single = functools.partial(
        independent_model, dim=dim, intercept=intercept, known_noise=known_noise
    )
    start, packed = fitted(single, True)
    models = {LEARNED: learned, POOLED: pooled_model(start, packed[0])}
    if intercept is not None:
        mixed = functools.partial(random_intercept_model, dim=dim, intercept=intercept)
        models[OFFSET] = fitted(functools.partial(mixed, known_noise=known_noise), False)[0]
        models[AVERAGE] = fitted(functools.partial(single, around_average=True), False)[0]
    models[ALONE] = fitted(single, False)[0]
    return models


def independent_model(
    past: Array,
    dim: int,
    intercept: int | None,
    around_average: bool = False,
    known_noise: float | None = None,
) -> Prior:
    """A prior that knows only scales, and with ``around_average`` the average reward.

    Parameters
    ----------
    past
        The packed evidence of past tasks, one row each.
    dim
        How many features there are.
    intercept
        Which feature is constant, if one is.
    around_average
        Whether the intercept's mean is fitted too; 0 otherwise.
    known_noise
        R, if it is known.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> contexts, thetas = rng.standard_normal((300, 20, 2)), 3.0 * rng.standard_normal((300, 2, 1))
    >>> rewards = (contexts @ thetas)[..., 0] + rng.standard_normal((300, 20))
    >>> prior = independent_model(Evidence.of(contexts, rewards).pack(), 2, intercept=None)
    >>> np.sqrt(np.diag(prior.covariance)).round(), round(prior.noise, 1)
    (array([3., 3.]), 1.0)
    """
    # The past tasks that have shown anything; some of them, evenly spread, if there are many.
    use = np.flatnonzero(past[:, -2] > 0)
    sample = Evidence.unpack(past[use[:: max(1, -(-len(use) // MOST))]], dim)
    tried = [
        fit_scales(sample, intercept, around_average, units, known_noise)
        for units in candidate_units(sample)
    ]
    mean, variances, noise = tried[0]
    if len(tried) > 1:
        mean, variances, noise = max(tried, key=lambda scales: likelihood(sample, *scales))
    return Prior(mean, np.diag(np.sqrt(variances / noise)), noise=float(np.sqrt(noise)))


def pooled_model(start: Prior, packed: Array) -> Prior:
    """The prior of new tasks where all have one θ: its posterior, from the rows of all past tasks.

    >>> contexts = np.random.default_rng(0).standard_normal((50, 20, 2))
    >>> total = Evidence.of(contexts, contexts @ [4.0, -1.0]).pack().sum(0)
    >>> pooled_model(independent_model(total[None], 2, intercept=None), total).mean.round(2)
    array([ 4., -1.])
    """
    belief = Belief.of(start, Evidence.unpack(packed, len(start.mean)))
    return Prior(belief.mean, belief.root, noise=start.noise)


def random_intercept_model(
    past: Array, dim: int, intercept: int, known_noise: float | None = None
) -> Prior:
    """Pooled slopes and an offset b_i ~ N(0, τ²) for every task: the standard mixed model.

    With φ = τ²/R² the offset of a task is integrated out of its sums: with g the Gram matrix's
    column of the intercept, n its entry and f = φ/(1 + φn), they become G − f ggᵀ and m − f s g,
    where s is the sum of the rewards. Then θ is a regression as above, and φ maximises ::

        −½ N log(RSS/N) − ½ Σ_i log(1 + φ n_i)

    or, if R is known, the same with RSS/R² in place of N log(RSS/N).

    >>> rng = np.random.default_rng(0)
    >>> contexts = np.stack([rng.standard_normal((200, 20)), np.ones((200, 20))], -1)
    >>> offsets = 2.0 * rng.standard_normal((200, 1))
    >>> rewards = 3.0 * contexts[..., 0] + 5.0 + offsets + rng.standard_normal((200, 20))
    >>> prior = random_intercept_model(Evidence.of(contexts, rewards).pack(), 2, intercept=1)
    >>> prior.mean.round(), np.sqrt(np.diag(prior.covariance)).round(1), round(prior.noise, 1)
    (array([3., 5.]), array([0., 2.]), 1.0)
    """
    total = Evidence.unpack(past.sum(0), dim)
    gram, moment, count, square = total.gram, total.moment, total.rounds, total.squares
    start = independent_model(past.sum(0)[None], dim, intercept, known_noise=known_noise)
    i, j = upper_triangle(dim)
    across = np.flatnonzero((i == intercept) | (j == intercept))  # in the order of the features
    column, own = past[:, across], past[:, across[intercept]]
    sums = past[:, len(i) + intercept]
    ridge = np.diag(1.0 / np.clip(np.diag(start.root) ** 2, 1e-60, 1e60))

    def fit_with_ratio(ratio: float) -> tuple[float, Array, Array, float]:
        factor = ratio / (1.0 + ratio * own)
        left = gram - (column * factor[:, None]).T @ column + ridge
        right = moment - column.T @ (factor * sums)
        mean = np.linalg.solve(left, right)
        rest = square - float((factor * sums * sums).sum()) - float(mean @ right)
        offsets = 0.5 * float(np.log1p(ratio * own).sum())
        if known_noise is not None:
            return -0.5 * rest / known_noise**2 - offsets, mean, left, known_noise**2
        noise = max(rest / max(count, 1e-300), LEAST * square / max(count, 1e-300), 1e-100)
        score = -0.5 * count * np.log(noise) - offsets
        return float(score), mean, left, noise

    ratios = np.geomspace(1e-8, 1e8, 33)
    for _ in range(3):
        best = int(np.argmax([fit_with_ratio(ratio)[0] for ratio in ratios.tolist()]))
        low, high = ratios[max(best - 1, 0)], ratios[min(best + 1, len(ratios) - 1)]
        ratio, ratios = float(ratios[best]), np.geomspace(low, high, 9)
    _, mean, left, noise = fit_with_ratio(ratio)
    covariance = np.linalg.inv(left)
    covariance[intercept, intercept] += ratio
    covariance = noise * (covariance + covariance.T) / 2.0
    if not np.isfinite(covariance).all() or np.linalg.eigvalsh(covariance)[0] < -1e-9 * np.trace(
        covariance
    ):
        raise np.linalg.LinAlgError("rounding has left no covariance")
    return Prior.gaussian(mean, covariance, noise=float(np.sqrt(noise)))


def candidate_units(tasks: Evidence) -> list[Array]:
    """The features' units: as they come, and each its root mean square."""
    dim = tasks.moment.shape[-1]
    square = np.diagonal(tasks.gram, axis1=-2, axis2=-1).sum(0) / max(tasks.rounds.sum(), 1e-300)
    size = np.sqrt(np.maximum(square, 0.0))  # a centred constant may be 0 less a rounding
    own = np.where(size > 0, size, 1.0)
    return [np.ones(dim), own] if np.abs(own - 1.0).max() > 1e-6 else [own]


def task_systems(
    tasks: Evidence, mean: Array, variances: Array, noise: float
) -> tuple[Array, Array]:
    """I + S and v of every task: S = F Gram F / R² and v = F (moment − Gram μ) / R², with Σ = FF.

    The posterior mean of a task is μ + F z with z = (I + S)⁻¹ v.
    """
    root = np.sqrt(variances)
    inner = tasks.gram * np.outer(root, root) / noise + np.eye(len(mean))
    return inner, root * (tasks.moment - tasks.gram @ mean) / noise


def likelihood(tasks: Evidence, mean: Array, variances: Array, noise: float) -> float:
    """The log-likelihood of all tasks, up to a constant."""
    inner, pull = task_systems(tasks, mean, variances, noise)
    z = np.linalg.solve(inner, pull[..., None])[..., 0]
    explained = (pull * z).sum(-1) - np.linalg.slogdet(inner)[1]
    rest = tasks.squares - (mean * (2.0 * tasks.moment - tasks.gram @ mean)).sum(-1)
    return float(0.5 * (explained - rest / noise - tasks.rounds * np.log(noise)).sum())


def fit_scales(
    tasks: Evidence,
    intercept: int | None,
    around_average: bool,
    units: Array,
    known_noise: float | None = None,
) -> tuple[Array, Array, float]:
    """The intercept's mean, the variances of intercept and features, and R², by scoring.

    Σ is diagonal, with one number per group of features: the gradient of the log-likelihood along
    a group is ½ Σ_i Σ_j (z_ij² − K_ijj), its curvature at most ½ Σ_i Σ_j (K_i²)_jj, where K is
    I − (I + S)⁻¹.
    """
    dim = tasks.moment.shape[-1]
    groups = [np.arange(dim) != intercept, np.arange(dim) == intercept]
    groups = [group for group in groups if group.any()]
    usual = max(tasks.squares.sum() / max(tasks.rounds.sum(), 1e-300), 1e-100)
    sizes = np.diagonal(tasks.gram, axis1=-2, axis2=-1).sum(0) / max(tasks.rounds.sum(), 1e-300)
    noise, mean = 0.5 * usual if known_noise is None else known_noise**2, np.zeros(dim)
    each = np.maximum(sizes / units**2, 0.0)  # a centred constant may be 0 less a rounding
    spread = max(each[groups[0]].sum(), 1e-12 * each.sum(), 1e-300)
    scales = np.array([0.5 * usual / spread, usual])[: len(groups)]

    def variances_of(scales: Array) -> Array:
        total: Array = sum(
            scale * group / units**2 for scale, group in zip(scales, groups, strict=True)
        )
        return total

    for _ in range(STEPS):
        before = np.append(scales, noise)
        variances = variances_of(scales)
        inner, pull = task_systems(tasks, mean, variances, noise)
        left = np.linalg.inv(inner)
        known, z = np.eye(dim) - left, (left @ pull[..., None])[..., 0]
        theta = mean + z * np.sqrt(variances)
        explained = (theta * (2.0 * tasks.moment - (tasks.gram @ theta[..., None])[..., 0])).sum(-1)
        residual = np.maximum(tasks.squares - explained, 0.0).sum()
        dof = np.maximum(tasks.rounds - np.trace(known, axis1=-2, axis2=-1), 0.0).sum()
        if known_noise is None:
            noise = max(float(residual / max(dof, 1e-300)), LEAST * usual)
        if around_average and intercept is not None:
            share = float(known[:, intercept, intercept].sum())
            step = np.sqrt(variances[intercept]) * z[:, intercept].sum() / max(share, 1e-300)
            mean = mean + step * (np.arange(dim) == intercept)
        own, squared = np.diagonal(known, axis1=-2, axis2=-1), (known**2).sum(-1)
        for at, group in enumerate(groups):
            slope = float((z[:, group] ** 2 - own[:, group]).sum())
            change = slope / max(float(squared[:, group].sum()), 1e-300)
            # A step up is bounded; a step down never reaches zero.
            scales[at] *= 1.0 + min(change, 3.0) if change > 0 else 1.0 / (1.0 - change)
        scales = np.maximum(scales, 1e-12 * usual / np.append(spread, 1.0)[: len(groups)])
        after = np.append(scales, noise)
        if np.abs(after - before).max() <= 0 or (np.abs(after / before - 1.0) < CLOSE).all():
            break
    return mean, variances_of(scales), noise
