"""What users hold: a :class:`Bandit` for all tasks, a :class:`~headstart.Task` for each."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from headstart import checks
from headstart.bandit.batch import Choices, builder, odds_of
from headstart.bandit.choice import Choice
from headstart.bandit.journal import Journal, Replayed, lines
from headstart.bandit.ledger.entries import Entry, next_epoch
from headstart.bandit.ledger.ledger import Ledger, Told
from headstart.bandit.report import Report, expected_gain
from headstart.bandit.task import Prediction, Task
from headstart.errors import ChoiceError, HeadstartError, InputError, TaskError
from headstart.features.contexts import LARGEST, Features, Sizes, allowed_arms, checked_reward
from headstart.model.base import BasePrior
from headstart.model.evidence import Evidence
from headstart.random import Stream, Streams, seed_as_integer
from headstart.records import Array, set_read_only
from headstart.rules import UCB, Rule
from headstart.transfer import EmpiricalBayes, Transfer

if TYPE_CHECKING:
    from headstart.random import Seed
    from headstart.storage.tensor_file import PathLike

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
        Whether to add a constant feature, for rewards that do not average zero; ``prior.mean`` then
        has ``dim`` + 1 entries, the intercept last. Unless given, there is one where the transfer
        takes the units of features from data: :class:`~headstart.transfer.EmpiricalBayes`, the
        default, and :class:`~headstart.transfer.Mixture`.
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
    (as they do by default), or the first offers tell the units of features, decisions depend on how
    the calls for different tasks interleave. They do not with
    ``EmpiricalBayes(running=False, units="given")``, or with a transfer that neither counts running
    tasks nor is unit-free, as long as no task is closed meanwhile and no more than ``live`` are in
    use (a task that comes back has a new root of the same covariance, and Thompson draws go through
    the root).
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
        intercept: bool | None = None,
        live: int = 256,
        memory: int = 4096,
        half_life: float | None = None,
    ) -> None:
        dim = checks.dimension(dim)
        if intercept is not None:
            intercept = checks.flag("intercept", intercept)
        transfer = EmpiricalBayes() if transfer is None else transfer
        rule = UCB() if rule is None else rule
        if not isinstance(transfer, Transfer):
            raise checks.refuse("transfer", "a Transfer, such as headstart.Subspace()", transfer)
        if not isinstance(rule, Rule):
            raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
        intercept = transfer.unit_free if intercept is None else intercept
        features = Features(dim, intercept=intercept)
        transfer = transfer.with_constant(intercept)
        if isinstance(noise, str):
            checks.one_of("noise", noise, ("auto",))
        scale = None if isinstance(noise, str) else checks.positive("noise", noise)
        if half_life is not None:
            half_life = checks.positive("half_life", half_life)
        live = checks.integer("live", live, 1)
        ledger = Ledger(features.dim, transfer, scale, live, half_life)
        rule.check_bandit(transfer.prior(ledger.state), transfer, scale, half_life)
        if transfer.keeps_forced and not rule.forces:
            warnings.warn(
                f"{transfer!r} learns from forced rounds alone, and {rule!r} has none: no prior "
                f"will be learned. Use rule=headstart.Forced(rounds, {rule!r}).",
                stacklevel=2,
            )
        self._features = features
        self._offers = 0
        self._rule = rule
        self._memory = checks.integer("memory", memory, 1)
        self._streams = Streams(seed_as_integer(seed))
        self._origin = os.urandom(16)  # marks this bandit's choices; no decision depends on it
        self._frozen = False
        self._ledger = ledger
        self._put_sizes(Sizes.none(dim))
        self._begin()

    def _begin(self) -> None:
        """Take what no copy shares with another: the lock, and the generator of random numbers."""
        self._lock = threading.RLock()
        self._streams = Streams(self._streams.seed)
        BANDITS.add(self)

    def _forked(self) -> None:
        """Begin anew in a process that was forked, whatever other threads were doing."""
        self._begin()
        self._ledger.epoch = next_epoch(self._ledger.epoch)

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy holds: books of its own, and all settings."""
        with self._lock:
            self._ledger.finish()
            own = {"_lock": None, "_streams": self._streams.seed, "_ledger": self._ledger.copied()}
            return self.__dict__ | own

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"_streams": Streams(state["_streams"])})
        self._forked()

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
    def prior(self) -> BasePrior:
        """What a new task would start from."""
        with self._lock, self._ledger.looking():
            prior: BasePrior = self._ledger.prior(keep=False)
            return prior

    @property
    def frozen(self) -> bool:
        """Whether learning is stopped."""
        return self._frozen

    def __len__(self) -> int:
        with self._lock:
            self._ledger.finish()
            return len(self._ledger.entries)

    def __contains__(self, task: object) -> bool:
        try:
            name = checks.task_name(task)
        except InputError:
            return False
        with self._lock:
            self._ledger.finish()
            return name in self._ledger.entries

    def __iter__(self) -> Iterator[str]:
        """The ids of all tasks, in the order they were made."""
        with self._lock:
            self._ledger.finish()
            return iter(list(self._ledger.entries))

    def task(self, id: str | int) -> Task:
        """The task with this id: made if it is new, resumed if it is known.

        A whole number is the same id as its decimal digits.
        """
        name = checks.task_name(id)
        with self._lock:
            self._ledger.finish()
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
            self._ledger.finish()
            tables = self._features.read_many(contexts, len(names))
            sizes = self._sizes
            if len(names):
                sizes = self._sized(tables.reshape(-1, self.dim), float(np.vdot(tables, tables)))
            for name in names:
                entry = self._ledger.entries.get(name)
                if entry is not None and entry.belief is None:
                    self._ledger.check_sums(name, self._ledger.evidence(entry))
            for name in names:
                self._ledger.open(name)
            choices = self._choose_together(names, tables)
            self._offers += 1
            self._put_sizes(sizes)
            return choices

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
        Either all of them are learned from or, if one is refused, none. An exception that comes
        from outside (Ctrl-C, a signal's handler, a time limit) changes nothing of that: try again,
        and if it was learned from already, a :class:`ChoiceError` says so.
        """
        with self._lock:
            return self._learn(choice, reward, None)

    def replay(self, journal: Journal | PathLike) -> Replayed:
        """Learn from the rewards in a journal that are not learned from yet.

        After a crash: load the last file, then replay the journal. Rewards that are in the file
        already are passed over, so a journal may reach back further than the file, and may be
        replayed more than once. Tasks that were made after the file was saved are made again.

        Parameters
        ----------
        journal
            A :class:`Journal`, or its path.
        """
        counts = {True: 0, False: 0}
        refused: dict[int, str] = {}
        damaged: list[int] = []
        for line in lines(journal):
            if line.token is None:
                damaged.append(line.number)
                continue
            with self._lock:
                self._ledger.finish()
                if self._frozen:
                    raise HeadstartError("the bandit is frozen: unfreeze it to replay a journal")
                try:
                    counts[self._replay(line.token, line.reward)] += 1
                except (ChoiceError, InputError, TaskError) as error:
                    refused[line.number] = str(error)
        return Replayed(counts[True], counts[False], refused, damaged)

    def _replay(self, token: str, reward: Any) -> bool:
        """Learn from a token, unless that was done before; its task is made if it is new."""
        ledger = self._ledger
        choice = Choice.from_token(token, self._origin)
        self._check_hand_made(choice)
        number = checked_reward(reward)
        name, mark = choice.task, (choice.epoch, choice.number)
        if name not in ledger.entries:
            if choice.number < ledger.first_number:
                raise TaskError(f"task {name!r} of choice {choice.id} was deleted")
            ledger.open(name, choice.epoch)
        if ledger.entries[name].was_learned(*mark):
            return False
        context = self._features.changed(choice.context)
        ledger.learn(name, *mark, context, number, choice.forced, self._memory)
        return True

    def save(self, path: PathLike) -> None:
        """Write everything to a file, atomically; :func:`load` continues exactly from there."""
        from headstart.bandit import snapshot  # here, because importing headstart must stay cheap

        with self._lock:
            self._ledger.finish()
            content = snapshot.pack(
                snapshot.Saved(
                    self._ledger,
                    self._rule,
                    self._features,
                    self._sizes,
                    self._offers,
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
        """The bandit that was saved; pass ``transfer`` or ``rule`` if they are of your own kind.

        It decides as the saved one would have. Its choices have an epoch of their own: a token made
        after the file was saved is never taken for one of them.
        """
        from headstart.bandit import snapshot

        if transfer is not None and not isinstance(transfer, Transfer):
            raise checks.refuse("transfer", "a Transfer, such as headstart.Subspace()", transfer)
        if rule is not None and not isinstance(rule, Rule):
            raise checks.refuse("rule", "a Rule, such as headstart.UCB()", rule)
        found = snapshot.unpack(path, transfer, rule)
        bandit = cls.__new__(cls)
        bandit._features = found.features
        bandit._offers = found.offers
        bandit._rule = found.rule
        bandit._memory = found.memory
        bandit._streams = Streams(found.seed)
        bandit._origin = found.origin
        bandit._frozen = found.frozen
        bandit._ledger = found.ledger
        bandit._put_sizes(found.sizes)
        bandit._forked()
        return bandit

    def report(self) -> Report:
        """What was learned: tasks, subspace, eigenvalues, and the gain expected for a new task."""
        with self._lock, self._ledger.looking():
            ledger = self._ledger
            ledger.settle()
            prior = ledger.prior(keep=False)
            whole = prior.as_gaussian()
            running = ledger.running(None)
            explained = ledger.transfer.explain(ledger.joined(ledger.state, None))
            base = ledger.base
            total = Evidence.zero(ledger.dim) if base is None else base.pooled
            fitted = 0 if base is None else int(base.tasks)
            rounds = total.rounds + sum(entry.rewards for entry in ledger.entries.values())
            for name in (*ledger.closed, *running):
                evidence = ledger.evidence(ledger.entries[name])
                total = total + evidence.replace(forced=None)
            gram = total.gram / max(total.rounds, 1.0)
            finished = len(ledger.closed) + fitted
            tasks = finished + len(running)
            constant = ledger.dim - 1 if self._features.intercept else None
            return Report(
                transfer=repr(ledger.transfer),
                rule=repr(self._rule),
                dim=ledger.dim,
                open_tasks=len(ledger.entries) - len(ledger.closed),
                closed_tasks=finished,
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
                counted_tasks=tasks,
            )

    def _entry(self, name: str) -> Entry:
        """A task's entry, or a helpful refusal; the lock is held."""
        ledger = self._ledger
        if ledger.unfinished or ledger.batch:
            ledger.finish()
        entry = ledger.entries.get(name)
        if entry is None:
            raise TaskError(f"task {name!r} is unknown here: it was deleted, or never made")
        return entry

    def _choose(self, name: str, contexts: Any, exclude: Any) -> Choice:
        with self._lock:
            ledger, features, rule = self._ledger, self._features, self._rule
            entry = self._entry(name)
            given, energy, names = features.read(contexts)
            sizes = self._sized(given, energy)
            allowed = None if exclude is None else allowed_arms(exclude, len(given))
            # A new array: propensities may be asked for much later.
            table = features.changed(given)
            told = None
            if ledger.blank and not self._frozen:
                told = ledger.state, ledger.offers, ledger.blank
                ledger.offer(table)
            belief, unsure = entry.belief, entry.unsure
            key = self._streams.key(name) if entry.key is None else entry.key
            number, position = entry.number, entry.number - entry.start
            rng: Any = Stream(self._streams, key, position)
            try:
                if belief is None:
                    belief, unsure = ledger.build(name)
                arm, score, forced = rule.choose(belief, table, rng, allowed)
            except BaseException:
                if told is not None:
                    ledger.put_offers(*told)  # what was refused has told nothing
                raise
            if entry.number != number or (entry.belief is not belief and entry.belief is not None):
                raise TaskError(
                    f"task {name!r} was changed by another call while it was choosing (did a "
                    f"signal handler, or the rule, use the bandit?): choose again"
                )
            # Nothing can be refused any more: from here on, things change.
            if not entry.closed or not self._frozen:
                if entry.closed:
                    ledger.reopen(name)
                ledger.enliven(name, belief, unsure)
                entry.key = key
            ledger.number_choice(entry, self._memory)
            epoch = ledger.epoch
            self._offers += 1
            if sizes is not self._sizes:
                self._put_sizes(sizes)
            if names is not features.names:
                self._features = features._replace(names=names)
        odds = partial(odds_of, rule, belief, table, self._streams.seed, key, position, allowed)
        row = set_read_only(table[arm].copy())
        context = (
            row[: features.given] if features.scale is None else set_read_only(given[arm].copy())
        )
        origin = self._origin
        return Choice(arm, score, name, number, bool(forced), context, origin, odds, epoch, row)

    def _close(self, name: str) -> None:
        """Fold a task into the prior; others may choose and learn while the fit is computed."""
        ledger = self._ledger
        for left in reversed(range(TRIES)):
            with self._lock:
                entry = self._entry(name)
                if self._frozen or entry.closed:
                    return
                state, rewards, evidence = ledger.state, entry.rewards, ledger.evidence(entry)
                ledger.check_sums(name, evidence)
                owed = ledger.owing.get(name)
                known = ledger.stale or not evidence.rounds
            folded = state
            if not known and owed is not None:  # what it had shown before it went on
                folded = ledger.transfer.fold(folded, owed, -1.0)
            if not known:
                folded = ledger.transfer.fold(folded, evidence, 1.0)
            with self._lock:
                same = self._entry(name) is entry and entry.rewards == rewards
                same = same and ledger.state is state and ledger.owing.get(name) is owed
                if not self._frozen and (known or same or not left):
                    ledger.close(name, folded if same and not known else None)
                    return
            # Another call has changed something meanwhile: once more.

    def _sized(self, given: Array, energy: float) -> Sizes:
        """How large features usually are after an offer, which is refused if it is far out.

        ``energy`` is the sum of squares of the offer.
        """
        offers, sizes = self._offers, self._sizes
        due = offers < 16 or offers & (offers - 1) == 0  # the first ones, then fewer and fewer
        if not due and (energy <= self._sound or (np.abs(given) <= self._limits).all()):
            return sizes
        found = sizes.with_offer(given, self._features)
        return found if due and not self._frozen else sizes

    def _put_sizes(self, sizes: Sizes) -> None:
        """Keep what was seen of the features' sizes."""
        self._sizes, self._limits = sizes, sizes.limits
        self._sound = float(self._limits.min()) ** 2  # no value is larger than all of them
        self._ledger.usual = sizes.usual(self._features)

    def _choose_together(self, names: list[str], given: Array) -> Choices:
        """One choice for each task; the lock is held, and everything is checked."""
        ledger = self._ledger
        tables = self._features.changed(given)
        beliefs, streams, numbers = [], [], []
        # In order: a task that runs on, or goes idle, changes what others see.
        for name, table in zip(names, tables, strict=True):
            entry = ledger.entries[name]
            if ledger.blank and not self._frozen:
                ledger.offer(table)
            belief, unsure = ledger.belief(name)
            beliefs.append(belief)
            key = self._streams.key(name) if entry.key is None else entry.key
            streams.append(Stream(self._streams, key, entry.number - entry.start))
            numbers.append(entry.number)
            ledger.number_choice(entry, self._memory)
            if not (entry.closed and self._frozen):
                ledger.reopen(name)
                ledger.enliven(name, belief, unsure)
                entry.key = key
        arms, scores, forced = self._rule.choose_many(beliefs, tables, streams)
        arms.flags.writeable = scores.flags.writeable = False  # choices are built from them later
        build = builder(
            self._rule,
            self._streams.seed,
            self._origin,
            ledger.epoch,
            arms,
            scores,
            names,
            numbers,
            beliefs,
            tables,
            given,
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
        batch: list[Told] = []
        fresh: set[tuple[str, int, int]] = set()
        for item, value in zip(choices, rewards, strict=True):
            known = self._known_choice(item, task)
            number = checked_reward(value)
            mark = (known.task, known.epoch, known.number)
            if mark in fresh or self._entry(known.task).was_learned(known.epoch, known.number):
                raise self._learned_already(known)
            fresh.add(mark)
            batch.append((*mark, self._features.changed(known.context), number, known.forced))
        if self._frozen:
            return False
        self._ledger.learn_all(batch, self._memory)
        return True

    def _learn_one(self, choice: Choice, reward: float, task: str | None) -> bool:
        """The usual case: one choice of this very bandit, one number."""
        ledger, name, epoch, number = self._ledger, choice.task, choice.epoch, choice.number
        if ledger.unfinished or ledger.batch:
            ledger.finish()
        context = choice.row
        if context is None or choice.origin is not self._origin or name != task:
            self._known_choice(choice, task)
        if not -LARGEST <= reward <= LARGEST:
            reward = checked_reward(reward)
        entry = ledger.entries.get(name) or self._entry(name)
        if entry.was_learned(epoch, number):
            raise self._learned_already(choice)
        if self._frozen:
            return False
        if context is None:
            context = self._features.changed(choice.context)
        ledger.learn(name, epoch, number, context, reward, choice.forced, self._memory)
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
        if item.row is None:
            check_identity(item)
        if item.origin != self._origin:
            raise ChoiceError(f"choice {item.id} is unknown: it belongs to another bandit")
        if task is not None and item.task != task:
            raise ChoiceError(f"choice {item.id} belongs to task {item.task!r}, not {task!r}")
        if item.row is None:
            self._check_hand_made(item)
        self._entry(item.task)
        return item

    def _check_hand_made(self, choice: Choice) -> None:
        """Refuse what no choice of this bandit can hold: anybody can make a ``Choice``."""
        check_identity(choice)
        context, dim = choice.context, self.dim
        if type(choice.forced) is not bool:
            raise checks.refuse("choice.forced", "True or False", choice.forced)
        want = f"a vector of {dim} finite numbers (float64)"
        if type(context) is not np.ndarray or context.dtype != np.float64:
            raise checks.refuse("choice.context", want, context)
        if context.shape != (dim,):
            raise checks.refuse("choice.context", want, context)
        if not np.abs(checks.finite_array("choice.context", context, want)).max() <= LARGEST:
            raise InputError(f"choice.context must be below {LARGEST:g} in size everywhere")

    def _predict(self, name: str, contexts: Any, level: float, of_reward: bool) -> Prediction:
        level = checks.fraction("level", level, open_ends=True)
        of_reward = checks.flag("of_reward", of_reward)
        with self._lock, self._ledger.looking():
            self._entry(name)
            table = self._features.changed(self._features.read(contexts)[0])
            belief = self._ledger.belief_at(name, table)
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


TRIES = 4  # how often a fit is computed before nobody else may change anything meanwhile

#: Every bandit of this process, for the processes that are forked from it.
BANDITS: weakref.WeakSet[Bandit] = weakref.WeakSet()


def begin_after_fork() -> None:
    """Give the bandits of a forked process locks of their own: others may be held for ever."""
    for bandit in list(BANDITS):
        bandit._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=begin_after_fork)


def check_identity(choice: Choice) -> None:
    """Refuse a ``Choice`` whose bandit, task or number are nothing of the kind."""
    number, epoch = choice.number, choice.epoch
    if type(choice.task) is not str:
        raise checks.refuse("choice.task", "a task's id, as text", choice.task)
    if type(choice.origin) is not bytes:
        raise checks.refuse("choice.origin", "a key of bytes", choice.origin)
    if type(number) is not int or not 0 <= number < 2**61:
        raise checks.refuse("choice.number", "a whole number, 0 or more", number)
    if type(epoch) is not int or not 0 <= epoch < 2**64:
        raise checks.refuse("choice.epoch", "a whole number of 64 bits", epoch)


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
