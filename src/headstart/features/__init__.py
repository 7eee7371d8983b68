"""From what callers pass to the vectors that the model works on, with every check on the way.

``requests.py`` holds what callers pass, ``conversion.py`` turns arrays, lists and frames into
numbers, and ``reader.py`` does so with what a bandit remembers of earlier contexts; ``schema``
encodes named fields, and ``items`` what is known of ids. The posterior and its mathematics are in
:mod:`headstart.model`.
"""
