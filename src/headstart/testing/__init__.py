"""Checks that a user's own rule, transfer or belief must pass, as the library's do.

:func:`check_rule`, :func:`check_transfer` and :func:`check_belief` run all checks of a kind and
raise an :class:`AssertionError` that names the first one that fails; nothing here needs a test
framework. Tests of the library's own numbers are not here: they are in its test suite.

Examples
--------
>>> import headstart as hs
>>> check_rule(hs.Greedy(explore=0.1))
>>> check_transfer(hs.Independent())
>>> check_belief(hs.Prior.isotropic(3, noise=0.5).belief())
"""

from headstart.testing.beliefs import BELIEF_CHECKS, check_belief
from headstart.testing.rules import RULE_CHECKS, check_rule
from headstart.testing.settings import SETTINGS_CHECKS
from headstart.testing.transfers import TRANSFER_CHECKS, check_transfer

__all__ = [
    "BELIEF_CHECKS",
    "RULE_CHECKS",
    "SETTINGS_CHECKS",
    "TRANSFER_CHECKS",
    "check_belief",
    "check_rule",
    "check_transfer",
]
