"""The state of a bandit as the header and the arrays of a file, and back.

Everything is stored as it is: packed evidence, the transfer's state, and the cached beliefs with
their roots and the rounds that are pending. So a loaded bandit continues exactly, Thompson draws
included.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.bandit.files import encoding, validation
from headstart.bandit.files.items import pack_items, unpack_items
from headstart.bandit.ledger.entries import CachedTask, TaskEntry
from headstart.bandit.ledger.ledger import Ledger
from headstart.bandit.ledger.prior_state import CachedPrior, PriorState, StartingFit
from headstart.bandit.rewards import reward_model
from headstart.bandit.state import BanditState
from headstart.errors import FileError, HeadstartError, InputError
from headstart.features.reader import ContextReader
from headstart.features.transformer import encoder_from_dict
from headstart.model.belief import Belief
from headstart.model.evidence import Evidence
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.model.prior import Prior
from headstart.records import flatten, outline, restore
from headstart.rules import Rule
from headstart.storage import atomic, tensor_file
from headstart.subspace import Moments
from headstart.transfer import Transfer

Header = dict[str, Any]
Tensors = dict[str, npt.NDArray[Any] | list[npt.NDArray[Any]]]

#: The columns of the entries of tasks, and their types.
COLUMNS: dict[str, type[np.generic]] = {
    field.name: field.metadata["column"]
    for field in dataclasses.fields(TaskEntry)
    if "column" in field.metadata
}
TASK_LISTS = ("closed", "unfolded", "reopened")  # of the prior's state
RECORDS = (Evidence, Prior, Belief, Moments)  # that the state of a user's own transfer may hold


def pack(state: BanditState) -> tuple[Header, Tensors]:
    """The header and the arrays of a file."""
    with state.lock:
        ledger, reader = state.ledger, state.reader
        ledger.finish()
        header = {
            "kind": "bandit",
            "transfer": encoding.encode(ledger.prior_state.transfer),
            "rule": encoding.encode(state.rule),
            "noise": None if ledger.rewards.fixed_noise else ledger.prior_state.noise,
            "reward": ledger.rewards.name,
            "minimize": ledger.rewards.minimize,
            "half_life": ledger.half_life,
            "cache_size": ledger.cache.size,
            "choice_window": ledger.choice_window,
            "seed": str(state.seed),
            "origin": state.origin.hex(),
            "frozen": state.is_frozen,
            "features": dataclasses.asdict(reader.features),
            "schema": None if reader.encoder is None else reader.encoder.to_dict(),
            "offer_count": reader.offer_count,
        }
        sizes = reader.sizes
        tensors: Tensors = {"sizes": np.vstack([sizes.counts, sizes.log_sums, sizes.origin])}
        packed = pack_entries(ledger), pack_prior(ledger.prior_state), pack_cache(ledger)
        for part in (*packed, pack_items(ledger.items)):
            header |= part[0]
            tensors |= part[1]
        return header, tensors


def pack_entries(ledger: Ledger) -> tuple[Header, Tensors]:
    """All tasks, without what is cached of them."""
    entries = ledger.entries
    header = {
        "tasks": list(entries),
        "reward_count": entries.reward_count,
        "first_number": entries.first_number,
        "epoch": entries.epoch,
        "learned_bits": {
            name: hex(entry.learned_bits) for name, entry in entries.items() if entry.learned_bits
        },
        "other_windows": {
            name: [(epoch, start, hex(bits)) for epoch, start, bits in entry.other_windows]
            for name, entry in entries.items()
            if entry.other_windows
        },
    }
    tensors: Tensors = {
        f"task.{name}": np.fromiter((getattr(entry, name) for entry in entries.values()), dtype)
        for name, dtype in COLUMNS.items()
    }
    # Packed evidence is replaced but never written to, so that the rows may be written to disk
    # later and need not be copied.
    tensors["evidence"] = [entry.packed_without_pending() for entry in entries.values()]
    return header, tensors


def pack_prior(prior_state: PriorState) -> tuple[Header, Tensors]:
    """The transfer's state, and the cached prior."""
    cached = prior_state.cached or CachedPrior(None, 0, {})
    parts = {"state": prior_state.state, "base": prior_state.base, "cached_prior": cached.prior}
    header = {name: outline(part) for name, part in parts.items()}
    header |= {name: list(getattr(prior_state, name)) for name in TASK_LISTS}
    header |= {
        "removals": list(prior_state.removals),
        "needs_refit": prior_state.needs_refit,
        "removal_count": prior_state.removal_count,
        "cached_reward_count": cached.reward_count,
        "cached_running": sorted(cached.running),
    }
    tensors: Tensors = {"removals": [each.pack() for each in prior_state.removals.values()]}
    for name, part in parts.items():
        tensors |= named_arrays(name, part)
    return header, tensors


