"""What users hold: a :class:`Bandit` for all tasks, a :class:`~headstart.task.Task` for each."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from headstart import checks
from headstart.choice import Choice
from headstart.choices import Choices, builder, can_stack, decide, odds_of
from headstart.contexts import LARGEST, Features, allowed_arms
from headstart.entry import Entry
from headstart.errors import ChoiceError, InputError, TaskError
from headstart.evidence import Evidence
from headstart.ledger import Ledger
from headstart.mixture import MixturePrior
from headstart.prior import Prior
from headstart.randomness import Stream, Streams, entropy_of
from headstart.records import Array, frozen
from headstart.report import Report, expected_gain
from headstart.rules import UCB, Indexed, Rule
from headstart.task import Prediction, Task
from headstart.transfer import EmpiricalBayes, Transfer

if TYPE_CHECKING:
    from headstart.files import PathLike
    from headstart.randomness import Seed

__all__ = ["Bandit", "load"]


class Bandit:
    """Many related decision problems, and what they share.

    Parameters
    ----------
    dim
        The number of features of a context.
    transfer
        How to learn a prior from other tasks; :class:`~headstart.transfer.EmpiricalBayes` unless
        given.
    rule
        How to choose; :class:`~headstart.rules.UCB` unless given.
    noise
        R, the scale of the rewards' noise, or ``"auto"`` to estimate it from residuals.
    seed
        A whole number (or a NumPy ``Generator`` or ``SeedSequence``). The same seed and the same
        calls give the same decisions; ``None`` takes a fresh one.
    intercept
        Add a constant feature, for rewards that do not average zero.
    live
        How many tasks keep their belief at hand. Any number may be open; one unused for longer is
        kept as its evidence alone, and takes the newest prior when it is next used.
    memory
        How many of a task's latest choices can still be learned from.
    half_life
        For tasks whose own parameter drifts: a reward counts half after so many later ones of its
        task. Unless given, nothing is forgotten. (Learning a reward then takes O(d³).)

    Examples
    --------
    >>> import headstart as hs
    >>> bandit = hs.Bandit(dim=2, seed=0)
    >>> task = bandit.task("user-42")
    >>> choice = task.choose([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])
    >>> task.learn(choice, reward=1.0)
    True
    >>> task.close()
    >>> print(bandit.report().closed_tasks)
    1

    Notes
    -----
    Every method may be called from several threads: each call is atomic. Where running tasks count
    (as they do by default), decisions depend on how the calls for different tasks interleave; with
    ``EmpiricalBayes(running=False)`` or any other transfer they do not, as long as no task is
    closed meanwhile and no more than ``live`` are in use (a task that comes back has a new root of
    the same covariance, and Thompson draws go through the root).
    Contexts longer than 1 are fine; the bound ‖x‖ ≤ 1 matters to the theory radius only.
    """

    def __init__(
        self,
        dim: int,
        transfer: Transfer | None = None,
        rule: Rule | None = None,
        noise: float | str = "auto",
        seed: Seed = None,
        *,
        intercept: bool = False,
        live: int = 256,
        memory: int = 4096,
        half_life: float | None = None,
    ) -> None:
        dim = checks.integer("dim", dim, 1)
        if not isinstance(intercept, (bool, np.bool_)):
            raise checks.refuse("intercept", "True or False", intercept)
        features = Features(dim, intercept=bool(intercept))
        transfer = EmpiricalBayes() if transfer is None else transfer
        rule = UCB() if rule is None else rule
        if not isinstance(transfer, Transfer):
            raise checks.refuse("transfer", "a Transfer, such as headstart.Subspace()", transfer)
        if not isinstance(rule, Rule):
            raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
        radius = getattr(rule, "radius", 0.0)
        if transfer.mixes and isinstance(radius, str):
            raise checks.refuse("radius", f"a number with {transfer!r}", radius)
        if transfer.keeps_forced and isinstance(rule, Indexed):
            warnings.warn(
                f"{transfer!r} learns from forced rounds alone, and {rule!r} has none: no prior "
                f"will be learned. Use rule=headstart.Forced(rounds, {rule!r}).",
                stacklevel=2,
            )
        if isinstance(noise, str):
            checks.one_of("noise", noise, ("auto",))
        scale = None if isinstance(noise, str) else checks.positive("noise", noise)
        self._features = features
        self._rule = rule
        self._memory = checks.integer("memory", memory, 1)
        self._streams = Streams(entropy_of(seed))
        self._origin = os.urandom(16)  # marks this bandit's choices; no decision depends on it
        self._frozen = False
        if half_life is not None:
            half_life = checks.positive("half_life", half_life)
        live = checks.integer("live", live, 1)
        self._ledger = Ledger(features.dim, transfer, scale, live, half_life)
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        noise = "auto" if self._ledger.noise is None else self._ledger.noise
        return (
            f"Bandit(dim={self.dim}, transfer={self.transfer!r}, rule={self.rule!r}, "
            f"noise={noise!r}) with {len(self)} tasks"
        )

    @property
    def dim(self) -> int:
        """The number of features of a context, without the intercept."""
        return self._features.given

    @property
    def transfer(self) -> Transfer:
        """How it learns a prior."""
        return self._ledger.transfer

    @property
    def rule(self) -> Rule:
        """How it chooses."""
        return self._rule

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, once a frame has told them."""
        return self._features.names

    @property
    def prior(self) -> Prior | MixturePrior:
        """What a new task would start from."""
        with self._lock, self._ledger.looking():
            prior: Prior | MixturePrior = self._ledger.prior(keep=False)
            return prior

    @property
    def frozen(self) -> bool:
        """Whether learning is stopped."""
        return self._frozen

    def __len__(self) -> int:
        return len(self._ledger.entries)

    def __contains__(self, task: object) -> bool:
        try:
            return checks.task_name(task) in self._ledger.entries
        except InputError:
            return False

    def __iter__(self) -> Iterator[str]:
        """The ids of all tasks, in the order they were made."""
        with self._lock:
            return iter(list(self._ledger.entries))

    def task(self, id: str | int) -> Task:
        """The task with this id: made if it is new, resumed if it is known.

        A whole number is the same id as its decimal digits.
        """
        name = checks.task_name(id)
        with self._lock:
            self._ledger.open(name)
        return Task(self, name)

    def delete(self, id: str | int) -> None:
        """Forget a task: its evidence, and what it contributed to the prior."""
        with self._lock:
            name = checks.task_name(id)
            self._entry(name)
            self._ledger.delete(name)

    def choose_many(self, ids: Sequence[str | int], contexts: Any) -> Choices:
        """Choose for many tasks in one call: the same decisions as one by one, but faster.

        Tasks that are new are made. Keep as many tasks ``live`` as are served at once, or their
        beliefs are rebuilt each time.

        Parameters
        ----------
        ids
            The tasks' ids.
        contexts
            What is on offer to each: an array of shape (tasks, arms, features).

        Examples
        --------
        >>> import headstart as hs
        >>> bandit = hs.Bandit(dim=2, seed=0)
        >>> choices = bandit.choose_many(["ann", "bob"], [[[1.0, 0.0], [0.0, 1.0]]] * 2)
        >>> choices.arms.shape, choices[1].task
        ((2,), 'bob')
        >>> bandit.learn(choices, [1.0, 0.0])
        True
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
            raise checks.refuse("ids", "a list of task ids", ids)
        names = [checks.task_name(id) for id in ids]
        with self._lock:
            tables = self._features.read_many(contexts, len(names))
            for name in names:
                self._ledger.open(name)
            return self._choose_together(names, tables)

    def freeze(self) -> None:
        """Stop learning: choices go on, ``learn`` and ``close`` change nothing."""
        with self._lock:
            self._frozen = True

    def unfreeze(self) -> None:
        """Learn again."""
        with self._lock:
            self._frozen = False

    def learn(self, choice: Any, reward: Any) -> bool:
        """Learn from a choice or a token of any task, or from many of them at once.

        Parameters
        ----------
        choice
            A :class:`Choice`, a token, or a sequence of these.
        reward
            A finite number, or as many as there are choices.

        Returns
        -------
        bool
            ``False`` if the bandit is frozen and nothing was learned, else ``True``.

        Notes
        -----
        Either all of them are learned from or, if one is refused, none.
        """
        with self._lock:
            return self._learn(choice, reward, None)

    def save(self, path: PathLike) -> None:
        """Write everything to a file, atomically; :func:`load` continues exactly from there."""
        from headstart import snapshot  # here, because importing headstart must stay cheap

        with self._lock:
            content = snapshot.pack(
                snapshot.Saved(
                    self._ledger,
                    self._rule,
                    self._features,
                    self._streams.seed,
                    self._origin,
                    self._memory,
                    self._frozen,
                )
            )
        snapshot.write(path, content)

    @classmethod
    def load(
        cls, path: PathLike, *, transfer: Transfer | None = None, rule: Rule | None = None
    ) -> Self:
        """The bandit that was saved; pass ``transfer`` or ``rule`` if they are of your own kind."""
        from headstart import snapshot

        if transfer is not None and not isinstance(transfer, Transfer):
            raise checks.refuse("transfer", "a Transfer, such as headstart.Subspace()", transfer)
        if rule is not None and not isinstance(rule, Rule):
            raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
        found = snapshot.unpack(path, transfer, rule)
        bandit = cls.__new__(cls)
        bandit._features = found.features
        bandit._rule = found.rule
        bandit._memory = found.memory
        bandit._streams = Streams(found.seed)
        bandit._origin = found.origin
        bandit._frozen = found.frozen
        bandit._ledger = found.ledger
        bandit._lock = threading.RLock()
        return bandit

    def report(self) -> Report:
        """What was learned: tasks, subspace, eigenvalues, and the gain expected for a new task."""
        with self._lock, self._ledger.looking():
            ledger = self._ledger
            ledger.settle()
            prior = ledger.prior(keep=False)
            whole = prior.gaussian() if isinstance(prior, MixturePrior) else prior
            explained = ledger.transfer.explain(ledger.state)
            base = ledger.base
            total = Evidence.zero(ledger.dim) if base is None else base.pooled
            fitted = 0 if base is None else int(base.tasks)
            rounds = total.rounds + sum(entry.rewards for entry in ledger.entries.values())
            for name in ledger.closed:
                evidence = ledger.evidence(ledger.entries[name])
                total = total + evidence.replace(forced=None)
            gram = total.gram / max(total.rounds, 1.0)
            tasks = len(ledger.closed) + fitted
            constant = ledger.dim - 1 if self._features.intercept else None
            return Report(
                transfer=repr(ledger.transfer),
                rule=repr(self._rule),
                dim=ledger.dim,
                open_tasks=len(ledger.entries) - len(ledger.closed),
                closed_tasks=tasks,
                rounds=int(rounds),
                noise=float(prior.noise),
                rank=explained.rank,
                eigenvalues=explained.eigenvalues,
                explained=explained.explained,
                gain=expected_gain(whole, gram, total.rounds / max(tasks, 1), tasks, constant),
                note=explained.note,
                lower=explained.lower,
                upper=explained.upper,
                effective_rank=explained.effective_rank,
                support=explained.support,
            )

    def _entry(self, name: str) -> Entry:
        """A task's entry, or a helpful refusal."""
        entry = self._ledger.entries.get(name)
        if entry is None:
            raise TaskError(f"task {name!r} is unknown here: it was deleted, or never made")
        return entry

    def _choose(self, name: str, contexts: Any, exclude: Any) -> Choice:
        with self._lock:
            entry = self._entry(name)
            table, names = self._features.read(contexts)
            allowed = None if exclude is None else allowed_arms(exclude, len(table))
            belief, unsure = entry.belief, entry.unsure
            if belief is None:
                belief, unsure = self._ledger.build(name)
            key = self._streams.key(name) if entry.key is None else entry.key
            number, position = entry.number, entry.number - entry.start
            rng = self._rng(key, position)
            pick = self._rule.choose(belief, table, rng, allowed)
            # Nothing can be refused any more: from here on, things change.
            if not entry.closed or not self._frozen:
                if entry.closed:
                    self._ledger.reopen(name)
                self._ledger.enliven(name, belief, unsure)
                entry.key = key
            entry.next_number(self._memory)
            if names is not self._features.names:
                self._features = self._features._replace(names=names)
        table = table.copy() if self._features.plain else table
        # The belief and the arms as they are now: propensities may be asked for much later.
        seed = self._streams.seed
        odds = partial(odds_of, self._rule, belief, table, seed, key, position, allowed)
        context = frozen(table[pick.arm].copy())
        forced = bool(pick.forced)
        return Choice(pick.arm, pick.score, name, number, forced, context, self._origin, odds)

    def _rng(self, key: Any, position: int) -> Any:
        """A choice's random numbers: the library's own rules mostly need none."""
        if type(self._rule).__module__ == Rule.__module__:
            return Stream(self._streams, key, position)
        return self._streams.at(key, position)

    def _choose_together(self, names: list[str], tables: Array) -> Choices:
        """One choice for each task; the lock is held, and everything is checked."""
        ledger = self._ledger
        beliefs, streams, numbers = [], [], []
        for name in names:  # in order: a task that runs on, or goes idle, changes what others see
            entry = ledger.entries[name]
            belief, unsure = ledger.belief(name)
            beliefs.append(belief)
            key = self._streams.key(name) if entry.key is None else entry.key
            streams.append(Stream(self._streams, key, entry.number - entry.start))
            numbers.append(entry.next_number(self._memory))
            if not (entry.closed and self._frozen):
                ledger.reopen(name)
                ledger.enliven(name, belief, unsure)
                entry.key = key
        if can_stack(self._rule, beliefs):
            arms, scores = decide(self._rule, beliefs, tables, streams)
            forced = np.zeros(len(names), dtype=bool)
        else:
            picks = [
                self._rule.choose(belief, table, self._rng(stream.key, stream.place))
                for belief, table, stream in zip(beliefs, tables, streams, strict=True)
            ]
            arms = np.array([pick.arm for pick in picks], dtype=np.intp)
            scores = np.array([float(pick.score) for pick in picks])
            forced = np.array([bool(pick.forced) for pick in picks])
        arms.flags.writeable = scores.flags.writeable = False  # choices are built from them later
        build = builder(
            self._rule,
            self._streams.seed,
            self._origin,
            arms,
            scores,
            names,
            numbers,
            beliefs,
            tables,
            streams,
            forced,
        )
        return Choices(arms, scores, names, build)

    def _learn(self, choice: Any, reward: Any, task: str | None) -> bool:
        """Check everything first, then learn: nothing changes if anything is refused."""
        if type(choice) is Choice and type(reward) in (float, np.float64):
            return self._learn_one(choice, float(reward), task)
        single = isinstance(choice, (Choice, str))
        choices, rewards = ([choice], [reward]) if single else pair_up(choice, reward)
        rounds = []
        fresh: set[tuple[str, int]] = set()
        for item, value in zip(choices, rewards, strict=True):
            known = self._known_choice(item, task)
            number = checks.real("reward", value)
            if abs(number) > LARGEST:
                raise checks.refuse("reward", f"below {LARGEST:g} in size", value)
            mark = (known.task, known.number)
            if mark in fresh or self._entry(known.task).was_learned(known.number):
                raise self._learned_already(known)
            fresh.add(mark)
            rounds.append((known, number))
        if self._frozen:
            return False
        for known, number in rounds:
            self._ledger.learn(known.task, known.context, number, known.forced)
            self._ledger.entries[known.task].mark_learned(known.number, self._memory)
        return True

    def _learn_one(self, choice: Choice, reward: float, task: str | None) -> bool:
        """The usual case: one choice, one number."""
        if choice.origin is not self._origin or choice.task != task:
            self._known_choice(choice, task)
        if not -LARGEST <= reward <= LARGEST:
            checks.real("reward", reward)
            raise checks.refuse("reward", f"below {LARGEST:g} in size", reward)
        entry = self._entry(choice.task)
        if entry.was_learned(choice.number):
            raise self._learned_already(choice)
        if self._frozen:
            return False
        self._ledger.learn(choice.task, choice.context, reward, choice.forced)
        entry.mark_learned(choice.number, self._memory)
        return True

    def _learned_already(self, choice: Choice) -> ChoiceError:
        """The refusal of a choice that was learned from."""
        return ChoiceError(
            f"choice {choice.id} was learned from already, or is older than the "
            f"{self._memory} choices that are remembered"
        )

    def _known_choice(self, item: Any, task: str | None) -> Choice:
        """A choice of this bandit (and task), from the object or its token."""
        if isinstance(item, str):
            item = Choice.from_token(item, self._origin)
        if not isinstance(item, Choice):
            raise checks.refuse("choice", "a Choice, a token, or a sequence of these", item)
        if item.origin != self._origin:
            raise ChoiceError(f"choice {item.id} is unknown: it belongs to another bandit")
        if task is not None and item.task != task:
            raise ChoiceError(f"choice {item.id} belongs to task {item.task!r}, not {task!r}")
        self._entry(item.task)
        return item

    def _predict(self, name: str, contexts: Any, level: float, of_reward: bool) -> Prediction:
        level = checks.fraction("level", level, open_ends=True)
        with self._lock, self._ledger.looking():
            self._entry(name)
            table, _ = self._features.read(contexts)
            belief, _ = self._ledger.belief(name, keep=False)
        mean, width = belief.predict(table), belief.width(table)
        spread = belief.noise * (np.sqrt(1.0 + width**2) if of_reward else width)
        from scipy.special import ndtri

        half = float(ndtri(0.5 + level / 2.0)) * spread
        return Prediction(mean, mean - half, mean + half, level)


def load(path: PathLike, *, transfer: Transfer | None = None, rule: Rule | None = None) -> Bandit:
    """The bandit that was saved at a path, to continue exactly where it was.

    Pass ``transfer`` or ``rule`` if they were of your own kind: a file holds settings, never code.
    """
    return Bandit.load(path, transfer=transfer, rule=rule)


def pair_up(choices: Any, rewards: Any) -> tuple[list[Any], list[Any]]:
    """As many rewards as choices, both as lists."""
    sequence = isinstance(choices, (list, tuple, Sequence)) and not isinstance(choices, bytes)
    if not sequence and not (isinstance(choices, np.ndarray) and choices.ndim == 1):
        raise checks.refuse("choice", "a Choice, a token, or a sequence of these", choices)
    try:
        listed = list(rewards)
    except TypeError:
        raise checks.refuse("reward", f"{len(choices)} numbers, one per choice", rewards) from None
    if len(listed) != len(choices):
        raise InputError(
            f"reward must hold as many numbers as there are choices, {len(choices)}; "
            f"got {len(listed)}"
        )
    return list(choices), listed
