"""Ways to learn a prior from finished tasks, one file each."""

from headstart.transfer.base import Explanation, Transfer
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
    "Explanation",
    "Gaussian",
    "Independent",
    "Mixture",
    "Oracle",
    "Subspace",
    "Transfer",
]
