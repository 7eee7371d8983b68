"""Resealed nonsense: files changed on purpose, their digests made to fit.

The digests have no key, so anybody can seal anything. Such a file is refused with a FileError, or
gives something that works; in both cases within little memory.
"""

from __future__ import annotations

import copy
import hashlib
import json
import struct

import numpy as np
from common import ITEMS, KINDS, SHOP, Accepted, Case, saved, saved_with_items, works
from damage import archive, archive_content

import headstart as hs

SHARE = 2.0
LIMIT = 2**30  # bytes beyond what the libraries take

LEAVES = [None, True, False, 0, 1, -1, -5, 7, 2**31, 2**40, 2**63, 2**70, 10**30, 0.5, -0.0, 1e-320]
LEAVES += [1e308, float("nan"), float("inf"), -float("inf"), "", "x", "none", "number", "array"]
LEAVES += ["task 0", "ff", "0x1", "-0x5", "0x" + "f" * 5000, "\ud800", "a" * 2000, [], {}, [[]]]
LEAVES += [[0] * 50, {"kind": "UCB"}, {"kind": "tuple", "parts": {}}, {"foreign": "os.system"}]
LEAVES += [{"array": [[1, 2], [3]]}, {"array": 1e308}, {"kind": "Evidence", "parts": {}}]
NUMBERS = [0.0, -1.0, -5.0, float("nan"), float("inf"), 1e300, -1e300, 1e160, 5e-324, 2.0**62]


def opened(content: bytes) -> tuple[dict, dict, dict]:
    """The metadata, header and arrays of a bandit's file."""
    length = int.from_bytes(content[:8], "little")
    described = json.loads(content[8 : 8 + length])
    metadata = described.pop("__metadata__")
    types = {"F64": "<f8", "I64": "<i8", "BOOL": "|b1", "F32": "<f4", "U8": "|u1", "U64": "<u8"}
    arrays = {}
    for name, known in described.items():
        start, stop = known["data_offsets"]
        raw = content[8 + length + start : 8 + length + stop]
        arrays[name] = np.frombuffer(raw, types[known["dtype"]]).reshape(known["shape"])
    return metadata, json.loads(metadata["header"]), arrays


def sealed(metadata: dict, header: object, arrays: dict, shapes: dict | None = None) -> bytes:
    """The inverse; ``shapes`` are announced in place of the right ones."""
    names = {"<f8": "F64", "<i8": "I64", "|b1": "BOOL", "<f4": "F32", "|u1": "U8", "<c8": "C64"}
    names |= {"<u8": "U64"}
    text = json.dumps(header)
    hashed = hashlib.blake2b((metadata["version"] + text).encode(), digest_size=16)
    shapes = {name: array.shape for name, array in arrays.items()} | (shapes or {})
    for name in sorted(arrays):
        title = f"\n{name} {arrays[name].dtype.str} {tuple(shapes[name])}\n"
        hashed.update(title.encode() + arrays[name].tobytes())
    described = {"__metadata__": metadata | {"header": text, "digest": hashed.hexdigest()}}
    body = b""
    for name in sorted(arrays, key=lambda name: (-arrays[name].itemsize, name)):
        raw, kind = arrays[name].tobytes(), names[arrays[name].dtype.str]
        place = (len(body), len(body) + len(raw))
        described[name] = {"dtype": kind, "shape": shapes[name], "data_offsets": place}
        body += raw
    opening = json.dumps(described, separators=(",", ":")).encode()
    opening += b" " * (-len(opening) % 8)
    return len(opening).to_bytes(8, "little") + opening + body


def places(value: object, path: tuple = ()) -> list[tuple]:
    """The paths to every part of a header."""
    found = [path] if path else []
    if isinstance(value, (dict, list)):
        for key in value if isinstance(value, dict) else range(len(value)):
            found += places(value[key], (*path, key))
    return found


def change_header(header: dict, case: Case) -> str:
    path = case.pick(places(header))
    owner = header
    for key in path[:-1]:
        owner = owner[key]
    key, how = path[-1], case.pick(["leaf"] * 6 + ["drop", "double", "swap"])
    if how == "drop":
        del owner[key]
    elif how == "double" and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(owner[key]))
    elif how == "swap":
        other = header
        for step in case.pick(places(header)):
            other = other[step]
        owner[key] = copy.deepcopy(other)
    else:
        owner[key] = copy.deepcopy(case.pick(LEAVES))
    return f"header{list(path)} {how}"


def change_arrays(arrays: dict, shapes: dict, case: Case) -> str:
    name = case.pick(sorted(arrays))
    array, how = arrays[name].copy(), case.pick(["entry"] * 6 + ["type", "shape", "drop", "lie"])
    if how == "entry" and array.size:
        values = NUMBERS if array.dtype.kind == "f" else [0, 1, -1, -5, 2**62, -(2**62)]
        if array.dtype.kind == "u":
            values = [0, 1, 2**62, 2**64 - 1]
        array.reshape(-1)[int(case.rng.integers(array.size))] = case.pick(values)
    elif how == "type":
        array = array.astype(case.pick(["<f8", "<i8", "|b1", "<f4", "|u1", "<c8"]))
    elif how == "shape":
        flat = array.reshape(-1)
        array = case.pick([flat[:-1], np.append(flat, flat), flat[:0], array[None], array.T.copy()])
    elif how == "drop":
        del arrays[name]
        return f"array {name!r} dropped"
    elif how == "lie":
        shapes[name] = case.pick([(2**40, 0), (0, 2**62), (array.size, 1, 1), (2**20, 2**20)])
        array = array if 0 not in shapes[name] else array.reshape(-1)[:0]
    arrays[name] = array
    return f"array {name!r} {how}"


