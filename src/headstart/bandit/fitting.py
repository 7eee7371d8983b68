"""A prior from rows in memory: the fit of logs, without files and without workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.observation import (
    decay_weights,
    read_rewards,
    read_weights,
    weighted_sums,
)
from headstart.errors import HeadstartError, InputError
from headstart.features.conversion import numeric_column
from headstart.features.reader import ContextReader
from headstart.records import Array
from headstart.transfer.pooled_fit import fit_standardized, pool
from headstart.transfer.task_order import ordered_partitions

if TYPE_CHECKING:
    from headstart.bandit.ledger.items import ItemLedger
    from headstart.bandit.state import BanditState

__all__ = ["fit_rows"]


class Columns(NamedTuple):
    """The columns of a frame, or of a dict of arrays, by name."""

    columns: Mapping[str, Any]

    @classmethod
    def of(cls, frame: Any) -> Columns:
        """From what a user passes."""
        if isinstance(frame, Mapping):
            return cls({str(name): column for name, column in frame.items()})
        if not hasattr(frame, "columns") or not hasattr(frame, "to_numpy"):
            want = "a pandas or Polars frame, or a dict of columns"
            raise checks.refuse("frame", want, frame)
        names = [str(name) for name in frame.columns]
        if len(set(names)) < len(names):
            raise InputError(f"frame must have distinct column names; got {names}")
        return cls({name: frame[key] for name, key in zip(names, frame.columns, strict=True)})

    def array(self, argument: str, name: object) -> npt.NDArray[Any]:
        """The values of a column that an argument names."""
        if not isinstance(name, str) or name not in self.columns:
            known = ", ".join(repr(known) for known in self.columns)
            raise checks.refuse(argument, f"the name of a column ({known})", name)
        column = self.columns[name]
        values = np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)
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


def fit_rows(
    state: BanditState,
    frame: Any,
    task: object,
    reward: object,
    weight: object,
    features: object,
    standardize: object,
) -> None:
    """Fit the transfer of a new bandit to rows; their tasks become closed tasks of the bandit."""
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
        if transfer.keeps_forced:
            raise InputError(
                f"transfer must learn from all rounds; {transfer!r} learns from forced rounds "
                f"alone, which rows do not mark: use Gaussian(forced=False)"
            )
        items = None if ledger.items is None else ledger.items.copied()
        rows = read_rows(reader, frame, task, reward, weight, features, items)
        names, packed = sums_by_task(rows, ledger.decay)
        partitions, ids = ordered_partitions(names, packed, reader.features.dim)
        intercept = reader.features.intercept
        fit = fit_standardized(
            transfer,
            partitions,
            pool(partitions),
            noise,
            intercept=intercept,
            standardize=standardize,
        )
        shift = scale = None
        if fit.units is not None:
            given = slice(reader.features.context_dim)
            shift, scale = tuple(fit.units.shift[given]), tuple(fit.units.scale[given])
            shift, scale = (tuple(map(float, part)) for part in (shift, scale))
        fitted = reader.features._replace(names=rows.names, shift=shift, scale=scale)
        twin = ledger.copied()
        tasks = ((ids[at], fit.partitions.rows(at)) for at in range(len(ids)))
        twin.start_with_closed(fit.state, tasks)
        if items is not None:
            items.features = fitted
            prior = transfer.prior(fit.state)
            for name in items.tasks:
                belief = prior.belief(twin.entries.evidence(name))
                twin.changes.commit(*items.steps_to_close(name, belief))
            twin.items = items
        new_reader = ContextReader(fitted, encoder=reader.encoder)
        twin.set_usual_sizes(new_reader.usual_sizes)
        ledger.changes.commit(
            (setattr, state, "reader", new_reader), (setattr, state, "ledger", twin)
        )


class TaskRows(NamedTuple):
    """Rows of many tasks: ids, contexts as the model sees them, rewards, weights, feature names."""

    ids: npt.NDArray[Any]
    contexts: Array
    rewards: Array
    weights: Array
    names: tuple[str, ...]


def read_rows(
    reader: ContextReader,
    frame: Any,
    task: object,
    reward: object,
    weight: object,
    named: Any,
    items: ItemLedger | None,
) -> TaskRows:
    """The rows of a frame, checked; ``items`` learns from them in their order."""
    features = reader.features
    columns = Columns.of(frame)
    ids, rewards = columns.array("task", task), columns.array("reward", reward)
    others = {task, reward} | ({weight} if weight is not None else set())
    weights = None if weight is None else columns.array("weight", weight)
    if reader.encoder is not None:
        if named is not None:
            raise InputError("features must not be given: the schema says which columns are used")
        values = read_rewards(rewards, len(ids)), read_weights(weights, len(ids))
        writer = None
        if items is not None:
            writer = partial(items.learn_rows, [task_name(id) for id in ids.tolist()], *values)
        table = reader.encode(columns.without(others), writer, distinct=False)[0].table
        return TaskRows(ids, features.transform(table), *values, features.names or ())
    if named is None:
        named = [name for name in columns.columns if name not in others]
    elif isinstance(named, (str, bytes)) or not isinstance(named, Sequence):
        raise checks.refuse("features", "a list of column names", named)
    for name in named:
        columns.array("features", name)
        if name in others:
            raise InputError(f"features must not hold {name!r}, which says something else")
    if len(named) != features.context_dim or len(set(named)) < len(named):
        raise InputError(
            f"features must be {features.context_dim} different columns (dim of the bandit); "
            f"got {len(named)}: {list(named)}"
        )
    if not len(ids):
        raise InputError("frame must have at least one row; got none")
    for name in (reward, *named):
        if len(columns.array("features", name)) != len(ids):
            raise InputError(f"column {name!r} must have {len(ids)} rows, as the tasks have")
    names = tuple(named)
    features = features._replace(names=names)
    table = np.column_stack([columns.feature(name) for name in names])
    features.check(table)
    return TaskRows(
        ids,
        features.transform(table),
        read_rewards(rewards, len(ids)),
        read_weights(weights, len(ids)),
        names,
    )


def sums_by_task(rows: TaskRows, decay: float) -> tuple[list[str], Array]:
    """The ids of the tasks, in the order of their first rows, and their packed evidence.

    Rows of weight 0 are left out, and so are tasks that have no others. With decay, a row counts
    less for every later one of its task.
    """
    places: dict[Any, int] = {}
    codes = np.fromiter(
        (places.setdefault(id, len(places)) for id in rows.ids.tolist()), np.intp, len(rows.ids)
    )
    names: dict[str, int] = {}
    merged = np.array([names.setdefault(task_name(id), len(names)) for id in places], np.intp)
    codes = merged[codes]  # 7 and "7" are one task
    order = np.argsort(codes, kind="stable")
    edges = np.searchsorted(codes[order], np.arange(len(names) + 1))
    found, packed = [], []
    for at, name in enumerate(names):
        own = order[edges[at] : edges[at + 1]]
        weights = rows.weights[own]
        if decay < 1.0:
            weights = weights * decay_weights(weights, decay)
        evidence, count = weighted_sums(rows.contexts[own], rows.rewards[own], weights)
        if count:
            found.append(name)
            packed.append(evidence.pack())
    if not found:
        raise InputError("weight must be above 0 in at least one row; got none")
    return found, np.array(packed)


def task_name(id: Any) -> str:
    """The id of a task in a row."""
    try:
        return checks.task_name(id)
    except InputError as error:
        raise InputError(f"task: {error}") from None
