"""The hash of task ids, by which tasks are ordered, partitioned and sampled.

It is a function of the text of an id and of a seed alone, so it is the same in every process and on
every machine. A hash is a place among 2⁶⁴: partition p of P holds the tasks whose hash is in the
p-th of P equal ranges, and tasks whose hash is below a limit are a random sample of all.

It is not cryptographic: two ids may share a hash, by chance (among n ids about n²/2⁶⁵ pairs) or on
purpose. Code that identifies tasks by their hash compares their ids too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Hashes", "hash_ids", "id_texts", "mix_bits", "partition_numbers", "partition_range"]

Hashes = npt.NDArray[np.uint64]

WORD = 8  # bytes that are mixed in at a time
MASKS = np.array([2 ** (8 * used) - 1 for used in range(WORD + 1)], dtype=np.uint64)
START = 0x9E3779B97F4A7C15


def hash_ids(ids: pa.Array, seed: int = 0) -> Hashes:
    """The 64-bit hash of every id; whole numbers have the hash of their text.

    The text is read as little-endian words w₁, w₂, … of eight bytes, the last filled up with zeros.
    With the length n and the mixing function m, the hash is h ← m(h ⊕ wᵢ), starting from
    m(n + m(seed + c)).

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
    low, high = int(ends[0]), int(ends[-1])
    text = np.zeros(high - low + WORD, np.uint8)
    if high > low:
        text[: high - low] = np.frombuffer(content, np.uint8, high - low, low)
    words: Any = np.ndarray((high - low + 1,), "<u8", text, 0, (1,))  # from every byte on
    starts, lengths = ends[:-1] - low, np.diff(ends)
    origin = mix_bits(np.array([(seed + START) % 2**64], np.uint64))
    hashes = mix_bits(lengths.astype(np.uint64) + origin)
    rest = np.arange(count)
    for done in range(0, int(lengths.max()), WORD):
        rest = rest[lengths[rest] > done]
        left = np.minimum(lengths[rest] - done, WORD)
        hashes[rest] = mix_bits(hashes[rest] ^ (words[starts[rest] + done] & MASKS[left]))
    return hashes


def id_texts(ids: pa.Array) -> pa.LargeStringArray:
    """Ids as text; all of them may have more than 2 GiB of it."""
    return ids if ids.type == pa.large_string() else ids.cast(pa.large_string())


def mix_bits(keys: Hashes) -> Hashes:
    """Bits spread over all places (the finishing steps of SplitMix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


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
