"""A bandit's state as a file's content, and back.

Everything is stored as it is: packed evidence, the transfer's state, and the beliefs of live tasks
with their roots and the rounds not yet added to their evidence, so that a loaded bandit continues
exactly, Thompson draws included.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import files, settings
from headstart.belief import Belief
from headstart.contexts import Features
from headstart.entry import Believed, Entry, Round
from headstart.errors import FileError, HeadstartError
from headstart.evidence import Evidence
from headstart.ledger import Base, Ledger
from headstart.mixture import MixtureBelief, MixturePrior
from headstart.prior import Prior
from headstart.records import Array, flatten, outline, restore
from headstart.rules import Rule
from headstart.subspace import Moments
from headstart.transfer import Transfer

__all__ = ["Content", "Saved", "pack", "unpack", "write"]


class Saved(NamedTuple):
    """What makes up a bandit."""

    ledger: Ledger
    rule: Rule
    features: Features
    seed: int
    origin: bytes
    memory: int
    frozen: bool


class Content(NamedTuple):
    """What goes into a file."""

    header: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any] | list[npt.NDArray[Any]]]


def write(path: files.PathLike, content: Content) -> None:
    """Write it, atomically."""
    files.write(path, content.header, content.tensors)


def pack(saved: Saved) -> Content:
    """A bandit's books and settings, as a header and arrays."""
    ledger = saved.ledger
    entries = ledger.entries
    priors: dict[int, Prior] = {}
    beliefs = [(name, entry.belief) for name, entry in ledger.live.items() if entry.belief]
    for _, belief in beliefs:
        start = apart(belief)[1]
        priors.setdefault(id(start), start)
    places = {key: place for place, key in enumerate(priors)}
    header = {
        "kind": "bandit",
        "transfer": settings.encode(ledger.transfer),
        "rule": settings.encode(saved.rule),
        "noise": ledger.noise,
        "features": saved.features._asdict(),
        "seed": str(saved.seed),
        "origin": saved.origin.hex(),
        "memory": saved.memory,
        "frozen": saved.frozen,
        "state": outline(ledger.state),
        "base": outline(ledger.base),
        "capacity": ledger.capacity,
        "half_life": ledger.half_life,
        "rewards": ledger.rewards,
        "cached_at": ledger.cached_at,
        "cached_with": sorted(ledger.cached_with),
        "cached": outline(ledger.cached_prior),
        "built": [entries[name].built for name, _ in beliefs],
        "stale": ledger.stale,
        "reversals": ledger.reversals,
        "first_number": ledger.first_number,
        "tasks": list(entries),
        "closed": list(ledger.closed),
        "unfolded": list(ledger.unfolded),
        "learned": {name: hex(entry.learned) for name, entry in entries.items() if entry.learned},
        "live": [name for name, _ in beliefs],
        "prior_of": [places[id(apart(belief)[1])] for _, belief in beliefs],
        "prior_kinds": [outline(prior) for prior in priors.values()],
        "belief_kinds": [outline(apart(belief)[0]) for _, belief in beliefs],
        "unsure": [name for name, _ in beliefs if entries[name].unsure],
        "pending": [len(entries[name].pending) for name, _ in beliefs],
        "epoch": ledger.epoch,
        "others": {
            name: [(epoch, base, hex(learned)) for epoch, base, learned in entry.others]
            for name, entry in entries.items()
            if entry.others
        },
    }
    tensors: dict[str, npt.NDArray[Any] | list[npt.NDArray[Any]]] = {
        name: np.fromiter((getattr(entry, name) for entry in entries.values()), np.int64)
        for name in ("base", "number", "start", "rewards")
    }
    tensors["epoch"] = np.fromiter((entry.epoch for entry in entries.values()), np.uint64)
    # The rows as they lie in the books, where packed evidence is replaced but never written to: so
    # they may be written to disk later, and are not copied.
    tensors["evidence"] = [packed(entry) for entry in entries.values()]
    pending = [round for name, _ in beliefs for round in entries[name].pending]
    if pending:
        columns = zip(("context", "reward", "forced"), zip(*pending, strict=True), strict=True)
        tensors |= {f"pending.{name}": np.array(column) for name, column in columns}
    for name, array in flatten(ledger.state).items():
        tensors[f"state.{name}"] = array
    for name, array in flatten(ledger.base).items():
        tensors[f"base.{name}"] = array
    for name, array in flatten(ledger.cached_prior).items():
        tensors[f"cached.{name}"] = array
    for place, prior in enumerate(priors.values()):
        for name, array in flatten(prior).items():
            tensors[f"prior.{place}.{name}"] = array
    for place, (_, belief) in enumerate(beliefs):
        for name, array in flatten(apart(belief)[0]).items():
            tensors[f"belief.{place}.{name}"] = array
    return Content(header, tensors)


