"""The laboratory: paired experiments, tuning, figures, reports, and the paper's studies.

Policies play in worlds (:mod:`headstart.worlds`) and are built from the registry
(:mod:`headstart.algorithms`); the algorithms themselves live in the core, not here.
"""

from headstart.lab.engine import Trace, simulate
from headstart.lab.execution import Execution
from headstart.lab.experiment import run
from headstart.lab.plan import Plan, Results
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
