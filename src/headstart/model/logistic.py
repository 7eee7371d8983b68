"""Rewards of 0 and 1: a logistic model whose evidence is still a sum.

With P(r = 1) = σ(xᵀθ), σ(e) = 1/(1 + exp(−e)), the posterior of θ is not Gaussian. Under a Gaussian
belief, e = xᵀθ has the mean m and the variance s, and one reward moves its mode to ::

    η = m + s (r − σ(η))

An expansion there is the likelihood of one Gaussian observation of e, with noise 1::

    w = E σ'(e)        z = η + (r − E σ(e))/w        (√w x, √w z)

So a reward enters beliefs and evidence as the round (√w x, √w z) of a linear model with R = 1: sums
stay sums, and every transfer works on them. With σ(η) and σ'(η) this would be Laplace's
approximation. Its modes are not means: where rewards of 1 are rare, posteriors are skewed, and
predicted rates over all tasks are too high. So the expectations are over what is known of e after
the reward, N(η, s') with s' = s/(1 + s σ'(η)), but with s' at most 2 in E σ and at most 1 in E σ'.
Without bounds, rewards under a prior that is still too wide are taken for log-odds far from 0, and
as wide a prior is learned from them. A larger bound in E σ' makes intervals too narrow where clicks
are rare, and a smaller one in E σ makes rates too high. For a reward of probability p, w is not
below :func:`least_curvatures`: a prior that explains it better must not gain more than −log p.
Fits, which look at all rounds of a task together, compute without bounds
(:func:`posterior_evidence`).

What a round adds depends on the belief at that time, so the order of rewards matters a little.
Newton steps towards η diverge where s is large; here they are kept within a bracket. w is never
below 10⁻⁶, so that the sums stay finite.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.model.evidence import Evidence
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.model.base import BaseBelief
    from headstart.model.prior import Prior

MIN_WEIGHT = 1e-6  # the least w
MAX_SPREAD, MAX_CURVATURE_SPREAD = 2.0, 1.0  # the most s' in E σ and in E σ'
TOLERANCE = 1e-9  # of η, relative to 1 + |η|
MAX_STEPS = 200  # far more than are needed
MEAN_STEPS = 20  # from the mode of a posterior to its mean
MEAN_TOLERANCE = 1e-4  # of log-odds, in these steps
MAX_MOVE = 2.0  # of the log-odds of a round, in one of these steps
NODES = np.arange(-72, 73) / 8.0  # of the trapezoidal rule, in standard deviations
WIDE_DEVIATION = 20.0  # above which they are too far apart
#: Nodes and shares of Gauss–Hermite quadrature, enough for an s' of 2.
QUADRATURE = [
    (float(node), float(share) / math.sqrt(2.0 * math.pi))
    for node, share in zip(*np.polynomial.hermite_e.hermegauss(7), strict=True)
]


def sigmoid(odds: Any) -> Any:
    """1/(1 + exp(−e)) of log-odds e, without overflow.

    >>> sigmoid(0.0), sigmoid(np.array([-1000.0, 1000.0]))
    (0.5, array([0., 1.]))
    """
    if isinstance(odds, float):
        if odds >= 0.0:
            return 1.0 / (1.0 + math.exp(-odds))
        small = math.exp(odds)
        return small / (1.0 + small)
    small_odds = np.exp(-np.abs(odds))
    return np.where(np.asarray(odds) >= 0.0, 1.0, small_odds) / (1.0 + small_odds)


def posterior_mode(mean: float, variance: float) -> float:
    """The mode η of e ~ N(m, s) given a reward of 1: the root of e − m − s σ(−e).

    Newton's method in the bracket of :func:`mode_bracket`, and a bisection where a step would leave
    it. Given a reward of 0, the mode is that of −e with its sign changed.

    >>> round(posterior_mode(0.0, 4.0), 4)
    1.0426
    """
    low, high, mode = mode_bracket(mean, variance)
    for _ in range(MAX_STEPS):
        miss: float = sigmoid(-mode)
        excess = mode - mean - variance * miss
        if excess > 0.0:
            high = mode
        else:
            low = mode
        next_mode = mode - excess / (1.0 + variance * miss * (1.0 - miss))
        if not low < next_mode < high:
            next_mode = 0.5 * (low + high)
        if abs(next_mode - mode) <= TOLERANCE * (1.0 + abs(mode)):
            return next_mode
        mode = next_mode
    return mode


def mode_bracket(mean: float, variance: float) -> tuple[float, float, float]:
    """Numbers between which the mode lies, and a first guess: near it, however large s is.

    The mode is at most max(m + 1, log(1 + s)), because s σ(−e) < 1 above log(1 + s). If it is below
    0, σ(−e) is between ½ and 1 there.

    >>> mode_bracket(-1e60, 1e120)
    (0.0, 276.3102111592855, 138.15510557964274)
    """
    guess = mean + variance * sigmoid(-mean) / (1.0 + variance / 4.0)
    if mean < 0.0 and mean + 0.5 * variance <= 0.0:
        low, high = mean + 0.5 * variance, min(mean + variance, 0.0)
        share = -mean / variance if variance > 0.0 else 1.0
        far = math.log(1.0 / share - 1.0) if share < 1.0 else low  # σ(−e) = −m/s, if s is large
        return low, high, min(max(guess, far, low), high)
    log = math.log1p(variance)
    low = max(mean, 0.0)
    high = max(low, min(mean + variance, max(mean + 1.0, log)))
    far = log - math.log1p(log + abs(mean))  # e = log(s/(e − m)), if e and s are large
    return low, high, min(max(guess, far, low), high)


#: The modes of arrays: faster one by one than array operations for the few dozen of a batch.
posterior_modes = np.vectorize(posterior_mode, otypes=[float])


def linearize(belief: BaseBelief, x: Array, r: Any, weight: Any = 1.0) -> tuple[Array, Any]:
    """The round (√w x, √w z) of a linear model with R = 1 that stands for a reward of 0 or 1.

    Parameters
    ----------
    belief
        The belief before the reward, with R = 1; one, or a batch.
    x, r
        The context and the reward, which were checked already.
    weight
        How often the reward counts; of a batch, one number or one for each. A reward that counts 0
        times becomes a round of zeros.

    Returns
    -------
    tuple
        What to add to the evidence, and to update the belief by.
    """
    row = x[..., None, :]
    mean, width = belief.predict(row)[..., 0], belief.width(row)[..., 0]
    # Of a reward of 0, everything is that of a reward of 1 with the signs of e changed.
    if x.ndim == 1:
        sign, variance = 1.0 if r else -1.0, weight * float(width) ** 2
        mode = posterior_mode(sign * float(mean), variance)
        miss, curvature = expected_miss(mode, variance)
        root = math.sqrt(weight * curvature)
        return root * x, sign * root * (mode + miss / curvature)
    signs, variances = np.where(np.asarray(r) > 0, 1.0, -1.0), weight * width**2
    modes = posterior_modes(signs * mean, variances)
    misses, curvatures = expected_misses(modes, variances)
    roots = np.sqrt(weight * curvatures)
    return roots[..., None] * x, signs * roots * (modes + misses / curvatures)


def expected_miss(mode: float, variance: float) -> tuple[float, float]:
    """E σ(−e) and w of a reward of 1, from the mode η after it and the variance s before it.

    By Gauss–Hermite quadrature, accurate to a thousandth.

    >>> [round(part, 4) for part in expected_miss(-4.0, 1.0)]
    [0.9721, 0.132]
    """
    miss: float = sigmoid(-mode)
    spread = variance / (1.0 + variance * max(miss * (1.0 - miss), MIN_WEIGHT))
    wide = math.sqrt(min(spread, MAX_SPREAD))
    narrow = math.sqrt(min(spread, MAX_CURVATURE_SPREAD))
    expected = curvature = 0.0
    for node, share in QUADRATURE:
        chance = sigmoid(wide * node - mode)
        expected += share * chance
        if narrow < wide:
            chance = sigmoid(narrow * node - mode)
        curvature += share * chance * (1.0 - chance)
    if expected > 0.5:  # otherwise it is no bound
        curvature = max(curvature, float(least_curvatures(expected)))
    return expected, max(curvature, MIN_WEIGHT)


expected_misses = np.vectorize(expected_miss, otypes=[float, float])


def posterior_evidence(prior: Prior, contexts: Array, rewards: Array, weights: Array) -> Evidence:
    """The evidence of all rounds of a task, each expanded around the posterior of all of them.

    The posterior is the Gaussian q that is nearest to the exact one (the lowest KL(q ‖ exact)).
    With e = xᵀθ of q, it is stationary where every round has ::

        w = E σ'(e)        z = E e + (r − E σ(e))/w

    Its mode is found first, by Newton's method in coordinates in which the prior is N(0, I), with
    steps that are halved until the density rises. Unlike with :func:`linearize`, the order of the
    rounds does not matter.

    A fit treats the rounds as observations of a linear model under every prior that it tries. A
    click of probability .004 would be an observation of e + 250 under each of them. So w is not
    below :func:`least_curvatures` (.09 there); that leaves the mean of q as it is.

    Parameters
    ----------
    prior
        The prior of the task, with R = 1.
    contexts, rewards, weights
        The rounds: shapes ``(n, d)``, ``(n,)`` and ``(n,)``.
    """
    signs = np.where(rewards > 0, 1.0, -1.0)
    inner, offset = contexts @ prior.root, contexts @ prior.mean
    point, eye = np.zeros(prior.dim), np.eye(prior.dim)

    def log_density(at: Array) -> float:
        return float(-0.5 * at @ at - weights @ np.logaddexp(0.0, -signs * (offset + inner @ at)))

    for _ in range(MAX_STEPS):
        odds = offset + inner @ point
        misses: Array = sigmoid(-signs * odds)
        curvatures = np.maximum(misses * (1.0 - misses), MIN_WEIGHT)
        precision = eye + (inner.T * (weights * curvatures)) @ inner
        slope = inner.T @ (weights * signs * misses) - point
        step = np.linalg.solve(precision, slope)
        gain, share = float(slope @ step), 1.0
        if gain <= TOLERANCE:
            break
        start = log_density(point)
        while log_density(point + share * step) < start + 1e-4 * share * gain and share > 1e-9:
            share *= 0.5
        point = point + share * step
    for _ in range(MEAN_STEPS):
        spreads = (inner * np.linalg.solve(precision, inner.T).T).sum(-1)
        misses, latest_curvatures = expected_miss_and_curvature(signs * odds, np.sqrt(spreads))
        slope = inner.T @ (weights * signs * misses) - point
        curvatures = np.sqrt(curvatures * latest_curvatures)  # whole steps would alternate
        precision = eye + (inner.T * (weights * curvatures)) @ inner
        step = np.linalg.solve(precision, slope)
        largest_move = float(np.abs(inner @ step).max())
        if largest_move <= MEAN_TOLERANCE:
            break
        step *= min(1.0, MAX_MOVE / largest_move)
        point, odds = point + step, odds + inner @ step
    curvatures = np.maximum(curvatures, least_curvatures(misses))
    roots = np.sqrt(curvatures)
    sums = Evidence.of(
        (np.sqrt(weights) * roots)[:, None] * contexts,
        np.sqrt(weights) * roots * (odds + signs * misses / curvatures),
    )
    return sums.replace(rounds=float(weights.sum()))


def expected_miss_and_curvature(mean: Array, deviation: Array) -> tuple[Array, Array]:
    """E σ(−e) and E σ'(e), at least :data:`MIN_WEIGHT`, for e ~ N(mean, deviation²).

    By the trapezoidal rule; the second by Stein's identity, s E σ'(e) = E (e − m) σ(e). Beyond a
    deviation of 20 they are those of 20.
    """
    density = np.exp(-0.5 * NODES**2)
    density /= density.sum()
    near = np.clip(deviation, 1e-3, WIDE_DEVIATION)
    chances = sigmoid(near[..., None] * NODES - mean[..., None])
    curvatures = np.maximum(chances @ (density * NODES) / near, MIN_WEIGHT)
    return chances @ density, curvatures


def least_curvatures(misses: Any) -> Any:
    """The curvature with which a reward's likelihood rises by no more than it can.

    Where a reward of probability p came, the log-likelihood rises with slope q = 1 − p, by at most
    −log p in all. A parabola of curvature w rises by q²/2w.
    """
    gain = -np.log1p(-np.minimum(misses, 1.0 - 1e-12))
    return misses**2 / np.maximum(2.0 * gain, 1e-300)


def expected_probability(mean: Array, deviation: Array) -> Array:
    """E σ(e) for e ~ N(mean, deviation²): the probability that a belief predicts.

    By the trapezoidal rule, and from a deviation of 20 on by σ(m/√(1 + πs/8)). That formula alone
    would be twice too large for a probability of one in two thousand and a deviation of 1.

    >>> expected_probability(np.array([0.0, -8.0]), np.array([3.0, 1.0])).round(5)
    array([0.5    , 0.00055])
    """
    density = np.exp(-0.5 * NODES**2)
    near = np.minimum(deviation, WIDE_DEVIATION)[..., None]
    integral = sigmoid(mean[..., None] + near * NODES) @ (density / density.sum())
    wide = sigmoid(mean / np.sqrt(1.0 + (math.pi / 8.0) * deviation**2))
    return np.where(deviation < WIDE_DEVIATION, integral, wide)