def attack(case: Case) -> None:
    if case.number % 5 == 1:
        return attack_archive(case)
    with_items = case.number % 4 == 0
    kind = int(case.rng.integers(len(KINDS)))
    file = saved(case.seed, kind)
    if with_items:
        schema, reward = case.pick([ITEMS, SHOP]), case.pick(["number", "binary"])
        file = saved_with_items(case.seed, schema, bool(case.rng.random() < 0.7), reward)
    metadata, header, arrays = opened(file)
    path, shapes, changes = case.folder / "file", {}, []
    if case.number == 0:  # what is not changed must work, or the attack says nothing
        path.write_bytes(sealed(metadata, header, arrays))
        works(hs.load(path), case.folder)
    for _ in range(1 if case.rng.random() < 0.8 else 3):
        if case.rng.random() < 0.6:
            changes.append(change_header(header, case))
        else:
            changes.append(change_arrays(arrays, shapes, case))
    path.write_bytes(sealed(metadata, header, arrays, shapes))
    try:
        bandit = hs.load(path)
    except hs.FileError:
        return
    try:
        works(bandit, case.folder)
        origin = header.get("origin")
        if isinstance(origin, str) and len(origin) < 32:
            raise Accepted("tokens are sealed with a key that is short")
    except Accepted as found:
        raise Accepted(f"{'; '.join(changes)}: {found}") from found


def attack_archive(case: Case) -> None:
    """The same for a file of evidence with one block."""
    content = archive(case.seed, int(case.rng.integers(4)))
    length = int.from_bytes(content[8:16], "little")
    header = json.loads(content[16 : 16 + length])
    start, tasks, text, _, _ = struct.unpack("<QQQ16s16s", content[-56 - 56 : -56])
    width = (header["dim"] * (header["dim"] + 3) // 2 + 2) * (2 if header["forced"] else 1)
    dtype = "<f8" if header["precision"] == "double" else "<f4"
    size = tasks * width * np.dtype(dtype).itemsize
    rows = np.frombuffer(content[start : start + size], dtype).copy()
    ids = json.loads(content[start + size : start + size + text])
    lookup = bytearray(content[start + size + text : -112])
    path, numbers = case.folder / "file", {"tasks": tasks, "text": 0, "blocks": 1, "all": tasks}
    if case.number == 1:
        path.write_bytes(sealed_archive(header, rows.tobytes(), ids, bytes(lookup), numbers))
        archive_content(path)
    what = case.pick(["header", "rows", "ids", "lookup", "index"])
    if what == "header":
        header[case.pick(sorted(header))] = case.pick(LEAVES)
    elif what == "rows":
        rows[int(case.rng.integers(rows.size))] = case.pick(NUMBERS)
    elif what == "ids":
        ids[int(case.rng.integers(len(ids)))] = case.pick([*LEAVES, ids[0], ids[-1]])
    elif what == "lookup":
        lookup[-8:] = case.pick([0, tasks, 2**62, 2**64 - 1]).to_bytes(8, "little")
    elif what == "index":
        numbers[case.pick(sorted(numbers))] += case.pick([1, -1, 2**40, 2**62])
    path.write_bytes(sealed_archive(header, rows.tobytes(), ids, bytes(lookup), numbers))
    try:
        found = archive_content(path)
    except (hs.FileError, hs.TaskError):  # an id that the lookup does not know
        return
    for name, packed, again in found:
        if not isinstance(name, str):
            raise Accepted(f"an archive with other {what}: a task has the id {name!r}")
        if packed != again:
            raise Accepted(f"an archive with other {what}: it has two answers for {name!r}")
        if hs.Evidence.unpack(np.frombuffer(packed), header["dim"]).rounds < 0:
            raise Accepted(f"an archive with other {what}: {name!r} has seen less than nothing")


def sealed_archive(header, rows, ids, lookup, numbers) -> bytes:
    def digest(*parts: bytes) -> bytes:
        return hashlib.blake2b(b"".join(parts), digest_size=16).digest()

    opening = json.dumps(header).encode()
    opening += b" " * (-len(opening) % 8)
    opening = b"hsevid\r\n" + len(opening).to_bytes(8, "little") + opening
    text = json.dumps(ids, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    clip = 2**64 - 1
    lengths = numbers["tasks"] & clip, (len(text) + numbers["text"]) & clip
    index = struct.pack("<QQQ16s16s", len(opening), *lengths, digest(rows), digest(text))
    counts = struct.pack("<QQ16s", numbers["blocks"] & clip, numbers["all"] & clip, digest(lookup))
    whole = digest(opening, index, counts)
    return opening + rows + text + lookup + index + counts + whole + b"\nhsend\r\n"
