"""The functions of :mod:`headstart.small_matrices` as CUDA kernels, for functions JAX compiles."""

from __future__ import annotations

import ctypes
import functools
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from headstart.lab.gpu import foreign_calls

__all__ = ["KERNELS", "available_kernels"]

TARGET = "headstart_small_matrices"
LARGEST_DIM = 32  # lanes of a warp
LARGEST_RANK = 16
WARPS, EIGH_WARPS = 4, 2  # of a block, as in small_matrices.cu
TASKS_PER_WARP = 2  # at least, where a block first reads what all its tasks share


class Launch(NamedTuple):
    """A kernel, how many blocks of how many warps it has, and the number it is given."""

    function: Any
    grid: tuple[int, int]
    warps: int
    number: int


def available_kernels() -> dict[str, Any]:
    """The kernels by the names of the functions whose place they take.

    There are none without a GPU, nor for JAX before 0.5, which has no interface to call them by.
    """
    if jax.default_backend() != "gpu" or not hasattr(jax, "ffi"):
        return {}
    foreign_calls.register(TARGET, run, "CUDA")
    return KERNELS


def run(key: str, stream: int, addresses: list[int]) -> None:
    """Launch a kernel on a stream; its arguments are addresses and one number."""
    from cupy.cuda import driver

    function, grid, warps, number = launch_of(key)
    values = (ctypes.c_uint64 * (len(addresses) + 1))(*addresses, number)
    start, size = ctypes.addressof(values), ctypes.sizeof(ctypes.c_uint64)
    places = (ctypes.c_void_p * len(values))(*(start + at * size for at in range(len(values))))
    driver.launchKernel(
        function.kernel.ptr, *grid, 1, 32 * warps, 1, 1, 0, stream, ctypes.addressof(places), 0
    )


