"""Reports: one HTML file with prose, interactive plots, the numbers behind them, and claims."""

from headstart.lab.report.page import write_report
from headstart.lab.report.sections import VERDICTS, Claim, Section

__all__ = ["VERDICTS", "Claim", "Section", "write_report"]
