"""Passes over the evidence of many tasks: a function of some of them at a time.

A pass may have a compiled form beside its reference (:data:`FAST_PASSES`), and so has the change of
the units of features (:mod:`headstart.transfer.standardize`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart.fleet.summing.grams import TABLES, Packed, Whole
from headstart.kernels import forms
from headstart.kernels.forms import Kernel
from headstart.model.prior import symmetric_root
from headstart.records import Array
from headstart.transfer import standardize
from headstart.transfer.empirical_bayes import passes
from headstart.transfer.empirical_bayes.passes import Totals
from headstart.transfer.empirical_bayes.population import Fit
from headstart.transfer.standardize import STEADY

__all__ = ["FAST_PASSES", "STANDARDIZE_ROWS", "STEADY", "Call", "Units", "one_blas_thread"]

WORTH_TASKS = 4096  # tasks that repay loading the compiled loops

Pass = Callable[[Packed, Whole], Any]  # of the rows of a table at some places


class Call(NamedTuple):
    """``function(rows, dim, *arguments)`` of the packed evidence of tasks, wherever they are.

    Features are in ``units``, if there are any. ``tasks`` says how many tasks there are in all.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    units: Units | None
    tasks: int

    def prepare(self, dim: int) -> Pass:
        """The pass over tasks with so many features; compiled, if there is a form worth loading."""
        fast = FAST_PASSES.get(self.function)
        if fast is not None and self.tasks >= WORTH_TASKS:
            compiled = fast(self.units, *self.arguments)
            if compiled is not None:
                return compiled

        def reference(table: Packed, places: Whole) -> Any:
            rows = table[places]
            rows = rows if self.units is None else self.units.packed(rows)
            return self.function(rows, dim, *self.arguments)

        return reference


def compiled_totals(units: Units | None, fit: Fit) -> Pass | None:
    """:func:`headstart.transfer.empirical_bayes.passes.partition_totals`, compiled.

    The evidence stays as it is: with features x' = T x, F G' Fᵀ = (F T) G (F T)ᵀ.
    """
    loops = forms.load(TABLES)
    if loops is None:
        return None
    mean, root = np.array(fit.mean), np.array(symmetric_root(fit.covariance))
    if units is not None:
        mean, root = units.matrix.T @ mean, root @ units.matrix
    noise, freedom = float(fit.noise_variance), float(fit.freedom)

    def totals(table: Packed, places: Whole) -> Totals:
        sums = loops.task_sums(table, places, mean, root, noise, freedom, passes.NOISY_FACTOR)
        return Totals(np.asarray(float(len(places))), *map(np.asarray, sums))

    return totals


#: References, and what makes their compiled form from units and arguments.
FAST_PASSES: dict[Callable[..., Any], Callable[..., Pass | None]] = {
    passes.partition_totals: compiled_totals
}


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrices here are small, and the cores are busy: more threads would only wait.

    (Without threadpoolctl it takes OPENBLAS_NUM_THREADS=1 in the environment.)
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        yield
        return
    with threadpool_limits(1, "blas"):
        yield


def standardize_rows(
    packed: Packed, across: npt.NDArray[np.int64], constant: int, shift: Array, scale: Array
) -> None:
    """Change the units of packed evidence, in place.

    Parameters
    ----------
    packed
        A row for each task.
    across
        Where the products of each feature with the constant one are.
    constant
        Which feature is constant; any if the shift is 0.
    shift, scale
        What is subtracted from each feature, times the constant one, and what it is divided by.
    """
    standardize.Units(shift, scale, constant).packed(packed)


STANDARDIZE_ROWS = Kernel(standardize_rows, TABLES)


class Units(standardize.Units):
    """Where every feature begins, and its unit."""

    def packed(self, rows: Packed) -> Packed:
        """Packed evidence in these units, a row for each task; the rows are changed in place."""
        constant = 0 if self.constant is None else self.constant
        change = STANDARDIZE_ROWS.form(len(rows))
        change(rows, self.constant_places(), constant, self.shift, self.scale)
        return rows
