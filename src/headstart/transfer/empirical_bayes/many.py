"""Many tasks side by side, and the Gaussian population that is fitted to them."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from headstart.arrays import float_if_scalar, trace
from headstart.model.belief import least_squares_residual
from headstart.model.evidence import Evidence
from headstart.model.prior import ONE_NOISE
from headstart.records import Array, Record
from headstart.transfer.noise import own_scale

__all__ = ["Fit", "Tasks", "chosen", "fixed_order", "mean_square", "started_from"]

Kind = TypeVar("Kind")

FLAT = ("rounds", "squares", "weight", "noise", "residual", "freedom")
FIRST = 64  # tasks that a first guess is made from, at most
START_FREEDOM = 128.0  # how alike the tasks' noise is taken to be before there are tasks


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Fit(Record):
    """μ, Σ, the covariance of μ's own error, and the distribution of the tasks' noise.

    A task's R_i² is scaled-inverse-χ² with scale ``noise`` and ``freedom`` degrees of freedom
    (:mod:`headstart.transfer.empirical_bayes.task_noise`).
    """

    mean: Array
    covariance: Array
    error: Array
    noise: Any
    freedom: Any = ONE_NOISE

    @classmethod
    def isotropic(cls, mean: Array, variance: Any, noise: Any) -> Fit:
        """The same variance everywhere."""
        dim = mean.shape[-1]
        covariance = np.asarray(variance)[..., None, None] * np.eye(dim)
        freedom = float_if_scalar(np.full(mean.shape[:-1], START_FREEDOM))
        return cls.unchecked(mean, covariance, np.zeros_like(covariance), noise, freedom)


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Tasks(Record):
    """The evidence of several tasks side by side: one axis more, after the batch axes.

    ``noise`` is every task's own R², 0 where it has not been estimated yet; ``residual`` is the
    residual sum of squares of least squares and ``freedom`` its degrees of freedom, below 0 where
    they have not been computed yet.
    """

    gram: Array
    moment: Array
    rounds: Array
    squares: Array
    weight: Array
    noise: Array
    residual: Array
    freedom: Array

    @classmethod
    def none(cls, dim: int, batch: tuple[int, ...] = ()) -> Self:
        """No task."""
        flat = np.zeros((*batch, 0))
        return cls.unchecked(
            np.zeros((*batch, 0, dim, dim)), np.zeros((*batch, 0, dim)), *[flat] * len(FLAT)
        )

    @classmethod
    def of(cls, evidence: Evidence, weight: Any = 1.0) -> Self:
        """One task."""
        batch = evidence.batch
        scalars = (
            evidence.rounds,
            evidence.squares,
            np.broadcast_to(weight, batch),
            np.zeros(batch),
            np.zeros(batch),
            np.full(batch, -1.0),
        )
        flat = [np.asarray(value, dtype=float)[..., None] for value in scalars]
        return cls.unchecked(evidence.gram[..., None, :, :], evidence.moment[..., None, :], *flat)

    def __len__(self) -> int:
        return int(self.weight.shape[-1])

    def __getitem__(self, at: Any) -> Tasks:
        """Some of the tasks: a slice, or their numbers."""
        return Tasks.unchecked(
            self.gram[..., at, :, :],
            self.moment[..., at, :],
            *(getattr(self, name)[..., at] for name in FLAT),
        )

    def taken(self, order: npt.NDArray[np.intp]) -> Tasks:
        """The tasks with these numbers, along the last axis, for every batch element."""
        return Tasks.unchecked(
            np.take_along_axis(self.gram, order[..., None, None], -3),
            np.take_along_axis(self.moment, order[..., None], -2),
            *(np.take_along_axis(getattr(self, name), order, -1) for name in FLAT),
        )

    def with_residuals(self) -> Tasks:
        """The same, with what least squares leaves of each task (in units that make sense)."""
        if not len(self) or (self.freedom >= 0).all():
            return self
        square, freedom = least_squares_residual(self.gram, self.moment, self.squares, self.rounds)
        return self.replace(residual=square, freedom=freedom)

    def task(self, at: int) -> Evidence:
        """One of them."""
        return Evidence.unchecked(
            self.gram[..., at, :, :],
            self.moment[..., at, :],
            self.rounds[..., at],
            self.squares[..., at],
        )

    def join(self, *others: Tasks) -> Tasks:
        """These and others."""
        axes = {"gram": -3, "moment": -2} | dict.fromkeys(FLAT, -1)
        parts = (self, *others)
        return Tasks.unchecked(
            *(np.concatenate([getattr(part, name) for part in parts], axes[name]) for name in axes),
        )


def mean_square(fit: Fit) -> Array:
    """s², the mean square of θ per dimension."""
    square: Array = np.asarray(trace(fit.covariance) + (fit.mean**2).sum(-1))
    square = square / fit.mean.shape[-1]
    return square


def started_from(tasks: Tasks, given: float) -> tuple[Fit, npt.NDArray[np.bool_]]:
    """A first guess from the scale of the first tasks that have one, and whether any has.

    Half of their mean square is taken to be the mean's, half the spread's. Tasks whose rewards are
    all zero tell no scale, however many they are.
    """
    telling = (tasks.squares > 0) & (tasks.weight > 0)
    order = np.argsort(~telling, axis=-1, kind="stable")[..., :FIRST]
    few = tasks.taken(order)
    noise, lam = own_scale(Evidence.unchecked(few.gram, few.moment, few.rounds, few.squares, None))
    counts = (few.squares > 0) & (few.weight > 0)
    share = counts / np.maximum(counts.sum(-1, keepdims=True), 1)
    variance = np.exp((share * np.log(np.asarray(noise) ** 2)).sum(-1))
    spread = np.exp((share * np.log(np.asarray(noise) ** 2 / lam)).sum(-1)) / 2.0
    if given:
        variance = given**2 * np.ones_like(spread)
    mean = np.zeros_like(few.moment[..., 0, :])
    return Fit.isotropic(mean, float_if_scalar(spread), float_if_scalar(variance)), np.asarray(
        counts.any(-1)
    )


def chosen(which: npt.NDArray[np.bool_], yes: Fit, no: Fit) -> Fit:
    """One fit or the other, per batch element."""
    return Fit.unchecked(
        np.where(which[..., None], yes.mean, no.mean),
        np.where(which[..., None, None], yes.covariance, no.covariance),
        np.where(which[..., None, None], yes.error, no.error),
        float_if_scalar(np.where(which, yes.noise, no.noise)),
        float_if_scalar(np.where(which, yes.freedom, no.freedom)),
    )


def fixed_order(tasks: Tasks) -> npt.NDArray[np.intp]:
    """An order of tasks that depends on their content alone, so that sums round alike."""
    if tasks.weight.ndim > 1 or len(tasks) < 2:
        return np.arange(len(tasks))
    # One number that differs wherever anything does; sines are as good as random and the same
    # everywhere.
    size, dim = tasks.moment.shape
    content = np.hstack([tasks.moment, tasks.gram.reshape(size, dim * dim)])
    mark = (content * np.sin(1.0 + np.arange(content.shape[1]))).sum(1)
    return np.asarray(np.lexsort((mark, tasks.rounds, tasks.squares)))
