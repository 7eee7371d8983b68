"""Functions of many small matrices, side by side along the axes before the last two.

Each is written once, with the functions of its arrays' own namespace (:mod:`headstart.arrays`).
Compiled for a GPU, most of their time would go by in moving what one of them passes to the next
through memory. So :func:`use_kernels` lets other implementations take their place for JAX's arrays,
which keep a matrix on the chip (``headstart.lab.gpu``) and give the same up to rounding.

*Tasks* are matrices A_i of shape ``(..., n, d, d)``. What they are multiplied by has no axis for
them: it has the shape ``(..., d, r)``.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from headstart.arrays import array_namespace, control_flow, matvec, transpose

__all__ = [
    "cholesky",
    "eigh",
    "gaussian_gain",
    "has_large_diagonal",
    "inverse_root",
    "projected_inverse",
    "ridge_solve",
    "spd_inverse",
    "stack_rows",
    "sum_of_products",
    "symmetric_matvec",
    "use_kernels",
    "whitened_posteriors",
    "woodbury",
]

#: The implementations for JAX's arrays that are in use. They return ``None`` for sizes that they
#: have no kernel for.
KERNELS: dict[str, Callable[..., Any]] = {}

Function = TypeVar("Function", bound=Callable[..., Any])


@contextlib.contextmanager
def use_kernels(kernels: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Let these take the place of the functions with their names, for JAX's arrays, meanwhile.

    What JAX compiles meanwhile keeps them.
    """
    before = dict(KERNELS)
    KERNELS.update(kernels)
    try:
        yield
    finally:
        KERNELS.clear()
        KERNELS.update(before)


