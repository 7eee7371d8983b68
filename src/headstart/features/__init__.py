"""From what callers pass to the vectors that the model works on, with every check on the way.

- ``requests.py``: the arguments of ``choose`` and its siblings;
- ``conversion.py``: arrays, lists and frames to numbers, and the intercept;
- ``reader.py``: the same with what a bandit knows of earlier contexts (names of columns, sizes);
- ``sizes.py``: the usual sizes of features, and which values are refused as far out of range;
- ``transformer.py``: a user's fitted transformer in place of a schema;
- ``schema``: named fields; ``items``: what is known of items by their ids.

The posterior and its mathematics are in :mod:`headstart.model`.
"""
