r"""What an archive looks like on disk.

A task is a row of numbers, :meth:`Evidence.pack`: d(d+1)/2 + d + 2 of them, or twice that where
forced rounds are kept apart. Rows come in blocks of about a megabyte. The parts of the file, one
after the other, with whole numbers of eight bytes and the lowest byte first::

    opening   the bytes "hsevid\r\n", the length of the header, and the header: JSON with version,
              dim, precision ("double" or "single") and forced (true or false)
    blocks    each: the rows of its tasks, then their ids as a JSON list
    lookup    the hashes of all ids (16 bytes each) in ascending order, then the number that each
              of these tasks has in the file, counted from 0
    index     of each block: where it starts, how many tasks it has, the length of its ids, the
              digest of its rows and that of its ids
    closing   how many blocks and how many tasks there are, the digest of the lookup, the digest of
              opening, index and closing, and the bytes "\nhsend\r\n"

JSON is padded with spaces to a multiple of eight bytes. Digests and hashes are BLAKE2b, 16 bytes.
Opening, index and closing are checked when a file is opened, so that one cut short is refused at
once; any other part is checked when it is read. Nothing is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.model.evidence import packed_size
from headstart.storage.tensor_file import BLOCK, pad_json

__all__ = ["Block", "Layout"]

VERSION = 1
MAGIC, END = b"hsevid\r\n", b"\nhsend\r\n"
PRECISIONS: dict[str, np.dtype[Any]] = {"double": np.dtype("<f8"), "single": np.dtype("<f4")}
HASH, NUMBER = np.dtype("S16"), np.dtype("<i8")  # of a task, in the lookup
LOOKUP_BYTES = HASH.itemsize + NUMBER.itemsize
INDEX = struct.Struct("<QQQ16s16s")  # a Block
COUNTS = struct.Struct("<QQ16s")  # blocks, tasks, the digest of the lookup
CLOSING = struct.Struct("<QQ16s16s8s")  # these, the digest of the index, and the end

Rows = npt.NDArray[np.floating[Any]]
Batch = tuple[list[str], Rows]  # tasks' ids, and their packed evidence


class Layout(NamedTuple):
    """What an archive's header says.

    >>> Layout(dim=30, precision="double", forced=False).row
    3976
    """

    dim: int
    precision: str
    forced: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers."""
        return PRECISIONS[self.precision]

    @property
    def width(self) -> int:
        """How many numbers a task has."""
        return packed_size(self.dim) * (2 if self.forced else 1)

    @property
    def row(self) -> int:
        """How many bytes a task has."""
        return self.width * self.dtype.itemsize

    @property
    def tasks(self) -> int:
        """How many tasks a block has: a megabyte, but not too many where rows are short."""
        return min(4096, max(1, BLOCK // self.row))

    def opening(self) -> bytes:
        """How the file begins."""
        header = pad_json(json.dumps({"version": str(VERSION)} | self._asdict()).encode())
        return MAGIC + len(header).to_bytes(8, "little") + header


def layout_of(header: dict[str, Any]) -> Layout:
    """The layout that a header describes, checked."""
    return Layout(
        checks.integer("dim", header["dim"], 1),
        checks.one_of("precision", header["precision"], PRECISIONS),
        checks.flag("forced", header["forced"]),
    )


class Block(NamedTuple):
    """What the index says of a block."""

    start: int
    tasks: int
    text: int
    rows_digest: bytes
    ids_digest: bytes

    def ids_start(self, layout: Layout) -> int:
        """Where its ids are: after its rows."""
        return self.start + self.tasks * layout.row


def text_of(ids: Sequence[str]) -> bytes:
    """Task ids, as a block holds them."""
    return pad_json(json.dumps(ids, ensure_ascii=False, separators=(",", ":")).encode())


def hashes_of(ids: Iterable[str]) -> bytes:
    """What tasks are found by, one after the other; no two ids with one hash are known."""
    return b"".join(digest(name.encode()) for name in ids)


def digest(*parts: bytes | memoryview) -> bytes:
    """The hash of parts one after the other."""
    hasher = hashlib.blake2b(digest_size=16)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def batches_of_size(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """The same tasks in batches of one size; the last may be smaller.

    >>> rows = np.arange(5.0)[:, None]
    >>> batches = [(["a", "b", "c"], rows[:3]), (["d", "e"], rows[3:])]
    >>> [ids for ids, _ in batches_of_size(batches, 2)]
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    names: list[str] = []
    parts: list[Rows] = []
    for ids, rows in batches:
        start = 0
        while start < len(ids):
            stop = start + size - len(names)
            names += ids[start:stop]
            parts.append(rows[start:stop])
            start = stop
            if len(names) == size:
                yield names, np.concatenate(parts)
                names, parts = [], []
    if names:
        yield names, np.concatenate(parts)
