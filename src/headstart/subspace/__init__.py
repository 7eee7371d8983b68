"""Principal components, one vector at a time, and how many of them to keep; usable alone.

What is done with a subspace is in :mod:`headstart.transfer.subspace`.
"""

from headstart.subspace.base import PCA, Components, with_fixed_signs
from headstart.subspace.ccipca import CCIPCA
from headstart.subspace.exact import ExactPCA, Moments
from headstart.subspace.rank import gated_log_gap, log_gap, raw_gap

__all__ = [
    "CCIPCA",
    "PCA",
    "Components",
    "ExactPCA",
    "Moments",
    "gated_log_gap",
    "log_gap",
    "raw_gap",
    "with_fixed_signs",
]
