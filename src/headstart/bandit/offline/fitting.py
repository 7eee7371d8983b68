"""``Bandit.fit``: a prior learned from rows in memory. Logs in files are fitted in ``fleet``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.prior_state import StartingFit
from headstart.bandit.offline.click_fit import expand_tasks, fit_clicks, no_progress
from headstart.bandit.offline.observation import (
    decay_weights,
    read_counts,
    read_rewards,
    read_weights,
    rounds_of_means,
    weighted_sums,
)
from headstart.bandit.rewards import RewardModel
from headstart.bandit.state import BanditState
from headstart.errors import HeadstartError, InputError
from headstart.features.conversion import (
    Features,
    column_array,
    frame_names,
    is_frame,
    numeric_column,
)
from headstart.features.reader import ContextReader
from headstart.features.schema.encoder import Encoder
from headstart.features.usual_sizes import refuse_far_rows
from headstart.model.evidence import Evidence
from headstart.model.prior import Prior
from headstart.records import Array
from headstart.transfer import Transfer
from headstart.transfer.partitions import Partitions
from headstart.transfer.pooled_fit import (
    PooledFit,
    fit_standardized,
    pool,
    refuse_forced_rounds,
)
from headstart.transfer.standardize import Standardization
from headstart.transfer.task_order import ordered_partitions


class Columns(NamedTuple):
    """The columns of a frame, or of a dict of arrays, by name."""

    columns: Mapping[str, Any]
    frame: Any

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """From what a user passes."""
        if isinstance(frame, Mapping):
            return cls({str(name): column for name, column in frame.items()}, frame)
        if is_frame(frame):
            names = zip(frame_names("frame", frame), frame.columns, strict=True)
            return cls({name: frame[key] for name, key in names}, frame)
        if isinstance(frame, np.ndarray) and frame.dtype.names is not None:
            return cls({name: frame[name] for name in frame.dtype.names}, frame)
        if isinstance(frame, (list, tuple)) and all(isinstance(row, Mapping) for row in frame):
            return cls(columns_of_dicts(frame), frame)
        want = (
            "a pandas or Polars frame, a list of dicts, an array with names, or a dict of columns"
        )
        raise checks.invalid("frame", want, frame)

    def rest(self, names: Collection[object]) -> Any:
        """What was passed, a frame or columns by name, without some of its columns."""
        if is_frame(self.frame):
            return self.frame[[name for name in self.frame.columns if str(name) not in names]]
        return self.without(names)

    def array(self, argument: str, name: object) -> npt.NDArray[Any]:
        """The values of a column that an argument names."""
        if not isinstance(name, str) or name not in self.columns:
            names = ", ".join(map(repr, self.columns))
            raise checks.invalid(argument, f"the name of a column ({names})", name)
        column = self.columns[name]
        if checks.has_masked(column):
            raise InputError(
                f"column {name!r} must have one value per row; got masked values, which are missing"
            )
        try:
            values = column_array(column) if hasattr(column, "to_numpy") else np.asarray(column)
        except (RecursionError, TypeError, ValueError):
            raise checks.invalid(f"column {name!r}", "one value per row", column) from None
        if values.ndim != 1:
            raise InputError(f"column {name!r} must have one value per row; got {values.shape}")
        return values

    def without(self, names: Collection[object]) -> dict[str, Any]:
        """The other columns, as values of any type."""
        return {
            name: column.to_list() if hasattr(column, "to_list") else column
            for name, column in self.columns.items()
            if name not in names
        }

    def feature(self, name: str) -> Array:
        """A column of numbers."""
        column = self.columns[name]
        if hasattr(column, "to_numpy"):
            return numeric_column(column, name)
        want = "a column of numbers"
        return checks.finite_array(f"column {name!r}", column, want, ndim=1).astype(np.float64)


def columns_of_dicts(rows: Sequence[Mapping[Any, Any]]) -> dict[str, list[Any]]:
    """The columns of rows that are dicts, all with the same fields."""
    if not rows:
        raise InputError("frame must have at least one row; got none")
    names = list(rows[0])
    for place, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            raise InputError(
                f"frame must have the same fields in every row; got {names} in row 0 and "
                f"{list(row)} in row {place}"
            )
    return {str(name): [row[name] for row in rows] for name in names}


def fit_rows(
    state: BanditState,
    frame: Any,
    roles: tuple[object, object, object, object],
    features: object,
    standardize: object,
) -> None:
    """Fit the transfer of a new bandit to rows; their tasks become closed tasks of the bandit.

    ``roles`` are the columns of tasks, rewards, weights and of how many rewards are averaged.
    """
    standardize = checks.flag("standardize", standardize)
    with state.lock:
        ledger, reader = state.ledger, state.reader
        ledger.finish()
        transfer, noise = ledger.prior_state.transfer, ledger.prior_state.noise
        if state.is_frozen:
            raise HeadstartError("the bandit is frozen: unfreeze it to fit")
        if ledger.entries or ledger.prior_state.base is not None:
            raise HeadstartError(
                "fit needs a bandit without tasks; use task.observe for rounds of single tasks"
            )
        refuse_forced_rounds(transfer)
        items = None if ledger.items is None else ledger.items.copy()
        rows = read_rows(reader, ledger.rewards, frame, roles, features, items)
        intercept = reader.features.intercept
        fit, ids = fit_task_rows(
            transfer, noise, ledger.rewards, rows, ledger.decay, intercept, standardize
        )
        fitted = fitted_features(dataclasses.replace(reader.features, names=rows.names), fit.units)
        if items is not None:
            close_items(items, fitted, transfer, fit, ids)
        tasks = ((names, fit.partitions.rows(at)) for at, names in enumerate(ids))
        start = StartingFit(fit.state, float(len(fit.partitions)), fit.pooled)
        state.start_from(start, fitted, tasks, items)


def fit_task_rows(
    transfer: Transfer,
    noise: float | None,
    model: RewardModel,
    rows: TaskRows,
    decay: float,
    intercept: bool,
    standardize: bool,
    progress: Callable[[float], None] = no_progress,
) -> tuple[PooledFit, list[list[str]]]:
    """Fit a transfer to rows, and the ids of the tasks of each partition."""
    names, packed = sums_by_task(rows, decay)
    partitions, ids = ordered_partitions(names, packed, rows.contexts.shape[1])
    pooled = pool(partitions)
    if model.needs_belief:
        tasks = rows_by_task(rows, decay)

        def expand(prior: Prior, units: Standardization | None) -> Partitions:
            return ordered_partitions(names, expand_tasks(tasks, prior, units), pooled.dim)[0]

        given = partitions, pooled
        return fit_clicks(transfer, expand, *given, intercept, standardize, progress), ids
    fit = fit_standardized(
        transfer, partitions, pooled, noise, intercept=intercept, standardize=standardize
    )
    return fit, ids


def fitted_features(features: Features, units: Standardization | None) -> Features:
    """The features of a bandit after a fit, which may have standardized them."""
    if units is None:
        return dataclasses.replace(features, shift=None, scale=None)
    count = features.context_dim
    shift, scale = (
        tuple(float(value) for value in part[:count]) for part in (units.shift, units.scale)
    )
    return dataclasses.replace(features, shift=shift, scale=scale)


def close_items(
    items: ItemLedger,
    features: Features,
    transfer: Transfer,
    fit: PooledFit,
    ids: Sequence[Sequence[str]],
) -> None:
    """Let the vectors of items learn from all tasks of a fit, given with their ids."""
    prior = transfer.prior(fit.state)
    evidence = fit.packed_evidence(ids)
    items.close_all(
        features, lambda name: prior.belief(Evidence.unpack(evidence[name], features.dim))
    )


class TaskRows(NamedTuple):
    """Rows of many tasks: ids, contexts as the model sees them, rewards, weights, feature names."""

    ids: npt.NDArray[Any]
    contexts: Array
    rewards: Array
    weights: Array
    names: tuple[str, ...]

    def as_means(self, counts: Array | None) -> TaskRows:
        """The same rows with rewards that are means of so many."""
        if counts is None:
            return self
        contexts, rewards = rounds_of_means(self.contexts, self.rewards, counts)
        return self._replace(contexts=contexts, rewards=rewards)


def read_rows(
    reader: ContextReader,
    model: RewardModel,
    frame: Any,
    roles: tuple[object, object, object, object],
    feature_names: Any,
    items: ItemLedger | None,
) -> TaskRows:
    """The rows of a frame, checked; ``items`` learns from them in their order."""
    task, reward, weight, mean_of = roles
    features = reader.features
    columns = Columns.of(frame)
    ids, given_rewards = columns.array("task", task), columns.array("reward", reward)
    weights = None if weight is None else columns.array("weight", weight)
    given = [name for name in roles if name is not None]
    if len(set(given)) < len(given):
        raise InputError(
            f"task, reward, weight and mean_of must be different columns; got "
            f"{', '.join(map(repr, given))}"
        )
    counts = None
    if mean_of is not None:
        counts = read_counts(columns.array("mean_of", mean_of), len(ids), model)
    try:
        rewards = model.read_many(read_rewards(given_rewards, len(ids)))
    except InputError as error:
        hint = " (leave out rows without a reward)" if "finite" in str(error) else ""
        raise InputError(f"column {reward!r}: {error}{hint}") from None
    others = set(given)
    if reader.encoder is not None:
        if feature_names is not None:
            raise InputError("features must not be given: the schema says which columns are used")
        given_weights = read_weights(weights, len(ids))
        worth = given_weights

        def learn_items(labels: Sequence[Any], table: Array) -> None:
            nonlocal worth
            assert items is not None
            names = [task_name(id) for id in ids.tolist()]
            worth = items.learn_rows(names, rewards, given_weights, labels, table)

        is_schema = isinstance(reader.encoder, Encoder)
        fields = columns.without(others) if is_schema else columns.rest(others)
        writer = None if items is None else learn_items
        table = reader.encode(fields, writer, distinct=False)[0].table
        check_sizes(table, given_weights, features)
        contexts = features.transform(table)
        if items is not None:
            contexts, rewards = items.own.subtract(features, contexts, rewards)
        return TaskRows(ids, contexts, rewards, worth, features.names or ()).as_means(counts)
    if feature_names is None:
        feature_names = [name for name in columns.columns if name not in others]
    elif isinstance(feature_names, (str, bytes)) or not isinstance(feature_names, Sequence):
        raise checks.invalid("features", "a list of column names", feature_names)
    for name in feature_names:
        columns.array("features", name)
        if name in others:
            raise InputError(f"features must not hold {name!r}, which has another role")
    if len(feature_names) != features.context_dim or len(set(feature_names)) < len(feature_names):
        raise InputError(
            f"features must be {features.context_dim} different columns (dim of the bandit); "
            f"got {len(feature_names)}: {list(feature_names)}"
        )
    if not len(ids):
        raise InputError("frame must have at least one row; got none")
    for name in (reward, *feature_names):
        if len(columns.array("features", name)) != len(ids):
            raise InputError(f"column {name!r} must have {len(ids)} rows, as the tasks have")
    names = tuple(feature_names)
    features = dataclasses.replace(features, names=names)
    table = np.column_stack([columns.feature(name) for name in names])
    features.check(table)
    weights = read_weights(weights, len(ids))
    check_sizes(table, weights, features)
    rows = TaskRows(ids, features.transform(table), rewards, weights, names)
    return rows.as_means(counts)


def check_sizes(table: Array, weights: Array, features: Features) -> None:
    """Refuse rows that count and have a value far out of the usual ones."""
    counts = weights > 0
    if not counts.all():  # other rows are left out
        table = np.where(counts[:, None], table, table[counts.argmax()])
    refuse_far_rows(table, features)


class OneTask(NamedTuple):
    """The rows of one task that have a positive weight."""

    name: str
    contexts: Array
    rewards: Array
    weights: Array


def rows_by_task(rows: TaskRows, decay: float) -> list[OneTask]:
    """The rows of every task, in the order of the tasks' first rows.

    Rows of weight 0 are left out, and so are tasks that have no others. With decay, a row counts
    less for every later one of its task.
    """
    places: dict[Any, int] = {}
    ids = rows.ids.tolist()
    if rows.ids.dtype == object and not all(map(checks.is_hashable, ids)):
        ids = [task_name(id) for id in ids]  # which refuses the first that is not an id
    codes = np.fromiter((places.setdefault(id, len(places)) for id in ids), np.intp, len(ids))
    names: dict[str, int] = {}
    task_numbers = np.array([names.setdefault(task_name(id), len(names)) for id in places], np.intp)
    codes = task_numbers[codes]  # 7 and "7" are one task
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    tasks = []
    for at, name in enumerate(names):
        own = order[edges[at] : edges[at + 1]]
        own = own[rows.weights[own] > 0]
        weights = rows.weights[own]
        if decay < 1.0:
            weights = weights * decay_weights(weights, decay)
        if len(own):
            tasks.append(OneTask(name, rows.contexts[own], rows.rewards[own], weights))
    if not tasks:
        raise InputError("weight must be above 0 in at least one row; got none")
    return tasks


def sums_by_task(rows: TaskRows, decay: float) -> tuple[list[str], Array]:
    """The ids of the tasks, in the order of their first rows, and their packed evidence."""
    tasks = rows_by_task(rows, decay)
    return [task.name for task in tasks], task_sums(tasks)


def task_sums(tasks: Sequence[OneTask]) -> Array:
    """The packed evidence of tasks."""
    return np.array(
        [weighted_sums(task.contexts, task.rewards, task.weights).pack() for task in tasks]
    )


def task_name(id: Any) -> str:
    """The id of a task in a row."""
    try:
        return checks.task_name(id)
    except InputError as error:
        raise InputError(f"task: {error}") from None
