"""A bandit's state as a file's content, and back.

Everything is stored as it is: packed evidence, the transfer's state, and the beliefs of live tasks
with their roots and the rounds not yet added to their evidence, so that a loaded bandit continues
exactly, Thompson draws included.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit import restored, settings
from headstart.bandit.ledger.entries import Entry
from headstart.bandit.ledger.ledger import Base, Ledger
from headstart.errors import FileError, HeadstartError, InputError
from headstart.features.contexts import Features, Sizes
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.prior import Prior
from headstart.records import Array, flatten, outline, restore
from headstart.rules import Rule
from headstart.storage import atomic, tensor_file
from headstart.subspace import Moments
from headstart.transfer import Transfer

__all__ = ["Content", "Saved", "pack", "unpack", "write"]


class Saved(NamedTuple):
    """What makes up a bandit."""

    ledger: Ledger
    rule: Rule
    features: Features
    sizes: Sizes
    offers: int
    seed: int
    origin: bytes
    memory: int
    frozen: bool


class Content(NamedTuple):
    """What goes into a file."""

    header: dict[str, Any]
    tensors: dict[str, npt.NDArray[Any] | list[npt.NDArray[Any]]]


def write(path: tensor_file.PathLike, content: Content) -> None:
    """Write it, atomically."""
    tensor_file.write(path, content.header, content.tensors)


def pack(saved: Saved) -> Content:
    """A bandit's books and settings, as a header and arrays."""
    ledger = saved.ledger
    entries = ledger.entries
    priors: dict[int, Prior] = {}
    beliefs = [(name, entry.belief) for name, entry in ledger.live.items() if entry.belief]
    for _, belief in beliefs:
        start = belief.split_prior()[1]
        priors.setdefault(id(start), start)
    places = {key: place for place, key in enumerate(priors)}
    header = {
        "kind": "bandit",
        "transfer": settings.encode(ledger.transfer),
        "rule": settings.encode(saved.rule),
        "noise": ledger.noise,
        "features": saved.features._asdict(),
        "offers": saved.offers,
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
        "told_offers": ledger.offers,
        "first_number": ledger.first_number,
        "tasks": list(entries),
        "closed": list(ledger.closed),
        "returned": list(ledger.returned),
        "owing": list(ledger.owing),
        "unfolded": list(ledger.unfolded),
        "learned": {name: hex(entry.learned) for name, entry in entries.items() if entry.learned},
        "live": [name for name, _ in beliefs],
        "prior_of": [places[id(belief.split_prior()[1])] for _, belief in beliefs],
        "prior_kinds": [outline(prior) for prior in priors.values()],
        "belief_kinds": [outline(belief.split_prior()[0]) for _, belief in beliefs],
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
    tensors["sizes"] = np.vstack([saved.sizes.seen, saved.sizes.logs, saved.sizes.origin])
    tensors["owing"] = [evidence.pack() for evidence in ledger.owing.values()]
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
        for name, array in flatten(belief.split_prior()[0]).items():
            tensors[f"belief.{place}.{name}"] = array
    return Content(header, tensors)


def unpack(path: tensor_file.PathLike, transfer: Transfer | None, rule: Rule | None) -> Saved:
    """The bandit that a file holds."""
    header, tensors = tensor_file.read(path, rows={"evidence", "owing"})
    kind = header.get("kind") if isinstance(header, dict) else type(header).__name__
    if kind != "bandit":
        raise FileError(f"path {str(path)!r} must hold a bandit; it holds {checks.describe(kind)}")
    try:
        return checked(header, tensors, transfer, rule)
    except FileError as error:
        raise FileError(f"path {str(path)!r}: {error}") from None
    except HeadstartError as error:
        raise FileError(f"path {str(path)!r} does not hold a bandit as it must: {error}") from error
    except atomic.DECODING_ERRORS as error:
        raise FileError(
            f"path {str(path)!r} does not fit the transfer or rule it is loaded with, or lacks "
            f"something ({type(error).__name__}: {error})"
        ) from error


def checked(
    header: dict[str, Any], tensors: dict[str, Any], transfer: Transfer | None, rule: Rule | None
) -> Saved:
    """The bandit that a header and arrays describe, if one can be like that."""
    if transfer is None:
        transfer = settings.decode(header["transfer"], "transfer")
    if rule is None:
        rule = settings.decode(header["rule"], "rule")
    if not isinstance(transfer, Transfer):
        raise checks.refuse("transfer", "a Transfer", transfer)
    if not isinstance(rule, Rule):
        raise checks.refuse("rule", "a Rule", rule)
    features = restored.checked_features(header["features"])
    restored.check_size(features.dim, transfer, tensors.values())
    noise, half_life = header["noise"], header["half_life"]
    ledger = Ledger(
        features.dim,
        transfer,
        None if noise is None else checks.positive("noise", noise),
        checks.integer("capacity", header["capacity"], 1),
        None if half_life is None else checks.positive("half_life", half_life),
    )
    rule.check_bandit(transfer.prior(ledger.state), transfer, ledger.noise, ledger.half_life)
    memory = checks.integer("memory", header["memory"], 1)
    fill(ledger, header, tensors, memory)
    return Saved(
        ledger,
        rule,
        features,
        restored.sizes_of(tensors["sizes"], features.given),
        restored.count("offers", header["offers"]),
        restored.seed_of(header["seed"]),
        restored.key_of(header["origin"]),
        memory,
        restored.flag("frozen", header["frozen"]),
    )


def fill(ledger: Ledger, header: dict[str, Any], tensors: dict[str, Any], memory: int) -> None:
    """Write a file's content into empty books, which keep its rows of evidence as they are."""
    parts = sections(tensors)
    fill_entries(ledger, header, tensors, memory)
    known = (Evidence, Prior, Belief, Moments)  # what a state of one's own may well hold
    first = ledger.state
    ledger.state = restore(header["state"], first, parts.get("state", {}), known)
    ledger.base = restore(header["base"], first, parts.get("base", {}), (*known, Base))
    restored.check_base(ledger.base, ledger.dim)
    for state in (ledger.state, *([] if ledger.base is None else [ledger.base.state])):
        restored.check_state(ledger.transfer, state, first, ledger.dim)
    ledger.stale = restored.flag("stale", header["stale"])
    for name in ("reversals", "first_number", "rewards", "cached_at"):
        setattr(ledger, name, restored.count(name, header[name]))
    ledger.offers = restored.count("told_offers", header["told_offers"])
    ledger.epoch = checks.integer("epoch", header["epoch"], 0, 2**64 - 1)
    if sum(entry.rewards for entry in ledger.entries.values()) > ledger.rewards:
        raise InputError("rewards must be as many as all tasks have had; got fewer")
    # Some of these may be deleted by now.
    ledger.cached_with = tuple(restored.names("cached_with", header["cached_with"]))
    own = [] if ledger.transfer.fixed_layout else [first, ledger.state]
    templates: list[Any] = [ledger.transfer.prior(state) for state in own]
    templates += [prior.belief() for prior in templates]
    kinds = (Prior, MixturePrior)
    ledger.cached_prior = restore(header["cached"], templates, parts.get("cached", {}), kinds)
    if ledger.cached_prior is not None:
        restored.check_prior("cached", ledger.cached_prior, ledger.dim)
    fill_live(ledger, header, parts, templates)


def fill_entries(
    ledger: Ledger, header: dict[str, Any], tensors: dict[str, Any], memory: int
) -> None:
    """Every task, as it is when it is idle."""
    tasks = restored.names("tasks", header["tasks"])
    columns = {name: tensors[name] for name in ("number", "base", "start", "rewards")}
    restored.check_evidence(tensors["evidence"], tasks, ledger.dim, ledger.transfer.keeps_forced)
    learned = restored.marks(header["learned"], dict.fromkeys(tasks))
    restored.check_numbers(columns, learned, tasks, memory)
    numbers = zip(*(column.tolist() for column in columns.values()), strict=True)
    epochs = restored.epochs(tensors["epoch"], len(tasks))
    others = restored.windows(header["others"], dict.fromkeys(tasks), memory)
    shared: dict[int, int] = {}  # one number for all tasks takes less memory
    for name, row, (number, base, start, rewards), epoch in zip(
        tasks, tensors["evidence"], numbers, epochs, strict=True
    ):
        entry = Entry(row, number, shared.setdefault(epoch, epoch))
        entry.base, entry.start, entry.rewards = base, start, rewards
        entry.learned = learned.get(name, 0)
        entry.others = others.get(name, ())
        ledger.entries[name] = entry
    for name in restored.names("closed", header["closed"], ledger.entries):
        ledger.closed[name] = None
        ledger.entries[name].closed = True
    ledger.returned = dict.fromkeys(restored.names("returned", header["returned"], ledger.entries))
    owing = restored.names("owing", header["owing"])
    restored.check_evidence(tensors["owing"], owing, ledger.dim, ledger.transfer.keeps_forced)
    ledger.owing = {
        name: Evidence.unpack(row, ledger.dim)
        for name, row in zip(owing, tensors["owing"], strict=True)
    }
    ledger.unfolded = dict.fromkeys(restored.names("unfolded", header["unfolded"], ledger.closed))


def fill_live(
    ledger: Ledger, header: dict[str, Any], parts: dict[str, Any], templates: list[Any]
) -> None:
    """The beliefs of live tasks, and their rounds that are not yet in their evidence.

    ``templates`` are priors and beliefs of a user's own kind, if there are any.
    """
    live = restored.names("live", header["live"], ledger.entries)
    if len(live) > ledger.capacity:
        raise checks.refuse("live", f"up to {ledger.capacity} tasks", live)
    unsure = set(restored.names("unsure", header["unsure"], dict.fromkeys(live)))
    kinds = header["prior_kinds"]
    priors = [
        restore(shape, templates, parts.get(f"prior.{place}", {}), (Prior,))
        for place, shape in enumerate(restored.listed("prior_kinds", kinds, len(kinds)))
    ]
    several = {
        name: restored.listed(name, header[name], len(live))
        for name in ("belief_kinds", "prior_of", "built")
    }
    counts = restored.listed("pending", header["pending"], len(live))
    total = sum(restored.count("pending", each) for each in counts)
    pending = restored.rounds(parts.get("pending", {}), total, ledger.dim)
    for place, name in enumerate(live):
        entry = ledger.entries[name]
        shape, arrays = several["belief_kinds"][place], parts.get(f"belief.{place}", {})
        belief = restore(shape, templates, arrays, (Belief, MixtureBelief))
        prior = priors[checks.integer("prior_of", several["prior_of"][place], 0, len(priors) - 1)]
        restored.check_belief(f"belief of task {name!r}", belief, prior, ledger.dim)
        entry.belief = belief.with_prior(prior)
        entry.evidence = ledger.evidence(entry)
        entry.pending = tuple(itertools.islice(pending, counts[place]))
        entry.unsure = name in unsure
        entry.built = restored.count("built", several["built"][place])
        entry.packed = None
        ledger.live[name] = entry


def packed(entry: Entry) -> Array:
    """A task's evidence without the rounds that are pending, packed."""
    if entry.evidence is not None:
        return entry.evidence.pack()
    assert entry.packed is not None
    return entry.packed


def sections(tensors: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The arrays of each part of a bandit, by their names within it.

    >>> sections({"number": 1, "state.count": 2, "belief.0.mean": 3, "belief.1.mean": 4})
    {'state': {'count': 2}, 'belief.0': {'mean': 3}, 'belief.1': {'mean': 4}}
    """
    found: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        part, dot, rest = name.partition(".")
        if part in ("belief", "prior"):
            place, dot, rest = rest.partition(".")
            part = f"{part}.{place}"
        if dot:
            found.setdefault(part, {})[rest] = array
    return found