def pack_cache(ledger: Ledger) -> tuple[Header, Tensors]:
    """What is cached of tasks; priors that beliefs share are stored once."""
    tasks = [entry.cached for entry in ledger.cache.tasks.values() if entry.cached is not None]
    beliefs = [task.belief.split_prior() for task in tasks]
    priors = {id(prior): prior for _, prior in beliefs}
    places = {key: place for place, key in enumerate(priors)}
    header = {
        "cached_tasks": list(ledger.cache.tasks),
        "cached_alone": [task.alone for task in tasks],
        "cached_other_rewards": [task.other_rewards for task in tasks],
        "cached_pending": [len(task.pending) for task in tasks],
        "cached_prior_places": [places[id(prior)] for _, prior in beliefs],
        "prior_outlines": [outline(prior) for prior in priors.values()],
        "belief_outlines": [outline(belief) for belief, _ in beliefs],
    }
    tensors: Tensors = {}
    pending = [round for task in tasks for round in task.pending]
    if pending:
        columns = zip(("context", "reward", "forced"), zip(*pending, strict=True), strict=True)
        tensors |= {f"pending.{name}": np.array(column) for name, column in columns}
    for place, prior in enumerate(priors.values()):
        tensors |= named_arrays(f"prior.{place}", prior)
    for place, (belief, _) in enumerate(beliefs):
        tensors |= named_arrays(f"belief.{place}", belief)
    return header, tensors


def named_arrays(name: str, part: Any) -> Tensors:
    """The arrays of a nested record, named after it."""
    return {f"{name}.{inner}": array for inner, array in flatten(part).items()}


def unpack(
    path: tensor_file.PathLike, transfer: Transfer | None, rule: Rule | None, schema: Any = None
) -> BanditState:
    """The state that a file holds."""
    header, tensors = tensor_file.read(path, rows={"evidence", "removals"})
    kind = header.get("kind") if isinstance(header, dict) else type(header).__name__
    if kind != "bandit":
        raise FileError(f"path {str(path)!r} must hold a bandit; it holds {checks.describe(kind)}")
    try:
        return unpack_state(header, tensors, transfer, rule, schema)
    except FileError as error:
        raise FileError(f"path {str(path)!r}: {error}") from None
    except HeadstartError as error:
        raise FileError(f"path {str(path)!r} does not hold a valid bandit: {error}") from error
    except atomic.DECODING_ERRORS as error:
        raise FileError(
            f"path {str(path)!r} does not fit the transfer or rule it is loaded with, or lacks "
            f"something ({type(error).__name__}: {error})"
        ) from error


