"""What a learned prior is compared with: tasks alone, tasks alone around their average, one model.

All of them are Gaussian priors, so that they differ in what they know and in nothing else::

    no prior         θ_i ~ N(0, diag(v))                  every task learns alone
    average only     θ_i ~ N(m e₀, diag(v))               … and knows the average reward m
    one pooled model θ_i = θ, its posterior from all past tasks

v holds one variance for the intercept e₀ and one for all features. It, m and the noise R are chosen
by the marginal likelihood of the past tasks: a competitor that is regularised badly would prove
nothing. Features count in the units they come in, or each in units of its own root mean square,
whichever makes the past likelier.
"""

from __future__ import annotations

import numpy as np

from headstart.belief import Belief
from headstart.evidence import Evidence
from headstart.prior import Prior
from headstart.records import Array
from headstart.transfer.fitting import noise_likelihood, posteriors, residuals, task_likelihoods
from headstart.transfer.many import Fit, Tasks, record

__all__ = ["alone", "pooled"]

STEPS = 60  # of scoring, at most
CLOSE = 1e-5  # relative change at which it stops
MOST = 1000  # past tasks that four numbers are fitted to
LEAST = 1e-6  # the least R², as a share of the mean square reward


def alone(past: Evidence, intercept: int | None, around_average: bool = False) -> Prior:
    """A prior that knows only scales, and with ``around_average`` the average reward.

    Parameters
    ----------
    past
        The evidence of past tasks, side by side along one batch axis.
    intercept
        Which feature is constant, if one is.
    around_average
        Whether the intercept's mean is fitted too; 0 otherwise.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> contexts, thetas = rng.standard_normal((300, 20, 2)), 3.0 * rng.standard_normal((300, 2, 1))
    >>> rewards = (contexts @ thetas)[..., 0] + rng.standard_normal((300, 20))
    >>> prior = alone(Evidence.of(contexts, rewards), intercept=None)
    >>> np.sqrt(np.diag(prior.covariance)).round(), round(prior.noise, 1)
    (array([3., 3.]), 1.0)
    """
    sample = as_tasks(past)
    tried = [scored(sample, intercept, around_average, units) for units in units_of(sample)]
    fit = max(tried, key=lambda found: found[1])[0]
    noise = float(np.sqrt(fit.noise))
    return Prior(fit.mean, np.diag(np.sqrt(np.diag(fit.covariance))) / noise, noise=noise)


def pooled(past: Evidence, intercept: int | None) -> Prior:
    """The posterior of a θ that all tasks have in common: one regression over all past rows.

    It is regularised as tasks alone are, as if all rows were those of a single task.

    >>> contexts = np.random.default_rng(0).standard_normal((50, 20, 2))
    >>> pooled(Evidence.of(contexts, contexts @ [4.0, -1.0]), intercept=None).mean.round(2)
    array([ 4., -1.])
    """
    parts = (past.gram, past.moment, past.rounds, past.squares)
    total = Evidence(*(part.sum(0, keepdims=True) for part in parts))
    start = alone(total, intercept)
    belief = Belief.of(start, Evidence(*(part.sum(0) for part in parts)))
    return Prior(belief.mean, belief.root, noise=start.noise)


def as_tasks(past: Evidence) -> Tasks:
    """The past tasks that have shown anything; some of them, evenly spread, if there are many."""
    use = np.flatnonzero(past.rounds > 0)
    use = use[:: max(1, -(-len(use) // MOST))]
    ones = np.ones(len(use))
    return record(
        Tasks, past.gram[use], past.moment[use], past.rounds[use], past.squares[use], ones
    )


def units_of(tasks: Tasks) -> list[Array]:
    """The features' units: as they come, and each its root mean square."""
    dim = tasks.moment.shape[-1]
    square = np.diagonal(tasks.gram, axis1=-2, axis2=-1).sum(0) / max(tasks.rounds.sum(), 1e-300)
    size = np.sqrt(np.maximum(square, 0.0))  # a centred constant may be 0 less a rounding
    own = np.where(size > 0, size, 1.0)
    return [np.ones(dim), own]


def scored(
    tasks: Tasks, intercept: int | None, around_average: bool, units: Array
) -> tuple[Fit, float]:
    """The fit in these units, and the log-likelihood of the tasks under it."""
    fit = fitted(tasks, intercept, around_average, units)
    root = np.sqrt(fit.covariance)  # diagonal
    likelihood = task_likelihoods(fit, tasks, root) + noise_likelihood(fit, tasks)
    return fit, float(likelihood.sum())


def fitted(tasks: Tasks, intercept: int | None, around_average: bool, units: Array) -> Fit:
    """The variances of intercept and features, R², and the intercept's mean, by scoring.

    As :mod:`headstart.transfer.fitting`, with Σ diagonal and one number per group of features: the
    gradient of the log-likelihood along a group is ½ Σ_i Σ_j (z_ij² − K_ijj), its curvature at most
    ½ Σ_i Σ_j (K_i²)_jj.
    """
    dim = tasks.moment.shape[-1]
    groups = [np.arange(dim) != intercept, np.arange(dim) == intercept]
    groups = [group for group in groups if group.any()]
    usual = max(tasks.squares.sum() / max(tasks.rounds.sum(), 1e-300), 1e-300)
    sizes = np.diagonal(tasks.gram, axis1=-2, axis2=-1).sum(0) / max(tasks.rounds.sum(), 1e-300)
    noise, mean = 0.5 * usual, np.zeros(dim)
    spread = np.maximum((sizes / units**2)[groups[0]].sum(), 1e-300)
    scales = np.array([0.5 * usual / spread, usual])[: len(groups)]
    for _ in range(STEPS):
        before = np.append(scales, noise)
        variances = sum(
            scale * group / units**2 for scale, group in zip(scales, groups, strict=True)
        )
        root = np.diag(np.sqrt(variances))
        fit: Fit = record(Fit, mean, np.diag(variances), np.zeros((dim, dim)), noise)
        known, z = posteriors(fit, root, tasks)
        found = mean + z @ root
        residual, freedom = residuals(tasks, found, known)
        noise = max(float(residual.sum() / max(freedom.sum(), 1e-300)), LEAST * usual)
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
    variances = sum(scale * group / units**2 for scale, group in zip(scales, groups, strict=True))
    return record(Fit, mean, np.diag(variances), np.zeros((dim, dim)), noise)
