"""Checks of what rules and transfers have in common: they are immutable settings."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from headstart.bandit import Bandit, load
from headstart.errors import FileError
from headstart.rules import UCB, Forced, Rule
from headstart.testing.samples import DIM, options_for, play, require


def is_a_frozen_dataclass(thing: Any) -> None:
    """A frozen dataclass, so that it can be compared, printed and saved."""
    require(dataclasses.is_dataclass(thing), "it is not a dataclass")
    for field in dataclasses.fields(thing):
        try:
            setattr(thing, field.name, None)
        except dataclasses.FrozenInstanceError:
            continue
        raise AssertionError(f"its {field.name} can be changed: use dataclass(frozen=True)")


def equals_another_with_its_settings(thing: Any) -> None:
    """Equal to another with the same settings, and holding no array of the caller's."""
    fields = {field.name: getattr(thing, field.name) for field in dataclasses.fields(thing)}
    mine = {name: np.copy(v) if isinstance(v, np.ndarray) else v for name, v in fields.items()}
    clone = type(thing)(**mine)
    for value in mine.values():
        if isinstance(value, np.ndarray):
            value[...] = 7.0
    require(thing == clone, "it differs from one with the same settings")
    require(repr(thing) == repr(clone), "its repr differs from that of one with the same settings")
    require("0x" not in repr(thing), "its repr holds an address")


def copies_are_equal(thing: Any) -> None:
    """A copy and a deep copy are equal to it."""
    for clone in (copy.copy(thing), copy.deepcopy(thing)):
        require(type(clone) is type(thing) and clone == thing, "a copy differs")
        require(repr(clone) == repr(thing), "the repr of a copy differs")


def pickles(thing: Any) -> None:
    """A pickle is equal to it, if its class can be imported."""
    kind = type(thing)
    if getattr(sys.modules.get(kind.__module__), kind.__qualname__, None) is kind:
        require(pickle.loads(pickle.dumps(thing)) == thing, "a pickle differs")


def is_saved_and_loaded(thing: Any) -> None:
    """A bandit with it decides the same after it was saved and loaded."""
    part = "rule" if isinstance(thing, Rule) else "transfer"
    parts = {part: thing}
    if part == "rule":
        parts |= options_for(thing)
    elif thing.keeps_forced:
        parts["rule"] = Forced(3, UCB())
    bandit = Bandit(DIM, seed=0, **parts)
    play(bandit)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bandit"
        bandit.save(path)
        try:
            loaded = load(path)
        except FileError:  # a class that a file cannot name
            loaded = load(path, **{part: thing})
    require(getattr(loaded, part) == thing, "a loaded one differs")
    require(repr(getattr(loaded, part)) == repr(thing), "the repr of a loaded one differs")
    require(loaded.prior == bandit.prior, "the prior of the loaded bandit differs")
    require(
        play(loaded, start=50) == play(bandit, start=50), "the loaded bandit decides differently"
    )
    require(loaded.prior == bandit.prior, "the loaded bandit learns differently")


#: Checks of both rules and transfers, each called with the rule or transfer.
SETTINGS_CHECKS = (
    is_a_frozen_dataclass,
    equals_another_with_its_settings,
    copies_are_equal,
    pickles,
    is_saved_and_loaded,
)
