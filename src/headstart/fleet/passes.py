"""Passes over portions of tasks, compiled where there is a compiled form."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from headstart.fleet.sums import MANY, compiled
from headstart.prior import symmetric_root
from headstart.records import Array
from headstart.transfer import passes
from headstart.transfer.passes import Totals

__all__ = ["faster", "one_blas_thread"]


WORTH = 4096  # tasks that make it worth while to load the compiled loops


def faster(
    function: Callable[..., Any], arguments: tuple[Any, ...], tasks: int
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The same call in a compiled form, if there is one, Numba is there and tasks are many."""
    if function is passes.totals_of and tasks >= WORTH and compiled(MANY) is not None:
        (fit,) = arguments
        # The root is found once, not for every portion.
        mean, root = np.array(fit.mean), np.array(symmetric_root(fit.covariance))
        return totals_with, (mean, root, float(fit.noise))
    return function, arguments


def totals_with(rows: Array, dim: int, mean: Array, root: Array, variance: float) -> Totals | None:
    """:func:`headstart.transfer.passes.totals_of`, one task after the other without any lock."""
    if not len(rows):
        return None
    found = compiled(MANY).totals(np.ascontiguousarray(rows), mean, root, variance)
    known, squared, outer, total, residual, freedom, energy, rounds = found
    return Totals(
        np.asarray(float(len(rows))),
        known[:, :dim].copy(),
        squared[:, :dim].copy(),
        outer[:, :dim].copy(),
        total[:dim].copy(),
        np.asarray(residual),
        np.asarray(freedom),
        np.asarray(energy),
        np.asarray(rounds),
    )


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
