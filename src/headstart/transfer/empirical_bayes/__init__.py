"""Empirical Bayes: mean, covariance and noise of the population, learned from all tasks.

Read ``EmpiricalBayes.fold`` in ``transfer.py`` first: it scores the candidates' predictions of a
new task, keeps the task, and updates the fit. Then, by question:

- what is kept: ``state.py``, ``tasks.py`` (evidence), ``full_covariance/past.py`` (older tasks);
- in which units: ``units.py``;
- what a task says about a population: ``full_covariance/posteriors.py``,
  ``low_rank/task_precisions.py``;
- one step of a fit: ``full_covariance/fitting.py``, ``low_rank/fitting.py``;
- the noise: ``full_covariance/task_noise.py``, of short tasks ``low_rank/noise.py``;
- how many steps, and when: ``folding.py``, ``low_rank/update.py``, ``refits`` (all tasks);
- how candidates are weighted: ``strength.py`` (amounts of regularisation), ``scoring.py`` (how well
  each predicts tasks), ``low_rank/ensemble.py``;
- where numbers overflow: ``overflow.py``; what is reported: ``structure.py``.

``base.py`` is shared with mixtures of such populations (:mod:`headstart.transfer.mixture`).
"""

from headstart.transfer.empirical_bayes.transfer import EmpiricalBayes

__all__ = ["EmpiricalBayes"]
