"""What a bandit knows of its tasks: their entries, the cached beliefs and the prior.

Nothing here chooses an arm or reads a file.
"""
