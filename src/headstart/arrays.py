"""The array namespace: one implementation of a formula for NumPy and for JAX.

Functions that must run on both begin with ``xp = array_namespace(...)`` and call ``xp.where``,
``xp.linalg.eigh`` and so on, as the Python array API standard has it. Such functions never write
into an array, and never branch on an array's values: while JAX compiles a function there are none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np


def array_namespace(*arrays: Any) -> Any:
    """The module whose functions compute with these arrays.

    Parameters
    ----------
    *arrays
        Arrays, or numbers and ``None``, which any library computes with.

    Returns
    -------
    module
        The namespace of the first array that is not NumPy's (``jax.numpy`` for JAX), or ``numpy``.

    Examples
    --------
    >>> array_namespace(np.ones(2), 1.0) is np
    True
    """
    for array in arrays:
        if isinstance(array, (np.ndarray, np.generic, float, int)):
            continue
        namespace = getattr(array, "__array_namespace__", None)
        if namespace is not None:
            return namespace()
    return np


def repeat(xp: Any, steps: Any, body: Callable[[Any, Any], Any], carry: Any) -> Any:
    """``carry = body(step, carry)`` for every step, however many the arrays' values ask for.

    In JAX's namespace it is one loop of the compiled function, whose carry is a pytree.

    >>> repeat(np, 3, lambda step, total: total + step, 10)
    13
    """
    if xp is np:
        for step in range(int(steps)):
            carry = body(step, carry)
        return carry
    return control_flow(xp).fori_loop(0, steps, body, carry)


def apply_if(xp: Any, condition: Any, function: Callable[[Any], Any], value: Any) -> Any:
    """``function(value)`` where the condition holds, else the value, which is built alike.

    >>> apply_if(np, np.True_, lambda value: value + 1, 10)
    11
    """
    if xp is np:
        return function(value) if condition else value
    return control_flow(xp).cond(condition, function, lambda same: same, value)


def control_flow(xp: Any) -> Any:
    """The module with the loops and branches of a namespace that compiles: ``jax.lax``."""
    return importlib.import_module(f"{xp.__name__.partition('.')[0]}.lax")


def float_if_scalar(value: Any) -> Any:
    """A NumPy array without axes as a float; any other array as it is.

    >>> float_if_scalar(np.float64(2.0)), float_if_scalar(np.ones(1))
    (2.0, array([1.]))
    """
    if isinstance(value, float):  # NumPy's double precision numbers are
        return float(value)
    xp = array_namespace(value)
    array = xp.asarray(value, dtype=float)
    return array if array.ndim or xp is not np else float(array)


def attempt(function: Callable[..., Any], *arguments: Any) -> Any:
    """``function(*arguments)``, or ``None`` where a matrix has no factor; overflows do not warn.

    >>> attempt(np.linalg.cholesky, np.eye(1)), attempt(np.linalg.cholesky, -np.eye(1))
    (array([[1.]]), None)
    """
    try:
        with np.errstate(all="ignore"):
            return function(*arguments)
    except np.linalg.LinAlgError:
        return None


def along_batch(values: Any, array: Any) -> Any:
    """Values for each batch element, with as many axes after them as an array has.

    >>> along_batch(np.ones(2), np.ones((2, 3, 3))).shape
    (2, 1, 1)
    """
    return values.reshape(values.shape + (1,) * (np.ndim(array) - values.ndim))


def stable_argsort(values: Any) -> Any:
    """The order that sorts the last axis; equal values stay in theirs.

    >>> stable_argsort(np.array([2.0, 1.0, 2.0, 1.0]))
    array([1, 3, 0, 2])
    """
    xp = array_namespace(values)
    # JAX's sort is stable by default, and NumPy 1 has another name for the option.
    return np.argsort(values, axis=-1, kind="stable") if xp is np else xp.argsort(values, axis=-1)


def matvec(matrix: Any, vector: Any) -> Any:
    """Matrix times vector, over the last axes."""
    return (matrix @ vector[..., None])[..., 0]


def transpose(matrix: Any) -> Any:
    """The transpose of matrices in the last two axes."""
    return matrix.swapaxes(-1, -2)


def congruence(matrix: Any, square: Any) -> Any:
    """M S Mᵀ, made exactly symmetric."""
    product = matrix @ square @ transpose(matrix)
    return (product + transpose(product)) / 2


def trace(matrix: Any) -> Any:
    """The trace of matrices in the last two axes."""
    return matrix.trace(axis1=-2, axis2=-1)


def norm(vector: Any) -> Any:
    """The Euclidean norm of vectors in the last axis."""
    return array_namespace(vector).sqrt((vector**2).sum(-1))


def max_abs(array: Any) -> float:
    """The largest entry of a NumPy array in absolute value; 0 if there is none."""
    return float(np.abs(array).max(initial=0.0))