def with_kernel(function: Function) -> Function:
    """The function, or its kernel where one is in use for such arrays."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        kernel = KERNELS.get(function.__name__)
        if kernel is not None and array_namespace(*arguments) is not np:
            result = kernel(*arguments)
            if result is not None:
                return result
        return function(*arguments)

    return call  # type: ignore[return-value]


@with_kernel
def eigh(matrix: Any) -> tuple[Any, Any]:
    """Eigenvalues, the smallest first, and eigenvectors of symmetric matrices.

    >>> eigh(np.diag([3.0, 2.0]))[0]
    array([2., 3.])
    """
    values, vectors = array_namespace(matrix).linalg.eigh(matrix)
    return values, vectors


@with_kernel
def cholesky(matrix: Any) -> Any:
    """The lower triangular L of symmetric, positive definite matrices L Lᵀ."""
    return array_namespace(matrix).linalg.cholesky(matrix)


@with_kernel
def inverse_root(matrix: Any) -> tuple[Any, Any]:
    """L⁻ᵀ of a matrix I + (positive semi-definite) = L Lᵀ, and the log of its determinant.

    Where rounding has pushed the smallest eigenvalues of a huge matrix below zero there is no L;
    they are 1 or more, and any other root will do.
    """
    xp = array_namespace(matrix)
    try:
        factor = xp.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        values, vectors = xp.linalg.eigh(matrix)
        values = xp.maximum(values, 1.0)
        return vectors / xp.sqrt(values)[..., None, :], xp.log(values).sum(-1)
    if xp is np:
        inverse = np.linalg.inv(factor)
    else:
        inverse = xp.linalg.solve(factor, xp.broadcast_to(xp.eye(matrix.shape[-1]), matrix.shape))
    diagonal = xp.diagonal(factor, axis1=-2, axis2=-1)
    return inverse.swapaxes(-1, -2), 2.0 * xp.log(diagonal).sum(-1)


@with_kernel
def gaussian_gain(inner: Any, surprise: Any) -> Any:
    """vᵀ (I + S)⁻¹ v − log det(I + S), of many S and v at once.

    One factor L Lᵀ of I + S with v as one row more (its length 1, so that 2 on the diagonal is
    enough): that row of the factor is L⁻¹ v.
    """
    xp = array_namespace(inner)
    dim = inner.shape[-1]
    length = xp.sqrt((surprise**2).sum(-1, keepdims=True))
    row = surprise / xp.where(length > 0, length, 1.0)
    corner = xp.concatenate([row, xp.full((*row.shape[:-1], 1), 2.0)], -1)
    more = xp.concatenate([inner + np.eye(dim), row[..., None]], -1)
    more = xp.concatenate([more, corner[..., None, :]], -2)
    try:
        lower = xp.linalg.cholesky(more)
    except np.linalg.LinAlgError:  # so unequal directions that rounding hides the small ones
        values, vectors = xp.linalg.eigh(inner)
        values = 1.0 + xp.maximum(values, 0.0)
        square = (matvec(transpose(vectors), surprise) ** 2 / values).sum(-1)
        return square - xp.log(values).sum(-1)
    square = (lower[..., dim, :dim] ** 2).sum(-1) * length[..., 0] ** 2
    diagonal = xp.diagonal(lower, axis1=-2, axis2=-1)[..., :dim]
    return square - 2.0 * xp.log(diagonal).sum(-1)


@with_kernel
def spd_inverse(matrix: Any) -> Any:
    """The inverses of symmetric, positive definite matrices.

    On JAX by Cholesky factors L, as L⁻ᵀ L⁻¹, which on a GPU takes a quarter of the time of LU.
    """
    xp = array_namespace(matrix)
    if xp is np:
        return np.linalg.inv(matrix)
    lower = xp.linalg.cholesky(matrix)
    eye = xp.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape)
    half = control_flow(xp).linalg.triangular_solve(lower, eye, left_side=True, lower=True)
    return transpose(half) @ half


@with_kernel
def whitened_posteriors(
    root: Any, gram: Any, surprise: Any, precision: Any, limit: float
) -> tuple[Any, Any, Any]:
    """E_i = (I + p_i F G_i F)⁻¹ and E_i F s_i of every task.

    Also which tasks have a diagonal of p F G F with more than a ``limit``, which hides the digits
    of what is less: these count as if they had no evidence, E = I and 0.

    Parameters
    ----------
    root
        F, symmetric, of shape ``(..., d, d)``.
    gram, surprise, precision
        G_i, s_i and p_i, of shapes ``(..., n, d, d)``, ``(..., n, d)`` and ``(..., n)``.
    """
    xp = array_namespace(gram)
    around = root[..., None, :, :]
    inner = around @ (gram * precision[..., None, None]) @ around
    huge = has_large_diagonal(inner, limit)
    if xp is not np or huge.any():
        inner = xp.where(huge[..., None, None], 0.0, inner)
        surprise = xp.where(huge[..., None], 0.0, surprise)
    left = spd_inverse(xp.eye(root.shape[-1]) + inner)
    return left, matvec(left, matvec(around, surprise)), huge


@with_kernel
def ridge_solve(gram: Any, moment: Any, precision: Any, spread: Any) -> tuple[Any, Any]:
    """(I + s p_i G_i)⁻¹ p_i G_i and (I + s p_i G_i)⁻¹ p_i b_i of every task.

    Parameters
    ----------
    gram, moment, precision
        G_i, b_i and p_i, of shapes ``(..., n, d, d)``, ``(..., n, d)`` and ``(..., n)``.
    spread
        One s for all tasks, of shape ``(...)``.

    Examples
    --------
    >>> ridge_solve(np.full((1, 1, 1), 3.0), np.full((1, 1), 6.0), np.ones(1), np.ones(()))
    (array([[[0.75]]]), array([[1.5]]))
    """
    xp = array_namespace(gram)
    scaled = precision[..., None, None] * gram
    system = xp.eye(gram.shape[-1]) + xp.asarray(spread)[..., None, None, None] * scaled
    both = xp.concatenate([scaled, (precision[..., None] * moment)[..., None]], -1)
    solved = np.linalg.solve(system, both) if xp is np else spd_inverse(system) @ both
    return solved[..., :-1], solved[..., -1]


@with_kernel
def projected_inverse(matrices: Any, directions: Any, diagonal: Any) -> Any:
    """(Wᵀ A_i W + diag(m_i))⁻¹ of every task, of shape ``(..., n, r, r)``.

    Parameters
    ----------
    matrices, diagonal
        A_i, symmetric, and m_i, of shapes ``(..., n, d, d)`` and ``(..., n, r)``.
    directions
        W, of shape ``(..., d, r)``.
    """
    xp = array_namespace(matrices)
    w = directions[..., None, :, :]
    eye = xp.eye(directions.shape[-1])
    return spd_inverse(transpose(w) @ (matrices @ w) + eye * diagonal[..., None, :])


@with_kernel
def woodbury(matrices: Any, directions: Any, vectors: Any) -> tuple[Any, Any, Any]:
    """(A_i⁻¹ + W Wᵀ)⁻¹, its product with A_i⁻¹ v_i, and (I + Wᵀ A_i W)⁻¹ of every task.

    A_i need have no inverse: with M = (I + Wᵀ A W)⁻¹ they are A − A W M Wᵀ A, v − A W M Wᵀ v and M.

    Parameters
    ----------
    matrices, vectors
        A_i, symmetric, and v_i, of shapes ``(..., n, d, d)`` and ``(..., n, d)``.
    directions
        W, of shape ``(..., d, r)``.
    """
    xp = array_namespace(matrices)
    w = directions[..., None, :, :]
    x = matrices @ w
    m = spd_inverse(xp.eye(directions.shape[-1]) + transpose(w) @ x)
    xm = x @ m
    image = vectors - matvec(xm, matvec(transpose(w), vectors))
    return matrices - xm @ transpose(x), image, m


@with_kernel
def symmetric_matvec(matrices: Any, vectors: Any) -> Any:
    """A_i v_i for symmetric matrices and a vector for each, or one for all."""
    return matvec(matrices, vectors)


@with_kernel
def sum_of_products(matrices: Any, middle: Any, others: Any, weight: Any = None) -> Any:
    """Σ w_i A_i X Z_i over tasks, of shape ``(..., d, r)``.

    Parameters
    ----------
    matrices, others
        A_i, symmetric, and Z_i, of shapes ``(..., n, d, d)`` and ``(..., n, r, r)``.
    middle
        X, of shape ``(..., d, r)``; ``None`` for I.
    weight
        w_i, of shape ``(..., n)``; all are 1 unless given.
    """
    xp = array_namespace(matrices)
    weighted = others if weight is None else weight[..., None, None] * others
    if middle is None:
        return transpose(stack_rows(matrices)) @ stack_rows(weighted)
    *batch, count, dim, _ = matrices.shape
    product = (stack_rows(matrices) @ middle).reshape(*batch, count, dim, middle.shape[-1])
    side_by_side = xp.moveaxis(product, -3, -2).reshape(*batch, dim, -1)
    return side_by_side @ stack_rows(weighted)


def has_large_diagonal(matrix: Any, limit: float) -> Any:
    """Which matrices have a number above a limit on their diagonal."""
    xp = array_namespace(matrix)
    return xp.asarray(xp.diagonal(matrix, axis1=-2, axis2=-1).max(-1, initial=0.0) > limit)


def stack_rows(matrices: Any) -> Any:
    """(..., n, d, d) → (..., n·d, d): the sum of products A_iᵀ B_i is then one product."""
    *batch, count, dim, width = matrices.shape
    return matrices.reshape(*batch, count * dim, width)
