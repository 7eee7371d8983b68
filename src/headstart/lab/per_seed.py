"""Transfers without batch axes, applied to a batch of seeds one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.mixture import SCALAR_FIELDS, MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer

__all__ = ["PerSeed"]


@dataclasses.dataclass(frozen=True, repr=False)
class PerSeed(Transfer):
    """Calls a transfer once for every seed; its state is a tuple of the transfer's states.

    Transfers that handle leading batch axes themselves say so (``batched``) and are faster.
    """

    transfer: Transfer

    @property
    def keeps_forced(self) -> bool:
        """As the transfer states."""
        return self.transfer.keeps_forced

    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> Any:
        """One state per seed."""
        return tuple(self.transfer.init(dim, noise) for _ in range(batch[0]))

    def fold(self, state: Any, evidence: Evidence, weight: float = 1.0) -> Any:
        """Fold each seed's evidence into its state."""
        return tuple(
            self.transfer.fold(each, evidence_of_seed(evidence, seed), weight)
            for seed, each in enumerate(state)
        )

    def observe_contexts(self, state: Any, contexts: Array) -> Any:
        """The states of all seeds after contexts were on offer."""
        return tuple(
            self.transfer.observe_contexts(each, contexts[seed]) for seed, each in enumerate(state)
        )

    def single_task_prior(self, state: Any, evidence: Evidence) -> Any:
        """The transfer's prior for a lone task, of all seeds."""
        priors = [
            self.transfer.single_task_prior(each, evidence_of_seed(evidence, seed))
            for seed, each in enumerate(state)
        ]
        return None if priors[0] is None else stack_priors(priors)

    def prior(self, state: Any) -> Any:
        """All seeds' priors as one batch."""
        priors = [self.transfer.prior(each) for each in state]
        if any(isinstance(prior, MixturePrior) for prior in priors):
            return MixturePrior.stack(priors)
        if any(prior.batch != () for prior in priors):
            raise InputError(f"{self.transfer!r} must give one prior, without batch axes")
        return stack_priors(priors)


def stack_priors(priors: list[Any]) -> Prior:
    """Priors as one batch."""
    names = ("mean", "root", *SCALAR_FIELDS)
    return Prior(*(np.stack([getattr(prior, name) for prior in priors]) for name in names))


def evidence_of_seed(evidence: Evidence, seed: int) -> Evidence:
    """One task's evidence out of a batch."""
    return Evidence(
        evidence.gram[seed],
        evidence.moment[seed],
        evidence.rounds[seed],
        evidence.squares[seed],
        None if evidence.forced is None else evidence_of_seed(evidence.forced, seed),
    )
