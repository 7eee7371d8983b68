"""The Gaussian population with a full covariance: posteriors, likelihood, noise, scoring steps.

The low-rank populations that compete with it are in
:mod:`~headstart.transfer.empirical_bayes.low_rank`.
"""
