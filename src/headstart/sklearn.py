"""Multi-task regression for scikit-learn, by the prior that tasks share.

Needs the extra ``sklearn``: ``pip install 'headstart[sklearn]'``.
"""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.offline.fitting import TaskRows, fitted_features, sums_by_task
from headstart.errors import InputError
from headstart.features.conversion import Features
from headstart.model.base import BaseBelief, BasePrior
from headstart.model.evidence import Evidence
from headstart.records import Array
from headstart.settings import Settings
from headstart.transfer import EmpiricalBayes, Transfer
from headstart.transfer.pooled_fit import fit_standardized, pool, refuse_forced_rounds
from headstart.transfer.task_order import ordered_partitions

try:
    from sklearn.base import BaseEstimator, RegressorMixin
    from sklearn.metrics import r2_score
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "headstart.sklearn needs scikit-learn 1.6 or newer: pip install 'headstart[sklearn]'"
    ) from error

__all__ = ["TaskRidge"]

LONE_TASK = "0"  # the id of all rows where no tasks are given


class TaskRidge(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Linear regression of many tasks, each shrunk towards what all tasks share.

    Every task i has its own coefficients θ_i ~ N(μ, Σ). The mean μ, the covariance Σ and the noise
    are estimated from all tasks (by empirical Bayes unless another transfer is given), and the
    coefficients of a task are their posterior mean. A task with few rows is predicted by μ, one
    with many by its own least squares.

    Parameters
    ----------
    transfer : Transfer, default None
        How to learn what tasks share; :class:`~headstart.EmpiricalBayes` unless given.
    noise : float, default None
        The standard deviation of the noise, if it is known.
    fit_intercept : bool, default True
        Whether to add a constant feature, with a coefficient for each task.
    standardize : bool, default True
        Whether to centre features and divide them by their standard deviations while fitting.

    Attributes
    ----------
    prior_ : Prior
        The distribution of the coefficients of a new task, for features as they were given (the
        intercept last).
    coef_ : ndarray of shape (n_features,)
        The coefficients of an average task.
    intercept_ : float
        The intercept of an average task; 0 without one.
    noise_ : float
        The standard deviation of the noise.
    tasks_ : tuple of str
        The ids of the tasks.
    n_features_in_ : int
        The number of features.
    feature_names_in_ : ndarray of shape (n_features,)
        Their names, if ``X`` had names that are all text.

    See Also
    --------
    headstart.Bandit : decisions by the same model.

    Examples
    --------
    >>> import numpy as np
    >>> from headstart.sklearn import TaskRidge
    >>> rng = np.random.default_rng(0)
    >>> task = np.repeat(np.arange(50), 6)
    >>> X = rng.standard_normal((300, 4))
    >>> y = X @ [1.0, 2.0, 3.0, 4.0] + rng.standard_normal(50)[task] + rng.standard_normal(300)
    >>> model = TaskRidge().fit(X, y, task=task)
    >>> model.coef_.round()
    array([1., 2., 3., 4.])
    >>> model.predict(X[:2], task=[0, "a new task"]).shape
    (2,)
    """

    def __init__(
        self,
        transfer: Transfer | None = None,
        noise: float | None = None,
        fit_intercept: bool = True,
        standardize: bool = True,
    ) -> None:
        self.transfer = transfer
        self.noise = noise
        self.fit_intercept = fit_intercept
        self.standardize = standardize

    def fit(self, X: Any, y: Any, task: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            The features.
        y : array_like of shape (n_samples,)
            The targets.
        task : array_like of shape (n_samples,), optional
            The id of the task of each row, text or whole numbers. Without it, all rows are one
            task.
        sample_weight : array_like of shape (n_samples,), optional
            Weights: a row of weight w counts as w equal rows. Where weights say how precise the
            rows are, divide them by their average.
        """
        transfer = EmpiricalBayes() if self.transfer is None else self.transfer
        if not isinstance(transfer, Transfer):
            raise checks.invalid("transfer", "a Transfer, such as EmpiricalBayes()", transfer)
        refuse_forced_rounds(transfer)
        noise = None if self.noise is None else checks.positive("noise", self.noise)
        intercept = checks.flag("fit_intercept", self.fit_intercept)
        transfer = transfer.with_constant(intercept)
        refuse_masked(X=X, y=y, task=task, sample_weight=sample_weight)
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        features = Features(X.shape[1], intercept=intercept)
        ids = check_ids(task, len(X))
        rows = TaskRows(ids, features.transform(X), y.astype(np.float64), weights, ())
        names, packed = sums_by_task(rows, decay=1.0)
        partitions, partition_ids = ordered_partitions(names, packed, features.dim)
        fit = fit_standardized(
            transfer,
            partitions,
            pool(partitions),
            noise,
            intercept=intercept,
            standardize=checks.flag("standardize", self.standardize),
            refits_lone_task=False,
        )
        self._evidence = fit.packed_evidence(partition_ids)
        self._prior = self._task_prior = transfer.prior(fit.state)
        if len(names) == 1:  # no other task determines the scale of coefficients and noise
            lone = Evidence.unpack(self._evidence[names[0]], features.dim)
            first = transfer.init(features.dim, noise)
            stated = None if noise is not None else transfer.single_task_prior(first, lone)
            self._task_prior = stated or self._prior
        self._features = fitted_features(features, fit.units)
        self.prior_: BasePrior = (
            self._prior if fit.units is None else fit.units.original_prior(self._prior)
        )
        mean = self.prior_.as_gaussian().mean
        self.coef_: Array = mean[: X.shape[1]].copy()
        self.intercept_ = float(mean[-1]) if intercept else 0.0
        self.noise_ = float(
            self._task_belief(names[0]).noise if len(names) == 1 else self._prior.noise
        )
        self.tasks_ = tuple(names)
        return self

    def predict(self, X: Any, task: Any = None, return_std: bool = False) -> Any:
        """Predict the targets.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            The features.
        task : array_like of shape (n_samples,), optional
            The id of the task of each row; ids that were not fitted are new tasks. Without it, rows
            are of the task that was fitted if there was one, and of new tasks if there were
            several.
        return_std : bool, default False
            Whether to return the standard deviation of the predictive distribution too, noise
            included.

        Returns
        -------
        ndarray of shape (n_samples,), or two of them
            The expected targets, and with ``return_std`` their standard deviations.
        """
        check_is_fitted(self)
        refuse_masked(X=X, task=task)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        rows = self._features.transform(X)
        lone = self.tasks_[0] if len(self.tasks_) == 1 else None
        if task is None:
            names = [lone] * len(rows)
        else:
            ids = check_ids(task, len(rows)).tolist()
            known = {id: checks.task_name(id) for id in set(ids)}
            names = [known[id] for id in ids]
        mean, deviation = np.empty(len(rows)), np.empty(len(rows))
        places: dict[str | None, list[int]] = {}
        for at, name in enumerate(names):
            places.setdefault(name if name in self._evidence else None, []).append(at)
        for name, own in places.items():
            belief = self._task_belief(name)
            mean[own] = belief.predict(rows[own])
            deviation[own] = belief.noise * np.sqrt(1.0 + belief.width(rows[own]) ** 2)
        return (mean, deviation) if return_std else mean

    def _task_belief(self, name: str | None) -> BaseBelief:
        """The posterior of a task; of a new one for ``None``."""
        prior, evidence = self._prior, None
        if name is not None:
            prior = self._task_prior
            evidence = Evidence.unpack(self._evidence[name], self._features.dim)
        belief: BaseBelief = prior.belief(evidence)
        return belief

    def score(self, X: Any, y: Any, sample_weight: Any = None, task: Any = None) -> float:
        """The coefficient of determination R² of the predictions.

        Without ``task``, rows are scored as :meth:`predict` predicts them: as those of new tasks if
        several were fitted, with a warning.
        """
        check_is_fitted(self)
        if task is None and len(self.tasks_) > 1:
            warnings.warn(
                "task was not given to score: all rows are scored as those of new tasks. In "
                "cross-validation, tasks are passed on by metadata routing "
                "(sklearn.set_config(enable_metadata_routing=True), and "
                "TaskRidge().set_fit_request(task=True).set_score_request(task=True))",
                UserWarning,
                stacklevel=2,
            )
        return float(r2_score(y, self.predict(X, task=task), sample_weight=sample_weight))

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``transfer__units="given"`` replaces the transfer by a changed copy."""
        own: dict[str, Any] = {}
        for key, value in params.items():
            name, dots, inner = key.partition("__")
            part = own.get(name, getattr(self, name, None)) if dots else None
            if isinstance(part, Settings):
                own[name] = part.replace(**{inner: value})
            else:
                own[key] = value
        super().set_params(**own)
        return self


def refuse_masked(**arguments: Any) -> None:
    """Refuse masked values: scikit-learn would ignore the mask."""
    for name, value in arguments.items():
        if checks.has_masked(value):
            raise InputError(f"{name} must have no masked values; got some, which are missing")


def check_ids(task: Any, count: int) -> npt.NDArray[Any]:
    """The ids of the tasks of ``count`` rows, as they were given."""
    if task is None:
        return np.full(count, LONE_TASK)
    ids = np.asarray(task)
    if isinstance(task, list) and ids.dtype.kind == "U":
        ids = np.array(task, dtype=object)  # NumPy has converted numbers next to text to text
    if ids.shape != (count,):
        raise checks.invalid("task", f"{count} ids, one per row of X", ids)
    return ids
