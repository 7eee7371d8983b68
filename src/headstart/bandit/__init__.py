"""The objects that change: a bandit, its tasks, their choices, and how they are saved.

Everything is one thin layer over immutable records; the mathematics is in :mod:`headstart.model`,
:mod:`headstart.rules` and :mod:`headstart.transfer`.
"""

from headstart.bandit.bandit import Bandit, load

__all__ = ["Bandit", "load"]
