"""What is known of items as the header and the arrays of a file, and back."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import max_abs
from headstart.bandit.files import validation
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.task_items import Pair, TaskItems
from headstart.errors import InputError
from headstart.features.items.influence import Settled
from headstart.features.items.repeats import Repeats
from headstart.features.items.table import ItemTable, ItemUpdate, RewardSums
from headstart.features.items.vectors import RANK, Loading
from headstart.model.prior import MAX_ENTRY

Arrays = dict[str, npt.NDArray[Any]]
PAIR_NUMBERS = 6  # of a Pair, besides its arrays
SUMS = 11  # of rewards, besides those of fields


class Column(NamedTuple):
    """An array of a file: what it has an entry for, the shape of an entry, and its type."""

    unit: str
    shape: tuple[int, ...] = ()
    dtype: type[np.generic] = np.float64


def columns_of(items: ItemLedger) -> dict[str, Column]:
    """All arrays that describe items."""
    dim, totals = items.features.dim, (SUMS + items.field_count,)
    matrix, vector = (RANK, RANK), (RANK,)
    return {
        "counts": Column("known item"),
        "sums": Column("known item"),
        "precisions": Column("known item", matrix),
        "moments": Column("known item", vector),
        "totals": Column("bandit", totals),
        "forgotten": Column("bandit", totals),
        "settled": Column("bandit", (2,)),
        "task_totals": Column("task", totals),
        "task_rewards": Column("task"),
        "task_influences": Column("task"),
        "offer_items": Column("offer", dtype=np.int64),
        "offer_counts": Column("offer", dtype=np.int64),
        "pair_items": Column("pair", dtype=np.int64),
        "pair_numbers": Column("pair", (PAIR_NUMBERS,)),
        "pair_pending": Column("pair", dtype=np.bool_),
        "pair_folded": Column("pair", dtype=np.bool_),
        "pending_rows": Column("pending pair", (dim,)),
        "pair_precisions": Column("folded pair", matrix),
        "pair_moments": Column("folded pair", vector),
        "loading_means": Column("closed task", (dim,)),
        "loading_crosses": Column("closed task", (RANK, dim)),
        "loading_noises": Column("closed task"),
    }


def pack_items(items: ItemLedger | None) -> tuple[dict[str, Any], Arrays]:
    """The part of a header and the arrays that describe items."""
    if items is None:
        return {}, {}
    table = items.table
    places = np.array(list(table.places.values()), dtype=np.intp)
    pairs_by_task = [task.pairs.items() for task in items.tasks.values()]
    # Those that only tasks of almost no influence have met are not in the table.
    ids = list(dict.fromkeys([*table.places, *(key for each in pairs_by_task for key, _ in each)]))
    number = {key: at for at, key in enumerate(ids)}
    pairs = list(itertools.chain.from_iterable(pairs_by_task))
    folded_pairs = [pair for _, pair in pairs if pair.precision is not None]
    loadings = [task.loading for task in items.tasks.values() if task.loading is not None]
    offers = [task.offers.counts for task in items.tasks.values()]
    offers.append(offers_of_no_task(items))
    offered_keys = list(dict.fromkeys(key for counts in offers for key in counts))
    number_of_key = {key: at for at, key in enumerate(offered_keys)}
    header = {
        "item_ids": ids,
        "item_known": len(places),
        "item_compared": list(items.compared),
        "item_offered": offered_keys,
        "item_offers": [len(counts) for counts in offers],
        "item_waiting": [[name, *keys] for name, keys in items.waiting],
        "item_tasks": list(items.tasks),
        "item_closed": [task.loading is not None for task in items.tasks.values()],
        "item_pairs": list(map(len, pairs_by_task)),
    }
    values: dict[str, Any] = {
        "counts": table.counts[places],
        "sums": table.sums[places],
        "precisions": table.precisions[places],
        "moments": table.moments[places],
        "totals": [totals_row(table.totals, items.field_count)],
        "forgotten": [totals_row(table.forgotten, items.field_count)],
        "settled": [table.settled],
        "task_totals": [
            totals_row(task.totals, items.field_count) for task in items.tasks.values()
        ],
        "task_rewards": [task.last or 0.0 for task in items.tasks.values()],
        "task_influences": [task.influence for task in items.tasks.values()],
        "offer_items": [number_of_key[key] for counts in offers for key in counts],
        "offer_counts": [each for counts in offers for each in counts.values()],
        "pair_items": [number[key] for key, _ in pairs],
        "pair_numbers": [pair[:PAIR_NUMBERS] for _, pair in pairs],
        "pair_pending": [pair.pending_row is not None for _, pair in pairs],
        "pair_folded": [pair.precision is not None for _, pair in pairs],
        "pending_rows": [pair.pending_row for _, pair in pairs if pair.pending_row is not None],
        "pair_precisions": [pair.precision for pair in folded_pairs],
        "pair_moments": [pair.moment for pair in folded_pairs],
        "loading_means": [loading.mean for loading in loadings],
        "loading_crosses": [loading.cross for loading in loadings],
        "loading_noises": [loading.noise for loading in loadings],
    }
    return header, {
        f"items.{name}": np.array(values[name], column.dtype).reshape(-1, *column.shape)
        for name, column in columns_of(items).items()
    }


def offers_of_no_task(items: ItemLedger) -> dict[str, int]:
    """How often items were on offer to tasks that were not kept, as those of a fit."""
    rest = items.table.offers.copy()
    for task in items.tasks.values():
        rest.put(*rest.without(task.offers))
    return rest.counts


def totals_row(totals: RewardSums, field_count: int) -> list[float]:
    """The numbers of totals."""
    fields = np.broadcast_to(totals.fields, field_count)
    changes = totals.change_squares, totals.changes
    return [totals.rewards, totals.total, totals.squares, *totals.repeats, *changes, *fields]


def unpack_items(items: ItemLedger, header: dict[str, Any], parts: Arrays, tasks: Any) -> None:
    """Restore what is known of items, checked; ``tasks`` are the known task ids."""
    ids = validation.check_task_ids("item_ids", header["item_ids"])
    names = validation.check_task_ids("item_tasks", header["item_tasks"], tasks)
    closed = validation.check_list("item_closed", header["item_closed"], len(names))
    counts = validation.check_list("item_pairs", header["item_pairs"], len(names))
    is_closed = [checks.flag("item_closed", flag) for flag in closed]
    offers = OfferLists.of(header, names)
    is_pending, is_folded = parts["pair_pending"], parts["pair_folded"]
    total = sum(validation.check_count("item_pairs", count) for count in counts)
    known = validation.check_count("item_known", header["item_known"])
    compared = validation.check_task_ids("item_compared", header["item_compared"])
    if known > len(ids):
        raise InputError(f"item_known must be at most the {len(ids)} item_ids; got {known}")
    lengths = {
        "known item": known,
        "bandit": 1,
        "task": len(names),
        "offer": sum(offers.lengths),
        "pair": total,
        "pending pair": int(is_pending.sum()),
        "folded pair": int(is_folded.sum()),
        "closed task": sum(is_closed),
    }
    check_arrays(items, parts, lengths)
    numbers = parts["pair_items"]
    if total and not (numbers.min() >= 0 and numbers.max() < len(ids)):
        raise InputError("pair_items must be numbers of items; got others")
    tasks_of_items: dict[str, TaskItems] = {}
    rows, precisions = iter(parts["pending_rows"]), iter(parts["pair_precisions"])
    moments, loadings = iter(parts["pair_moments"]), loadings_of(items, parts)
    place = 0
    states = zip(
        map(totals_of, parts["task_totals"]),
        parts["task_rewards"].tolist(),
        parts["task_influences"].tolist(),
        strict=True,
    )
    for name, count, flag, (totals, last, weight) in zip(
        names, counts, is_closed, states, strict=True
    ):
        task = tasks_of_items[name] = TaskItems()
        task.set_state(totals, last if count else None, weight)
        task.set_loading(next(loadings) if flag else None)
        for at in range(place, place + count):
            task.pairs[ids[numbers[at]]] = Pair._make(
                [
                    *parts["pair_numbers"][at].tolist(),
                    next(rows) if is_pending[at] else None,
                    next(precisions) if is_folded[at] else None,
                    next(moments) if is_folded[at] else None,
                ]
            )
        if len(task.pairs) != count:
            raise InputError("item_pairs must name every item of a task once; got some twice")
        place += count
    table = table_of(ids[:known], parts)
    restore_offers(table, tasks_of_items.values(), offers, parts)
    items.restore(table, tasks_of_items, offers.waiting, tuple(compared))


class OfferLists(NamedTuple):
    """The parts of a header that describe offers: ids, counts by task, and pending ones.

    The last number of ``lengths`` is of the offers of no task.
    """

    ids: list[str]
    lengths: list[int]
    waiting: list[tuple[str, list[str]]]

    @classmethod
    def of(cls, header: dict[str, Any], names: list[str]) -> OfferLists:
        """The lists of a header, checked."""
        ids = validation.check_task_ids("item_offered", header["item_offered"])
        lengths = validation.check_list("item_offers", header["item_offers"], len(names) + 1)
        waiting, name_set = [], set(names)
        if not isinstance(header["item_waiting"], list):
            raise checks.invalid("item_waiting", "a list of offers", header["item_waiting"])
        for each in header["item_waiting"]:
            if not isinstance(each, list) or not each or each[0] not in name_set:
                raise checks.invalid("item_waiting", "lists of a task and its items", each)
            waiting.append((each[0], validation.check_task_ids("item_waiting", each[1:])))
        return cls(ids, [validation.check_count("item_offers", each) for each in lengths], waiting)


def restore_offers(
    table: ItemTable, tasks: Iterable[TaskItems], offers: OfferLists, parts: Arrays
) -> None:
    """Restore how often items were on offer to each task, and to all of them."""
    numbers, counts = parts["offer_items"].tolist(), parts["offer_counts"].tolist()
    if numbers and not (min(numbers) >= 0 and max(numbers) < len(offers.ids) and min(counts) > 0):
        raise InputError("items.offer_items must be numbers of items with offers; got others")
    every: dict[str, int] = {}
    place = 0
    for task, length in zip([*tasks, None], offers.lengths, strict=True):
        stop = place + length
        own = {
            offers.ids[number]: count
            for number, count in zip(numbers[place:stop], counts[place:stop], strict=True)
        }
        if len(own) != length:
            raise InputError("item_offers must name every item of a task once; got some twice")
        if task is not None:
            task.offers.put(own, sum(own.values()))
        for key, count in own.items():
            every[key] = every.get(key, 0) + count
        place = stop
    table.offers.put(every, sum(every.values()))


def check_arrays(items: ItemLedger, parts: Arrays, lengths: dict[str, int]) -> None:
    """Refuse arrays of the wrong type or shape, or that are not finite."""
    for name, column in columns_of(items).items():
        shape = (lengths[column.unit], *column.shape)
        array = validation.check_array(f"items.{name}", parts[name], shape, column.dtype)
        if column.dtype is np.float64 and not max_abs(array) <= MAX_ENTRY:
            raise InputError(f"items.{name} must be finite; got other numbers")
    for name in ("counts", "loading_noises"):
        if (parts[name] <= 0).any():
            raise InputError(f"items.{name} must be above 0; got less")
    if (parts["pair_numbers"][:, [0, 2, 4]] < 0).any():
        raise InputError("items.pair_numbers must be counts and weights of 0 or more; got less")
    for name in ("totals", "forgotten"):
        if (parts[name][:, [0, *range(3, SUMS)]] < 0).any():
            raise InputError(f"items.{name} must be counts and squares of 0 or more; got less")
    if (parts["settled"] < 0).any():
        raise InputError("items.settled must be 0 or more; got less")
    influences = parts["task_influences"]
    if not ((influences > 0) & (influences <= 1)).all():
        raise InputError("items.task_influences must be above 0, and 1 or less; got others")
    try:
        np.linalg.cholesky(parts["precisions"])
    except np.linalg.LinAlgError:
        raise InputError("items.precisions must be positive definite; got others") from None


def table_of(ids: list[str], parts: Arrays) -> ItemTable:
    """The statistics of items."""
    table = ItemTable()
    arrays = (parts[name] for name in ("counts", "sums", "precisions", "moments"))
    for key, count, total, precision, moment in zip(ids, *arrays, strict=True):
        table.put(key, ItemUpdate(float(count), float(total), precision, moment))
    table.set_totals(totals_of(parts["totals"][0]))
    table.forgotten = totals_of(parts["forgotten"][0])
    table.settled = Settled._make(parts["settled"][0].tolist())
    return table


def totals_of(row: npt.NDArray[Any]) -> RewardSums:
    """The inverse of :func:`totals_row`."""
    numbers = row[:SUMS].tolist()
    repeats = Repeats._make(numbers[3:9])
    return RewardSums._make([*numbers[:3], repeats, *numbers[9:], row[SUMS:].copy()])


def loadings_of(items: ItemLedger, parts: Arrays) -> Any:
    """The loadings of closed tasks, one after another."""
    arrays = (parts[f"loading_{name}"] for name in ("means", "crosses", "noises"))
    for mean, cross, noise in zip(*arrays, strict=True):
        yield Loading(mean, cross, float(noise), items.vector_columns)
