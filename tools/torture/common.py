"""What the attacks share: verdicts, cases, bandits to attack, and what every bandit must do."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import tempfile
import warnings
import zlib
from pathlib import Path

import numpy as np

import headstart as hs
from headstart.records import flatten
from headstart.storage import tensor_file

# In memory where the system can, because everything is saved and compared many times.
ROOM = "/dev/shm" if os.path.isdir("/dev/shm") and os.access("/dev/shm", os.W_OK) else None


class Accepted(Exception):
    """Something was accepted that must be refused, or what was accepted gives wrong answers."""


class Changed(Exception):
    """A call that was refused or interrupted has changed something."""


@dataclasses.dataclass
class Case:
    """One case of an attack: everything random in it follows from the seed and the number."""

    attack: str
    seed: int
    number: int
    folder: Path

    @functools.cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng([self.seed, zlib.crc32(self.attack.encode()), self.number])

    def pick(self, options):
        return options[int(self.rng.integers(len(options)))]


def folder() -> tempfile.TemporaryDirectory:
    return tempfile.TemporaryDirectory(prefix="torture-", dir=ROOM)


DIM = 3
#: Transfers and rules, and other settings where they are not the usual ones.
KINDS = [
    lambda: (hs.EmpiricalBayes(), hs.UCB()),
    lambda: (hs.EmpiricalBayes(), hs.Thompson()),
    lambda: (hs.EmpiricalBayes(running=False, decay_tasks=50.0), hs.Greedy()),
    lambda: (hs.Mixture(), hs.UCB(0.5)),
    lambda: (hs.Mixture(groups=2), hs.Thompson()),
    lambda: (hs.Subspace(), hs.UCB(explore=0.1)),
    lambda: (hs.Subspace(rank=1, pca="ccipca"), hs.Thompson(0.5)),
    lambda: (hs.Bias(), hs.UCB()),
    lambda: (hs.Bias(method="pooled"), hs.Uniform()),
    lambda: (hs.Gaussian(), hs.Forced(4, hs.Thompson())),
    lambda: (hs.Independent(lam="plug-in"), hs.Greedy(explore=0.2)),
    lambda: (hs.Independent(), hs.UCB()),
    lambda: (hs.Oracle.gaussian(np.ones(DIM), np.eye(DIM)), hs.Thompson()),
    lambda: (hs.Oracle.subspace(np.ones(DIM), np.eye(DIM)[:, :1]), hs.UCB()),
    lambda: (hs.EmpiricalBayes(), hs.Thompson(probability=(0.05, 1.0))),
    lambda: (hs.EmpiricalBayes(), hs.UCB(), {"half_life": 5.0}),
    lambda: (hs.Bias(), hs.UCB(probability=(0.1, 1.0)), {"minimize": True}),
    lambda: (hs.Independent(), hs.Thompson(), {"half_life": 0.8, "minimize": True}),
    lambda: (hs.EmpiricalBayes(), hs.UCB(), {"reward": "binary"}),
    lambda: (hs.Bias(), hs.Thompson(), {"reward": "binary"}),
    lambda: (hs.Independent(), hs.Greedy(), {"reward": "binary", "half_life": 20.0}),
]
#: The kinds whose rewards are any numbers.
NUMBERS = [at for at, make in enumerate(KINDS) if "reward" not in dict(*make()[2:])]


@functools.cache
def saved(seed: int, kind: int) -> bytes:
    """The file of a bandit that has run: closed and open tasks, live and idle, late choices."""
    rng = np.random.default_rng([seed, kind])
    transfer, rule, *more = KINDS[kind]()
    settings, binary = dict(*more), kind not in NUMBERS
    intercept = bool(kind % 2) and not isinstance(transfer, hs.Oracle)
    noise = 0.3 if rng.random() < 0.3 and not binary else "auto"
    settings |= {"intercept": intercept, "cache_size": 3, "seed": kind}
    bandit = hs.Bandit(DIM, transfer, rule, noise, **settings)
    centre = rng.normal(size=DIM)
    for number in range(6):
        task = bandit.task(f"task {number}")
        theta = centre + 0.3 * rng.normal(size=DIM)
        for turn in range(int(rng.integers(3, 14))):
            offers = rng.normal(size=(3, DIM))
            choice = task.choose(offers)
            if turn != 2:  # this one's reward never comes
                reward = float(offers[choice.arm] @ theta + 0.3 * rng.normal())
                task.learn(choice, float(reward > 0) if binary else reward)
        if number % 2 == 0:
            task.close()
    with folder() as place:
        bandit.save(f"{place}/bandit")
        return Path(place, "bandit").read_bytes()


#: Of the bandits that know items by their ids.
ITEMS = hs.Schema(action={"price": hs.number(missing=False)}, identity=True)
SHOP = hs.Schema(
    context={"hour": hs.category("am", "pm"), "age": hs.number()},
    action={"kind": hs.category(buckets=2), "look": hs.vector(2), "new": hs.boolean()},
    crosses=[("hour", "kind"), ("age", "new")],
    identity=True,
)


@functools.cache
def saved_with_items(
    seed: int, schema: hs.Schema = ITEMS, alone: bool = False, reward: str = "number"
) -> bytes:
    """The file of a bandit that knows items by their ids; ``alone``, without a learned prior."""
    rng, transfer = np.random.default_rng(seed), hs.Independent() if alone else None
    bandit = hs.Bandit(schema, transfer, seed=seed, cache_size=3, reward=reward)
    for number in range(5):
        task = bandit.task(f"task {number}")
        for turn in range(8):
            choice = task.choose(offer(bandit, rng))
            if turn != 2:  # this one's reward never comes
                value = float(choice.action % 3 + 0.3 * rng.normal())
                task.learn(choice, value if reward == "number" else float(value > 1.0))
        if number % 2 == 0:
            task.close()
    with folder() as place:
        bandit.save(f"{place}/bandit")
        return Path(place, "bandit").read_bytes()


def offer(bandit: hs.Bandit, rng: np.random.Generator) -> object:
    """Three arms, as rows of numbers or as actions with ids."""
    if bandit.schema is None:
        return rng.normal(size=(3, bandit.dim))
    items = rng.choice(8, 3, replace=False).tolist()
    if bandit.schema == ITEMS:
        return [{"id": item, "price": float(rng.normal())} for item in items]
    shared = {"hour": ["am", "pm", None][int(rng.integers(3))], "age": float(rng.normal())}
    return [
        {"id": item, "kind": item, "look": rng.normal(size=2), "new": item > 3} | shared
        for item in items
    ]


def reward_of(bandit: hs.Bandit, rng: np.random.Generator) -> float:
    """A reward that a bandit accepts."""
    binary = bandit._state.ledger.rewards.needs_belief
    return float(rng.integers(2)) if binary else float(rng.normal())


def fresh(case: Case, binary: bool = True) -> hs.Bandit:
    """A bandit of a kind that the case picks; without ``binary``, rewards are any numbers."""
    kind = case.pick(range(len(KINDS)) if binary else NUMBERS)
    path = case.folder / "fresh"
    path.write_bytes(saved(case.seed, kind))
    return hs.load(path)


def state(bandit: hs.Bandit, folder: Path) -> bytes:
    """All that a bandit knows, to the last bit."""
    bandit.save(folder / "state")
    return (folder / "state").read_bytes()


def content(path: Path) -> object:
    """What a bandit's file holds, but for the epoch, which every copy of the bandit has anew."""
    header, arrays = tensor_file.read(path)
    del header["epoch"]
    return json.dumps(header), {name: (a.shape, a.tobytes()) for name, a in arrays.items()}


