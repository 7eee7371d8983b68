"""Empirical Bayes: mean, covariance and noise of the population, learned from all tasks.

The class is in ``transfer.py``, its base in ``base.py``, what it keeps of tasks in ``state.py``.
The two kinds of populations are in ``full_covariance`` and ``low_rank``, fits to all tasks in
``refits``, and what a new task changes in ``folding.py``; ``scoring.py`` weighs the candidates.
Mixtures of such populations are in :mod:`headstart.transfer.mixture`.
"""

from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

__all__ = ["EmpiricalBayes"]
