"""Sufficient statistics, priors and posteriors: immutable records and their mathematics.

Everything here works on one task or on many along leading axes, and holds no state. How a prior is
estimated is in :mod:`headstart.transfer`, and what changes over time is in :mod:`headstart.bandit`.
"""