def inner(bandit: hs.Bandit, rows) -> np.ndarray:
    """Contexts as beliefs see them: in the bandit's units, the intercept added."""
    features = bandit._state.reader.features
    return features.transform(features.read(np.asarray(rows, dtype=float))[0])


def finite(what: str, *values) -> None:
    for value in values:
        if not np.isfinite(np.asarray(value, dtype=float)).all():
            raise Accepted(f"{what} is not finite")


def works(bandit: hs.Bandit, folder: Path) -> None:
    """Use a bandit as everybody would; whatever it accepted before, it must do all of this."""
    if bandit.schema is not None and bandit.schema not in (ITEMS, SHOP):
        return  # a file may have another schema, and then wants other actions
    rng = np.random.default_rng(0)
    names = [*list(bandit)[:3], "a new task"]
    try:
        for name in names:
            task = bandit.task(name)
            for _ in range(2):
                offers = offer(bandit, rng)
                choice = task.choose(offers)
                task.learn(choice, reward_of(bandit, rng))
                finite("a score", choice.score)
                finite("a prediction", *task.predict(offers))
            evidence = task.evidence
            finite("evidence", *flatten(evidence).values())
            if not (task.rounds >= 0 and evidence.rounds >= 0 and evidence.squares >= 0):
                raise Accepted(f"{task!r} has seen less than nothing")
            finite("a belief", task.belief.mean, task.belief.noise)
        choices = bandit.choose_many(names, [offer(bandit, rng) for _ in names])
        bandit.learn(choices, [reward_of(bandit, rng) for _ in names])
        k = min(2, bandit._state.ledger.choice_window)
        ranking = bandit.task(names[0]).choose(offer(bandit, rng), k=k)
        bandit.learn(ranking, [reward_of(bandit, rng) for _ in ranking])
        explained = bandit.task(names[0]).explain(ranking[0])
        finite("an explanation", explained.difference, explained.values, explained.propensity)
        finite("a score", choices.scores)
        bandit.task(choices[-1].task).close()
        prior = bandit.prior
        finite(
            "the prior", *(flatten(prior)[name] for name in flatten(prior) if "bias" not in name)
        )
        report = bandit.report()
        repr(bandit), str(report)
        finite("the report", report.noise, report.rounds)
        again = reloaded(bandit, folder)
        offers = offer(bandit, rng)
        if again.task(names[0]).choose(offers).arm != bandit.task(names[0]).choose(offers).arm:
            raise Accepted("it decides otherwise after it was saved and loaded")
    except hs.HeadstartError as error:
        raise Accepted(f"it no longer works: {type(error).__name__}: {error}") from error


def reloaded(bandit: hs.Bandit, folder: Path) -> hs.Bandit:
    """The bandit after it was saved and loaded."""
    bandit.save(folder / "again")
    return hs.load(folder / "again")


def quiet() -> None:
    """No warnings: only what is raised counts."""
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
