"""The registry of algorithms: each one is a transfer and a rule under a name.

Every function here builds a :class:`~headstart.Bandit` from ``dim``, ``seed``, the algorithm's own
options, and whatever else a bandit takes (``noise``, ``intercept``, …). The defaults need no
tuning. ``paper=True`` selects the form that the paper prints, and refuses options that contradict
it; its n, V, δ and α are the options ``horizon``, ``bound``, ``delta`` and ``alpha``, which the
forms named ``"theory"`` use too.

:data:`ALGORITHMS` lists the same functions with their labels, options, printed forms and
references. Experiments and the command line build their policies from it. The transfers and rules
themselves live in :mod:`headstart.transfer` and :mod:`headstart.rules`.
"""

from headstart.algorithms import literature, own
from headstart.algorithms.literature import *
from headstart.algorithms.own import *
from headstart.algorithms.registry import ALGORITHMS as ALGORITHMS
from headstart.algorithms.registry import Algorithm as Algorithm
from headstart.algorithms.registry import Recipe as Recipe

__all__ = ["ALGORITHMS", "Algorithm", "Recipe", *literature.__all__, *own.__all__]
