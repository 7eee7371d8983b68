"""Beliefs, evidence and short games that the checks use, and how they compare results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.model.base import BasePrior
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array, flatten
from headstart.rules import Rule
from headstart.transfer import Independent, Transfer

DIM = 3  # features of everything that is tried

#: A bandit and the decisions that it made: arms, and scores to the last bit.
Trace = list[tuple[int, str]]


def require(holds: object, message: str) -> None:
    """Raise an AssertionError unless something holds."""
    if not holds:
        raise AssertionError(message)


def run_checks(subject: object, checks: Iterable[Callable[..., None]], *options: Any) -> None:
    """Run every check; what fails is named."""
    for check in checks:
        try:
            check(subject, *options)
        except Exception as error:
            title = (check.__doc__ or check.__name__).splitlines()[0]
            raise AssertionError(
                f"{subject!r} fails {check.__name__} ({title}): {error}"
            ) from error


class Beliefs:
    """Beliefs after some rounds: ``together`` along batch axes, and each of them ``alone``."""

    def __init__(self, seed: int, rounds: int = 6, batch: tuple[int, ...] = ()) -> None:
        rng = np.random.default_rng(seed)
        root = 0.4 * rng.standard_normal((*batch, DIM, DIM)) + np.eye(DIM)
        mean = rng.standard_normal((*batch, DIM))
        contexts = rng.standard_normal((rounds, *batch, DIM))
        rewards = rng.standard_normal((rounds, *batch))
        prior = Prior(mean, root, noise=0.7, bias=0.3)
        self.together = belief_after(prior.belief(), contexts, rewards)
        self.alone = {
            at: belief_after(
                Prior(mean[at], root[at], noise=0.7, bias=0.3).belief(),
                contexts[(slice(None), *at)],
                rewards[(slice(None), *at)],
            )
            for at in np.ndindex(batch)
        }


def belief_after(belief: Any, contexts: Array, rewards: Array) -> Any:
    """A belief after these rounds, one by one."""
    for x, r in zip(contexts, rewards, strict=True):
        belief = belief.learn(x, r)
    return belief


def evidence_of(
    seed: int, batch: tuple[int, ...] = (), rounds: int = 9, forced: int = 5
) -> Evidence:
    """The evidence of a task, its first rounds forced and kept apart."""
    rng = np.random.default_rng(seed)
    evidence = Evidence.zero(DIM, batch, forced=True)
    theta = rng.standard_normal((*batch, DIM))
    for at in range(rounds):
        x = rng.standard_normal((*batch, DIM))
        r = (x * theta).sum(-1) + 0.3 * rng.standard_normal(batch)
        evidence = evidence.add(x, r, forced=at < forced)
    return evidence


def evidence_for(transfer: Transfer, evidence: Evidence) -> Evidence:
    """Evidence as a bandit with this transfer keeps it."""
    return evidence if transfer.keeps_forced else evidence.replace(forced=None)


def state_after(
    transfer: Transfer,
    evidences: Sequence[Evidence],
    weights: Sequence[float] | None = None,
    **start: Any,
) -> Any:
    """The state after these tasks, one by one."""
    state = transfer.init(DIM, **start)
    for evidence, weight in zip(evidences, weights or [1.0] * len(evidences), strict=True):
        state = transfer.fold(state, evidence_for(transfer, evidence), weight)
    return state


def divergence(left: Prior, right: Prior) -> float:
    """The Kullback–Leibler divergence of one prior from another, in nats per dimension."""
    precision = np.linalg.inv(right.covariance)
    ratio, shift = precision @ left.covariance, left.mean - right.mean
    surprise = np.trace(ratio) - DIM + shift @ precision @ shift - np.linalg.slogdet(ratio)[1]
    return float(0.5 * surprise / DIM)


def require_same(left: BasePrior, right: BasePrior, tolerance: float) -> None:
    """One prior: up to rounding, or up to a divergence of ``tolerance`` where it is above 0."""
    one, other = left.as_gaussian(), right.as_gaussian()
    if tolerance:
        apart = max(divergence(one, other), divergence(other, one))
        require(apart < tolerance, f"priors {apart:.3g} nats apart, more than {tolerance}")
        np.testing.assert_allclose(one.noise, other.noise, rtol=tolerance)
        return
    np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(one.noise, other.noise, rtol=1e-9)


def bytes_of(*things: object) -> list[Any]:
    """The bytes of everything inside, to see whether anything was changed."""
    return [
        (name, array.dtype.str, array.shape, array.tobytes())
        for thing in things
        for name, array in flatten(thing).items()
    ]


def options_for(rule: Rule) -> dict[str, Any]:
    """What a bandit needs besides this rule: a radius from an analysis needs a bound and R."""
    try:
        rule.check_bandit(Prior.isotropic(DIM), None, None, None)
    except InputError:
        return {"transfer": Independent(), "noise": 0.3}
    return {}


def play(bandit: Bandit, tasks: int = 7, rounds: int = 8, start: int = 0) -> Trace:
    """Every decision of a few short tasks."""
    trace = []
    for id in range(start, start + tasks):
        rng, task = np.random.default_rng(id), bandit.task(id)
        theta = rng.standard_normal(DIM)
        for _ in range(rounds):
            offer = rng.standard_normal((4, DIM))
            choice = task.choose(offer)
            task.learn(choice, float(offer[choice.arm] @ theta + 0.3 * rng.standard_normal()))
            trace.append((choice.arm, float(choice.score).hex()))
        task.close()
    return trace
