"""Studies behind the command line: the paper's experiments, and comparisons of any policies.

:mod:`~headstart.lab.studies.reproduction` runs the studies named here and writes one report;
:mod:`~headstart.lab.studies.comparison` plays any policies in any world. The worlds of the paper
are in :mod:`~headstart.lab.studies.synthetic`, those beyond it in
:mod:`~headstart.lab.studies.main_worlds`, :mod:`~headstart.lab.studies.extensions` and
:mod:`~headstart.lab.studies.few_tasks`; kinds of worlds are in :mod:`headstart.worlds`.
"""

__all__ = ["STUDIES"]

#: The studies of ``headstart reproduce``, in the order of the report.
STUDIES = {
    "synthetic": "regret curves",
    "ranks": "regret against the rank of the projection",
    "subspace": "error of the learned subspace",
    "movielens": "MovieLens",
    "beyond": "empirical Bayes and mixtures in many worlds",
    "all": "all of them",
}
