"""Empirical Bayes: mean, covariance and noise of the population, learned from all tasks.

The class is in ``transfer.py``; what it keeps of tasks, and how many, is in ``state.py``. Fitting a
Gaussian population to evidence, in memory or in passes over partitions, is in the other files.
Mixtures of such populations are in :mod:`headstart.transfer.mixture`.
"""

from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

__all__ = ["EmpiricalBayes"]
