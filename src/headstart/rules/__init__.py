"""Acquisition rules: which context to choose given a belief, and with what probability.

Ties, propensities and the protocol that a user's own rule follows are here; the posterior that a
rule looks at is in :mod:`headstart.model`, and the confidence radii are in :mod:`headstart.theory`.
"""

from headstart.rules.base import LoopForm, Pick, Propensities, Rule
from headstart.rules.forced import Forced, Uniform
from headstart.rules.greedy import Greedy
from headstart.rules.indexed import Indexed
from headstart.rules.thompson import Thompson
from headstart.rules.ucb import UCB

__all__ = [
    "UCB",
    "Forced",
    "Greedy",
    "Indexed",
    "LoopForm",
    "Pick",
    "Propensities",
    "Rule",
    "Thompson",
    "Uniform",
]
