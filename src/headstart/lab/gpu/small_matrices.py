"""The functions of :mod:`headstart.small_matrices` as CUDA kernels, for functions JAX compiles."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from importlib import resources
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from headstart.lab.gpu import foreign_calls

TARGET = "headstart_small_matrices"
LARGEST_DIM = 32  # lanes of a warp
LARGEST_RANK = 16
WARPS, EIGH_WARPS = 4, 2  # of a block, as in small_matrices.cu
TASKS_PER_WARP = 2  # at least, where a block first reads what all its tasks share


class Launch(NamedTuple):
    """A kernel, its grid of blocks, the warps of a block, and its integer argument."""

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
    """The launch for a key: a kernel's name, d, r, and the numbers of seeds and of tasks.

    With 0 tasks, the number of seeds is that of matrices.
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
    name: str,
    matrices: Any,
    shapes: Sequence[tuple[int, ...]],
    *arrays: Any,
    rank: int = 0,
    with_tasks: bool = False,
) -> tuple[Any, ...]:
    """Call a kernel for these matrices; its results have these shapes after the batch axes.

    ``with_tasks`` says that the last batch axis is that of tasks; of results, it is an axis of the
    shapes.
    """
    *batch, dim = matrices.shape[:-1]
    tasks = batch.pop() if with_tasks else 0
    kernel(name, dim, rank)  # so that it is compiled before it runs
    key = f"{name} {dim} {rank} {math.prod(batch)} {tasks}"
    return tuple(foreign_calls.call(TARGET, key, [(*batch, *shape) for shape in shapes], *arrays))


def fits(matrices: Any) -> bool:
    """Whether there are kernels for matrices of this shape."""
    return bool(matrices.shape[-1] <= LARGEST_DIM and matrices.size)


def fits_along(matrices: Any, directions: Any) -> bool:
    """Whether there are kernels for matrices along directions of these shapes."""
    *batch, _, _, dim = matrices.shape
    *_, rank = directions.shape
    return fits(matrices) and rank <= LARGEST_RANK and directions.shape == (*batch, dim, rank)


def eigh(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.eigh`."""
    dim = matrix.shape[-1]
    return call("eigh", matrix, [(dim,), (dim, dim)], matrix) if fits(matrix) else None


def spd_inverse(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.spd_inverse`."""
    shape = matrix.shape[-2:]
    return call("spd_inverse", matrix, [shape], matrix)[0] if fits(matrix) else None


def cholesky(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.cholesky`."""
    shape = matrix.shape[-2:]
    return call("cholesky", matrix, [shape], matrix)[0] if fits(matrix) else None


def inverse_root(matrix: Any) -> Any:
    """As :func:`headstart.small_matrices.inverse_root`."""
    shape = matrix.shape[-2:]
    return call("inverse_root", matrix, [shape, ()], matrix) if fits(matrix) else None


def gaussian_gain(inner: Any, surprise: Any) -> Any:
    """As :func:`headstart.small_matrices.gaussian_gain`."""
    if not fits(inner) or surprise.shape != inner.shape[:-1]:
        return None
    return call("gaussian_gain", inner, [()], inner, surprise)[0]


def whitened_posteriors(root: Any, gram: Any, surprise: Any, precision: Any, limit: float) -> Any:
    """As :func:`headstart.small_matrices.whitened_posteriors`."""
    *batch, tasks, _, dim = gram.shape
    if not fits(gram) or root.shape != (*batch, dim, dim):
        return None
    shapes = [(tasks, dim, dim), (tasks, dim), (tasks,)]
    arrays = (root, gram, surprise, precision, jnp.full(1, limit, dtype=float))
    left, mean, huge = call("whitened_posteriors", gram, shapes, *arrays, with_tasks=True)
    return left, mean, huge > 0


def ridge_solve(gram: Any, moment: Any, precision: Any, spread: Any) -> Any:
    """As :func:`headstart.small_matrices.ridge_solve`."""
    *batch, tasks, _, dim = gram.shape
    if not fits(gram):
        return None
    arrays = (gram, moment, precision, jnp.broadcast_to(spread, tuple(batch)))
    return call("ridge_solve", gram, [(tasks, dim, dim), (tasks, dim)], *arrays, with_tasks=True)


def projected_inverse(matrices: Any, directions: Any, diagonal: Any) -> Any:
    """As :func:`headstart.small_matrices.projected_inverse`."""
    *batch, tasks, _, _ = matrices.shape
    rank = directions.shape[-1]
    if not fits_along(matrices, directions):
        return None
    arrays = (matrices, directions, jnp.broadcast_to(diagonal, (*batch, tasks, rank)))
    shapes = [(tasks, rank, rank)]
    return call("projected_inverse", matrices, shapes, *arrays, rank=rank, with_tasks=True)[0]


def woodbury(matrices: Any, directions: Any, vectors: Any) -> Any:
    """As :func:`headstart.small_matrices.woodbury`."""
    tasks, _, dim = matrices.shape[-3:]
    rank = directions.shape[-1]
    if not fits_along(matrices, directions):
        return None
    shapes = [(tasks, dim, dim), (tasks, dim), (tasks, rank, rank)]
    arrays = (matrices, directions, vectors)
    return call("woodbury", matrices, shapes, *arrays, rank=rank, with_tasks=True)


def symmetric_matvec(matrices: Any, vectors: Any) -> Any:
    """As :func:`headstart.small_matrices.symmetric_matvec`."""
    if not fits(matrices) or vectors.ndim + 1 > matrices.ndim:
        return None
    arrays = (matrices, jnp.broadcast_to(vectors, matrices.shape[:-1]))
    return call("symmetric_matvec", matrices, [matrices.shape[-1:]], *arrays)[0]


def sum_of_products(matrices: Any, middle: Any, others: Any, weight: Any = None) -> Any:
    """As :func:`headstart.small_matrices.sum_of_products`."""
    *batch, tasks, _, dim = matrices.shape
    if middle is None:
        middle = jnp.broadcast_to(jnp.eye(dim), (*batch, dim, dim))
    rank = middle.shape[-1]
    if not fits(matrices) or rank > LARGEST_DIM or middle.shape != (*batch, dim, rank):
        return None
    weights = jnp.ones((*batch, tasks)) if weight is None else weight
    arrays, shapes = (matrices, middle, others, weights), [(dim, rank)]
    return call("sum_of_products", matrices, shapes, *arrays, rank=rank, with_tasks=True)[0]


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
