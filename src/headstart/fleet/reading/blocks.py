"""From an Arrow table to :class:`Rows`: every cell checked, in a few passes over whole columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from headstart.fleet.reading.arrays import as_array, as_arrow, filled
from headstart.fleet.reading.columns import Resolved
from headstart.fleet.reading.numbers import all_fit, as_floats, misfits, read_number
from headstart.fleet.reading.problems import Block, Mask, Problems, missing, nulls, one_chunk, shows
from headstart.fleet.reading.rows import Rows
from headstart.fleet.reading.task_ids import read_task
from headstart.fleet.reading.times import read_rounds, read_times
from headstart.fleet.reading.transpose import Upright

__all__ = ["to_rows"]

Matrix = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Features = Matrix | Upright


def to_rows(block: Block, resolved: Resolved, width: int, turned: bool = True) -> Rows:
    """Check a block and turn it into arrays; rows that cannot be used are left out and counted.

    Unless ``turned``, features may stay as they are, column by column.
    """
    table = block.table
    problems = Problems(block)
    roles = resolved.columns.roles
    chosen = read_chosen(table, roles, block, problems)
    codes, ids = read_task(table, roles["task"], block, problems)
    rewards = read_number(table, "reward", roles["reward"], block, problems, needed=chosen)
    features: Any = read_features(table, resolved, width, block, problems)
    if turned and isinstance(features, Upright):
        features = features[:]
    weights = propensities = timestamps = rounds = None
    if "weight" in roles:
        weights = read_number(table, "weight", roles["weight"], block, problems)
        problems.add("weight is negative", weights < 0, shows(weights))
    if "propensity" in roles:
        propensities = read_propensity(table, roles["propensity"], block, problems, chosen)
    if "timestamp" in roles:
        timestamps = read_times(table, "timestamp", roles["timestamp"], block, problems)
    if "round" in roles:
        rounds = read_rounds(table, roles["round"], block, problems)
    rows = Rows(
        codes,
        ids,
        rewards,
        features,
        weights,
        timestamps,
        rounds,
        chosen,
        propensities,
        problems.account,
    )
    kept = None if problems.mask is None else ~problems.mask
    if weights is not None and not weights.all():
        empty = weights == 0
        good = empty if kept is None else empty & kept
        rows = rows._replace(weightless=int(good.sum()))
        kept = ~empty if kept is None else kept & ~empty
    if kept is not None:
        return rows.take(kept)
    return rows._replace(
        rewards=owned(rewards),
        features=owned(features),
        weights=owned(weights),
        timestamps=owned(timestamps),
        rounds=owned(rounds),
        chosen=owned(chosen),
        propensities=owned(propensities),
    )


def owned(array: Any) -> Any:
    """An array that may be written to; what Arrow lends may not."""
    if array is None or isinstance(array, Upright) or array.flags.writeable:
        return array
    return array.copy()


def read_features(
    table: pa.Table, resolved: Resolved, width: int, block: Block, problems: Problems
) -> Features:
    """The features: an array of rows, or columns that can be turned into one."""
    if resolved.listed:
        return read_lists(table, resolved.features[0], width, block, problems)
    arrays = [one_chunk(table, name) for name in resolved.features]
    single = all(fits_single(array.type) for array in arrays)
    kind = np.float32 if single else np.float64
    columns = [as_floats(array, kind) for array in arrays]
    for name, array, values in zip(resolved.features, arrays, columns, strict=True):
        if array.null_count == 0 and all_fit(values):
            continue
        absent = missing(f"feature {name}", name, array, block, problems, None)
        wild, large = misfits(values, absent)
        problems.add(f"feature {name} is not finite", wild, shows(values))
        problems.add(f"feature {name} is too large", large, shows(values))
    return Upright(columns, kind)


def fits_single(kind: pa.DataType) -> bool:
    """Whether every value of a type is exactly a float32."""
    return bool(
        kinds.is_float32(kind)
        or kinds.is_float16(kind)
        or kinds.is_boolean(kind)
        or kinds.is_int8(kind)
        or kinds.is_uint8(kind)
        or kinds.is_int16(kind)
        or kinds.is_uint16(kind)
    )


def read_lists(table: pa.Table, name: str, width: int, block: Block, problems: Problems) -> Matrix:
    """Features from one column of lists, all of one width."""
    array = one_chunk(table, name)
    absent = missing(f"features {name}", name, array, block, problems, None)
    kind = np.float32 if fits_single(array.type.value_type) else np.float64
    if kinds.is_fixed_size_list(array.type) and not array.null_count:
        cells = array.flatten()
    else:
        lengths = filled(pc.list_value_length(array))
        odd = (lengths != width) & ~absent
        problems.add(f"features {name} has not {width} numbers", odd, lambda i: f"{lengths[i]}")
        good = ~(odd | absent)
        if good.all():
            cells = array.flatten()
        else:
            values = np.zeros((len(array), width), dtype=kind)
            part = array.filter(as_arrow(good)).flatten()
            values[good] = check_cells(part, name, width, kind, np.flatnonzero(good), problems)
            return values
    return check_cells(cells, name, width, kind, np.arange(len(array)), problems)


def check_cells(
    cells: pa.Array,
    name: str,
    width: int,
    kind: type[np.floating[Any]],
    places: npt.NDArray[np.intp],
    problems: Problems,
) -> npt.NDArray[Any]:
    """The cells of lists as rows; those with a cell missing, not finite or too large are bad."""
    flat = as_floats(cells, kind)
    values = flat.reshape(-1, width)
    if cells.null_count == 0 and all_fit(flat):
        return values
    total = len(problems.block.table)
    gaps = nulls(cells).reshape(-1, width)
    wild, large = misfits(values, gaps)
    for reason, cell_mask, text in (
        (f"features {name} has a number missing", gaps, "null"),
        (f"features {name} is not finite", wild, None),
        (f"features {name} is too large", large, None),
    ):
        mask = np.zeros(total, dtype=bool)
        mask[places[cell_mask.any(axis=1)]] = True

        def offender(place: int, cell_mask: Mask = cell_mask) -> str:
            row = int(np.searchsorted(places, place))
            column = int(np.argmax(cell_mask[row]))
            return f"{values[row, column]} at {column}"

        problems.add(reason, mask, text or offender)
    return values


def read_chosen(
    table: pa.Table, roles: Mapping[str, str], block: Block, problems: Problems
) -> Mask | None:
    """The flag of the arm that was shown."""
    if "chosen" not in roles:
        return None
    array = one_chunk(table, roles["chosen"])
    absent = missing("chosen", roles["chosen"], array, block, problems, None)
    if kinds.is_boolean(array.type) and not array.null_count:
        flags: Mask = as_array(array)
        return flags
    values = as_floats(array)
    odd = (values != 0) & (values != 1) & ~absent
    problems.add("chosen is neither 0 nor 1", odd, shows(values))
    shown: Mask = values == 1
    return shown


def read_propensity(
    table: pa.Table, name: str, block: Block, problems: Problems, chosen: Mask | None
) -> npt.NDArray[np.float64]:
    """Probabilities: above 0 for an arm that was shown, 0 or more or missing for the others."""
    values = read_number(table, "propensity", name, block, problems, needed=chosen)
    with np.errstate(invalid="ignore"):
        low = values <= 0 if chosen is None else np.where(chosen, values <= 0, values < 0)
        odd = low | (values > 1)
    problems.add("propensity is not in (0, 1]", odd & np.isfinite(values), shows(values))
    return values
