"""The laboratory: paired experiments, the paper's figures, one report."""

from headstart.lab.engine import Trace, simulate
from headstart.lab.policies import POLICIES, Policy, parse

__all__ = ["POLICIES", "Policy", "Trace", "parse", "simulate"]