def unpack_state(
    header: Header,
    tensors: dict[str, Any],
    transfer: Transfer | None,
    rule: Rule | None,
    schema: Any = None,
) -> BanditState:
    """The state that a header and arrays describe."""
    if transfer is None:
        transfer = encoding.decode(header["transfer"], "transfer")
    if rule is None:
        rule = encoding.decode(header["rule"], "rule")
    if not isinstance(transfer, Transfer):
        raise checks.invalid("transfer", "a Transfer", transfer)
    if not isinstance(rule, Rule):
        raise checks.invalid("rule", "a Rule", rule)
    features = validation.parse_features(header["features"])
    encoder = encoder_from_dict(header.get("schema"), schema)
    validation.check_encoder(encoder, features)
    validation.check_dimension(features.dim, transfer, tensors.values())
    rewards = reward_model(header.get("reward", "number"), header.get("minimize", False))
    noise = "auto" if header["noise"] is None else header["noise"]
    settings = (header[name] for name in ("cache_size", "choice_window", "half_life"))
    ledger = Ledger(features, encoder, transfer, rewards, noise, *settings)
    ledger.check_rule(rule)
    parts = group_by_part(tensors)
    unpack_entries(ledger, header, tensors["evidence"], parts["task"])
    templates = unpack_prior(ledger.prior_state, header, tensors["removals"], parts)
    unpack_cache(ledger, header, parts, templates)
    if ledger.items is not None:
        unpack_items(ledger.items, header, parts["items"], ledger.entries)
    sizes = validation.parse_sizes(tensors["sizes"], features.context_dim)
    offer_count = validation.check_count("offer_count", header["offer_count"])
    return BanditState(
        ledger,
        rule,
        ContextReader(features, sizes, offer_count, encoder),
        validation.parse_seed(header["seed"]),
        validation.parse_key(header["origin"]),
        is_frozen=checks.flag("frozen", header["frozen"]),
    )


def unpack_entries(ledger: Ledger, header: Header, rows: Any, columns: dict[str, Any]) -> None:
    """All tasks, without what is cached of them."""
    entries, size = ledger.entries, ledger.choice_window
    tasks = validation.check_task_ids("tasks", header["tasks"])
    validation.check_evidence(rows, tasks, entries.dim, entries.keeps_forced)
    columns = {name: columns[name] for name in COLUMNS}
    validation.check_columns(columns, COLUMNS, len(tasks))
    bits, windows = header["learned_bits"], header["other_windows"]
    for name in ("learned_bits", "other_windows"):
        validation.check_task_ids(name, list(header[name]), dict.fromkeys(tasks))
    distinct_numbers: dict[int, int] = {}  # one object for equal numbers takes less memory
    for name, row, *numbers in zip(
        tasks, rows, *(column.tolist() for column in columns.values()), strict=True
    ):
        values = (distinct_numbers.setdefault(number, number) for number in numbers)
        fields: dict[str, Any] = dict(zip(columns, values, strict=True))
        if name in bits:
            fields["learned_bits"] = validation.parse_bits("learned_bits", bits[name])
        if name in windows:
            fields["other_windows"] = validation.parse_windows(windows[name], size)
        entries[name] = TaskEntry(row, **fields)
    validation.check_windows(entries, size)
    entries.set_counts(
        validation.check_count("reward_count", header["reward_count"]),
        validation.check_count("first_number", header["first_number"]),
        checks.integer("epoch", header["epoch"], 0, 2**64 - 1),
    )
    if sum(entry.reward_count for entry in entries.values()) > entries.reward_count:
        raise InputError("reward_count must be as many as all tasks have had; got fewer")


