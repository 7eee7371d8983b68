"""Fits to all tasks, and how many steps they take.

With their evidence in memory (``joint_fit.py``), or for very many tasks (``partition_fit.py``) by
sums over all of them: how few passes will do and the sums for a full covariance are in
``passes.py``, those for the low-rank population in ``low_rank_passes.py``.

A single step is in :mod:`~headstart.transfer.empirical_bayes.full_covariance`; when a fit is due
after a new task is in :mod:`~headstart.transfer.empirical_bayes.folding`.
"""
