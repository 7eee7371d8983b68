"""Which features are sums of others: told from the sums of their products alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Dependence", "dependences"]

Array = npt.NDArray[np.float64]

EXACT = 1e-10  # of a feature's variance that others leave unexplained: none, up to rounding
NEARLY = 1e-5
SHOWN = 1e-3  # a term smaller than this, in standard deviations, is not worth naming


class Dependence(NamedTuple):
    """A feature that is a linear combination of others.

    Attributes
    ----------
    feature
        The place of the feature.
    terms
        The places of those that make it up, largest share first, and their coefficients.
    unexplained
        The share of its variance that they leave; 0 up to rounding where it is exact.
    """

    feature: int
    terms: list[tuple[int, float]]
    unexplained: float

    @property
    def exact(self) -> bool:
        """Whether nothing is left but rounding."""
        return self.unexplained <= EXACT


def dependences(centred: Array, means: Array, count: float) -> list[Dependence]:
    """Features that are (nearly) linear combinations of features before them.

    Constant features stand for an intercept: where one is not 0, the others are compared after
    their means are taken off.

    Parameters
    ----------
    centred
        Σ (x − μ)(x − μ)ᵀ.
    means
        μ.
    count
        The number of rows.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> x = np.column_stack([x, x @ [2.0, -1.0]])
    >>> y = x - x.mean(0)
    >>> (found,) = dependences(y.T @ y, x.mean(0), 50)
    >>> found.feature, [(place, round(factor, 6)) for place, factor in found.terms]
    (2, [(0, 2.0), (1, -1.0)])
    """
    from scipy.linalg import solve_triangular  # only for those who check: it takes a while

    spread = np.diag(centred).copy()
    varies = spread > 1e-20 * count * np.maximum(means**2, np.finfo(float).tiny)
    places = np.flatnonzero(varies)
    intercept = bool((~varies & (means != 0)).any())
    gram = centred if intercept else centred + count * np.outer(means, means)
    scale = np.sqrt(spread[places])
    gram = gram[np.ix_(places, places)] / np.outer(scale, scale)
    # What rounding leaves of a residual: far means without an intercept drown everything else.
    noise = 1e-14 * np.diag(gram)
    factor = np.zeros_like(gram)
    kept: list[int] = []
    found = []
    for place in range(len(places)):
        size = len(kept)
        lower = factor[:size, :size]
        row: Array = np.zeros(0)
        if size:
            row = solve_triangular(lower, gram[kept, place], lower=True)
        left = float(gram[place, place] - row @ row)
        if left > NEARLY or noise[place] > EXACT:
            factor[size, :size] = row
            factor[size, size] = np.sqrt(max(left, noise[place]))
            kept.append(place)
            continue
        shares = solve_triangular(lower.T, row)
        order = [index for index in np.argsort(-np.abs(shares)) if abs(shares[index]) > SHOWN]
        terms = [
            (int(places[kept[index]]), float(shares[index] * scale[place] / scale[kept[index]]))
            for index in order
        ]
        found.append(Dependence(int(places[place]), terms, max(left, 0.0)))
    return found
