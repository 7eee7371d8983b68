"""headstart: contextual bandits that start ahead.

For many related decision problems (tasks), each too small to be learned well alone: the
distribution of the tasks is estimated, and is the prior of the next one.
"""

from typing import TYPE_CHECKING, Any

from headstart.algorithms import (
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
from headstart.bandit import Bandit, load
from headstart.bandit.choices.batch import Choices
from headstart.bandit.choices.choice import Choice
from headstart.bandit.files.journal import Journal, ReplayResult
from headstart.bandit.reports.report import Report
from headstart.bandit.task import Prediction, Task
from headstart.errors import (
    ChoiceError,
    FileError,
    HeadstartError,
    InputError,
    MissingFileError,
    TaskError,
)
from headstart.features.schema import Schema, boolean, category, number, vector
from headstart.kernels.switch import use_numba
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.rules import UCB, Forced, Greedy, Rule, Thompson, Uniform
from headstart.subspace import CCIPCA, PCA, ExactPCA
from headstart.transfer import (
    Bias,
    EmpiricalBayes,
    Gaussian,
    Independent,
    Mixture,
    Oracle,
    Subspace,
    Transfer,
)

if TYPE_CHECKING:
    from headstart.storage.archive import (
        EvidenceFile,
        merge_evidence,
        read_evidence,
        write_evidence,
    )

__version__ = "0.1.0"

__all__ = [
    "CCIPCA",
    "PCA",
    "UCB",
    "Bandit",
    "Belief",
    "Bias",
    "Choice",
    "ChoiceError",
    "Choices",
    "EmpiricalBayes",
    "Evidence",
    "EvidenceFile",
    "ExactPCA",
    "FileError",
    "Forced",
    "Gaussian",
    "Greedy",
    "HeadstartError",
    "Independent",
    "InputError",
    "Journal",
    "MissingFileError",
    "Mixture",
    "Oracle",
    "Prediction",
    "Prior",
    "ReplayResult",
    "Report",
    "Rule",
    "Schema",
    "Subspace",
    "Task",
    "TaskError",
    "Thompson",
    "Transfer",
    "Uniform",
    "__version__",
    "bayes_oracle",
    "bias_oful",
    "boolean",
    "category",
    "lints",
    "linucb",
    "load",
    "merge_evidence",
    "meta_ts",
    "meta_ts_unforced",
    "number",
    "projected_linucb",
    "projected_ts",
    "projection_oracle",
    "read_evidence",
    "use_numba",
    "vector",
    "write_evidence",
]


def __getattr__(name: str) -> Any:
    """Import archives of evidence when they are first used: few programs need them."""
    if name in ("EvidenceFile", "merge_evidence", "read_evidence", "write_evidence"):
        from headstart.storage import archive

        return getattr(archive, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
