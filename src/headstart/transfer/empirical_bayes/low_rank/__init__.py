"""Populations whose tasks differ along a few directions only, averaged with the full covariance.

- ``population.py``: the record :class:`LowRank`, and where a fit starts;
- ``task_precisions.py``: what tasks contribute to such a population;
- ``fitting.py``: the model, and sweeps of variational EM over tasks in memory; leave-one-out;
- ``mean.py``: the population's mean, and by how much it is shrunk;
- ``noise.py``: the noise of tasks that are too short for least squares;
- ``update.py``: when, and how far, a state's population is fitted again;
- ``ensemble.py``: candidates, their scores and weights, and the prior that is their average.

The same steps in passes over very many tasks are in
:mod:`~headstart.transfer.empirical_bayes.refits`.
"""
