"""The order of very many tasks: by a hash of their ids.

It is the same in every process and on every machine, for any order of arrival. A fit of many tasks
starts from some of them, and the first ones in this order are a random sample.

The hash is not cryptographic: two ids may share a hash, by chance (among n ids about n²/2⁶⁵ pairs)
or on purpose. Code that identifies tasks by their hash compares their ids too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart.records import Array
from headstart.transfer.partitions import PartitionList

Hashes = npt.NDArray[np.uint64]

WORD = 8  # bytes that are mixed in at a time
MASKS = np.array([2 ** (8 * used) - 1 for used in range(WORD + 1)], dtype=np.uint64)
HASH_START = 0x9E3779B97F4A7C15
PARTITION_TASKS = 1024  # tasks of a partition


def hash_texts(content: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64], seed: int) -> Hashes:
    """The 64-bit hash of every text.

    A text is read as little-endian words w₁, w₂, … of eight bytes, the last filled up with zeros.
    With its length n in bytes and the mixing function m, the hash is h ← m(h ⊕ wᵢ), starting from
    m(n + m(seed + c)).

    Parameters
    ----------
    content, ends
        Text number i, in UTF-8, is ``content[ends[i]:ends[i + 1]]``; ``ends`` begins with 0.
    seed
        Other seeds give other hashes.
    """
    text = np.zeros(len(content) + WORD, np.uint8)
    text[: len(content)] = content
    words: Any = np.ndarray((len(content) + 1,), "<u8", text, 0, (1,))  # from every byte on
    starts, lengths = ends[:-1], np.diff(ends)
    origin = mix_bits(np.array([(seed + HASH_START) % 2**64], np.uint64))
    hashes = mix_bits(lengths.astype(np.uint64) + origin)
    rest = np.arange(len(starts))
    for done in range(0, int(lengths.max(initial=0)), WORD):
        rest = rest[lengths[rest] > done]
        left = np.minimum(lengths[rest] - done, WORD)
        hashes[rest] = mix_bits(hashes[rest] ^ (words[starts[rest] + done] & MASKS[left]))
    return hashes


def mix_bits(keys: Hashes) -> Hashes:
    """Bits spread over all places (the finishing steps of SplitMix64)."""
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))


def ordered_partitions(
    names: Sequence[str], rows: Array, dim: int
) -> tuple[PartitionList, list[list[str]]]:
    """Packed evidence in the order of the tasks' hashes, in partitions; and the tasks' ids.

    >>> partitions, names = ordered_partitions(["b", "a"], np.zeros((2, 4)), dim=1)
    >>> partitions.sizes, names
    ([2], [['a', 'b']])
    """
    texts = [name.encode() for name in names]
    content = np.frombuffer(b"".join(texts), np.uint8)
    hashes = hash_texts(content, np.cumsum([0, *map(len, texts)], dtype=np.int64), 0).tolist()
    order = sorted(range(len(names)), key=lambda place: (hashes[place], names[place]))
    parts = [
        order[start : start + PARTITION_TASKS] for start in range(0, len(order), PARTITION_TASKS)
    ]
    partitions = PartitionList([rows[part] for part in parts], dim)
    return partitions, [[names[place] for place in part] for part in parts]
