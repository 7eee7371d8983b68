"""Mixtures of populations: several affine subspaces, as many as predict best.

Each population is fitted as in :mod:`headstart.transfer.empirical_bayes`.
"""

from headstart.transfer.mixture.transfer import Mixture

__all__ = ["Mixture"]
