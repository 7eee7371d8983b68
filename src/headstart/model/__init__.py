"""Records and their mathematics: evidence, prior, belief and mixtures of them.

Everything here is immutable and works on one task or on many along leading axes. How a prior is
learned is in :mod:`headstart.transfer`, and what changes over time is in :mod:`headstart.bandit`.
"""
