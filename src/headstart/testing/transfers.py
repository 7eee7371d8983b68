"""Checks of transfers."""

from __future__ import annotations

import numpy as np

from headstart.bandit import Bandit
from headstart.model.base import BaseBelief, BasePrior
from headstart.rules import UCB, Forced, Rule
from headstart.testing.samples import (
    DIM,
    bytes_of,
    evidence_for,
    evidence_of,
    play,
    require,
    require_same,
    run_checks,
    state_after,
)
from headstart.testing.settings import SETTINGS_CHECKS
from headstart.transfer import Transfer


def check_transfer(transfer: Transfer, tolerance: float = 0.0) -> None:
    """Check that a transfer does what bandits, experiments and files expect of it.

    Parameters
    ----------
    transfer
        The transfer, with any settings; it must work for 3 features.
    tolerance
        How far priors of the same tasks may differ if they are computed in different ways, as the
        Kullback–Leibler divergence in nats per dimension: 0 for equal up to rounding, above 0 for
        estimates that are computed by iteration.

    Raises
    ------
    AssertionError
        Which check has failed, and how.

    See Also
    --------
    check_rule, check_belief
    """
    require(isinstance(transfer, Transfer), f"{transfer!r} is not a Transfer")
    run_checks(transfer, SETTINGS_CHECKS)
    run_checks(transfer, TRANSFER_CHECKS, tolerance)


def gives_a_prior_at_any_time(transfer: Transfer, tolerance: float = 0.0) -> None:
    """There is a usable prior after any number of tasks, with the noise that was given."""
    for noise in (None, 0.4):
        state = transfer.init(DIM, noise)
        for tasks in range(9):
            prior = transfer.prior(state)
            require(isinstance(prior, BasePrior), f"prior gives {prior!r}")
            require((prior.dim, prior.batch) == (DIM, ()), f"{prior!r} is not of one task")
            require(noise is None or prior.noise == noise, f"noise {prior.noise}, not {noise}")
            belief = prior.belief(evidence_of(99).replace(forced=None))
            require(isinstance(belief, BaseBelief), f"its belief is {belief!r}")
            whole = prior.as_gaussian()
            require(np.isfinite(whole.mean).all(), "the prior's mean is not finite")
            require(np.isfinite(whole.root).all(), "the prior's root is not finite")
            require(whole.noise > 0 and whole.bias >= 0, "noise or bias is negative")
            state = transfer.fold(state, evidence_for(transfer, evidence_of(tasks)))


def refits_as_it_folds(transfer: Transfer, tolerance: float = 0.0) -> None:
    """The prior of a refit is that of folding one by one."""
    evidences = [evidence_of(seed) for seed in range(7)]
    bandit_evidences = [evidence_for(transfer, evidence) for evidence in evidences]
    for weights in (None, [1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0]):
        refit = transfer.prior(transfer.refit(bandit_evidences, 0.4, weights))
        one_by_one = transfer.prior(state_after(transfer, evidences, weights, noise=0.4))
        require_same(refit, one_by_one, tolerance)


def keeps_a_fixed_prior(transfer: Transfer, tolerance: float = 0.0) -> None:
    """A prior that is said to be fixed never changes."""
    require(
        not transfer.prior_is_known(None),
        "a noise that is not given is always estimated from tasks",
    )
    if not transfer.prior_is_known(0.4):
        return
    evidences = [evidence_for(transfer, evidence_of(seed)) for seed in range(8)]
    first = transfer.prior(transfer.init(DIM, 0.4))
    after = transfer.with_running(state_after(transfer, evidences, noise=0.4), evidences[:1])
    require(transfer.prior(after) == first, "it changes as tasks are folded")
    require(transfer.prior(transfer.refit(evidences, 0.4)) == first, "it changes by a refit")


def handles_batch_axes(transfer: Transfer, tolerance: float = 0.0) -> None:
    """If it is batched, states along leading axes are those of each task alone."""
    if not transfer.batched:
        return
    for noise in (None, 0.4):
        for batch in ((3,), (2, 2)):
            evidences = [evidence_of(seed, batch) for seed in range(6)]
            together = transfer.prior(state_after(transfer, evidences, noise=noise, batch=batch))
            for at in np.ndindex(batch):
                parts = [evidence.at(at) for evidence in evidences]
                alone = transfer.prior(state_after(transfer, parts, noise=noise))
                for name in ("mean", "covariance"):
                    np.testing.assert_allclose(
                        getattr(together, name)[at], getattr(alone, name), rtol=1e-9, atol=1e-10
                    )
                for name in ("noise", "bias", "printed_bias"):
                    each = np.broadcast_to(getattr(together, name), batch)
                    np.testing.assert_allclose(each[at], getattr(alone, name), rtol=1e-9)


def takes_back_what_is_reversible(transfer: Transfer, tolerance: float = 0.0) -> None:
    """If it is reversible, a negative weight removes a task; a weight of two counts it twice."""
    if not transfer.reversible:
        return
    evidences = [evidence_of(seed) for seed in range(6)]
    state, extra = state_after(transfer, evidences), evidence_for(transfer, evidence_of(77))
    back = transfer.fold(transfer.fold(state, extra, 1.0), extra, -1.0)
    require_same(transfer.prior(back), transfer.prior(state), tolerance)
    twice = transfer.prior(state_after(transfer, [*evidences, evidences[2]]))
    weighted = transfer.prior(state_after(transfer, evidences, [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))
    require_same(weighted, twice, tolerance)


def leaves_its_arguments(transfer: Transfer, tolerance: float = 0.0) -> None:
    """Neither state nor evidence are changed."""
    state = state_after(transfer, [evidence_of(seed) for seed in range(6)])
    evidence = evidence_for(transfer, evidence_of(9))
    before = bytes_of(state, evidence)
    transfer.prior(state)
    transfer.explain(state)
    transfer.prior(transfer.fold(state, evidence))
    transfer.refit([evidence, evidence])
    require(bytes_of(state, evidence) == before, "an argument was changed")


def is_determined_by_its_tasks(transfer: Transfer, tolerance: float = 0.0) -> None:
    """The same tasks give the same prior to the last bit."""
    evidences = [evidence_of(seed) for seed in range(8)]
    first, second = (transfer.prior(state_after(transfer, evidences)) for _ in range(2))
    require(first == second, "the priors of the same tasks differ")


def serves_in_a_bandit(transfer: Transfer, tolerance: float = 0.0) -> None:
    """Two bandits with it decide alike, and their prior is that of a refit of their tasks."""
    rule: Rule = Forced(4, UCB()) if transfer.keeps_forced else UCB()
    first, second = (Bandit(DIM, transfer, rule, seed=3, intercept=False) for _ in range(2))
    trace = play(first)
    require(trace == play(second), "two bandits decide differently")
    scores = [float.fromhex(score) for _, score in trace]
    require(np.isfinite(scores).all(), "a score is not finite")
    evidences = [first.task(id).evidence for id in first]
    require_same(first.prior, transfer.prior(transfer.refit(evidences)), tolerance)
    require(type(transfer).__name__ in str(first.report()), "the report does not name it")


#: Checks of transfers, each called with the transfer and the tolerance.
TRANSFER_CHECKS = (
    gives_a_prior_at_any_time,
    refits_as_it_folds,
    keeps_a_fixed_prior,
    handles_batch_axes,
    takes_back_what_is_reversible,
    leaves_its_arguments,
    is_determined_by_its_tasks,
    serves_in_a_bandit,
)
