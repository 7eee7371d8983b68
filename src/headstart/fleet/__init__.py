"""Logs of many tasks, of any size: read, checked, and turned into a prior.

It needs ``pip install 'headstart[fleet]'``.
"""

from headstart.fleet.columns import Columns
from headstart.fleet.evaluate import evaluate
from headstart.fleet.evaluation import Evaluation
from headstart.fleet.fit import Fitted, fit
from headstart.fleet.logs import Logs, Part
from headstart.fleet.profile import Profile, check
from headstart.fleet.rows import BadRows, Rows

__all__ = [
    "BadRows",
    "Columns",
    "Evaluation",
    "Fitted",
    "Logs",
    "Part",
    "Profile",
    "Rows",
    "check",
    "evaluate",
    "fit",
]
