"""The laboratory: paired experiments, the paper's figures, one report."""

from headstart.lab.engine import Trace, simulate
from headstart.lab.policies import NamedPolicy, Policy, parse, policy

__all__ = ["NamedPolicy", "Policy", "Trace", "parse", "policy", "simulate"]
