"""From what callers pass to the vectors that the model works on, with every check on the way.

``conversion.py`` turns arrays, lists and frames into numbers; ``reader.py`` holds what a bandit
remembers of earlier contexts. The posterior and its mathematics are in :mod:`headstart.model`.
"""
