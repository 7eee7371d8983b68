"""The base class of transfers that fit in standardized features: empirical Bayes and mixtures."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.prior import ONE_NOISE, Prior
from headstart.records import Array, flatten
from headstart.transfer.base import Transfer
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.refits.passes import (
    FEW_STEPS,
    FURTHER_STEPS,
    LOW_RANK_STEPS,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.empirical_bayes.units import ContextMoments, Units, change_of_units
from headstart.transfer.estimates import prior_of
from headstart.transfer.noise import task_ridge, task_scale

#: Fields of a state that are never below 0.
NON_NEGATIVE = {
    "fit.dof",
    "fit.noise_variance",
    "low_rank.curvature",
    "low_rank.directions",
    "low_rank.relevance",
    "low_rank.signal",
    "past.count",
    "past.precision",
    "task_count",
    "tasks.noise_variance",
    "tasks.rounds",
    "tasks.squares",
    "tasks.weight",
}
#: Fields of a state that are above 0.
POSITIVE = {"low_rank.residual", "low_rank.scale"}


@dataclasses.dataclass(frozen=True, repr=False)
class StandardizedTransfer(Transfer):
    """Fits in standardized features.

    The state has ``tasks``, ``contexts``, ``units`` and ``past_count``, the number of older tasks.

    The tasks' evidence is in the units given. Everything else is in ``units``, determined by the
    evidence or else by the contexts that were on offer.

    Parameters
    ----------
    units : {"free", "given"}, default "free"
        ``"free"``: the fit is made in standardized features, so that no decision depends on the
        units of features nor, with an intercept, on their origin. ``"given"``: the fit is made in
        the units given.
    constant : bool, default False
        Whether the last feature is 1 in every context. A :class:`~headstart.Bandit` with an
        intercept sets this.
    free_intercept : bool, default False
        Whether the population's mean intercept is not shrunk with the other coefficients. A
        :class:`~headstart.Bandit` with rewards of 0 and 1 sets this, and so do fits of them.
    """

    units: str = dataclasses.field(default="free", kw_only=True)
    constant: bool = dataclasses.field(default=False, kw_only=True, repr=False, compare=False)
    free_intercept: bool = dataclasses.field(default=False, kw_only=True, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks.one_of("units", self.units, ("free", "given"))
        checks.flag("constant", self.constant)
        checks.flag("free_intercept", self.free_intercept)

    @property
    def unit_free(self) -> bool:
        """As set."""
        return self.units == "free"

    def with_constant(self, constant: bool) -> StandardizedTransfer:
        """The same with the setting whether the last feature is the intercept."""
        return dataclasses.replace(self, constant=constant)

    def with_free_intercept(self) -> StandardizedTransfer:
        """The same with ``free_intercept=True``."""
        return dataclasses.replace(self, free_intercept=True)

    @property
    def has_level(self) -> bool:
        """Whether the last coefficient is a level whose mean is not shrunk with the others."""
        return self.constant and self.free_intercept

    def in_given_units(self) -> StandardizedTransfer:
        """The same with ``units="given"``."""
        return dataclasses.replace(self, units="given")

    def units_of(self, tasks: Tasks, contexts: ContextMoments) -> Units:
        """The units to fit in."""
        if not self.unit_free:
            return Units.identity(tasks.moment.shape[-1], tasks.weight.shape[:-1])
        return Units.of(tasks, contexts, self.constant)

    def keeps_evidence(self, state: Any) -> bool:
        """Whether no task is so old that only its posterior is left."""
        return not np.any(state.past_count)

    def observe_contexts(self, state: Any, contexts: Array) -> Any:
        """Take units of features from contexts on offer, where no reward has determined them."""
        return self.in_current_units(state.replace(contexts=state.contexts.add(contexts)))

    def carry_contexts(self, state: Any, earlier: Any) -> Any:
        """A state with the contexts on offer that an earlier state has observed."""
        return self.in_current_units(state.replace(contexts=earlier.contexts))

    def unscaled_features(self, state: Any) -> npt.NDArray[np.bool_]:
        """Which features have not varied yet."""
        return np.asarray(state.units.inverse == 0.0)

    def units_test(self, state: Any) -> Callable[[Array], bool] | None:
        """Whether a feature that has not varied yet has another value."""
        unknown = np.flatnonzero(state.units.inverse == 0.0)
        if not len(unknown) or not state.contexts.count:
            return None
        values = state.contexts.first[unknown]
        if not values.any():
            return lambda contexts: bool(np.count_nonzero(contexts.take(unknown, 1)))
        return lambda contexts: bool(np.count_nonzero(contexts.take(unknown, 1) != values))

    def in_current_units(self, state: Any) -> Any:
        """The same state in the units that its tasks determine.

        A unit that these do not determine is kept if older tasks, of which only sums are left, may
        have determined it.
        """
        if not self.unit_free:
            return state
        units = self.units_of(state.tasks, state.contexts).with_fallback(
            state.units, state.past_count
        )
        change = change_of_units(state.units, units)
        if change is not None:
            return self.transform(state, *change).replace(units=units)
        return state if units == state.units else state.replace(units=units)

    @abstractmethod
    def transform(self, state: Any, matrix: Array, lost: npt.NDArray[np.bool_]) -> Any:
        """A state with parameters multiplied by a matrix; ``lost`` where the fit is of no use."""

    def single_task_prior(self, state: Any, evidence: Evidence) -> Prior:
        """The prior of a task while no other determines the scale of θ and of the noise."""
        xp = array_namespace(evidence.gram)
        if self.unit_free:
            units = Units.of_task(evidence, state.contexts, self.constant)
        else:
            units = Units.identity(evidence.dim, evidence.batch)
        local, dof = units.convert_evidence(evidence), 0.0
        if state.known_noise:
            noise, dof = state.known_noise, ONE_NOISE
            lam = task_ridge(local, noise)
        else:
            noise, lam = task_scale(local)
        mean = xp.zeros_like(evidence.moment)
        return prior_of(mean, units.isotropic_root(lam), noise, noise_dof=dof)

    @property
    def partition_passes(self) -> int:
        """One for each step, one more for that on all tasks, and those of the low rank."""
        return len(FEW_STEPS) + len(FURTHER_STEPS) + 1 + LOW_RANK_STEPS

    def check_state(self, state: Any) -> None:
        """Refuse counts and variances that cannot be."""
        for name, array in flatten(state).items():
            # The rounding of what was subtracted is no fault.
            size = 1.0
            if name == "past.precision":
                size = max(state.task_count / state.fit.noise_variance, 1.0)
            if name in NON_NEGATIVE and float(array.min(initial=0.0)) < -1e-6 * size:
                raise InputError(f"state.{name} must be 0 or more; got less")
            if name in POSITIVE and float(array.min(initial=1.0)) <= 0.0:
                raise InputError(f"state.{name} must be above 0; got less")
        past = getattr(state, "past", None)
        if past is not None:
            check_past(past, state.fit, state.task_count)


def check_past(past: Past, fit: Fit, tasks: float) -> None:
    """Refuse sums over tasks that no tasks have.

    (Σ m_i)² is at most n Σ m_i². What was taken out again, by a later fit than it was added by, may
    leave as much behind as the fit's own spread.
    """
    spread = np.diagonal(fit.covariance) + fit.mean**2
    many = max(tasks, past.count, 1.0)
    limit = past.count * np.diagonal(past.second) + many**2 * spread
    if (past.first**2 > limit).any():
        raise InputError("state.past.first must be a sum over the tasks of the past; got another")
