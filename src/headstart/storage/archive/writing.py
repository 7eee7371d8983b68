"""Writing an archive: one block after the other, then the index."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from headstart import checks
from headstart.checks import task_name
from headstart.errors import InputError
from headstart.model.evidence import Evidence, find_fault, packed_size
from headstart.storage import atomic
from headstart.storage.archive.layout import (
    COUNTS,
    END,
    HASH,
    INDEX,
    NUMBER,
    PRECISIONS,
    Batch,
    Block,
    Layout,
    Rows,
    batches_of_size,
    digest,
    hashes_of,
    text_of,
)
from headstart.storage.atomic import byte_view


def write_evidence(
    path: atomic.PathLike,
    items: Iterable[tuple[Any, Evidence]],
    dim: int,
    *,
    precision: str = "double",
) -> int:
    """Write the evidence of any number of tasks to a file, atomically, one block at a time.

    Parameters
    ----------
    path
        The path of the file. An existing file is replaced when all is written, and unchanged if
        anything fails.
    items
        Pairs of a task id and its :class:`Evidence`, or of many ids and evidence with one batch
        axis; each id once. They are consumed one by one, in order, so that a generator may produce
        them.
    dim
        The number of features.
    precision
        ``"double"`` keeps every bit. ``"single"`` takes half the space, with a relative rounding
        error of at most 6e-8; see the notes.

    Returns
    -------
    int
        How many tasks were written.

    Notes
    -----
    Single precision has two limits. Counts of rounds are exact up to 16,777,216. And noise is
    computed from the rewards' squares less what is explained: where it is a hundredth of the
    rewards, R is right to five digits; where a thousandth, to two or three; where less, rounding
    hides it.

    Duplicate ids are detected at the end.
    """
    dim = checks.dimension(dim)
    checks.one_of("precision", precision, PRECISIONS)
    batches = packed_batches(items, dim)
    with atomic.atomic_write(path) as draft:
        first = list(itertools.islice(batches, 1))
        forced = any(rows.shape[1] > packed_size(dim) for _, rows in first)
        layout = Layout(dim, precision, forced)
        opening = layout.opening()
        draft.write(opening)
        index: list[Block] = []
        hashes = bytearray()
        for ids, rows in batches_of_size(itertools.chain(first, batches), layout.tasks):
            content, text = byte_view(rows_to_store(ids, rows, layout)), text_of(ids)
            index.append(Block(draft.size, len(ids), len(text), digest(content), digest(text)))
            hashes += hashes_of(ids)
            draft.write(content)
            draft.write(text)
        sorted_hashes = np.frombuffer(hashes, HASH)
        order = np.argsort(sorted_hashes, kind="stable").astype(NUMBER, copy=False)
        sorted_hashes = sorted_hashes[order]
        twice = np.flatnonzero(sorted_hashes[1:] == sorted_hashes[:-1])
        if len(twice):
            name = id_at(draft, layout, index, int(order[twice[0] + 1]))
            raise InputError(f"items must hold every task once; got {name!r} twice")
        draft.write(byte_view(sorted_hashes))
        draft.write(byte_view(order))
        entries = b"".join(INDEX.pack(*block) for block in index)
        counts = COUNTS.pack(
            len(index), len(order), digest(byte_view(sorted_hashes), byte_view(order))
        )
        draft.write(entries + counts + digest(opening, entries, counts) + END)
    return len(order)


def packed_batches(items: Iterable[tuple[Any, Evidence]], dim: int) -> Iterator[Batch]:
    """Ids and packed evidence, checked, from what users give."""
    want = "pairs of a task id and its Evidence, or of many ids and Evidence with a batch axis"
    if not checks.is_iterable(items):
        raise checks.invalid("items", want, items)
    forced: bool | None = None
    for item in items:
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise checks.invalid("items", want, item)
        ids, evidence = item
        if not isinstance(evidence, Evidence):
            raise checks.invalid("items", want, evidence)
        if len(evidence.batch) > 1:
            raise checks.invalid("items", want, evidence.moment)
        if not evidence.batch:
            ids = [ids]
        elif not checks.is_iterable(ids):
            raise checks.invalid("items", want, ids)
        names = [task_name(id) for id in ids]
        rows = np.atleast_2d(evidence.pack())
        if len(names) != len(rows):
            raise InputError(
                f"items must hold as many ids as evidence; got {len(names)} ids for {len(rows)}"
            )
        if not names:
            continue
        if evidence.dim != dim:
            raise InputError(
                f"items must hold evidence of dimension {dim}; got {evidence.dim} "
                f"for task {names[0]!r}"
            )
        if forced is None:
            forced = evidence.forced is not None
        if forced != (evidence.forced is not None):
            raise InputError(
                f"items must all keep forced rounds apart, or none; "
                f"task {names[0]!r} differs from those before it"
            )
        yield names, rows


def rows_to_store(ids: Sequence[str], rows: Rows, layout: Layout) -> Rows:
    """Rows in the precision asked for, if they are finite and can be sums of rounds."""
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused below
        values = rows.astype(layout.dtype, copy=False)
    good = np.isfinite(values).all(axis=1)
    if not good.all():
        raise InputError(
            f"items must hold evidence that is finite in {layout.precision} precision; "
            f"that of task {ids[int(np.argmin(good))]!r} is not"
        )
    fault = find_fault(rows, layout.dim)  # as when it is read: what is written can be read again
    if fault is not None:
        raise InputError(
            f"items must hold sums of rounds; got {fault[1]} in task {ids[fault[0]]!r}"
        )
    return values


def id_at(draft: atomic.Draft, layout: Layout, index: Sequence[Block], number: int) -> str:
    """The id of a task that was written already."""
    ends = np.cumsum([block.tasks for block in index])
    block = index[place := int(np.searchsorted(ends, number, side="right"))]
    ids = json.loads(draft.read(block.ids_start(layout), block.text))
    return str(ids[number - int(ends[place]) + block.tasks])
