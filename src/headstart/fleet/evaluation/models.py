"""The models that predict new tasks: a learned prior, and what it is compared with.

The others are Gaussian priors too, so that they differ only in what they were fitted to::

    no prior         θ_i ~ N(0, diag(v))                  every task learns alone
    average only     θ_i ~ N(m e₀, diag(v))               … and knows the average reward m
    one pooled model θ_i = θ, its posterior from all past tasks
    random intercept θ_i = θ + b_i e₀, b_i ~ N(0, τ²)     … and each task has an offset of its own

v holds one variance for the intercept e₀ and one for all features. It, m and the noise R maximize
the marginal likelihood of the past tasks, so that the competitors are tuned as well. Features are
used in the units given or divided by their root mean squares, whichever has the larger likelihood.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED
from headstart.fleet.evaluation.rollouts import AnyPrior
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence, upper_triangle
from headstart.model.prior import Prior
from headstart.records import Array

Expand = Callable[[Prior, bool], Array]

MAX_FITTED_TASKS = 500  # past tasks that four numbers are fitted to
MIN_NOISE_SHARE = 1e-6  # the least R², as a share of the mean square reward


def fit_models(
    learned: AnyPrior,
    expand: Expand,
    passes: int,
    dim: int,
    intercept: int | None,
    known_noise: float | None = None,
) -> dict[str, AnyPrior]:
    """All models, by name.

    Parameters
    ----------
    learned
        The learned prior.
    expand, passes
        ``expand(prior, as_one)`` is the packed evidence of past tasks, or of all of them as one;
        where it depends on what is known of tasks, a few passes use the model of the one before.
    dim, intercept
        How many features there are, and which is constant, if one is.
    known_noise
        R, if it is known.
    """

    def fitted(fit: Callable[[Array], Prior], as_one: bool = False) -> tuple[Prior, Array]:
        prior = Prior.isotropic(dim)
        for _ in range(passes):
            packed = expand(prior, as_one)
            prior = fit(packed)
        return prior, packed

    how: Any = {"dim": dim, "intercept": intercept, "known_noise": known_noise}
    single = functools.partial(independent_model, **how)
    start, total = fitted(single, as_one=True)
    models = {LEARNED: learned, POOLED: pooled_model(start, total[0])}
    if intercept is not None:
        models[OFFSET], _ = fitted(functools.partial(random_intercept_model, **how))
        models[AVERAGE], _ = fitted(functools.partial(single, around_average=True))
    models[ALONE], _ = fitted(single)
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
    sample = Evidence.unpack(past[use[:: max(1, -(-len(use) // MAX_FITTED_TASKS))]], dim)
    tried = (
        fit_scales(sample, intercept, around_average, units, known_noise)
        for units in candidate_units(sample)
    )
    _, mean, variances, noise = max(tried, key=operator.itemgetter(0))
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
    from scipy.optimize import minimize_scalar

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
        noise = max(
            rest / max(count, 1e-300), MIN_NOISE_SHARE * square / max(count, 1e-300), 1e-100
        )
        score = -0.5 * count * np.log(noise) - offsets
        return float(score), mean, left, noise

    found = minimize_scalar(
        lambda log: -fit_with_ratio(math.exp(log))[0], bounds=(-18.0, 18.0), method="bounded"
    )
    ratio = math.exp(found.x)
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
    is_close = np.abs(np.log(own)).max() < 0.3  # standardized features, but for the tasks here
    return [own] if is_close else [np.ones(dim), own]


def fit_scales(
    tasks: Evidence,
    intercept: int | None,
    around_average: bool,
    units: Array,
    known_noise: float | None = None,
) -> tuple[float, Array, Array, float]:
    """The likeliest mean of the intercept, variances of intercept and features, and R².

    With Σ = FF diagonal, S = F Gram F / R² and v = F (moment − Gram μ) / R², the posterior mean of
    a task is μ + F z with z = (I + S)⁻¹ v, and twice its log-likelihood is, up to a constant ::

        vᵀz − log det (I + S) − (squares − 2 μᵀ moment + μᵀ Gram μ) / R² − n log R²

    The result begins with the sum of these over tasks.
    """
    from scipy.optimize import minimize  # only for those who evaluate: it takes a while

    dim = tasks.moment.shape[-1]
    is_flat = np.arange(dim) == intercept
    count = max(float(tasks.rounds.sum()), 1e-300)
    usual = max(float(tasks.squares.sum()) / count, 1e-100)
    sizes = np.diagonal(tasks.gram, axis1=-2, axis2=-1).sum(0) / count / units**2
    spread = max(float(sizes[~is_flat].sum()), 1e-12 * float(sizes.sum()), 1e-300)
    # Logarithms of the variances, of the features and of the intercept, and of R², and the mean,
    # all in units of their usual size.
    scale = np.where(is_flat, usual, usual / spread) / units**2
    start = np.array([np.log(0.5), 0.0, np.log(0.5), 0.0])
    bounds = [(np.log(1e-12), 30.0)] * 2 + [(np.log(MIN_NOISE_SHARE), 30.0), (None, None)]
    if known_noise is not None:
        start[2] = np.log(known_noise**2 / usual)
        bounds[2] = (start[2], start[2])
    if not around_average or intercept is None:
        bounds[3] = (0.0, 0.0)

    def unpack(found: Array) -> tuple[Array, Array, float]:
        variances = scale * np.exp(np.where(is_flat, found[1], found[0]))
        return np.sqrt(usual) * found[3] * is_flat, variances, usual * float(np.exp(found[2]))

    def loss(found: Array) -> tuple[float, Array]:
        mean, variances, noise = unpack(found)
        root = np.sqrt(variances)
        inner = tasks.gram * np.outer(root, root) / noise + np.eye(dim)
        pull = root * (tasks.moment - tasks.gram @ mean) / noise
        left = np.linalg.inv(inner)
        z = (left @ pull[..., None])[..., 0]
        rest = tasks.squares - (mean * (2.0 * tasks.moment - tasks.gram @ mean)).sum(-1)
        fit = (pull * z).sum(-1) - np.linalg.slogdet(inner)[1] - rest / noise
        known = 1.0 - np.diagonal(left, axis1=-2, axis2=-1)
        slopes = (z**2 - known).sum(0)
        residual = rest / noise - (pull * z).sum(-1) - (z**2).sum(-1)
        gradient = [
            slopes[~is_flat].sum(),
            slopes[is_flat].sum(),
            (residual - tasks.rounds + known.sum(-1)).sum(),
            2.0 * np.sqrt(usual) * (z / root)[:, is_flat].sum(),
        ]
        return -float((fit - tasks.rounds * np.log(noise)).sum()) / count, -np.array(
            gradient
        ) / count

    best = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-12}
    )
    return -best.fun, *unpack(best.x)
