"""The state of a bandit's tasks: their entries, the cache of beliefs and the state of the prior.

An entry also knows which choices were learned from (``entries.py``).

Nothing here chooses an arm, checks what a user has passed or reads a file.
"""