@functools.cache
def launch_of(key: str) -> Launch:
    """What a key stands for: a kernel's name, d, r, and the numbers of seeds and of tasks.

    Without tasks it is about so many matrices.
    """
    name, *numbers = key.split()
    dim, rank, seeds, tasks = map(int, numbers)
    function = kernel(name, dim, rank)
    if name == "eigh":
        return Launch(function, (-(-seeds // EIGH_WARPS), 1), EIGH_WARPS, seeds)
    if not tasks:
        lanes = 16 if dim <= 16 else 32
        return Launch(function, (-(-seeds * lanes // (32 * WARPS)), 1), WARPS, seeds)
    if name == "sum_of_products":
        return Launch(function, (seeds, 1), WARPS, tasks)
    return Launch(function, (-(-tasks // (WARPS * TASKS_PER_WARP)), seeds), WARPS, tasks)


@functools.cache
def kernel(name: str, dim: int, rank: int) -> Any:
    """A kernel, compiled for matrices of this size."""
    import cupy as cp

    source = resources.files("headstart.lab.gpu").joinpath("small_matrices.cu").read_text()
    options = ("--std=c++17", f"-D{name.upper()}", f"-DN={dim}", f"-DR={rank}")
    return cp.RawModule(code=source, options=options).get_function(name)


def call(
    name: str, dim: int, rank: int, batch: tuple[int, ...], tasks: int, shapes: Any, *arrays: Any
) -> list[Any]:
    """Call a kernel, whose results have these shapes after the batch axes."""
    seeds = int(np.prod(batch))
    kernel(name, dim, rank)  # so that it is compiled before it runs
    key = f"{name} {dim} {rank} {seeds} {tasks}"
    whole = [(*batch, *shape) for shape in shapes]
    return foreign_calls.call(TARGET, key, whole, *arrays)


def eigh(matrix: Any) -> tuple[Any, Any] | None:
    """As :func:`headstart.small_matrices.eigh`."""
    *batch, _, dim = matrix.shape
    if dim > LARGEST_DIM or not matrix.size:
        return None
    values, vectors = call("eigh", dim, 0, tuple(batch), 0, [(dim,), (dim, dim)], matrix)
    return values, vectors


def spd_inverse(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.spd_inverse`."""
    *batch, _, dim = matrix.shape
    if dim > LARGEST_DIM or not matrix.size:
        return None
    return call("spd_inverse", dim, 0, tuple(batch), 0, [(dim, dim)], matrix)[0]


def cholesky(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.cholesky`."""
    *batch, _, dim = matrix.shape
    if dim > LARGEST_DIM or not matrix.size:
        return None
    return call("cholesky", dim, 0, tuple(batch), 0, [(dim, dim)], matrix)[0]


def inverse_root(matrix: Any) -> tuple[Any, Any] | None:
    """As :func:`headstart.small_matrices.inverse_root`."""
    *batch, _, dim = matrix.shape
    if dim > LARGEST_DIM or not matrix.size:
        return None
    root, log_determinant = call("inverse_root", dim, 0, tuple(batch), 0, [(dim, dim), ()], matrix)
    return root, log_determinant


def gaussian_gain(inner: Any, surprise: Any) -> Any:
    """As :func:`headstart.small_matrices.gaussian_gain`."""
    *batch, _, dim = inner.shape
    if dim > LARGEST_DIM or not inner.size or surprise.shape != inner.shape[:-1]:
        return None
    return call("gaussian_gain", dim, 0, tuple(batch), 0, [()], inner, surprise)[0]


def whitened_posteriors(
    root: Any, gram: Any, surprise: Any, precision: Any, limit: float
) -> tuple[Any, Any, Any] | None:
    """As :func:`headstart.small_matrices.whitened_posteriors`."""
    *batch, tasks, _, dim = gram.shape
    if dim > LARGEST_DIM or root.shape != (*batch, dim, dim) or not gram.size:
        return None
    shapes = [(tasks, dim, dim), (tasks, dim), (tasks,)]
    given = (root, gram, surprise, precision, jnp.full(1, limit, dtype=float))
    left, mean, huge = call("whitened_posteriors", dim, 0, tuple(batch), tasks, shapes, *given)
    return left, mean, huge > 0


def ridge_solve(gram: Any, moment: Any, precision: Any, spread: Any) -> tuple[Any, Any] | None:
    """As :func:`headstart.small_matrices.ridge_solve`."""
    *batch, tasks, _, dim = gram.shape
    if dim > LARGEST_DIM or not gram.size:
        return None
    own = jnp.broadcast_to(spread, tuple(batch))
    shapes = [(tasks, dim, dim), (tasks, dim)]
    solved, means = call(
        "ridge_solve", dim, 0, tuple(batch), tasks, shapes, gram, moment, precision, own
    )
    return solved, means


def projected_inverse(matrices: Any, directions: Any, diagonal: Any) -> Any:
    """As :func:`headstart.small_matrices.projected_inverse`."""
    *batch, tasks, _, dim = matrices.shape
    rank = directions.shape[-1]
    if not fits(matrices, directions):
        return None
    given = (matrices, directions, jnp.broadcast_to(diagonal, (*batch, tasks, rank)))
    shapes = [(tasks, rank, rank)]
    return call("projected_inverse", dim, rank, tuple(batch), tasks, shapes, *given)[0]


def woodbury(matrices: Any, directions: Any, vectors: Any) -> tuple[Any, Any, Any] | None:
    """As :func:`headstart.small_matrices.woodbury`."""
    *batch, tasks, _, dim = matrices.shape
    rank = directions.shape[-1]
    if not fits(matrices, directions):
        return None
    shapes = [(tasks, dim, dim), (tasks, dim), (tasks, rank, rank)]
    given = (matrices, directions, vectors)
    updated, images, inverses = call("woodbury", dim, rank, tuple(batch), tasks, shapes, *given)
    return updated, images, inverses


def symmetric_matvec(matrices: Any, vectors: Any) -> Any:
    """As :func:`headstart.small_matrices.symmetric_matvec`."""
    *batch, _, dim = matrices.shape
    if dim > LARGEST_DIM or not matrices.size or vectors.ndim + 1 > matrices.ndim:
        return None
    given = (matrices, jnp.broadcast_to(vectors, matrices.shape[:-1]))
    return call("symmetric_matvec", dim, 0, tuple(batch), 0, [(dim,)], *given)[0]


def sum_of_products(matrices: Any, middle: Any, others: Any, weight: Any = None) -> Any:
    """As :func:`headstart.small_matrices.sum_of_products`."""
    *batch, tasks, _, dim = matrices.shape
    if middle is None:
        middle = jnp.broadcast_to(jnp.eye(dim), (*batch, dim, dim))
    rank = middle.shape[-1]
    if max(dim, rank) > LARGEST_DIM or not matrices.size or middle.shape != (*batch, dim, rank):
        return None
    own = jnp.ones((*batch, tasks)) if weight is None else weight
    given = (matrices, middle, others, own)
    return call("sum_of_products", dim, rank, tuple(batch), tasks, [(dim, rank)], *given)[0]


def fits(matrices: Any, directions: Any) -> bool:
    """Whether there is a kernel for matrices along directions of these shapes."""
    *batch, _, _, dim = matrices.shape
    rank = directions.shape[-1]
    small = dim <= LARGEST_DIM and rank <= LARGEST_RANK and matrices.size > 0
    return bool(small and directions.shape == (*batch, dim, rank))


KERNELS = {
    function.__name__: function
    for function in (
        eigh,
        cholesky,
        inverse_root,
        gaussian_gain,
        spd_inverse,
        whitened_posteriors,
        ridge_solve,
        projected_inverse,
        woodbury,
        symmetric_matvec,
        sum_of_products,
    )
}
