"""The studies behind the command line: the paper, and comparisons of one's own."""

from headstart.lab.studies.comparison import compare, list_policies, list_worlds
from headstart.lab.studies.reproduction import Made, rebuild, reproduce

__all__ = ["Made", "compare", "list_policies", "list_worlds", "rebuild", "reproduce"]