def unpack_prior(
    prior_state: PriorState, header: Header, removals: Any, parts: dict[str, Any]
) -> list[Any]:
    """The transfer's state, and the cached prior; returns priors and beliefs of a user's own."""
    entries, first, transfer = prior_state.entries, prior_state.state, prior_state.transfer
    dim = entries.dim
    base = restore(header["base"], first, parts.get("base", {}), (*RECORDS, StartingFit))
    validation.check_starting_fit(base, dim)
    state = restore(header["state"], first, parts.get("state", {}), RECORDS)
    for each in (state, *([] if base is None else [base.state])):
        validation.check_state(transfer, each, first, dim)
    closed, unfolded, reopened = (
        dict.fromkeys(validation.check_task_ids(name, header[name], entries)) for name in TASK_LISTS
    )
    validation.check_task_ids("unfolded", header["unfolded"], closed)
    names = validation.check_task_ids("removals", header["removals"])
    validation.check_evidence(removals, names, dim, entries.keeps_forced)
    own = [] if transfer.fixed_layout else [first, state]
    templates: list[Any] = [transfer.prior(each) for each in own]
    templates += [prior.belief() for prior in templates]
    kinds = (Prior, MixturePrior)
    prior = restore(header["cached_prior"], templates, parts.get("cached_prior", {}), kinds)
    count = validation.check_count("cached_reward_count", header["cached_reward_count"])
    # Some of the tasks that it counts may be deleted by now.
    running = dict.fromkeys(validation.check_task_ids("cached_running", header["cached_running"]))
    if prior is not None:
        validation.check_prior("cached_prior", prior, dim)
    prior_state.restore(
        base=base,
        state=state,
        closed=closed,
        unfolded=unfolded,
        reopened=reopened,
        removals={
            name: Evidence.unpack(row, dim) for name, row in zip(names, removals, strict=True)
        },
        needs_refit=checks.flag("needs_refit", header["needs_refit"]),
        removal_count=validation.check_count("removal_count", header["removal_count"]),
        cached=None if prior is None else CachedPrior(prior, count, running),
    )
    return templates


def unpack_cache(
    ledger: Ledger, header: Header, parts: dict[str, Any], templates: list[Any]
) -> None:
    """What is cached of tasks."""
    dim = ledger.entries.dim
    names = validation.check_task_ids("cached_tasks", header["cached_tasks"], ledger.entries)
    if len(names) > ledger.cache.size:
        raise checks.invalid("cached_tasks", f"up to {ledger.cache.size} tasks", names)
    shapes = validation.check_list("prior_outlines", header["prior_outlines"])
    priors = [
        restore(shape, templates, parts.get(f"prior.{place}", {}), (Prior,))
        for place, shape in enumerate(shapes)
    ]
    shapes, places, alone, others, counts = (
        validation.check_list(name, header[name], len(names))
        for name in (
            "belief_outlines",
            "cached_prior_places",
            "cached_alone",
            "cached_other_rewards",
            "cached_pending",
        )
    )
    total = sum(validation.check_count("cached_pending", count) for count in counts)
    pending = validation.parse_rounds(parts.get("pending", {}), total, dim)
    for at, name in enumerate(names):
        belief = restore(
            shapes[at], templates, parts.get(f"belief.{at}", {}), (Belief, MixtureBelief)
        )
        prior = priors[checks.integer("cached_prior_places", places[at], 0, len(priors) - 1)]
        validation.check_belief(f"belief of task {name!r}", belief, prior, dim)
        task = CachedTask(
            ledger.entries.evidence(name),
            tuple(itertools.islice(pending, counts[at])),
            belief.with_prior(prior),
            checks.flag("cached_alone", alone[at]),
            validation.check_count("cached_other_rewards", others[at]),
        )
        ledger.changes.commit(*ledger.cache.steps_to_store(name, task))


def group_by_part(tensors: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The arrays of each part of a bandit, by their names within it.

    >>> group_by_part({"sizes": 1, "state.count": 2, "belief.0.mean": 3, "belief.1.mean": 4})
    {'state': {'count': 2}, 'belief.0': {'mean': 3}, 'belief.1': {'mean': 4}}
    """
    parts: dict[str, dict[str, Any]] = {}
    for name, array in tensors.items():
        part, dot, inner = name.partition(".")
        if part in ("belief", "prior"):
            place, dot, inner = inner.partition(".")
            part = f"{part}.{place}"
        if dot:
            parts.setdefault(part, {})[inner] = array
    return parts
