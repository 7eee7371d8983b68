"""From what callers pass to the vectors that the model works on, with every check on the way.

The posterior and its mathematics are in :mod:`headstart.model`.
"""
