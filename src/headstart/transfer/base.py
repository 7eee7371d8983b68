"""The interface of every way to learn a prior from finished tasks."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array, reset_inherited
from headstart.settings import Settings
from headstart.transfer.partitions import Partitions, chunks


class TaskStructure(NamedTuple):
    """What a transfer has learned of how tasks differ, for reports."""

    rank: int | None = None
    eigenvalues: Array | None = None
    explained: float | None = None
    note: str = ""
    lower: Array | None = None
    upper: Array | None = None
    support: float | None = None
    rank_interval: tuple[int, int] | None = None
    weights: dict[str, float] | None = None


class Transfer(Settings, ABC):
    """A way to turn the evidence of many tasks into the prior of the next.

    A transfer holds settings, never state: the state is an argument and a result. It may be any
    nesting of dataclasses, (named) tuples, dicts, arrays and numbers, and is saved and loaded as it
    is.

    Three methods make a transfer: :meth:`init`, :meth:`fold` and :meth:`prior`. Everything else has
    a default that is right for all transfers, and is overridden for what it adds:

    ==========================  ===================================================================
    capability                  override
    ==========================  ===================================================================
    removing a task             :attr:`reversible` and :attr:`removes_exactly`: a task is left out
                                of its own prior by a fold of negative weight, not by a refit;
                                :meth:`own_influence`: not even that where it hardly matters
    fitting many tasks          :meth:`refit`; :attr:`additive`, :meth:`summarize` and :meth:`merge`
                                for tasks on many machines, or :meth:`refit_partitions`
    batches                     :attr:`batched`: leading axes hold independent states
    a GPU                       :attr:`traceable`: JAX can compile it; :meth:`reserve`
    running tasks               :attr:`counts_running` and :meth:`with_running`
    forced rounds               :attr:`keeps_forced`: their evidence is kept apart
    unknown noise               :meth:`single_task_prior`, while only one task can determine it
    units of features           :attr:`unit_free`, :meth:`with_constant`, :meth:`observe_contexts`,
                                :meth:`carry_contexts`, :meth:`unscaled_features` and
                                :meth:`in_given_units`
    fits of rewards of 0 and 1  :meth:`with_free_intercept` and :meth:`rough_prior`
    nothing to learn            :meth:`prior_is_known`
    states read from files      :attr:`fixed_layout` and :meth:`check_state`
    reports and experiments     :meth:`explain` and :meth:`residual_projection`
    ==========================  ===================================================================

    See Also
    --------
    Bias : an example with most of these capabilities.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # A subclass may learn in another way than its base: what is promised of a class holds for
        # that class alone.
        reset_inherited(cls, Transfer, ("prior_is_known", "fixed_layout", "traceable"))

    # --- What a transfer must have --------------------------------------------------------------

    @abstractmethod
    def init(self, dim: int, noise: float | None = None, batch: tuple[int, ...] = ()) -> Any:
        """The state before any task; ``noise`` is R, ``None`` to estimate it from residuals."""

    @abstractmethod
    def fold(self, state: Any, evidence: Evidence, weight: float = 1.0) -> Any:
        """The state after one more finished task, which counts ``weight`` times."""

    @abstractmethod
    def prior(self, state: Any) -> Any:
        """Where a new task starts: a Prior, or a MixturePrior."""

    # --- What it may have -----------------------------------------------------------------------

    #: Whether every state is built like that of :meth:`init`, with the same kinds of parts and
    #: arrays of the same types and shapes but for the number of tasks, so that a state from a file
    #: can be checked against it. Not inherited.
    fixed_layout: ClassVar[bool] = False

    @property
    def reversible(self) -> bool:
        """Whether folding with weight −w undoes a fold with weight w.

        If so, a finished task that changes is removed and folded in again; otherwise the state is
        computed again from all finished tasks.
        """
        return False

    @property
    def removes_exactly(self) -> bool:
        """Whether removing a task loses no digits, where it can be removed at all."""
        return False

    def keeps_evidence(self, state: Any) -> bool:
        """Whether a state has the evidence of every task, so that a removal leaves nothing behind.

        Where it has not, a bandit refits it now and then if tasks return.
        """
        return False

    def own_influence(self, state: Any, belief: Any) -> float:
        """By how much a belief would change if its task, one of the state's, were left out of it.

        In standard deviations of the belief, in the direction in which it changes most. The belief
        is from a prior that counts the task. Infinite if that is not known.
        """
        return math.inf

    @property
    def batched(self) -> bool:
        """Whether all methods handle leading batch axes; experiments are faster if so."""
        return False

    @property
    def traceable(self) -> bool:
        """Whether JAX can compile :meth:`fold` and :meth:`prior`, so that experiments run on a GPU.

        Both must handle batch axes, compute with the arrays' own namespace
        (:func:`headstart.arrays.array_namespace`), and not look at values. Not inherited.
        """
        return False

    def reserve(self, state: Any, finished: int) -> Any:
        """The state with room for ``finished`` tasks and one more, in arrays of fixed shapes.

        Called before JAX folds a task into a state: of a state that grows with every task, it would
        compile each size.
        """
        return state

    @property
    def keeps_forced(self) -> bool:
        """Whether the evidence of forced rounds must be kept apart (``evidence.forced``)."""
        return False

    @property
    def counts_running(self) -> bool:
        """Whether running tasks count for what they know (:meth:`with_running`)."""
        return False

    def with_running(self, state: Any, running: Sequence[Evidence]) -> Any:
        """The state with running tasks counted too; it is used for one prior and discarded."""
        return state

    def prior_is_known(self, noise: float | None) -> bool:
        """Whether the prior does not depend on tasks, given the noise (or not).

        Not inherited.
        """
        return False

    def refit(
        self,
        evidences: Iterable[Evidence],
        noise: float | None = None,
        weights: Sequence[float] | None = None,
    ) -> Any:
        """The state of these finished tasks, from nothing: exact and in order."""
        state: Any = None
        for position, evidence in enumerate(evidences):
            if state is None:
                state = self.init(evidence.dim, noise, evidence.batch)
            weight = 1.0 if weights is None else weights[position]
            state = self.fold(state, evidence, weight)
        if state is None:
            raise InputError("evidences must hold at least one task; got none")
        return state

    def refit_partitions(self, partitions: Partitions, noise: float | None = None) -> Any:
        """The state of very many tasks, none of which came before another.

        Where the transfer is :attr:`additive`, every partition is summarized where it is; otherwise
        tasks are folded one by one.
        """
        if not len(partitions):
            raise InputError("partitions must hold at least one task; got none")
        state = self.init(partitions.dim, noise)
        if not self.additive:
            for evidence in partitions.evidences():
                state = self.fold(state, evidence)
            return state
        for summary in partitions.map(summarize_partition, self, noise):
            state = self.merge(state, summary)
        return state

    @property
    def partition_passes(self) -> int:
        """How often :meth:`refit_partitions` goes over the partitions, at most."""
        return 1

    @property
    def additive(self) -> bool:
        """Whether states add up: :meth:`summarize` and :meth:`merge` are there."""
        return False

    def summarize(self, evidence: Evidence, noise: float | None = None) -> Any:
        """The state of the tasks along a batch axis, as if each had been folded."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """The state of the tasks of two states; by default, what the states' own ``merge`` is."""
        return left.merge(right)

    @property
    def unit_free(self) -> bool:
        """Whether it takes the units of features from data (:meth:`observe_contexts`).

        A bandit with such a transfer has an intercept unless ``intercept=False``.
        """
        return False

    def in_given_units(self) -> Transfer:
        """The same transfer, which takes features as they come."""
        return self

    def with_constant(self, constant: bool) -> Transfer:
        """The same transfer with the setting whether the last feature is 1 in every context."""
        return self

    def rough_prior(self, partitions: Partitions, noise: float | None = None) -> Any:
        """About the prior of :meth:`refit_partitions`, in less time where that takes long."""
        return self.prior(self.refit_partitions(partitions, noise))

    def with_free_intercept(self) -> Transfer:
        """The same transfer with the mean of the intercept of log-odds not shrunk."""
        return self

    def observe_contexts(self, state: Any, contexts: Array) -> Any:
        """The state after contexts were on offer, before rewards determine the units."""
        return state

    def carry_contexts(self, state: Any, earlier: Any) -> Any:
        """A state with the contexts on offer that an earlier state has observed."""
        return state

    def unscaled_features(self, state: Any) -> npt.NDArray[np.bool_]:
        """Which features have no unit yet, and so do not count."""
        return np.zeros(0, dtype=bool)

    def units_test(self, state: Any) -> Callable[[Array], bool] | None:
        """A quick test whether contexts on offer may determine the unit of a feature that has none.

        ``None`` if there is no such test: all contexts may.
        """
        return None

    def single_task_prior(self, state: Any, evidence: Evidence) -> Prior | None:
        """A prior for the only task there is, from what it has shown; ``None`` for the usual.

        Called only while the noise is unknown and no other task can determine it.
        """
        return None

    def residual_projection(self, state: Any) -> tuple[Array, Array, Any] | None:
        """P̂⊥, θ̄ and whether they are learned; ``None`` where a transfer has none of this.

        An experiment measures W = ‖P̂⊥(θ* − θ̄)‖ with it, which the theory's bounds rest on.
        """
        return None

    def check_state(self, state: Any) -> None:
        """Refuse a state, read from a file, that no tasks can have led to.

        It is built like the state of :meth:`init`, and its numbers are finite.

        Raises
        ------
        InputError
            Names the field that is wrong.
        """

    def explain(self, state: Any) -> TaskStructure:
        """What the state says about how tasks differ."""
        return TaskStructure()


def summarize_partition(rows: Array, dim: int, transfer: Transfer, noise: float | None) -> Any:
    """The state of one partition's tasks."""
    state = transfer.init(dim, noise)
    for evidence in chunks(rows, dim):
        state = transfer.merge(state, transfer.summarize(evidence, noise))
    return state


def checked_evidence(evidence: object, shape: tuple[int, ...]) -> Evidence:
    """Evidence whose moment has this shape."""
    want = f"Evidence with a moment of shape {shape}"
    if not isinstance(evidence, Evidence):
        raise checks.invalid("evidence", want, evidence)
    if evidence.moment.shape != shape:
        raise checks.invalid("evidence", want, evidence.moment)
    return evidence


def check_number_or_name(name: str, value: object, names: Collection[str]) -> None:
    """Refuse a setting that is neither a positive number nor one of a few names."""
    if isinstance(value, str):
        checks.one_of(name, value, names)
    else:
        checks.positive(name, value)
