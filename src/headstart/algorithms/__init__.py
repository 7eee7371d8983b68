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

from headstart.algorithms.literature import (
    bayes_oracle,
    bias_oful,
    lints,
    linucb,
    meta_ts,
    meta_ts_unforced,
    projected_linucb,
    projected_ts,
    projection_oracle,
)
from headstart.algorithms.own import DEFAULT, empirical_bayes, empirical_bayes_ts, mixture
from headstart.algorithms.registry import ALGORITHMS, Algorithm, Recipe

__all__ = [
    "ALGORITHMS",
    "DEFAULT",
    "Algorithm",
    "Recipe",
    "bayes_oracle",
    "bias_oful",
    "empirical_bayes",
    "empirical_bayes_ts",
    "lints",
    "linucb",
    "meta_ts",
    "meta_ts_unforced",
    "mixture",
    "projected_linucb",
    "projected_ts",
    "projection_oracle",
]
