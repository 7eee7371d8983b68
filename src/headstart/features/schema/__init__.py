"""From named contexts and actions to rows of numbers: fields, the schema, and its encoder.

``fields.py`` and ``categories.py`` hold the kinds of fields, ``schema.py`` the record that lists
them, ``rows.py`` reads frames, lists of dicts and ids, ``encoder.py`` makes the rows. ``infer.py``
proposes a schema for a table, with a review of its columns (``review.py``).
"""

from headstart.features.schema.kinds import boolean, category, number, vector
from headstart.features.schema.schema import Schema

__all__ = ["Schema", "boolean", "category", "number", "vector"]
