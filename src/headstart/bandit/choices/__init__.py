"""Choices: from the scores of a rule to one arm, a ranking, or the choices of many tasks at once.

The rules are in :mod:`headstart.rules`; numbers of choices and the lock are in
:mod:`headstart.bandit.state`.
"""
