"""Files: arrays and a header on disk, in a format that cannot run code.

A file is a `safetensors <https://github.com/huggingface/safetensors>`_ file whose metadata holds a
format version, a JSON header and a digest of everything. Writing is atomic: a reader, or a crash,
sees the old file or the new one, never a mixture.

Arrays are streamed in both directions, without a copy in memory. A matrix may be written from a
list of its rows, and read back as one.

>>> import tempfile
>>> folder = tempfile.TemporaryDirectory()
>>> path = folder.name + "/a"
>>> write(path, {"kind": "example"}, {"matrix": [np.zeros(2), np.ones(2)]})
>>> read(path)
({'kind': 'example'}, {'matrix': array([[0., 0.], [1., 1.]])})
>>> read(path, rows={"matrix"})[1]
{'matrix': [array([0., 0.]), array([1., 1.])]}
>>> folder.cleanup()
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.errors import FileError
from headstart.storage import atomic
from headstart.storage.atomic import AnyArray, byte_view

__all__ = ["read", "write"]

FORMAT = "headstart"
VERSION = 5
BLOCK = 2**20  # bytes that are read at a time

Tensors = Mapping[str, AnyArray | Sequence[AnyArray]]  # an array, or the rows of a matrix
PathLike = atomic.PathLike

DTYPES = {  # what safetensors calls the types of arrays
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "C64": np.dtype("<c8"),
}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class Location(NamedTuple):
    """An array in a file: what it is, and from which byte to which."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    stop: int


def write(path: PathLike, header: Mapping[str, Any], tensors: Tensors) -> None:
    """Write a file atomically: to a new file, flushed to disk, then renamed.

    A sequence of arrays is written as the matrix whose rows they are, without making it. Where
    there was no file before, the new one is for its owner alone: a bandit's holds a key.
    """
    ready = {name: checked_tensor(name, tensor) for name, tensor in tensors.items()}
    text = json.dumps(header, ensure_ascii=False)
    metadata = {
        "format": FORMAT,
        "version": str(VERSION),
        "header": text,
        "digest": digest(str(VERSION) + text, ready),
    }
    places: dict[str, Location] = {}
    stop = 0
    # The widest types first, so that every array starts at a multiple of its own width.
    for name in sorted(ready, key=lambda name: (-type_of(ready[name]).itemsize, name)):
        dtype, shape = type_of(ready[name]), shape_of(ready[name])
        start, stop = stop, stop + dtype.itemsize * math.prod(shape)
        places[name] = Location(dtype, shape, start, stop)
    with atomic.atomic_write(path, private=True) as draft:
        draft.write(header_bytes(metadata, places))
        for name in places:
            for piece in byte_chunks(ready[name]):
                draft.write(piece)


def read(path: PathLike, rows: Collection[str] = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a file: its header and arrays, checked against the digest.

    The matrices named in ``rows`` are returned as lists of rows, each a separate array.
    """
    want = "a headstart file"
    source = atomic.file_path(path, want)
    with atomic.explain_read_errors(source, want), atomic.open_regular(source, want) as file:
        metadata, entries, start = read_header(file)
        if metadata.get("format") != FORMAT:
            raise FileError(
                f"path {str(source)!r} must be a headstart file; "
                f"it is a safetensors file of another program"
            )
        atomic.check_version(source, metadata.get("version", ""), VERSION, VERSION)
        places = checked_locations(entries, os.fstat(file.fileno()).st_size - start)
        text = metadata.get("header", "")
        hasher = header_digest(metadata["version"] + text)
        tensors: dict[str, Any] = {}
        for name in sorted(places):
            place = places[name]
            hasher.update(array_label(name, place.dtype, place.shape))
            file.seek(start + place.start)
            if name in rows and len(place.shape) == 2 and place.stop > place.start:
                tensors[name] = read_rows(file, place, hasher)
            else:
                tensors[name] = array = np.empty(place.shape, place.dtype)
                atomic.read_exactly(file, array)
                hasher.update(byte_view(array))
        if metadata.get("digest") != hasher.hexdigest():
            raise FileError(
                f"path {str(source)!r} is corrupted: its content does not match its digest"
            )
        header: dict[str, Any] = json.loads(text)
    return header, tensors


def read_rows(file: IO[bytes], place: Location, hasher: hashlib.blake2b) -> list[AnyArray]:
    """The rows of a matrix as separate arrays; a block of them is read at a time."""
    count, width = place.shape
    at_once = max(1, BLOCK // max(1, width * place.dtype.itemsize))
    block = np.empty((min(count, at_once), width), place.dtype)
    rows: list[AnyArray] = []
    while len(rows) < count:
        part = block[: count - len(rows)]
        atomic.read_exactly(file, part)
        hasher.update(byte_view(part))
        rows += [row.copy() for row in part]
    return rows


def read_header(file: IO[bytes]) -> tuple[dict[str, str], dict[str, Any], int]:
    """A safetensors file's metadata, the places of its arrays, and where the arrays start."""
    room = os.fstat(file.fileno()).st_size - 8
    length = int.from_bytes(file.read(8), "little")
    if length > room:
        raise ValueError("it ends too early")
    entries = json.loads(file.read(length).decode())
    if not isinstance(entries, dict):
        raise ValueError("it has no header")
    metadata = entries.pop("__metadata__", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("its metadata is not text")
    return metadata, entries, 8 + length


def checked_locations(entries: Mapping[str, Any], room: int) -> dict[str, Location]:
    """Where each array is, if they fill the file from end to end and each has its right size."""
    places: dict[str, Location] = {}
    for name, entry in entries.items():
        dtype, shape, (start, stop) = DTYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, start, stop)):
            raise ValueError(f"array {name!r} has no place")
        if stop - start != dtype.itemsize * math.prod(shape):
            raise ValueError(f"array {name!r} has another size than its shape")
        places[name] = Location(dtype, tuple(shape), start, stop)
    end = 0
    for place in sorted(places.values(), key=lambda place: (place.start, place.stop)):
        if place.start != end:
            raise ValueError("its arrays do not follow each other")
        end = place.stop
    if end != room:
        raise ValueError(f"{end} bytes of arrays are announced, {room} are there")
    return places


