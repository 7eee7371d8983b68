"""The hash of task ids, by which tasks are ordered, partitioned and sampled.

It is :func:`headstart.transfer.task_order.hash_texts` of the text of an id. A hash is a place among
2⁶⁴: partition p of P holds the tasks whose hash is in the p-th of P equal ranges, and tasks whose
hash is below a limit are a random sample of all.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headstart.transfer.task_order import Hashes, hash_texts, mix_bits

__all__ = ["Hashes", "hash_ids", "id_texts", "mix_bits", "partition_numbers", "partition_range"]


def hash_ids(ids: pa.Array, seed: int = 0) -> Hashes:
    """The 64-bit hash of every id; whole numbers have the hash of their text.

    >>> hash_ids(pa.array(["7", "user-42"])) == hash_ids(pa.array([7, 42]))
    array([ True, False])
    >>> hash_ids(pa.array(["user-42"]), seed=1) == hash_ids(pa.array(["user-42"]))
    array([False])
    """
    texts = id_texts(ids)
    count = len(texts)
    if not count:
        return np.zeros(0, np.uint64)
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int64, count + 1, 8 * texts.offset)
    low, size = int(ends[0]), int(ends[-1] - ends[0])
    text = np.frombuffer(content, np.uint8, size, low) if size else np.zeros(0, np.uint8)
    return hash_texts(text, ends - low, seed)


def id_texts(ids: pa.Array) -> pa.LargeStringArray:
    """Ids as text; all of them may have more than 2 GiB of it."""
    return ids if ids.type == pa.large_string() else ids.cast(pa.large_string())


def partition_numbers(hashes: Hashes, count: int) -> npt.NDArray[np.int64]:
    """The partition of each hash among ``count``, a power of two: ranges of equal size, in order.

    >>> partition_numbers(np.array([0, 2**62, 2**64 - 1], np.uint64), 4)
    array([0, 1, 3])
    """
    if count == 1:
        return np.zeros(len(hashes), np.int64)
    return (hashes >> np.uint64(65 - count.bit_length())).astype(np.int64)


def partition_range(partition: int, count: int) -> tuple[int, int]:
    """The hashes of a partition: from the first number up to, but without, the second.

    >>> partition_range(3, 4) == (3 * 2**62, 2**64)
    True
    """
    return 2**64 * partition // count, 2**64 * (partition + 1) // count
