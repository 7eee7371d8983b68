"""The sufficient statistics of a task.

Everything a linear model can learn from a task's rounds ``(x_k, r_k)`` is in four sums::

    gram = Σ x xᵀ      moment = Σ r x      rounds = Σ 1      squares = Σ r²

The order of the rounds does not matter, so that rewards may come late, and sums of several machines
are added. They give the task's ridge estimate and its posterior under *any* prior, and are the only
thing that must be stored.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import sys
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import float_if_scalar
from headstart.errors import InputError
from headstart.records import Array, Record, read_only_copy

__all__ = ["Evidence"]

Scalar = Any  # a float, or an array with the record's batch shape


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Evidence(Record):
    """The sufficient statistics of one task, or of many tasks along leading batch axes.

    Parameters
    ----------
    gram : array of shape (..., d, d)
        The Gram matrix Σ x xᵀ; symmetric.
    moment : array of shape (..., d)
        Σ r x.
    rounds : float or array of shape (...)
        The number of rewards.
    squares : float or array of shape (...)
        Σ r².
    forced : Evidence, optional
        The part that came from forced (uniformly random) rounds, for transfers that learn from
        these alone (:class:`~headstart.transfer.Gaussian`).

    See Also
    --------
    Prior.belief : the posterior given evidence.

    Examples
    --------
    >>> morning = Evidence.of([[1.0, 0.0], [0.0, 1.0]], [2.0, 3.0])
    >>> evening = Evidence.zero(2).add([1.0, 1.0], 4.0)
    >>> (morning + evening).moment
    array([6., 7.])
    >>> (morning + evening).ridge(1.0)
    array([1.375, 1.875])
    """

    gram: Array
    moment: Array
    rounds: Scalar
    squares: Scalar
    forced: Evidence | None = None

    def __post_init__(self) -> None:
        moment = checks.finite_array("moment", self.moment, "an array of shape (..., d)")
        if moment.ndim < 1 or moment.shape[-1] < 1:
            raise checks.invalid("moment", "an array of shape (..., d)", moment)
        dim, batch = moment.shape[-1], moment.shape[:-1]
        gram = checks.shaped_array("gram", self.gram, (*batch, dim, dim))
        scale = np.abs(gram).max(initial=0.0)
        if np.abs(gram - gram.swapaxes(-1, -2)).max(initial=0.0) > 1e-6 * scale:
            raise InputError("gram must be symmetric, a sum of x xᵀ; got one that is not")
        diagonal = np.diagonal(gram, axis1=-2, axis2=-1)
        if diagonal.min(initial=0.0) < -ROUNDING_SHARE * scale:
            raise InputError("gram must be a sum of x xᵀ; got a negative number on its diagonal")
        values: dict[str, Any] = {"gram": read_only_copy(gram), "moment": read_only_copy(moment)}
        for name in ("rounds", "squares"):
            array = checks.finite_array(name, getattr(self, name), "0 or more")
            if array.shape != batch or (array < 0).any():
                raise checks.invalid(name, f"0 or more, of shape {batch}", getattr(self, name))
            values[name] = read_only_copy(array) if batch else float(array)
        part: object = self.forced
        fits = isinstance(part, Evidence) and part.moment.shape == moment.shape
        if part is not None and not fits:
            raise checks.invalid("forced", f"Evidence with a moment of shape {moment.shape}", part)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def zero(cls, dim: int, batch: tuple[int, ...] = (), *, forced: bool = False) -> Evidence:
        """Nothing seen yet; ``forced=True`` keeps forced rounds apart from the start."""
        dim = checks.dimension(dim)
        forced = checks.flag("forced", forced)
        return Evidence.unchecked(
            np.zeros((*batch, dim, dim)),
            np.zeros((*batch, dim)),
            np.zeros(batch) if batch else 0.0,
            np.zeros(batch) if batch else 0.0,
            cls.zero(dim, batch) if forced else None,
        )

    @classmethod
    def of(cls, contexts: npt.ArrayLike, rewards: npt.ArrayLike) -> Self:
        """The evidence of rounds given as arrays.

        Parameters
        ----------
        contexts
            One row per round: shape ``(..., n, d)``.
        rewards
            The reward of each round: shape ``(..., n)``.
        """
        x = checks.finite_array("contexts", contexts, "an array of shape (..., n, d)")
        if x.ndim < 2:
            raise checks.invalid("contexts", "an array of shape (..., n, d)", x)
        r = checks.shaped_array("rewards", rewards, x.shape[:-1])
        gram = x.swapaxes(-1, -2) @ x
        batch = x.shape[:-2]
        return cls(
            gram=(gram + gram.swapaxes(-1, -2)) / 2,
            moment=(r[..., None, :] @ x)[..., 0, :],
            rounds=np.full(batch, float(x.shape[-2])),
            squares=(r * r).sum(-1),
        )

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.moment.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: ``()`` for one task."""
        return self.moment.shape[:-1]

    def add(self, context: npt.ArrayLike, reward: Any, *, forced: bool = False) -> Evidence:
        """One more round: ``(x, r)`` added to the sums.

        With ``forced`` it is added to the forced part as well, if that is kept apart.
        """
        x = checks.shaped_array("context", context, self.moment.shape)
        r = checks.shaped_array("reward", reward, self.batch)
        forced = checks.flag("forced", forced)
        return self.add_unchecked(x, r if self.batch else float(r), forced)

    def add_unchecked(
        self, x: Array, r: Any, forced: bool = False, rounds: float = 1.0
    ) -> Evidence:
        """:meth:`add` for arguments that were checked already.

        It counts as ``rounds``, which is not 1 if it was multiplied by the root of a weight.
        """
        part = self.forced
        if part is not None and forced:
            part = part.add_unchecked(x, r, rounds=rounds)
        return Evidence.unchecked(
            self.gram + x[..., :, None] * x[..., None, :],
            self.moment + (r[..., None] * x if self.batch else r * x),
            self.rounds + rounds,
            self.squares + r * r,
            part,
        )

    def add_many(self, contexts: Array, rewards: Array, forced: Array | None = None) -> Evidence:
        """Several rounds at once, checked already; ``forced`` marks those that were, if any."""
        gram = contexts.T.dot(contexts)
        part = self.forced
        if part is not None and forced is not None and forced.any():
            part = part.add_many(contexts[forced], rewards[forced], forced[forced])
        return Evidence.unchecked(
            self.gram + gram,
            self.moment + rewards.dot(contexts),
            self.rounds + float(len(rewards)),
            self.squares + float(rewards.dot(rewards)),
            part,
        )

    def at(self, index: Any) -> Evidence:
        """The evidence of one task of a batch, with arrays of its own."""
        return self.combine(lambda part: float_if_scalar(np.array(part[index])))

    def discount(self, factor: float) -> Evidence:
        """The same rounds, each with its weight multiplied by ``factor``.

        >>> Evidence.of([[1.0]], [2.0]).discount(0.5).rounds
        0.5
        """
        if factor == 1.0:
            return self
        return self.combine(lambda part: part * factor)

    def combine(self, function: Callable[..., Any], *others: Evidence) -> Evidence:
        """A function of each of the four sums, and of the same sum of others."""
        sums = ((part.gram, part.moment, part.rounds, part.squares) for part in (self, *others))
        forced: Any = None
        if self.forced is not None:
            rest: tuple[Any, ...] = tuple(other.forced for other in others)
            forced = self.forced.combine(function, *rest)
        return Evidence.unchecked(*map(function, *sums), forced)

    def __add__(self, other: Evidence) -> Evidence:
        if not isinstance(other, Evidence):
            return NotImplemented
        if self.dim != other.dim:
            raise InputError(
                f"evidence can be added to evidence of the same dimension; "
                f"got dimensions {self.dim} and {other.dim}"
            )
        if self.batch != other.batch:
            raise InputError(
                f"evidence can be added to evidence of the same batch shape; "
                f"got {self.batch} and {other.batch}"
            )
        if (self.forced is None) != (other.forced is None):
            raise InputError("evidence with its forced rounds apart cannot be added to one without")
        return self.combine(operator.add, other)

    def __radd__(self, other: object) -> Evidence:
        """So that ``sum(evidences)`` works."""
        if isinstance(other, int) and other == 0:
            return self
        return NotImplemented

    def ridge(self, lam: float) -> Array:
        """The ridge estimate θ = (λI + gram)⁻¹ moment."""
        lam = checks.positive("lam", lam)
        regularised = self.gram + lam * np.eye(self.dim)
        try:
            solution: Array = np.linalg.solve(regularised, self.moment[..., None])[..., 0]
        except np.linalg.LinAlgError:
            raise InputError("gram must be a sum of x xᵀ; got one that is not") from None
        return solution

    def pack(self) -> Array:
        """The sums as one flat vector of d(d+1)/2 + d + 2 numbers (twice that with forced).

        >>> Evidence.of([[1.0, 2.0]], [3.0]).pack()
        array([1., 2., 4., 3., 6., 1., 9.])
        """
        rows, columns = upper_triangle(self.dim)
        parts = [
            self.gram[..., rows, columns],
            self.moment,
            np.asarray(self.rounds)[..., None],
            np.asarray(self.squares)[..., None],
        ]
        if self.forced is not None:
            parts.append(self.forced.pack())
        return np.concatenate(parts, axis=-1)

    @classmethod
    def unpack(cls, vector: npt.ArrayLike, dim: int) -> Evidence:
        """The inverse of :meth:`pack`."""
        dim = checks.dimension(dim)
        size = packed_size(dim)
        packed = checks.finite_array("vector", vector, f"{size} or {2 * size} numbers")
        if packed.ndim < 1 or packed.shape[-1] not in (size, 2 * size):
            raise checks.invalid("vector", f"{size} or {2 * size} numbers for dim {dim}", packed)
        forced = cls.unpack(packed[..., size:], dim) if packed.shape[-1] == 2 * size else None
        batch = packed.shape[:-1]
        split = dim * (dim + 1) // 2
        rows, columns = upper_triangle(dim)
        gram = np.empty((*batch, dim, dim))
        gram[..., rows, columns] = packed[..., :split]
        gram[..., columns, rows] = packed[..., :split]
        rounds, squares = packed[..., split + dim], packed[..., split + dim + 1]
        return Evidence.unchecked(
            gram,
            packed[..., split : split + dim].copy(),
            rounds.copy() if batch else float(rounds),
            squares.copy() if batch else float(squares),
            forced,
        )