def header_bytes(metadata: Mapping[str, str], places: Mapping[str, Location]) -> bytes:
    """How a safetensors file begins: the length of the header, and the header as JSON."""
    entries: dict[str, Any] = {"__metadata__": metadata} | {
        name: {
            "dtype": DTYPE_NAMES[place.dtype],
            "shape": place.shape,
            "data_offsets": (place.start, place.stop),
        }
        for name, place in places.items()
    }
    text = pad_json(json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode())
    return len(text).to_bytes(8, "little") + text


def checked_tensor(
    name: str, tensor: AnyArray | Sequence[AnyArray]
) -> AnyArray | Sequence[AnyArray]:
    """An array in one piece, or rows of one length and type, if a file can hold them."""
    if isinstance(tensor, np.ndarray):
        tensor = np.ascontiguousarray(tensor)
    elif len({(row.dtype, row.shape) for row in tensor}) > 1:
        raise checks.invalid(name, "rows of one length and type", tensor)
    if type_of(tensor) not in DTYPE_NAMES:
        raise checks.invalid(name, "numbers of a type that a file can hold", tensor)
    return tensor


def type_of(tensor: AnyArray | Sequence[AnyArray]) -> np.dtype[Any]:
    """The type of an array, or of the matrix with these rows, as it will be in the file."""
    if isinstance(tensor, np.ndarray):
        return little_endian(tensor.dtype)
    return little_endian(tensor[0].dtype) if tensor else np.dtype("<f8")


def little_endian(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The same numbers with their lowest byte first, on every machine.

    >>> little_endian(np.dtype(">f8")).str
    '<f8'
    """
    return dtype.newbyteorder("<")


def shape_of(tensor: AnyArray | Sequence[AnyArray]) -> tuple[int, ...]:
    """The shape of an array, or of the matrix with these rows.

    >>> shape_of([np.zeros(3), np.ones(3)])
    (2, 3)
    """
    if isinstance(tensor, np.ndarray):
        return tensor.shape
    return len(tensor), len(tensor[0]) if tensor else 0


def byte_chunks(tensor: AnyArray | Sequence[AnyArray]) -> Iterator[memoryview]:
    """The bytes of an array or of rows, where they are: nothing is copied."""
    for part in [tensor] if isinstance(tensor, np.ndarray) else tensor:
        yield byte_view(part.astype(little_endian(part.dtype), copy=False))


def pad_json(text: bytes) -> bytes:
    """Text with spaces after it, so that numbers that follow lie at multiples of eight bytes.

    >>> pad_json(b"[1, 2]")
    b'[1, 2]  '
    """
    return text + b" " * (-len(text) % 8)


def digest(text: str, tensors: Tensors) -> str:
    """A hash of the header and of every array with its name, type and shape."""
    hasher = header_digest(text)
    for name in sorted(tensors):
        tensor = tensors[name]
        hasher.update(array_label(name, type_of(tensor), shape_of(tensor)))
        for piece in byte_chunks(tensor):
            hasher.update(piece)
    return hasher.hexdigest()


def header_digest(text: str) -> hashlib.blake2b:
    """The hash of the header, to which the arrays are to be added."""
    return hashlib.blake2b(text.encode(), digest_size=16)


def array_label(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What is hashed of an array before its content."""
    return f"\n{name} {dtype.str} {shape}\n".encode()
