"""Resealed nonsense: files that say what no bandit can, under a digest that is right.

A file's digest has no key, so anyone can make it right again. :func:`bandit_cases` takes a saved
bandit apart and changes one thing at a time in every way that comes to mind, :func:`archive_cases`
does so with a file of evidence. :func:`attempt` loads the outcome and says whether it was refused
by a ``FileError`` or works; anything else is an ``AssertionError``. Where a state has other numbers
that are finite and of the right shapes, it need only load or be refused.

``python -m tests.resealed`` goes through all cases of several bandits, in bounded memory.
"""

import argparse
import copy
import hashlib
import json
import math
import random
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save as as_safetensors

import headstart as hs
from headstart.storage import tensor_file
from headstart.storage.archive import layout

DIM = 3

#: What a value of the header is replaced by.
VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    0.5,
    -5.0,
    math.inf,
    -math.inf,
    math.nan,
    "",
    "nonsense",
    "0x" + "f" * 5000,
    "-1",
    True,
    False,
    [],
    [None],
    {},
    {"array": [[1.0], [1.0, 2.0]]},
    {"kind": "headstart.UCB"},
    {"kind": "headstart.UCB", "settings": {}},
    {"kind": "headstart.Mixture", "settings": {"groups": 10**9}},
    {"tuple": [{}]},
    10**9,
    2**63,
    10**400,
)
#: A setting may be any number that a user may pass, however odd, so these are kept apart.
LARGE = (10**9, 2**63)


class Case(NamedTuple):
    """A file with one thing changed: what that is, and how to write it."""

    what: str
    write: Callable[[Path], None]
    # Finite numbers of the right shapes in a state: nothing tells them from those of other tasks.
    plausible: bool = False


def bandit(transfer: Any = None, rule: Any = None, *, tasks: int = 7, **setup: Any) -> hs.Bandit:
    """A bandit in the middle of everything."""
    found = hs.Bandit(DIM, transfer, rule, seed=1, **setup)
    rng = np.random.default_rng(0)
    for id in range(tasks):
        task = found.task(f"täsk {id}")
        for at in range(9):
            choice = task.choose(rng.standard_normal((4, DIM)))
            if at % 4:
                task.learn(choice, float(rng.standard_normal()))
        if id % 2:
            task.close()
    found.task("never used")
    return found


SETUPS: dict[str, Callable[[], hs.Bandit]] = {
    "default": bandit,
    "mixture": lambda: bandit(hs.Mixture(2)),
    "subspace": lambda: bandit(hs.Subspace(pca="ccipca", rank=1, warmup=2, min_rounds=1)),
    "exact": lambda: bandit(hs.Subspace(warmup=2), hs.Thompson(), noise=0.5),
    "bias": lambda: bandit(hs.Bias(), half_life=20.0),
    "forced": lambda: bandit(hs.Gaussian(warmup=2), hs.Forced(4, hs.Thompson())),
    "oracle": lambda: bandit(hs.Oracle.gaussian(np.ones(DIM), np.eye(DIM)), intercept=False),
    "empty": lambda: hs.Bandit(DIM, seed=1),
}


def bandit_cases(source: Path) -> Iterator[Case]:
    """Every case of a saved bandit."""
    header, tensors = tensor_file.read(source)

    def resealed(what: str, header: Any, tensors: dict[str, Any]) -> Case:
        def write(path: Path) -> None:
            text = header if isinstance(header, str) else json.dumps(header, ensure_ascii=False)
            path.write_bytes(sealed(text, tensors))

        return Case(what, write)

    for place in places(header):
        old = at(header, place)
        several = [value for value in VALUES if not same(value, old)]
        if place and place[0] in ("rule", "transfer") and len(place) > 1:
            several = [value for value in several if value not in LARGE]
        for value in several:
            changed = put(header, place, value)
            yield resealed(f"header {dotted(place)} = {short(value)}", changed, tensors)
        if place:
            yield resealed(f"header {dotted(place)} left out", put(header, place, GONE), tensors)
        if isinstance(old, list) and old:
            for what, value in (
                ("cut", old[:-1]),
                ("twice", old + old),
                ("longer", [*old, old[-1]]),
                ("with another", [*old, "nobody"]),
                ("turned round", old[::-1]),
            ):
                changed = put(header, place, value)
                yield resealed(f"header {dotted(place)} {what}", changed, tensors)
    for depth in (100, 400, 100_000):
        for place in ("state", "cached_prior", "belief_outlines", "transfer", "tasks"):
            text = json.dumps(header | {place: "HERE"}, ensure_ascii=False)
            for start, stop in (('{"kind":"tuple","parts":{"0":', "}}"), ("[", "]")):
                nested = text.replace('"HERE"', start * depth + '"none"' + stop * depth)
                yield resealed(f"header {place} {depth} deep", nested, tensors)
    for name, array in tensors.items():
        for what, other in changes(array):
            finite = other.shape == array.shape and other.dtype == array.dtype
            if name != "pending.context" or "-1000000000.0" not in what:  # a user may pass these
                case = resealed(f"array {name} {what}", header, tensors | {name: other})
                inside = name.startswith(("state.", "base."))
                yield case._replace(plausible=inside and finite and np.isfinite(other).all())
        rest = {key: value for key, value in tensors.items() if key != name}
        yield resealed(f"array {name} left out", header, rest)


