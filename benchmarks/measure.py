"""Interleaved timing: in every repetition each contender plays one short block, in a new order.

A busy machine slows everyone in a repetition alike, so ratios are taken within repetitions; their
median and the range from the 10th to the 90th percentile are what tables show.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from crew import Member, NoAnswer

MOST_ROUNDS = 50_000  # of a block
SLOW_BLOCK = 1.0  # seconds: longer blocks take part in a few repetitions only
FEW = 3


@dataclasses.dataclass(frozen=True)
class Entry:
    """Someone in a race: a worker, and what to ask it besides rounds."""

    name: str
    member: Member
    question: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Effort:
    """How long to measure."""

    repetitions: int
    block: float  # seconds


@dataclasses.dataclass
class Race:
    """Seconds per round of everyone in every repetition (``None``: sat out), and who failed.

    ``rewards`` is what the last block earned on average, a hint that something was learned.
    """

    seconds: dict[str, list[float | None]]
    rounds: dict[str, int]
    rewards: dict[str, float]
    failures: dict[str, str]


def race(entries: Sequence[Entry], effort: Effort, seed: int, log: Callable[[str], None]) -> Race:
    """Time everyone, interleaved."""
    timings = Race({}, {}, {}, {})
    running = []
    slow = set()
    for entry in entries:
        try:
            rounds, seconds = block_size(entry, effort.block)
        except NoAnswer as error:
            timings.failures[entry.name] = str(error)
            log(f"{entry.name}: {error}")
            continue
        timings.rounds[entry.name] = rounds
        timings.seconds[entry.name] = []
        running.append(entry)
        if seconds > SLOW_BLOCK:
            slow.add(entry.name)
    few = {round(at) for at in np.linspace(0, effort.repetitions - 1, FEW)}
    shuffler = random.Random(seed)
    for repetition in range(effort.repetitions):
        shuffler.shuffle(running)
        for entry in list(running):
            name = entry.name
            if name in slow and repetition not in few:
                timings.seconds[name].append(None)
                continue
            try:
                answer = entry.member.ask(**entry.question, rounds=timings.rounds[name])
            except NoAnswer as error:
                timings.failures[name] = str(error)
                timings.seconds.pop(name)
                running.remove(entry)
                log(f"{name}: {error}")
                continue
            timings.seconds[name].append(answer["seconds_per_round"])
            if "mean_reward" in answer:
                timings.rewards[name] = answer["mean_reward"]
    return timings


def block_size(entry: Entry, block: float) -> tuple[int, float]:
    """Warm up, and find how many rounds fill a block; also gives the seconds such a block takes."""
    entry.member.ask(**entry.question, rounds=1)  # makes the player, which is not timed
    rounds = 1
    for share in (0.1, 0.5, 1.0):
        begin = time.perf_counter()
        each = entry.member.ask(**entry.question, rounds=rounds)["seconds_per_round"]
        seconds = time.perf_counter() - begin
        if seconds > SLOW_BLOCK:
            break
        rounds = min(MOST_ROUNDS, max(rounds, round(share * block / each)))
    return rounds, seconds


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median, and where 80 % of the values lie."""

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of some values."""
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        return cls(float(middle), float(low), float(high))


def spread_of(timings: Mapping[str, Any], name: str) -> Spread | None:
    """Microseconds per round."""
    values = [1e6 * each for each in timings["seconds"].get(name, ()) if each is not None]
    return Spread.of(values) if values else None


def ratio_of(timings: Mapping[str, Any], name: str, baseline: str) -> Spread | None:
    """Time as a multiple of a baseline's in the same repetition."""
    pairs = zip(
        timings["seconds"].get(name, ()), timings["seconds"].get(baseline, ()), strict=False
    )
    values = [each / base for each, base in pairs if each is not None and base is not None]
    return Spread.of(values) if values else None