def find_fault(rows: Array, dim: int, limit: float = sys.float_info.max) -> tuple[int, str] | None:
    """The first row of packed evidence that no rounds can produce, and what is wrong with it.

    Rounding is allowed for: where contexts were centred, a gram is a difference of large numbers.

    >>> find_fault(np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, -3.0, 4.0]]), dim=1)
    (1, 'fewer than 0 rounds')
    """
    size, triangle = packed_size(dim), dim * (dim + 1) // 2
    place = np.arange(dim)
    diagonal = rows[:, place * dim - place * (place - 1) // 2]
    sizes = np.abs(rows)
    entries = sizes[:, :triangle].max(1)
    with np.errstate(invalid="ignore"):
        faults = {
            "numbers that are not finite, or too large": ~(entries <= limit)
            | ~(sizes[:, triangle:].max(1) <= limit),
            "fewer than 0 rounds": rows[:, size - 2] < 0,
            "a sum of squares below 0": rows[:, size - 1] < 0,
            # The largest entry is on the diagonal, on which none is negative.
            "a gram that is no sum of x xᵀ": (diagonal.min(1) < -ROUNDING_SHARE * entries)
            | (diagonal.max(1) < (1.0 - ROUNDING_SHARE) * entries),
        }
        if rows.shape[1] > size:
            more = rows[:, 2 * size - 2] > rows[:, size - 2] * (1.0 + ROUNDING_SHARE)
            faults["more forced rounds than rounds"] = more
    for what, bad in faults.items():
        if bad.any():
            return int(np.argmax(bad)), what
    return find_fault(rows[:, size:], dim, limit) if rows.shape[1] > size else None


ROUNDING_SHARE = 1e-3  # the share of a gram's largest entry that may be rounding


def packed_size(dim: int) -> int:
    """How many numbers the evidence of one task packs into."""
    return dim * (dim + 1) // 2 + dim + 2


@functools.lru_cache(maxsize=8)
def upper_triangle(dim: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Indices of the upper triangle."""
    return np.triu_indices(dim)
