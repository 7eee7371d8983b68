"""Many tasks side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headstart.arrays import array_namespace
from headstart.model.evidence import Evidence
from headstart.model.own_noise import least_squares_residual
from headstart.records import Array, Record

NOISE_FIELDS = ("noise_variance", "residual", "dof")
#: The axis of the tasks in every array, counted from the end.
AXES = {"gram": -3, "moment": -2} | dict.fromkeys(
    ("rounds", "squares", "weight", *NOISE_FIELDS), -1
)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tasks(Record):
    """The evidence of several tasks side by side: one axis more, after the batch axes.

    ``noise_variance`` is every task's own R², 0 where it has not been estimated yet. ``residual``
    is the residual sum of squares of least squares and ``dof`` its degrees of freedom, below 0
    where they have not been computed yet.
    """

    gram: Array
    moment: Array
    rounds: Array
    squares: Array
    weight: Array
    noise_variance: Array
    residual: Array
    dof: Array

    @classmethod
    def empty(cls, dim: int, batch: tuple[int, ...] = ()) -> Self:
        """No task."""
        return cls.from_batch(Evidence.zero(dim, (*batch, 0)))

    @classmethod
    def of(cls, evidence: Evidence, weight: Any = 1.0) -> Self:
        """One task."""
        xp = array_namespace(evidence.gram)
        rounds, squares, weight = (
            xp.asarray(xp.broadcast_to(value, evidence.batch), dtype=float)[..., None]
            for value in (evidence.rounds, evidence.squares, weight)
        )
        gram, moment = evidence.gram[..., None, :, :], evidence.moment[..., None, :]
        zeros = xp.zeros_like(rounds)
        return cls.unchecked(gram, moment, rounds, squares, weight, zeros, zeros, zeros - 1.0)

    @classmethod
    def from_batch(cls, evidence: Evidence) -> Self:
        """The tasks along the last batch axis; each counts once."""
        zeros = np.zeros_like(evidence.rounds)
        sums = evidence.gram, evidence.moment, evidence.rounds, evidence.squares
        return cls.unchecked(*sums, zeros + 1.0, zeros, zeros, zeros - 1.0)

    def __len__(self) -> int:
        return int(self.weight.shape[-1])

    def map(self, function: Callable[..., Any], *others: Tasks) -> Tasks:
        """``function(axis, array, …)`` of every array, with those of other tasks.

        ``axis`` is that of the tasks, counted from the end.
        """
        return Tasks.unchecked(
            *(
                function(axis, *(getattr(tasks, name) for tasks in (self, *others)))
                for name, axis in AXES.items()
            )
        )

    def __getitem__(self, at: Any) -> Tasks:
        """Some of the tasks: a slice, or their numbers."""
        return self.map(lambda axis, part: part[(..., at, *[slice(None)] * (-1 - axis))])

    def take(self, order: npt.NDArray[np.intp]) -> Tasks:
        """The tasks with these numbers, along the last axis, for every batch element."""
        xp = array_namespace(self.gram)
        return self.map(
            lambda axis, part: xp.take_along_axis(
                part, order.reshape(*order.shape, *[1] * (-1 - axis)), axis
            )
        )

    def find(self, evidence: Evidence) -> npt.NDArray[np.intp] | None:
        """Where a task with this evidence is, per batch element; ``None`` unless all have one."""
        same = (
            (self.squares == np.asarray(evidence.squares)[..., None])
            & (self.rounds == np.asarray(evidence.rounds)[..., None])
            & (self.moment == evidence.moment[..., None, :]).all(-1)
        )
        if not same.any(-1).all():
            return None
        return np.asarray(np.where(same, 1.0 + self.weight, 0.0).argmax(-1))[..., None]

    def pop(self, at: npt.NDArray[np.intp], weight: float) -> tuple[Tasks, Tasks]:
        """A task with as much weight as it has of this, and the tasks without that."""
        task = self.take(at)
        task = task.replace(weight=np.minimum(weight, task.weight))
        left = self.weight.copy()
        np.put_along_axis(left, at, np.take_along_axis(left, at, -1) - task.weight, -1)
        counting = (left > 0).any(tuple(range(left.ndim - 1)))
        return task, self.replace(weight=left)[np.flatnonzero(counting)]

    def noise_fields(self) -> dict[str, Array]:
        """What is estimated of each task's noise."""
        return {name: getattr(self, name) for name in NOISE_FIELDS}

    def with_residuals(self) -> Tasks:
        """The same, with what least squares leaves of each task (in units that make sense)."""
        if not len(self):
            return self
        xp, known = array_namespace(self.gram), self.dof >= 0
        if xp is np and known.all():
            return self
        square, dof = least_squares_residual(self.gram, self.moment, self.squares, self.rounds)
        if xp is not np or known.any():
            square = xp.where(known, self.residual, square)
            dof = xp.where(known, self.dof, dof)
        return self.replace(residual=square, dof=dof)

    def task(self, at: int) -> Evidence:
        """One of them."""
        return Evidence.unchecked(
            self.gram[..., at, :, :],
            self.moment[..., at, :],
            self.rounds[..., at],
            self.squares[..., at],
            None,
        )

    def with_empty(self, number: int) -> Tasks:
        """These tasks, and then ``number`` slots without weight or evidence."""
        xp = array_namespace(self.gram)

        def extended(axis: int, part: Array) -> Array:
            shape = list(part.shape)
            shape[axis] = number
            return xp.concatenate([part, xp.zeros(tuple(shape))], axis)

        return self.map(extended)

    def put(self, task: Tasks, at: Any) -> Tasks:
        """The same with a task in the place of the one at ``at``, for every batch element.

        For JAX's arrays, of which only that part is written where the rest is needed no more.
        """
        where = (*np.indices(self.weight.shape[:-1], sparse=True), at)
        options = {"unique_indices": True, "mode": "promise_in_bounds"}
        return self.map(
            lambda axis, part, one: part.at[where].set(one.squeeze(axis), **options), task
        )

    def join(self, *others: Tasks) -> Tasks:
        """These and others."""
        xp = array_namespace(*(part.gram for part in (self, *others)))
        return self.map(lambda axis, *parts: xp.concatenate(parts, axis), *others)


def canonical_order(tasks: Tasks) -> npt.NDArray[np.intp]:
    """An order of tasks that depends on their content alone, for every batch element.

    So sums round alike, and the same tasks are left out together, whatever order they come in.
    """
    # One number that differs wherever anything does; sines are as good as random and the same
    # everywhere.
    *shape, dim = tasks.moment.shape
    content = np.concatenate([tasks.moment, tasks.gram.reshape(*shape, dim * dim)], -1)
    mark = (content * np.sin(1.0 + np.arange(content.shape[-1]))).sum(-1)
    return np.asarray(np.lexsort((mark, tasks.rounds, tasks.squares)))
