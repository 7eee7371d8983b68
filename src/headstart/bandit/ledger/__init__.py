"""The state of a bandit's tasks: their entries, the cache of beliefs and the state of the prior.

Nothing here chooses an arm, checks what a user has passed or reads a file.
"""
