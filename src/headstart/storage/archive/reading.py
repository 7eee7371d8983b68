"""Reading an archive: all of it in order, or single tasks."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from typing import Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.checks import task_name
from headstart.errors import FileError, InputError, TaskError
from headstart.model.evidence import Evidence, find_fault
from headstart.storage import atomic
from headstart.storage.archive.layout import (
    CLOSING,
    COUNTS,
    END,
    HASH,
    INDEX,
    LOOKUP_BYTES,
    MAGIC,
    NUMBER,
    VERSION,
    Batch,
    Block,
    Rows,
    batches_of_size,
    digest,
    hashes_of,
    layout_of,
)

WANT = "an evidence file of headstart"
BATCH_TASKS = 1024  # tasks at a time: at dim 30, 11 MB


def read_evidence(
    path: atomic.PathLike, batch: int = BATCH_TASKS
) -> Iterator[tuple[list[str], Evidence]]:
    """The tasks of a file in the order they were written, ``batch`` at a time.

    Gives their ids, and their evidence along a batch axis. Every block is checked before its tasks
    are given. To read single tasks, open an :class:`EvidenceFile`.
    """
    batch = checks.integer("batch", batch, 1)
    with EvidenceFile(path):  # so that a file that is none is refused here, not at the first batch
        pass
    return stream(path, batch)


def stream(path: atomic.PathLike, batch: int) -> Iterator[tuple[list[str], Evidence]]:
    """What :func:`read_evidence` gives; the file is open only while it is being read."""
    with EvidenceFile(path) as file:
        yield from file.batches(batch)


class EvidenceFile:
    """A file of evidence, open for reading: of one task or of many, without loading the rest.

    Parameters
    ----------
    path
        A file that :func:`write_evidence` or :func:`merge_evidence` has made.

    Examples
    --------
    >>> import tempfile
    >>> import headstart as hs
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = folder.name + "/shops.evidence"
    >>> shops = [(f"shop {n}", Evidence.of([[1.0, n]], [2.0])) for n in range(5)]
    >>> hs.write_evidence(path, shops, dim=2)
    5
    >>> with EvidenceFile(path) as file:
    ...     print(file.dim, len(file), list(file)[:2], "shop 9" in file)
    ...     print(file["shop 3"].moment, file.at(4)[0])
    2 5 ['shop 0', 'shop 1'] False
    [2. 6.] shop 4
    >>> folder.cleanup()

    Notes
    -----
    A block is checked against its digest the first time that anything in it is read. The lookup,
    24 bytes for every task, is read with the first block and kept until the file is closed. Any
    method may be called from several threads.
    """

    def __init__(self, path: atomic.PathLike) -> None:
        self._source = atomic.file_path(path, WANT)
        self._lock = threading.Lock()
        self._lookup: tuple[npt.NDArray[np.bytes_], npt.NDArray[np.int64]] | None = None
        with atomic.explain_read_errors(self._source, WANT):
            self._file = atomic.open_regular(self._source, WANT)
            try:
                self._read_frame()
            except BaseException:
                self._file.close()
                raise

    def __repr__(self) -> str:
        apart = ", forced rounds apart" if self.forced else ""
        return (
            f"EvidenceFile({str(self._source)!r}) with {len(self)} tasks "
            f"(dim {self.dim}, {self.precision} precision{apart})"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        self._lookup = None

    @property
    def dim(self) -> int:
        """The number of features."""
        return self._layout.dim

    @property
    def precision(self) -> str:
        """``"double"`` or ``"single"``; what is read is in double precision always."""
        return self._layout.precision

    @property
    def forced(self) -> bool:
        """Whether the evidence of forced rounds is kept apart."""
        return self._layout.forced

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __iter__(self) -> Iterator[str]:
        """The ids of all tasks, in the order they were written; nothing else is read."""
        for number in range(len(self._index)):
            yield from self._ids(number)

    def __contains__(self, id: object) -> bool:
        try:
            return bool(self.find([task_name(id)])[0] >= 0)
        except InputError:
            return False

    def __getitem__(self, id: str | int) -> Evidence:
        """The evidence of the task with this id."""
        name = task_name(id)
        places = self.find([name])
        if places[0] < 0:
            raise TaskError(f"task {name!r} is unknown here: {self!r} does not hold it")
        return Evidence.unpack(self.rows(places)[0], self.dim)

    def at(self, position: int) -> tuple[str, Evidence]:
        """The id and the evidence of the task with this place in the order, from 0."""
        position = checks.integer("position", position, 0, len(self) - 1)
        number, within = self._block_of(position)
        row = self.rows(np.array([position]))[0]
        return self._ids(number)[within], Evidence.unpack(row, self.dim)

    def items(self) -> Iterator[tuple[str, Evidence]]:
        """The id and evidence of every task, one by one, in the order they were written."""
        for ids, evidence in self.batches():
            for place, name in enumerate(ids):
                yield name, evidence.at(place)

    def batches(self, batch: int = BATCH_TASKS) -> Iterator[tuple[list[str], Evidence]]:
        """The same, ``batch`` tasks at a time, with their evidence along a batch axis."""
        batch = checks.integer("batch", batch, 1)
        for ids, rows in batches_of_size(self.blocks(), batch):
            yield ids, Evidence.unpack(rows, self.dim)

    def blocks(self) -> Iterator[Batch]:
        """The ids and packed evidence of every task, block by block."""
        for number in range(len(self._index)):
            yield self._block(number)

    def find(self, ids: Sequence[str]) -> npt.NDArray[np.int64]:
        """The places of the tasks with these ids; −1 where there is none."""
        if self._lookup is None:
            content = self._verified_bytes(
                self._lookup_at, LOOKUP_BYTES * len(self), self._lookup_digest, "hashes of ids"
            )
            hash_bytes = HASH.itemsize * len(self)
            hashes = np.frombuffer(content, HASH, len(self))
            places = np.frombuffer(content, NUMBER, offset=hash_bytes)
            with atomic.explain_read_errors(self._source, WANT):
                inside = not len(self) or (places.min() >= 0 and places.max() < len(self))
                if not inside or (np.bincount(places, minlength=len(self)) != 1).any():
                    raise ValueError("its lookup does not have every task once")
                if (hashes[1:] <= hashes[:-1]).any():
                    raise ValueError("its lookup is not in order")
            self._lookup = hashes, places
        hashes, places = self._lookup
        id_hashes = np.frombuffer(hashes_of(ids), HASH)
        near = np.searchsorted(hashes, id_hashes)
        positions = np.full(len(id_hashes), -1)
        inside = np.flatnonzero(near < len(hashes))
        equal = inside[hashes[near[inside]] == id_hashes[inside]]
        positions[equal] = places[near[equal]]
        return positions

    def rows(self, positions: npt.NDArray[np.int64]) -> Rows:
        """The packed evidence of some tasks."""
        rows = np.empty((len(positions), self._layout.width))
        for place, position in enumerate(positions):
            number, within = self._block_of(int(position))
            if self._sound[number]:
                start = self._index[number].start + within * self._layout.row
                content = self._read(start, self._layout.row)
                rows[place] = np.frombuffer(content, self._layout.dtype)
            else:
                rows[place] = self._block(number)[1][within]
        return rows

    def _read_frame(self) -> None:
        """Read opening, index and closing, and check that they fit each other."""
        self._size = os.fstat(self._file.fileno()).st_size
        if self._file.read(len(MAGIC)) != MAGIC:
            raise FileError(f"path {str(self._source)!r} must be {WANT}; it is of another kind")
        length = int.from_bytes(self._read(len(MAGIC), 8), "little")
        opening = self._read(0, len(MAGIC) + 8 + length)
        header = json.loads(opening[len(MAGIC) + 8 :])
        atomic.check_version(self._source, header["version"], VERSION)
        closing = self._read(self._size - CLOSING.size, CLOSING.size)
        blocks, tasks, self._lookup_digest, expected_digest, end = CLOSING.unpack(closing)
        if end != END:
            raise ValueError("it has no end")
        index_at = self._size - CLOSING.size - blocks * INDEX.size
        entries = self._read(index_at, blocks * INDEX.size)
        if expected_digest != digest(opening, entries, closing[: COUNTS.size]):
            raise ValueError("its index does not match its digest")
        self._layout = layout_of(header)
        self._index = [Block(*entry) for entry in INDEX.iter_unpack(entries)]
        place = len(opening)
        for block in self._index:
            if block.start != place:
                raise ValueError("its blocks do not follow each other")
            place = block.ids_start(self._layout) + block.text
        if (
            place + LOOKUP_BYTES * tasks != index_at
            or sum(block.tasks for block in self._index) != tasks
        ):
            raise ValueError("its parts do not follow each other")
        self._lookup_at = place
        self._ends = np.cumsum([0, *(block.tasks for block in self._index)])
        self._sound = np.zeros(blocks, dtype=bool)  # the blocks that were checked

    def _block_of(self, position: int) -> tuple[int, int]:
        """The block of a task, and its place within."""
        number = int(np.searchsorted(self._ends, position, side="right")) - 1
        return number, position - int(self._ends[number])

    def _block(self, number: int) -> Batch:
        """The ids and packed evidence of a block, if the lookup finds these tasks there."""
        ids, rows = self._ids(number), self._rows_of(number)
        if (self.find(ids) != np.arange(self._ends[number], self._ends[number + 1])).any():
            raise FileError(
                f"path {str(self._source)!r} is corrupted: its hashes of ids do not match its ids"
            )
        self._sound[number] = True
        return ids, rows

    def _ids(self, number: int) -> list[str]:
        """The ids of a block's tasks."""
        block = self._index[number]
        start, what = block.ids_start(self._layout), f"ids in block {number}"
        text = self._verified_bytes(start, block.text, block.ids_digest, what)
        with atomic.explain_read_errors(self._source, WANT):
            ids: list[str] = json.loads(text)
            if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
                raise ValueError(f"the ids in block {number} are not texts")
            if len(ids) != block.tasks:
                raise ValueError(f"{len(ids)} ids for {block.tasks} tasks")
            if ids and not (min(map(len, ids)) >= 1 and max(map(len, ids)) <= 1000):
                raise ValueError(f"ids in block {number} have no characters, or above 1000")
            "".join(ids).encode()
        return ids

    def _rows_of(self, number: int) -> Rows:
        """The packed evidence of a block's tasks."""
        block, layout = self._index[number], self._layout
        what = f"rows in block {number}"
        content = self._verified_bytes(
            block.start, block.tasks * layout.row, block.rows_digest, what
        )
        values = np.frombuffer(content, layout.dtype).reshape(block.tasks, layout.width)
        rows = values.astype(np.float64, copy=False)
        with atomic.explain_read_errors(self._source, WANT):
            fault = find_fault(rows, layout.dim) if len(rows) else None
            if fault is not None:
                raise ValueError(f"task {fault[0]} of block {number} has {fault[1]}")
        return rows

    def _verified_bytes(self, start: int, length: int, expected_digest: bytes, what: str) -> bytes:
        """The bytes at a position, if they match their digest."""
        content = self._read(start, length)
        if digest(content) != expected_digest:
            raise FileError(
                f"path {str(self._source)!r} is corrupted: its {what} do not match their digest"
            )
        return content

    def _read(self, start: int, length: int) -> bytes:
        """The bytes at a position."""
        if self._file.closed:
            raise FileError(f"path {str(self._source)!r} was closed here: open it again to read it")
        with atomic.explain_read_errors(self._source, WANT), self._lock:
            if start < 0 or start + length > self._size:
                raise ValueError("it ends too early")
            self._file.seek(start)
            content = self._file.read(length)
            if len(content) < length:
                raise ValueError("it ends too early")
            return content
