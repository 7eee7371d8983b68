"""Standardized features: each centred and in its own standard deviation.

With few tasks, the prior is shrunk towards one that treats all features alike. This is meaningful
only if the features have comparable units. With a constant feature c (the intercept) and all rows
of all tasks together,

    x'_i = (x_i − k_i x_c) / s_i,    k_i = Σ x_i x_c / Σ x_c²,    s_i² = mean of (x_i − k_i x_c)²,

which only shifts the intercept; without one, k = 0 and s_i is the root mean square. In short
x' = T x, so evidence changes by Gram' = T Gram Tᵀ and moment' = T moment, and θ = Tᵀ θ'.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from headstart.kernels.forms import Kernel
from headstart.model.evidence import Evidence, upper_triangle
from headstart.model.mixture import MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array

CONSTANT_SHARE = 1e-12  # of the mean square: a variance up to that is rounding, of a constant

INDICATOR_SCALE = 0.5  # the standard deviation of a feature that is 0 or 1 in half of the rows


class Standardization(NamedTuple):
    """The mean and the standard deviation of every feature, and the change to them.

    Attributes
    ----------
    shift, scale
        k and s, a number for each feature.
    constant
        Which feature is 1 everywhere, if one is. Its entry of the Gram matrix is the weight of all
        rows, which is not ``rounds`` where rewards are means of several.

    Examples
    --------
    >>> contexts = np.array([[10.0, 1.0], [14.0, 1.0]])
    >>> units = Standardization.of(Evidence.of(contexts, [1.0, 2.0]), constant=1)
    >>> units.contexts(contexts)
    array([[-1.,  1.],
           [ 1.,  1.]])
    """

    shift: Array
    scale: Array
    constant: int | None

    @classmethod
    def of(cls, pooled: Evidence, constant: int | None) -> Self:
        """From the sums of all rows."""
        gram, shift = np.asarray(pooled.gram), np.zeros(pooled.dim)
        has_constant = constant is not None and gram[constant, constant] > 0
        square = np.diag(gram) / (gram[constant, constant] if has_constant else pooled.rounds)
        if has_constant:
            shift = gram[constant] / gram[constant, constant]
            shift[constant] = 0.0
            left = square - shift**2
            square = np.where(left > CONSTANT_SHARE * square, left, square)
        scale = np.sqrt(np.where(square > 0, square, 1.0))
        if constant is not None:
            scale[constant] = 1.0
        return cls(shift, scale, constant)

    def with_indicators(self, pooled: Evidence) -> Self:
        """The same, with ½ for every feature that is 0 or 1 in all rows.

        That is the standard deviation of one that is 1 in half of the rows. In its own, the
        coefficient of a value that is in one row of ten thousand would be expected to be fifty
        times as large as that of a common one.
        """
        if self.constant is None:
            return self
        square, total = np.diag(pooled.gram), pooled.gram[self.constant]
        is_indicator = (np.abs(square - total) <= 1e-9 * square) & (square > 0)
        is_indicator[self.constant] = False
        return self._replace(scale=np.where(is_indicator, INDICATOR_SCALE, self.scale))

    @property
    def matrix(self) -> Array:
        """T."""
        change = np.eye(len(self.shift))
        if self.constant is not None:
            change[:, self.constant] -= self.shift
        return change / self.scale[:, None]

    def contexts(self, contexts: Array) -> Array:
        """Contexts in these units."""
        changed = contexts.astype(np.float64)
        if self.constant is not None:
            changed -= changed[..., self.constant, None] * self.shift
        changed /= self.scale
        return changed

    def packed(self, rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Packed evidence in these units, a row for each task; the rows are changed in place."""
        change = STANDARDIZE_ROWS.form(len(rows))
        change(rows, self.constant_places(), self.constant or 0, self.shift, self.scale)
        return rows

    def constant_places(self) -> npt.NDArray[np.int64]:
        """Where the products with the constant feature are in packed evidence; 0 without one."""
        across = np.zeros(len(self.shift), np.int64)
        i, j = upper_triangle(len(self.shift))
        if self.constant is not None:
            across[i[j == self.constant]] = np.flatnonzero(j == self.constant)
            across[j[i == self.constant]] = np.flatnonzero(i == self.constant)
        return across

    def evidence(self, evidence: Evidence) -> Evidence:
        """Evidence in these units."""
        rows = np.array(evidence.pack(), dtype=np.float64)
        flat = self.packed(rows.reshape(-1, rows.shape[-1]))
        return Evidence.unpack(flat.reshape(rows.shape), evidence.dim)

    def original_prior(self, prior: Prior | MixturePrior) -> Prior | MixturePrior:
        """A prior over θ', as one over θ: what it says about features as they are in the logs."""
        parts = prior.parts if isinstance(prior, MixturePrior) else prior
        back = self.matrix.T
        changed = parts.replace(mean=parts.mean @ back.T, root=back @ parts.root)
        if isinstance(prior, MixturePrior):
            return MixturePrior(changed, prior.log_weights)
        return changed


def standardize_rows(
    packed: npt.NDArray[np.float64],
    across: npt.NDArray[np.int64],
    constant: int,
    shift: Array,
    scale: Array,
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
    i, j = upper_triangle(len(shift))
    triangle, moment = packed[:, : len(i)], packed[:, len(i) : len(i) + len(shift)]
    if shift.any():
        products = triangle[:, across]
        triangle -= products[:, i] * shift[j] + products[:, j] * shift[i]
        triangle += products[:, [constant]] * (shift[i] * shift[j])
        moment -= moment[:, [constant]] * shift
    triangle /= scale[i] * scale[j]
    moment /= scale


STANDARDIZE_ROWS = Kernel(standardize_rows, "headstart.kernels.tables")
