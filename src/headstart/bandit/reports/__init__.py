"""What was learned and why: the report of a bandit, the expected gain, explanations of choices.

Evaluations on logs are in :mod:`headstart.fleet`, and figures are in :mod:`headstart.lab`.
"""
