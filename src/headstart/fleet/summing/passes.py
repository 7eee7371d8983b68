"""Passes over the buckets of a shelf, compiled where there is a compiled form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from headstart.fleet.summing.loops import compiled
from headstart.fleet.summing.shelf import Shelf
from headstart.fleet.summing.standardize import Units
from headstart.model.prior import symmetric_root
from headstart.transfer.empirical_bayes import passes
from headstart.transfer.empirical_bayes.passes import Totals
from headstart.transfer.empirical_bayes.population import Fit

__all__ = ["Call", "one_blas_thread"]

WORTH = 4096  # tasks that make it worth while to load the compiled loops


class Call(NamedTuple):
    """``function(rows, dim, *arguments)`` of every bucket of a shelf, wherever that is.

    Features are in ``units``, if there are any. ``tasks`` says how many there are in all buckets.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    units: Units | None
    tasks: int

    def of(self, shelf: Shelf) -> Callable[[int, int], Any]:
        """What gives the answer for the first tasks of a bucket; compiled where possible."""
        if (
            self.function is passes.partition_totals
            and self.tasks >= WORTH
            and compiled() is not None
        ):
            (fit,) = self.arguments
            return compiled_totals(shelf, fit, self.units)

        def answer(bucket: int, limit: int) -> Any:
            rows = shelf.portion(bucket).rows[:limit]
            rows = rows if self.units is None else self.units.packed(rows)
            return self.function(rows, shelf.dim, *self.arguments)

        return answer


def compiled_totals(
    shelf: Shelf, fit: Fit, units: Units | None
) -> Callable[[int, int], Totals | None]:
    """The sums of a pass, one task after the other, without Python's lock.

    The reference is :func:`headstart.transfer.empirical_bayes.passes.partition_totals`.

    The evidence stays as it is: with features x' = T x, F G' F = (F T) G (F T)ᵀ.
    """
    mean, root = np.array(fit.mean), np.array(symmetric_root(fit.covariance))
    if units is not None:
        mean, root = units.matrix.T @ mean, root @ units.matrix
    noise, freedom = float(fit.noise_variance), float(fit.freedom)

    def answer(bucket: int, limit: int) -> Totals | None:
        table, places = shelf.where(bucket)
        places = places[:limit]
        if not len(places):
            return None
        sums = compiled().totals(table, places, mean, root, noise, freedom, passes.NOISY_FACTOR)
        return Totals(np.asarray(float(len(places))), *map(np.asarray, sums))

    return answer


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