def unpack(path: files.PathLike, transfer: Transfer | None, rule: Rule | None) -> Saved:
    """The bandit that a file holds."""
    header, tensors = files.read(path, rows={"evidence"})
    kind = header.get("kind") if isinstance(header, dict) else type(header).__name__
    if kind != "bandit":
        raise FileError(f"path {str(path)!r} must hold a bandit; it holds {kind!r}")
    try:
        if transfer is None:
            transfer = settings.decode(header["transfer"], "transfer")
        if rule is None:
            rule = settings.decode(header["rule"], "rule")
        known: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in header["features"].items()
        }
        features = Features(**known)
        ledger = Ledger(
            features.dim, transfer, header["noise"], header["capacity"], header["half_life"]
        )
        fill(ledger, header, tensors)
        return Saved(
            ledger,
            rule,
            features,
            int(header["seed"]),
            bytes.fromhex(header["origin"]),
            int(header["memory"]),
            bool(header["frozen"]),
        )
    except HeadstartError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FileError(
            f"path {str(path)!r} does not fit the transfer or rule it is loaded with, or lacks "
            f"something ({type(error).__name__}: {error})"
        ) from error


def fill(ledger: Ledger, header: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Write a file's content into empty books, which keep its rows of evidence as they are."""
    known_epochs: dict[int, int] = {}  # one number for all tasks takes less memory
    for place, name in enumerate(header["tasks"]):
        entry = Entry(tensors["evidence"][place], int(tensors["number"][place]))
        entry.base = int(tensors["base"][place])
        entry.start = int(tensors["start"][place])
        entry.rewards = int(tensors["rewards"][place])
        entry.learned = int(header["learned"].get(name, "0x0"), 16)
        if "epoch" in tensors:  # files from before have none
            epoch = int(tensors["epoch"][place])
            entry.epoch = known_epochs.setdefault(epoch, epoch)
            entry.others = tuple(
                (int(epoch), int(base), int(learned, 16))
                for epoch, base, learned in header["others"].get(name, ())
            )
        ledger.entries[name] = entry
    for name in header["closed"]:
        ledger.closed[name] = None
        ledger.entries[name].closed = True
    ledger.unfolded = dict.fromkeys(header["unfolded"])
    known = (Evidence, Prior, Belief, Moments)  # what a state of one's own may well hold
    first = ledger.state
    ledger.state = restore(header["state"], first, section(tensors, "state."), known)
    base = header.get("base", "none")  # files from before have none
    ledger.base = restore(base, first, section(tensors, "base."), (*known, Base))
    ledger.stale, ledger.reversals = header["stale"], header["reversals"]
    ledger.first_number = header["first_number"]
    ledger.epoch = int(header.get("epoch", 0))
    ledger.rewards, ledger.cached_at = header["rewards"], header["cached_at"]
    # Files from before do not tell: all running tasks may be in it.
    ledger.cached_with = tuple(header.get("cached_with", header["live"]))
    kinds = (Prior, MixturePrior)
    ledger.cached_prior = restore(header["cached"], None, section(tensors, "cached."), kinds)
    blank = Prior.isotropic(ledger.dim)
    priors = [
        restore(shape, blank, section(tensors, f"prior.{place}."))
        for place, shape in enumerate(header["prior_kinds"])
    ]
    pending = rounds(section(tensors, "pending."))
    counts = header.get("pending", [0] * len(header["live"]))  # files from before have none
    for place, name in enumerate(header["live"]):
        entry = ledger.entries[name]
        shape = header["belief_kinds"][place]
        arrays = section(tensors, f"belief.{place}.")
        belief = restore(shape, Belief.start(blank), arrays, (MixtureBelief,))
        entry.belief = together(belief, priors[header["prior_of"][place]])
        entry.evidence = ledger.evidence(entry)
        entry.pending = tuple(itertools.islice(pending, counts[place]))
        entry.unsure = name in header["unsure"]
        entry.built = header["built"][place]
        entry.packed = None
        ledger.live[name] = entry


def packed(entry: Entry) -> Array:
    """A task's evidence without the rounds that are pending, packed."""
    if entry.evidence is not None:
        return entry.evidence.pack()
    assert entry.packed is not None
    return entry.packed


def rounds(columns: dict[str, npt.NDArray[Any]]) -> Iterator[Round]:
    """Rounds from their contexts, rewards and marks, if there are any."""
    if columns:
        rewards, forced = columns["reward"].tolist(), columns["forced"].tolist()
        yield from zip(columns["context"], rewards, forced, strict=True)


def apart(belief: Believed) -> tuple[Believed, Prior]:
    """A belief without its prior, which many tasks may share, and the prior."""
    if isinstance(belief, MixtureBelief):
        parts, prior = apart(belief.parts)
        return belief.replace(parts=parts), prior
    return belief.replace(prior=None), belief.prior


def together(belief: Believed, prior: Prior) -> Believed:
    """The inverse of :func:`apart`."""
    if isinstance(belief, MixtureBelief):
        return belief.replace(parts=together(belief.parts, prior))
    return belief.replace(prior=prior)


def section(tensors: dict[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """The arrays whose names start so, without that start."""
    return {
        name.removeprefix(prefix): array
        for name, array in tensors.items()
        if name.startswith(prefix)
    }
