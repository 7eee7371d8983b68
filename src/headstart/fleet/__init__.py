"""Logs of many tasks, of any size: read, checked, fitted and evaluated.

It needs ``pip install 'headstart[fleet]'``. Rows in memory are fitted by
:meth:`headstart.Bandit.fit`; how a prior is estimated is in :mod:`headstart.transfer`.
"""

from headstart.fleet.check.profile import Profile
from headstart.fleet.check.scan import check
from headstart.fleet.evaluation.evaluate import evaluate
from headstart.fleet.evaluation.result import Evaluation
from headstart.fleet.fit import fit
from headstart.fleet.fitted import Fitted
from headstart.fleet.reading.columns import Columns
from headstart.fleet.reading.logs import Logs, Part
from headstart.fleet.reading.rows import BadRows, Rows

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
