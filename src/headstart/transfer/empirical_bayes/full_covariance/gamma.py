"""The logarithm of the gamma function and its derivative, for arrays of 0.5 or more.

The same as SciPy's to about 1e-14; but importing ``scipy.special`` takes longer than importing
headstart, and would delay the first choice of a second task. Stirling's series at x + 8, and from
there the recurrence Γ(x + 1) = x Γ(x).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.arrays import array_namespace
from headstart.records import Array

SHIFT = 8


def log_gamma(x: Any) -> Array:
    """Log Γ(x).

    >>> np.exp(log_gamma(np.array([0.5, 1.0, 5.0]))).round(12)
    array([ 1.77245385,  1.        , 24.        ])
    """
    xp = array_namespace(x)
    x = xp.asarray(x, dtype=float)
    product, y = x, x + SHIFT
    for step in range(1, SHIFT):
        product = product * (x + step)
    z = 1.0 / (y * y)
    tail = 1 / 1260 - z * (1 / 1680 - z * (1 / 1188 - z * (691 / 360360)))
    series = 1 / 12 - z * (1 / 360 - z * tail)
    return (y - 0.5) * xp.log(y) - y + HALF_LOG + series / y - xp.log(product)


def digamma(x: Any) -> Array:
    """The derivative of log Γ(x).

    >>> digamma(np.array([1.0])).round(12)
    array([-0.57721566])
    """
    xp = array_namespace(x)
    x = xp.asarray(x, dtype=float)
    y = x + SHIFT
    z = 1.0 / (y * y)
    series = z * (
        1 / 12 - z * (1 / 120 - z * (1 / 252 - z * (1 / 240 - z * (1 / 132 - z * (691 / 32760)))))
    )
    below = sum(1.0 / (x + step) for step in range(SHIFT))
    return xp.log(y) - 0.5 / y - series - below


HALF_LOG = 0.5 * np.log(2.0 * np.pi)
