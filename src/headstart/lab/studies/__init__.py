"""Studies behind the command line: the paper's experiments, and comparisons of one's own.

:mod:`~headstart.lab.studies.reproduction` runs the studies named here and writes one report;
:mod:`~headstart.lab.studies.comparison` plays any policies in any world. What a study is made of
(worlds, policies, figures) lives elsewhere in the laboratory.
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
