"""Ways to learn a prior from the evidence of finished tasks, one file or package each.

The records they work on are in :mod:`headstart.model`, principal components in
:mod:`headstart.subspace` and the paper's formulas in :mod:`headstart.theory`; what calls a transfer
as tasks finish is :mod:`headstart.bandit`.
"""

from headstart.transfer.base import TaskStructure, Transfer
from headstart.transfer.bias import Bias
from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes
from headstart.transfer.gaussian import Gaussian
from headstart.transfer.independent import Independent
from headstart.transfer.mixture.transfer import Mixture
from headstart.transfer.oracle import Oracle
from headstart.transfer.subspace import Subspace

__all__ = [
    "Bias",
    "EmpiricalBayes",
    "Gaussian",
    "Independent",
    "Mixture",
    "Oracle",
    "Subspace",
    "TaskStructure",
    "Transfer",
]
