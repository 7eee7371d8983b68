"""Mixtures of populations: several affine subspaces, as many as predict best.

The class is in ``transfer.py`` and EM in ``groups.py``. How one population is fitted is in
:mod:`headstart.transfer.empirical_bayes`.
"""

from headstart.transfer.mixture.transfer import Mixture

__all__ = ["Mixture"]
