"""Learning from data that are not choices of the bandit: rows, sums of rows, and journals.

Logs in files, of any size, are fitted in :mod:`headstart.fleet`, and rewards of choices are learned
in :mod:`headstart.bandit.ledger`.
"""
