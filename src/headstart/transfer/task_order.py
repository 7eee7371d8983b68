"""The order of very many tasks, by a hash of their ids, and their division into partitions.

It is the same on every machine, whatever came first: a fit of many tasks looks at some of them
before it looks at all, and these should be a random sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from headstart.records import Array
from headstart.transfer.partitions import PartitionList

__all__ = ["BUCKETS", "bucket_of", "mark_of", "ordered_partitions"]

BUCKETS = 64


def mark_of(name: str) -> bytes:
    """A hash of a task's id: the same everywhere and as good as random."""
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


def bucket_of(mark: bytes) -> int:
    """The bucket of a task, by its mark's first six bits; buckets are ranges of marks.

    >>> bucket_of(mark_of("user-42")) == mark_of("user-42")[0] // 4
    True
    """
    return mark[0] * BUCKETS // 256


def ordered_partitions(
    names: Sequence[str], rows: Array, dim: int
) -> tuple[PartitionList, list[list[str]]]:
    """Packed evidence in the order of the tasks' marks, a partition per bucket; and their ids."""
    marks = [mark_of(name) for name in names]
    parts: list[list[int]] = [[] for _ in range(BUCKETS)]
    for place in sorted(range(len(names)), key=marks.__getitem__):
        parts[bucket_of(marks[place])].append(place)
    partitions = PartitionList([rows[part] for part in parts], dim)
    return partitions, [[names[place] for place in part] for part in parts]
