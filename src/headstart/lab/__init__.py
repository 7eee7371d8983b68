"""The laboratory: paired experiments, the paper's figures, one report."""

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
