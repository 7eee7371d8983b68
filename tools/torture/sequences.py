"""Long random sequences of calls, beside a reference that only adds up.

The reference holds for every task the sums of its rounds, as plain arrays: it knows neither
beliefs nor priors nor caches. After every call the bandit has the same tasks, with the same number
of rewards, closed or not, and the same evidence. What is refused (a choice that was learned from,
or whose task was deleted) changes nothing. At the end the prior is that of a bandit to which the
evidence was given at once.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle

import numpy as np
from common import DIM, Accepted, Case, Changed, finite, reloaded, state, works

import headstart as hs

SHARE = 2.0
STEPS = 30
TOLERANCE = 1e-8  # of sums, relative to the largest
BOUNDS = (0.1, 0.7)

TRANSFERS = [
    lambda: hs.Independent(),
    lambda: hs.Independent(lam="plug-in"),
    lambda: hs.Bias(),
    lambda: hs.Bias(method="pooled"),
    lambda: hs.Gaussian(forced=False),
    lambda: hs.Subspace(rank=1),
    lambda: hs.EmpiricalBayes(),
    lambda: hs.EmpiricalBayes(running=False),
]
#: Of those, the ones whose prior is a function of sums over the closed tasks.
ADDITIVE = range(1, 5)
RULES = [
    lambda: hs.UCB(),
    lambda: hs.UCB(probability=BOUNDS),
    lambda: hs.Thompson(),
    lambda: hs.Thompson(probability=BOUNDS),
    lambda: hs.Greedy(explore=0.2),
    lambda: hs.Uniform(),
]


@dataclasses.dataclass(eq=False)
class Sums:
    """What the reference knows of a task."""

    width: int
    count: int = 0
    closed: bool = False
    sums: np.ndarray = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.sums = np.zeros((self.width + 2, self.width + 2))

    def add(
        self, row: np.ndarray, reward: float, weight: float, decay: float, count: float = 1.0
    ) -> None:
        """One round (x, r) of weight w: w zzᵀ with z = (x, 1, r), after all before has decayed.

        The mean of n rewards is one with (√n x, 1, √n r).
        """
        if weight > 0:
            z = np.array([*row, 1.0, reward])
            z[np.arange(len(z)) != len(row)] *= np.sqrt(count)
            self.sums = decay * self.sums + weight * np.outer(z, z)
            self.count += 1


class Pair:
    """A bandit and its reference, to which the same things are done."""

    def __init__(self, case: Case) -> None:
        self.case, self.rng = case, case.rng
        self.kind = int(self.rng.integers(len(TRANSFERS)))
        self.sign = -1.0 if self.rng.random() < 0.4 else 1.0
        half_life = float(case.pick([0.7, 5.0, 1e6])) if self.rng.random() < 0.4 else None
        self.decay = 1.0 if half_life is None else 0.5 ** (1.0 / half_life)
        self.intercept = bool(self.rng.random() < 0.5)
        self.rule = int(self.rng.integers(len(RULES)))
        self.bounded = getattr(RULES[self.rule](), "probability", None) is not None
        self.settings = {
            "intercept": self.intercept,
            "half_life": half_life,
            "minimize": self.sign < 0,
            "cache_size": int(case.pick([1, 2, 100])),
            "noise": case.pick(["auto", 0.5]),
        }
        self.bandit = self.new_bandit()
        self.tasks: dict[str, Sums] = {}
        self.waiting: list[tuple[hs.Choice | str, Sums, np.ndarray]] = []
        self.done: list[hs.Choice | str] = []

    def new_bandit(self) -> hs.Bandit:
        return hs.Bandit(DIM, TRANSFERS[self.kind](), RULES[self.rule](), seed=1, **self.settings)

    def name(self) -> str:
        return f"task {self.rng.integers(5)}"

    def sums(self, name: str) -> Sums:
        return self.tasks.setdefault(name, Sums(DIM + self.intercept))

    def row(self, context: np.ndarray) -> np.ndarray:
        return np.append(context, 1.0) if self.intercept else context

    def offer(self) -> tuple[np.ndarray, object, list[int]]:
        """A table, what is excluded of it in one of its forms, and the arms that are left."""
        arms = int(self.rng.integers(2, 7))
        table = self.rng.normal(size=(arms, DIM))
        mask = self.rng.random(arms) < 0.3
        mask[int(self.rng.integers(arms))] = False
        forms = [mask, mask.tolist(), np.flatnonzero(mask).tolist(), np.flatnonzero(mask)]
        return table, self.case.pick(forms), np.flatnonzero(~mask).tolist()

    def note(self, choice: hs.Choice, table: np.ndarray, left: list[int], first: bool) -> None:
        """A choice was made: it is one of those allowed, and waits for its reward."""
        if choice.arm not in left:
            raise Accepted(f"arm {choice.arm} was picked, of {left}")
        if not np.array_equal(choice.context, table[choice.arm]):
            raise Accepted("a choice has the context of another arm")
        finite("a score", choice.score)
        low, high = BOUNDS
        if first and self.bounded and not low - 1e-9 <= choice.propensity <= high + 1e-9:
            raise Accepted(f"the propensity {choice.propensity} is out of its bounds")
        shown = choice.token if self.rng.random() < 0.5 else choice
        sums = self.sums(choice.task)
        sums.closed = False
        self.waiting.append((shown, sums, self.row(choice.context)))

    def choose(self) -> None:
        name, (table, exclude, left) = self.name(), self.offer()
        task, _ = self.bandit.task(name), self.sums(name)
        k = int(self.rng.integers(1, len(left) + 1))
        if self.bounded and len(left) - k < 1:  # the last one would be certain
            self.refused(lambda: task.choose(table, exclude, k=k), "a probability out of bounds")
            return
        if self.rng.random() < 0.5:
            self.note(task.choose(table, exclude), table, left, True)
            return
        ranking = task.choose(table, exclude, k=k)
        if len({choice.arm for choice in ranking}) != k:
            raise Accepted("a ranking has an arm twice")
        for place, choice in enumerate(ranking):
            self.note(choice, table, left, not place)

    def choose_many(self) -> None:
        names = [self.name() for _ in range(int(self.rng.integers(1, 4)))]
        names = list(dict.fromkeys(names))
        offers = [self.offer() for _ in names]
        tables, excluded = [offer[0] for offer in offers], [offer[1] for offer in offers]
        k = min(len(left) for _, _, left in offers)
        if self.bounded and k == 1:
            call = lambda: self.bandit.choose_many(names, tables, excluded)  # noqa: E731
            self.refused(call, "a probability out of bounds")
            return
        if self.rng.random() < 0.5:
            choices = self.bandit.choose_many(names, tables, excluded)
            for choice, (table, _, left) in zip(choices, offers, strict=True):
                self.note(choice, table, left, True)
            return
        k = int(self.rng.integers(1, k + 1 - self.bounded))
        rankings = self.bandit.choose_many(names, tables, excluded, k=k)
        for ranking, (table, _, left) in zip(rankings, offers, strict=True):
            for place, choice in enumerate(ranking):
                self.note(choice, table, left, not place)

    def learn(self) -> None:
        """Some of the choices that wait, in any order; those of deleted tasks are refused."""
        if not self.waiting:
            return
        count = min(int(self.case.pick([1, 1, 1, 2, 3])), len(self.waiting))
        order = self.rng.permutation(len(self.waiting))[:count]
        batch = [self.waiting[at] for at in order]
        rewards = self.rng.normal(size=count).tolist()
        gone = any(sums not in self.tasks.values() for _, sums, _ in batch)
        alone = count == 1 and self.rng.random() < 0.7
        arguments = (batch[0][0], rewards[0]) if alone else ([one for one, _, _ in batch], rewards)
        if gone:
            self.refused(lambda: self.bandit.learn(*arguments), "the choice of a deleted task")
            self.waiting = [one for one in self.waiting if one[1] in self.tasks.values()]
            return
        self.bandit.learn(*arguments)
        for (choice, sums, row), reward in zip(batch, rewards, strict=True):
            sums.add(row, self.sign * reward, 1.0, self.decay)
            self.done.append(choice)
        self.waiting = [one for at, one in enumerate(self.waiting) if at not in order]

    def learn_again(self) -> None:
        if self.done:
            again = self.case.pick(self.done)
            self.refused(lambda: self.bandit.learn(again, 1.0), "a second reward")

    def refused(self, call, what: str) -> None:
        before = state(self.bandit, self.case.folder)
        try:
            call()
        except hs.HeadstartError:
            if state(self.bandit, self.case.folder) != before:
                raise Changed(f"{what} was refused; the state is another") from None
        else:
            raise Accepted(f"{what} was accepted")

    def observe(self) -> None:
        name, count = self.name(), int(self.rng.integers(0, 40))
        rows, rewards = self.rng.normal(size=(count, DIM)), self.rng.normal(size=count)
        weights = np.where(self.rng.random(count) < 0.2, 0.0, self.rng.uniform(0.1, 3.0, count))
        form = self.case.pick([None, weights, weights.tolist(), 2.0, 0.0])
        used = np.broadcast_to(1.0 if form is None else np.asarray(form, dtype=float), count)
        if not count:
            return
        journal = hs.Journal(self.case.folder / "journal") if self.rng.random() < 0.5 else None
        counts = self.case.pick([None, self.rng.uniform(0.5, 9.0, count), 4])
        self.bandit.task(name).observe(rows, rewards, form, mean_of=counts, journal=journal)
        sums, each = self.sums(name), 1.0 if counts is None else np.asarray(counts, dtype=float)
        for row, reward, weight, size in zip(
            rows, rewards, used, np.broadcast_to(each, count), strict=True
        ):
            sums.add(self.row(row), self.sign * reward, float(weight), self.decay, float(size))
        if journal is not None:
            journal.close()

    def replay(self) -> None:
        """All of the journal was learned from: nothing changes."""
        path = self.case.folder / "journal"
        if not path.exists():
            return
        replayed = self.bandit.replay(path)
        if replayed.learned or replayed.damaged:
            raise Accepted(f"a journal was learned from twice: {replayed}")

    def add_evidence(self) -> None:
        name, count = self.name(), int(self.rng.integers(1, 9))
        rows, rewards = self.rng.normal(size=(count, DIM)), self.rng.normal(size=count)
        rows = np.array([self.row(row) for row in rows])
        self.bandit.add_evidence(name, hs.Evidence.of(rows, rewards))
        sums = self.sums(name)
        table = np.column_stack([rows, np.ones(count), rewards])
        sums.sums = self.decay**count * sums.sums + table.T @ table
        sums.count += count

    def close(self) -> None:
        name = self.name()
        self.bandit.task(name).close()
        self.sums(name).closed = True

    def delete(self) -> None:
        name = self.name()
        if (name in self.tasks) != (name in self.bandit):
            raise Accepted(f"{name} is there, or is not")
        if name in self.tasks:
            self.bandit.delete(name)
            del self.tasks[name]

    def refresh(self) -> None:
        name = self.name()
        self.bandit.task(name).refresh()
        self.sums(name)

    def predict(self) -> None:
        """Nothing that is only asked changes anything."""
        name = self.name()
        task, _ = self.bandit.task(name), self.sums(name)
        before = state(self.bandit, self.case.folder)
        table = self.rng.normal(size=(3, DIM))
        finite("a prediction", *task.predict(table)[:3])
        finite("a belief", task.belief.mean, task.belief.root)
        repr(self.bandit), self.bandit.prior
        if state(self.bandit, self.case.folder) != before:
            raise Changed("a prediction has changed the state")

    def freeze(self) -> None:
        """A frozen bandit learns nothing."""
        name = self.name()
        task, _ = self.bandit.task(name), self.sums(name)
        self.bandit.freeze()
        learned = task.observe(self.rng.normal(size=(2, DIM)), [1.0, 2.0])
        if self.waiting and self.waiting[0][1] in self.tasks.values():
            learned |= self.bandit.learn(self.waiting[0][0], 3.0)
        if not task.closed:
            task.close()
            learned |= task.closed
        self.bandit.unfreeze()
        if learned:
            raise Changed("a frozen bandit has learned")

    def exchange(self) -> None:
        """From here on it is another object, or one that was read from a file."""
        how = self.case.pick(["load", "copy", "deepcopy", "pickle"])
        if how == "load":
            self.bandit = reloaded(self.bandit, self.case.folder)
        elif how == "pickle":
            self.bandit = pickle.loads(pickle.dumps(self.bandit))
        else:
            self.bandit = getattr(copy, how)(self.bandit)

    def compare(self, what: str) -> None:
        """The tasks of the bandit are those of the reference."""
        if list(self.bandit) != list(self.tasks):
            raise Accepted(f"{what}: tasks {list(self.bandit)}, not {list(self.tasks)}")
        for name, sums in self.tasks.items():
            task = self.bandit.task(name)
            if (task.rounds, task.closed) != (sums.count, sums.closed):
                raise Accepted(
                    f"{what}: {task.rounds} rewards and closed: {task.closed}, not {sums.count} "
                    f"and {sums.closed}"
                )
            found, wanted = packed(task.evidence), sums.sums
            gram, moment, numbers = wanted[:-2, :-2], wanted[:-2, -1], wanted.diagonal()[-2:]
            wanted = np.concatenate([gram.ravel(), moment, numbers])
            error = float(np.abs(found - wanted).max())
            if not error <= TOLERANCE * (1.0 + float(np.abs(wanted).max())):
                raise Accepted(f"{what}: the evidence of a task is off by {error:.2g}")

    def compare_prior(self) -> None:
        """The prior is that of a bandit to which the evidence was given at once."""
        if self.kind not in ADDITIVE or not self.tasks:
            return
        other = self.new_bandit()
        for name in self.tasks:
            task = self.bandit.task(name)
            task.close()
            if task.evidence.rounds:
                other.add_evidence(name, task.evidence)
            other.task(name).close()
        for part in ("mean", "root"):
            found, wanted = (getattr(each.prior, part) for each in (self.bandit, other))
            if part == "root":
                found, wanted = found @ found.T, wanted @ wanted.T
            error = float(np.abs(found - wanted).max())
            if not error <= 1e-6 * (1.0 + float(np.abs(wanted).max())):
                raise Accepted(f"the {part} of the prior is off by {error:.2g}")


def packed(evidence: hs.Evidence) -> np.ndarray:
    numbers = [evidence.rounds, evidence.squares]
    return np.concatenate([evidence.gram.ravel(), evidence.moment, numbers])


OPERATIONS = {
    "choose": 6,
    "choose_many": 3,
    "learn": 7,
    "learn_again": 1,
    "observe": 2,
    "replay": 1,
    "add_evidence": 1,
    "close": 3,
    "delete": 1,
    "refresh": 1,
    "predict": 1,
    "freeze": 1,
    "exchange": 2,
}


def attack(case: Case) -> None:
    pair = Pair(case)
    names = [name for name, times in OPERATIONS.items() for _ in range(times)]
    calls: list[str] = []
    try:
        for _ in range(STEPS):
            calls.append(case.pick(names))
            getattr(pair, calls[-1])()
            pair.compare(calls[-1])
        pair.compare_prior()
        works(pair.bandit, case.folder)
    except Exception as error:
        error.args = (f"{error}; after {pair.bandit!r}, {pair.settings}: {' '.join(calls)}",)
        raise
