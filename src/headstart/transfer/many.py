"""Many tasks side by side, and the Gaussian population that is fitted to them."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from headstart.evidence import Evidence
from headstart.records import Array, Record, rebuild
from headstart.transfer.algebra import plain, trace
from headstart.transfer.noise import own_scale

__all__ = ["Fit", "Tasks", "chosen", "in_fixed_order", "mean_square", "record", "started_from"]

Kind = TypeVar("Kind")


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit(Record):
    """μ, Σ, the covariance of μ's own error, and R²."""

    mean: Array
    covariance: Array
    error: Array
    noise: Any

    @classmethod
    def isotropic(cls, mean: Array, variance: Any, noise: Any) -> Fit:
        """The same variance everywhere."""
        dim = mean.shape[-1]
        covariance = np.asarray(variance)[..., None, None] * np.eye(dim)
        return record(cls, mean, covariance, np.zeros_like(covariance), noise)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tasks(Record):
    """The evidence of several tasks side by side: one axis more, after the batch axes."""

    gram: Array
    moment: Array
    rounds: Array
    squares: Array
    weight: Array

    @classmethod
    def none(cls, dim: int, batch: tuple[int, ...] = ()) -> Self:
        """No task."""
        flat = np.zeros((*batch, 0))
        return record(
            cls, np.zeros((*batch, 0, dim, dim)), np.zeros((*batch, 0, dim)), flat, flat, flat
        )

    @classmethod
    def of(cls, evidence: Evidence, weight: Any = 1.0) -> Self:
        """One task."""
        batch = evidence.batch
        scalars = (evidence.rounds, evidence.squares, np.broadcast_to(weight, batch))
        flat = [np.asarray(value, dtype=float)[..., None] for value in scalars]
        return record(cls, evidence.gram[..., None, :, :], evidence.moment[..., None, :], *flat)

    def __len__(self) -> int:
        return int(self.weight.shape[-1])

    def __getitem__(self, at: Any) -> Tasks:
        """Some of the tasks: a slice, or their numbers."""
        return record(
            Tasks,
            self.gram[..., at, :, :],
            self.moment[..., at, :],
            self.rounds[..., at],
            self.squares[..., at],
            self.weight[..., at],
        )

    def task(self, at: int) -> Evidence:
        """One of them."""
        return Evidence(
            self.gram[..., at, :, :],
            self.moment[..., at, :],
            self.rounds[..., at],
            self.squares[..., at],
        )

    def join(self, *others: Tasks) -> Tasks:
        """These and others."""
        axes = {"gram": -3, "moment": -2, "rounds": -1, "squares": -1, "weight": -1}
        parts = (self, *others)
        return record(
            Tasks,
            *(np.concatenate([getattr(part, name) for part in parts], axes[name]) for name in axes),
        )


def mean_square(fit: Fit) -> Array:
    """s², the mean square of θ per dimension."""
    square: Array = np.asarray(trace(fit.covariance) + (fit.mean**2).sum(-1))
    square = square / fit.mean.shape[-1]
    return square


def started_from(tasks: Tasks, given: float) -> tuple[Fit, npt.NDArray[np.bool_]]:
    """A first guess from the scale of the first tasks that have one, and whether any has.

    Half of their mean square is taken to be the mean's, half the spread's.
    """
    few = tasks[:64]
    noise, lam = own_scale(Evidence(few.gram, few.moment, few.rounds, few.squares))
    counts = (few.squares > 0) & (few.weight > 0)
    share = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
    variance = np.exp((share * np.log(np.asarray(noise) ** 2)).sum(-1))
    spread = np.exp((share * np.log(np.asarray(noise) ** 2 / lam)).sum(-1)) / 2.0
    if given:
        variance = given**2 * np.ones_like(spread)
    mean = np.zeros_like(few.moment[..., 0, :])
    return Fit.isotropic(mean, plain(spread), plain(variance)), np.asarray(counts.any(-1))


def chosen(which: npt.NDArray[np.bool_], yes: Fit, no: Fit) -> Fit:
    """One fit or the other, per batch element."""
    return record(
        Fit,
        np.where(which[..., None], yes.mean, no.mean),
        np.where(which[..., None, None], yes.covariance, no.covariance),
        np.where(which[..., None, None], yes.error, no.error),
        plain(np.where(which, yes.noise, no.noise)),
    )


def in_fixed_order(tasks: Tasks) -> Tasks:
    """The tasks in an order that depends on their content alone, so that sums round alike."""
    if tasks.weight.ndim > 1 or len(tasks) < 2:
        return tasks
    # One number that differs wherever anything does; sines are as good as random and the same
    # everywhere.
    size, dim = tasks.moment.shape
    content = np.hstack([tasks.moment, tasks.gram.reshape(size, dim * dim)])
    mark = (content * np.sin(1.0 + np.arange(content.shape[1]))).sum(1)
    return tasks[np.lexsort((mark, tasks.rounds, tasks.squares))]


def record(kind: type[Kind], *values: Any) -> Kind:
    """A record from fresh arrays, in the order of its fields."""
    names = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    made: Kind = rebuild(kind, dict(zip(names, values, strict=True)))
    return made