def changes(array: Any) -> Iterator[tuple[str, Any]]:
    """An array in every wrong way."""
    for value in (math.nan, math.inf, -math.inf, -1.0, -1e9, 1e300):
        if array.size and (array.dtype.kind == "f" or math.isfinite(value)):
            some = array.copy()
            with np.errstate(all="ignore"):
                kind = array.dtype.kind
                whole = (kind in "iu" and abs(value) > 1e9) or (kind == "u" and value < 0)
                some.flat[array.size // 2] = np.iinfo(array.dtype).max if whole else value
                yield f"with {value}", some
                yield f"full of {value}", np.full_like(some, some.flat[array.size // 2])
    for kind in (np.float32, np.float16, np.int64, np.uint8, np.bool_, np.complex64):
        if array.dtype != kind:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                yield f"as {kind.__name__}", array.astype(kind)
    yield "with an axis more", array[None]
    yield "empty", array[:0] if array.ndim else np.zeros(0, array.dtype)
    yield "of many empty rows", np.zeros((2**40, 0), array.dtype)
    if array.ndim:
        yield "flat", array.reshape(-1) if array.ndim > 1 else array[:, None]
        yield "cut", array[:-1]
        yield "longer", np.concatenate([array, array])
        yield "narrower", array[..., :-1]
        yield "wider", np.concatenate([array, array], -1)
        yield "negative", -array if array.dtype.kind in "fi" else ~array


GONE = object()


def places(value: Any, start: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to every value within a header; of lists, only the first and the last entry."""
    yield start
    if isinstance(value, dict):
        for key, child in value.items():
            yield from places(child, (*start, key))
    elif isinstance(value, list):
        for place in sorted({0, len(value) - 1}) if value else ():
            yield from places(value[place], (*start, place))


def at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


def put(header: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy with one value changed, or gone."""
    if not place:
        return value
    changed = copy.copy(header)
    if value is GONE and len(place) == 1:
        del changed[place[0]]
    else:
        changed[place[0]] = put(header[place[0]], place[1:], value)
    return changed


def same(left: Any, right: Any) -> bool:
    return type(left) is type(right) and left == right


def dotted(place: tuple[Any, ...]) -> str:
    return ".".join(map(str, place)) or "itself"


def short(value: Any) -> str:
    text = "10**400" if isinstance(value, int) and value.bit_length() > 999 else repr(value)
    return text if len(text) < 50 else text[:47] + "…"


def sealed(text: str, tensors: dict[str, Any]) -> bytes:
    """A file with this header and these arrays, and the right digest."""
    ready = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    version = str(tensor_file.VERSION)
    hashed = hashlib.blake2b((version + text).encode(), digest_size=16)
    for name in sorted(ready):
        array = ready[name]
        hashed.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        hashed.update(array.tobytes())
    metadata = {"format": "headstart", "version": version, "header": text}
    return bytes(as_safetensors(ready, metadata | {"digest": hashed.hexdigest()}))


def evidence(path: Path, tasks: int = 5, forced: bool = False) -> None:
    """A small file of evidence."""
    rng = np.random.default_rng(0)
    whole = hs.Evidence.of(rng.standard_normal((tasks, 6, DIM)), rng.standard_normal((tasks, 6)))
    part = hs.Evidence.of(rng.standard_normal((tasks, 1, DIM)), rng.standard_normal((tasks, 1)))
    hs.write_evidence(
        path,
        [([f"täsk {n}" for n in range(tasks)], whole.replace(forced=part) if forced else whole)],
        DIM,
    )


class Parts(NamedTuple):
    """A file of evidence with one block, taken apart."""

    header: Any
    rows: Any
    ids: Any
    hashes: bytes
    places: Any
    block: tuple[int, int, int] | None = None  # start, tasks, text, where they are not right
    counts: tuple[int, int] | None = None

    @classmethod
    def of(cls, source: Path) -> "Parts":
        with hs.EvidenceFile(source) as file:
            (ids, rows), *_ = file.blocks()
            file.find(ids)
            hashes, order = file._lookup
            header = {"version": "1"} | file._layout._asdict()
        return cls(header, rows.copy(), ids, hashes.tobytes(), order.copy())

    def sealed(self) -> bytes:
        """The file, all of its digests right."""
        text = tensor_file.pad_json(json.dumps(self.header).encode())
        opening = layout.MAGIC + len(text).to_bytes(8, "little") + text
        rows = np.ascontiguousarray(self.rows).tobytes()
        ids = tensor_file.pad_json(json.dumps(self.ids, ensure_ascii=False).encode())
        found = self.hashes + np.ascontiguousarray(self.places).tobytes()
        block = self.block or (len(opening), len(self.rows), len(ids))
        index = layout.INDEX.pack(*block, layout.digest(rows), layout.digest(ids))
        counts = layout.COUNTS.pack(*(self.counts or (1, len(self.rows))), layout.digest(found))
        end = index + counts + layout.digest(opening, index, counts) + layout.END
        return opening + rows + ids + found + end


def archive_cases(source: Path) -> Iterator[Case]:
    """Every case of a file of evidence."""
    parts = Parts.of(source)

    def resealed(what: str, **change: Any) -> Case:
        return Case(what, lambda path: path.write_bytes(parts._replace(**change).sealed()))

    for place in places(parts.header):
        for value in VALUES:
            if not same(value, at(parts.header, place)):
                changed = put(parts.header, place, value)
                yield resealed(f"header {dotted(place)} = {short(value)}", header=changed)
        if place:
            yield resealed(f"header without {place[0]}", header=put(parts.header, place, GONE))
    for place in places(parts.ids):
        for value in (*VALUES, "x" * 1001):
            changed = put(parts.ids, place, value)
            yield resealed(f"ids {dotted(place)} = {short(value)}", ids=changed)
    for what, rows in changes(parts.rows):
        yield resealed(f"rows {what}", rows=rows)
    for column in range(parts.rows.shape[1]):
        for value in (math.nan, math.inf, -1.0):
            rows = parts.rows.copy()
            rows[0, column] = value
            yield resealed(f"rows with {value} in column {column}", rows=rows)
    for what, order in changes(parts.places):
        yield resealed(f"places {what}", places=order)
    yield resealed("hashes turned round", hashes=parts.hashes[::-1])
    yield resealed("hashes alike", hashes=bytes(len(parts.hashes)))
    for number in (0, 1, 2**31, 2**62, 2**64 - 1):
        tasks, start = len(parts.rows), 100
        for block in ((number, tasks, 8), (start, number, 8), (start, tasks, number)):
            yield resealed(f"block {block}", block=block)
        for counts in ((number, tasks), (1, number), (number, number)):
            yield resealed(f"counts {counts}", counts=counts)


def use_bandit(path: Path) -> None:
    """Load a bandit and do everything with it."""
    found = hs.load(path)
    rng = np.random.default_rng(0)
    repr(found)
    for id in [*list(found)[:4], *list(found)[-2:], "someone new"]:
        task = found.task(id)
        for _ in range(3):
            choice = task.choose(rng.standard_normal((4, found.dim)))
            task.learn(choice.token, float(rng.standard_normal()))
        task.predict(rng.standard_normal((2, found.dim)))
        repr(task.belief)
        task.close()
        task.choose(rng.standard_normal((4, found.dim)))
    found.choose_many(["someone new", "another"], rng.standard_normal((2, 4, found.dim)))
    found.report()
    found.save(path.with_name("again"))
    hs.load(path.with_name("again"))


def use_archive(path: Path) -> None:
    """Read a file of evidence in every way."""
    with hs.EvidenceFile(path) as file:
        for place, name in enumerate(file):
            file.at(place)
            if name in file:
                file[name]
        for _, found in file.items():
            hs.Evidence(found.gram, found.moment, found.rounds, found.squares)
    for _ in hs.read_evidence(path, batch=2):
        pass
    hs.merge_evidence([path, path], path.with_name("merged"))


def attempt(case: Case, path: Path, use: Callable[[Path], None]) -> str:
    """``"refused"`` or ``"works"``; an AssertionError for anything else."""
    case.write(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            (hs.load if case.plausible else use)(path)
        except hs.FileError as error:
            if str(path) not in str(error):
                raise AssertionError(f"{case.what}: {error} does not name the file") from error
            return "refused"
        except Exception as error:
            kind = type(error).__name__
            raise AssertionError(f"{case.what}: {kind}: {error}") from error
    return "works"


def main() -> None:
    """Go through all cases, or some at random, and count what became of them."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=10**9, help="of each file")
    parser.add_argument("--only", choices=SETUPS)
    parser.add_argument("--memory", type=float, default=1.5, help="GiB beyond those in use")
    asked = parser.parse_args()
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + int(asked.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    failed = 0
    print(f"seed {asked.seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file")
        every = [*SETUPS.items(), ("evidence", None), ("forced evidence", None)]
        for name, make in every if asked.only is None else [(asked.only, SETUPS[asked.only])]:
            source = Path(folder, "source")
            if make is None:
                evidence(source, forced=name.startswith("forced"))
                cases, use = list(archive_cases(source)), use_archive
            else:
                make().save(source)
                cases, use = list(bandit_cases(source)), use_bandit
            random.Random(asked.seed).shuffle(cases)
            counts = {"refused": 0, "works": 0, "failed": 0}
            start = time.monotonic()
            for case in cases[: asked.cases]:
                try:
                    counts[attempt(case, path, use)] += 1
                except AssertionError as error:
                    counts["failed"] += 1
                    print(f"  {error}")
            failed += counts["failed"]
            print(f"{name}: {counts} in {time.monotonic() - start:.0f} s", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
