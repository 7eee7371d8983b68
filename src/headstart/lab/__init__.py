"""The laboratory: paired experiments, tuning, figures, reports, and the paper's studies.

Policies play in worlds (:mod:`headstart.worlds`) and are built from the registry
(:mod:`headstart.algorithms`); the algorithms themselves live in the core, not here.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headstart.lab.engine import Trace, simulate
    from headstart.lab.experiments.execution import Execution
    from headstart.lab.experiments.experiment import run
    from headstart.lab.experiments.plan import Plan, Results
    from headstart.lab.policies import NamedPolicy, Policy, parse, policy

__all__ = [
    "Execution",
    "NamedPolicy",
    "Plan",
    "Policy",
    "Results",
    "Trace",
    "parse",
    "policy",
    "run",
    "simulate",
]

# Imported when first used: the command line shows its help without them.
MODULES = {
    **dict.fromkeys(("Trace", "simulate"), "engine"),
    **dict.fromkeys(("NamedPolicy", "Policy", "parse", "policy"), "policies"),
    **dict.fromkeys(("Plan", "Results"), "experiments.plan"),
    "Execution": "experiments.execution",
    "run": "experiments.experiment",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{MODULES[name]}"), name)
