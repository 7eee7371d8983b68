"""Transfers without batch axes, applied to a batch of seeds one by one."""

from __future__ import annotations

import dataclasses
from typing import Any

from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer


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
            self.transfer.fold(each, evidence.at(seed), weight) for seed, each in enumerate(state)
        )

    def observe_contexts(self, state: Any, contexts: Array) -> Any:
        """The states of all seeds after contexts were on offer."""
        return tuple(
            self.transfer.observe_contexts(each, contexts[seed]) for seed, each in enumerate(state)
        )

    def single_task_prior(self, state: Any, evidence: Evidence) -> Any:
        """The transfer's prior for a lone task, of all seeds."""
        priors = [
            self.transfer.single_task_prior(each, evidence.at(seed))
            for seed, each in enumerate(state)
        ]
        stated_priors = [prior for prior in priors if prior is not None]
        return Prior.stack(stated_priors) if stated_priors else None

    def prior(self, state: Any) -> Any:
        """All seeds' priors as one batch."""
        priors = [self.transfer.prior(each) for each in state]
        if any(prior.batch != () for prior in priors):
            raise InputError(f"{self.transfer!r} must give one prior, without batch axes")
        kinds = [type(prior) for prior in priors if type(prior) is not Prior]
        return (kinds[0] if kinds else Prior).stack(priors)
