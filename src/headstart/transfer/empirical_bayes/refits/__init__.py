"""Fits to all tasks: when they are due, with all evidence at hand, and in passes over partitions.

A single step is in :mod:`~headstart.transfer.empirical_bayes.full_covariance`.
"""
