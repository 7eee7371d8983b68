"""Which features are sums of others: told from the sums of their products alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Dependence", "dependences"]

Array = npt.NDArray[np.float64]

EXACT = 1e-10  # of a feature's variance that others leave unexplained: none, up to rounding
NEARLY = 1e-5
SHOWN = 1e-3  # a term smaller than this, in standard deviations, is not worth naming …
SHOWN_IF_EXACT = 1e-5  # … unless the relation is exact, and would not be without it


class Dependence(NamedTuple):
    """A feature that is a linear combination of others and a constant.

    Attributes
    ----------
    feature
        The place of the feature.
    terms
        The places of those that make it up, largest share first, and their coefficients.
    unexplained
        The share of its variance that they leave; 0 up to rounding where it is exact.
    constant
        What is added to them.
    """

    feature: int
    terms: list[tuple[int, float]]
    unexplained: float
    constant: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether nothing is left but rounding."""
        return self.unexplained <= EXACT


def dependences(
    centred: Array, means: Array, count: float, skip: npt.NDArray[np.bool_] | None = None
) -> list[Dependence]:
    """Features that are (nearly) linear combinations of features before them and a constant.

    The constant is there because an intercept is, unless it is not wanted.

    Parameters
    ----------
    centred
        Σ (x − μ)(x − μ)ᵀ.
    means
        μ.
    count
        The number of rows.
    skip
        Features that are not compared.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> x = np.column_stack([x, 3.0 + x @ [2.0, -1.0]])
    >>> y = x - x.mean(0)
    >>> (found,) = dependences(y.T @ y, x.mean(0), 50)
    >>> found.feature, [(place, round(factor, 6)) for place, factor in found.terms]
    (2, [(0, 2.0), (1, -1.0)])
    >>> round(found.constant, 6)
    3.0
    """
    from scipy.linalg import solve_triangular  # only for those who check: it takes a while

    spread = np.diag(centred).copy()
    varies = spread > 1e-20 * count * np.maximum(means**2, np.finfo(float).tiny)
    if skip is not None:
        varies &= ~skip
    places = np.flatnonzero(varies)
    scale = np.sqrt(spread[places])
    gram = centred[np.ix_(places, places)] / np.outer(scale, scale)
    deviation = scale / np.sqrt(max(count, 1.0))
    factor = np.zeros_like(gram)
    basis: list[int] = []
    relations = []
    for place in range(len(places)):
        size = len(basis)
        lower = factor[:size, :size]
        row: Array = np.zeros(0)
        if size:
            row = solve_triangular(lower, gram[basis, place], lower=True)
        left = float(gram[place, place] - row @ row)
        if left > NEARLY:
            factor[size, :size] = row
            factor[size, size] = np.sqrt(left)
            basis.append(place)
            continue
        shares = solve_triangular(lower.T, row)
        least = SHOWN_IF_EXACT if left <= EXACT else SHOWN
        order = [index for index in np.argsort(-np.abs(shares)) if abs(shares[index]) > least]
        terms = [
            (int(places[basis[index]]), float(shares[index] * scale[place] / scale[basis[index]]))
            for index in order
        ]
        parts = [factor_ * means[other] for other, factor_ in terms]
        constant = float(means[places[place]] - sum(parts))
        # What rounding leaves of large means, or is as small as terms that are not named, is none.
        sizes = abs(means[places[place]]) + sum(map(abs, parts))
        noise = 1e-9 * sizes + deviation[place] * (1e-6 if left <= EXACT else SHOWN)
        constant = constant if abs(constant) > noise else 0.0
        relations.append(Dependence(int(places[place]), terms, max(left, 0.0), constant))
    return relations
