"""Fits to all tasks, with their evidence at hand or in passes, and how many steps they take.

A single step is in :mod:`~headstart.transfer.empirical_bayes.full_covariance`; when a fit is due
after a new task is in :mod:`~headstart.transfer.empirical_bayes.folding`.
"""
