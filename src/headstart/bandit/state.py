"""The state of a bandit behind one lock: choosing, learning and closing, each call atomic."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from headstart import checks
from headstart.bandit.choices.batch import check_bounds, check_k, pair_up
from headstart.bandit.choices.choice import Choice, check_choice, choice_id
from headstart.bandit.choices.decision import Decision, make_choice, make_ranking
from headstart.bandit.ledger.entries import CachedTask
from headstart.bandit.ledger.fold_job import FoldJob, RefitJob
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.ledger import Ledger, RewardedChoice
from headstart.bandit.ledger.prior_state import StartingFit
from headstart.errors import ChoiceError, HeadstartError, TaskError
from headstart.features.conversion import Features, arms_not_excluded
from headstart.features.reader import ContextReader
from headstart.features.requests import plain_contexts
from headstart.features.schema.encoder import EncodedRows
from headstart.features.schema.rows import item_key
from headstart.features.usual_sizes import UsualSizes
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence
from headstart.random import Stream, Streams
from headstart.records import Array
from headstart.rules import Rule

MAX_FITS = 4  # of a task that is closed, before other calls have to wait for the last one


class BanditState:
    """What a bandit and its tasks share: the ledger, the rule, the reader of contexts and the lock.

    Parameters
    ----------
    ledger
        The tasks, their beliefs and the prior.
    rule
        The way to choose.
    reader
        Reads contexts.
    seed
        The seed of all random numbers.
    origin
        A random key that marks the choices of this bandit; no decision depends on it.
    is_frozen
        Whether learning is stopped.
    """

    def __init__(
        self,
        ledger: Ledger,
        rule: Rule,
        reader: ContextReader,
        seed: int,
        origin: bytes,
        *,
        is_frozen: bool = False,
    ) -> None:
        self.ledger = ledger
        self.rule = rule
        self.reader = reader
        self.seed = seed
        self.origin = origin
        self.is_frozen = is_frozen
        self.ledger.set_usual_sizes(reader.usual_sizes)
        self.create_lock()

    def create_lock(self) -> None:
        """Create what no copy shares: the lock, and the generator of random numbers."""
        self.lock = threading.RLock()
        self.streams = Streams(self.seed)
        STATES.add(self)

    def separate(self) -> None:
        """Continue apart from the process or the state that this is a copy of."""
        self.create_lock()
        self.ledger.entries.begin_epoch()

    def __getstate__(self) -> dict[str, Any]:
        with self.lock:
            self.ledger.finish()
            settings = {
                name: getattr(self, name) for name in ("rule", "seed", "origin", "is_frozen")
            }
            return settings | {"ledger": self.ledger.copy(), "reader": self.reader.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.separate()

    def start_from(
        self,
        fit: StartingFit,
        features: Features,
        tasks: Iterable[tuple[Sequence[str], Array]] | None,
        items: ItemLedger | None = None,
    ) -> None:
        """Start from a fit, before there are any tasks; with ``tasks``, these are closed tasks."""
        with self.lock:
            ledger = self.ledger.copy()
            ledger.set_items(items)
            ledger.entries.add_tasks(tasks or ())
            ledger.prior_state.start_from(fit, is_base=tasks is None)
            sizes = UsualSizes.of_fit(features, fit.pooled)
            reader = ContextReader(features, sizes, encoder=self.reader.encoder)
            ledger.set_usual_sizes(reader.usual_sizes)
            self.ledger.changes.commit(
                (setattr, self, "reader", reader), (setattr, self, "ledger", ledger)
            )

    def set_frozen(self, is_frozen: bool) -> None:
        """Stop or resume learning."""
        with self.lock:
            self.is_frozen = is_frozen

    def task_names(self) -> list[str]:
        """The ids of all tasks, in the order they were made."""
        with self.lock:
            self.ledger.finish()
            return list(self.ledger.entries)

    def open(self, name: str) -> None:
        """Make a task if it is new."""
        with self.lock:
            self.ledger.finish()
            self.ledger.entries.open(name)

    def delete(self, name: str) -> None:
        """Delete a task."""
        with self.lock:
            self.ledger.entry(name)
            self.ledger.delete(name)

    def has_task(self, name: str) -> bool:
        """Whether there is a task with this id."""
        with self.lock:
            self.ledger.finish()
            return name in self.ledger.entries

    def is_closed(self, name: str) -> bool:
        """Whether a task is closed."""
        with self.lock:
            self.ledger.entry(name)
            return name in self.ledger.prior_state.closed

    def reward_count(self, name: str) -> int:
        """How many rewards a task has seen."""
        with self.lock:
            return self.ledger.entry(name).reward_count

    def evidence(self, name: str) -> Evidence:
        """All that a task has shown."""
        with self.lock:
            self.ledger.entry(name)
            return self.ledger.entries.evidence(name)

    def prior(self) -> Any:
        """The prior of a new task."""
        with self.lock:
            self.ledger.finish()
            with self.ledger.prior_state.temporary_changes():
                return self.ledger.prior_state.prior(keep=False)

    def belief(self, name: str) -> BaseBelief:
        """The belief of a task."""
        with self.lock:
            self.ledger.entry(name)
            with self.ledger.prior_state.temporary_changes():
                return self.ledger.belief(name).set_read_only()

    def belief_for(self, name: str, contexts: Any) -> tuple[BaseBelief, Array]:
        """The belief of a task, were these contexts on offer, and the rows that the model sees."""
        with self.lock:
            self.ledger.entry(name)
            features = self.reader.features
            if self.reader.encoder is None:
                table = features.read(plain_contexts(contexts))[0]
            else:
                table = self.encode(name, contexts).table
            rows = features.transform(table)
            with self.ledger.prior_state.temporary_changes():
                return self.ledger.belief_for(name, rows), rows

    def encode(self, name: str, contexts: Any) -> EncodedRows:
        """The rows of actions, as a task would choose from them now."""
        with self.lock:
            self.ledger.entry(name)
            if self.reader.encoder is None:
                raise HeadstartError("the bandit has no schema: contexts are taken as they are")
            return self.reader.encode(contexts, self.ledger.item_writer(name))[0]

    def refresh(self, name: str) -> None:
        """Let a running task take the newest prior."""
        with self.lock:
            self.ledger.entry(name)
            if not self.is_frozen:
                self.ledger.refresh(name)

    def close(self, name: str) -> None:
        """Fold a task into the prior; other calls can proceed while the fit is computed."""
        prior_state, refit = self.ledger.prior_state, None
        for last in (*[False] * (MAX_FITS - 1), True):
            with self.lock:
                self.ledger.entry(name)
                if self.is_frozen or name in prior_state.closed:
                    return
                self.ledger.check_evidence(name, self.ledger.entries.evidence(name))
                job = FoldJob.of(prior_state, name)
            state = None if job is None else job.run(prior_state.transfer)
            with self.lock:
                self.ledger.entry(name)
                current = job is not None and job.is_current(prior_state, name)
                if not self.is_frozen and (job is None or current or last):
                    self.ledger.close(name, state if current else None)
                    refit = RefitJob.of(prior_state)
                    if refit is not None:  # one call refits, not those meanwhile
                        self.ledger.changes.commit((setattr, prior_state, "removal_count", 0))
                    break
            # Another call has changed something meanwhile: once more.
        if refit is not None:
            state = refit.run()
            with self.lock:
                self.ledger.finish()
                if not self.is_frozen and self.ledger.prior_state is prior_state:
                    refit.adopt(state)

    def choose(
        self, name: str, contexts: Any, exclude: Any, k: Any = None
    ) -> Choice | list[Choice]:
        """Choose an arm for a task, or with ``k`` rank ``k`` different ones, best first."""
        with self.lock:
            ledger, rule = self.ledger, self.rule
            entry = ledger.entry(name)
            writer = None if ledger.items is None else ledger.item_writer(name)
            offer = self.reader.read(contexts, writer)
            rows, allowed = offer.rows, None
            if exclude is not None:
                allowed = arms_not_excluded(exclude, len(rows), offer.ids())
            if k is not None:
                k = check_k(k, len(rows), allowed, ledger.choice_window)
            if rule.bounds is not None:
                check_bounds(rule, len(rows), allowed, 1 if k is None else k)
            cached, number, is_frozen = entry.cached, entry.next_number, self.is_frozen
            ready = ledger.ready_task(entry)
            if ready is None:
                prepared_choice = ledger.prepare_choice(name, rows, learn_units=not is_frozen)
                key = self.stream_key(name, cached)
            else:
                prepared_choice, key = (ready.belief, ready.alone, None), ready.stream_key
            belief = prepared_choice[0]
            rng: Any = Stream(self.streams, key, number - entry.first_number)
            if k is None:
                pick = rule.choose(belief, rows, rng, allowed)
            else:
                picks = rule.rank(belief, rows, rng, k, allowed)
            now = entry.cached
            has_changed = now is not None and (cached is None or now.belief is not cached.belief)
            if has_changed or entry.next_number != number:
                raise TaskError(
                    f"task {name!r} was changed by another call while it was choosing (did a "
                    f"signal handler, or the rule, use the bandit?): choose again"
                )
            # Nothing can be refused from here on.
            is_closed = name in ledger.prior_state.closed
            if ready is not None and entry.cached is ready and not is_closed:  # the usual case
                ledger.cache.touch(name)
            else:
                ledger.record_belief(name, prepared_choice, key, is_frozen)
            ledger.count_choices(entry, 1 if k is None else k)
            if ledger.items is not None:
                ledger.count_offer(name, offer.labels, allowed, is_frozen=is_frozen)
            if self.reader.accept(offer, is_frozen):
                ledger.set_usual_sizes(self.reader.usual_sizes)
            place = name, number, ledger.entries.epoch
        decision = Decision(rule, belief, rows, rng, allowed, offer.labels)
        if k is None:
            return make_choice(self, decision, pick, offer.contexts, place)
        return make_ranking(self, decision, picks, offer.contexts, place)

    def stream_key(self, name: str, cached: CachedTask | None) -> Any:
        """The key of a task's random streams."""
        if cached is None or cached.stream_key is None:
            return self.streams.key(name)
        return cached.stream_key

    def learn(self, choice: Any, reward: Any, task: str | None = None) -> bool:
        """Learn from one choice or several, of one task where it is given.

        Everything is checked first: nothing changes if anything is refused.
        """
        with self.lock:
            ledger = self.ledger
            if type(choice) is Choice:  # the usual case
                rewarded_choice = self.rewarded_choice(choice, reward, task)
                if self.is_frozen:
                    return False
                ledger.learn(rewarded_choice)
                return True
            ledger.finish()
            if task is not None and not isinstance(choice, Choice):  # which names its task
                ledger.entry(task)
            single = isinstance(choice, (Choice, str))
            choices, rewards = ([choice], [reward]) if single else pair_up(choice, reward)
            batch: dict[tuple[str, int, int], RewardedChoice] = {}
            for item, value in zip(choices, rewards, strict=True):
                rewarded_choice = self.rewarded_choice(self.choice_of(item), value, task)
                if rewarded_choice[:3] in batch:
                    raise self.learned_twice_error(*rewarded_choice[:3])
                batch[rewarded_choice[:3]] = rewarded_choice
            if self.is_frozen:
                return False
            ledger.learn_all(list(batch.values()))
            return True

    def choice_of(self, item: Any) -> Choice:
        """A choice, or that of a token."""
        choice = Choice.from_token(item, self.origin) if isinstance(item, str) else item
        if not isinstance(choice, Choice):
            raise checks.invalid("choice", "a Choice, a token, or a sequence of these", item)
        return choice

    def rewarded_choice(self, choice: Choice, reward: Any, task: str | None) -> RewardedChoice:
        """A choice with its reward; refused if it cannot be learned from."""
        name, epoch, number, row = choice.task, choice.epoch, choice.number, choice.row
        if row is None:
            check_choice(choice, self.origin, self.reader.features.context_dim)
            row = self.reader.features.transform(choice.context)
        elif choice.origin != self.origin:
            raise ChoiceError(f"choice {choice.id} is unknown: it belongs to another bandit")
        if task is not None and name != task:
            raise ChoiceError(f"choice {choice.id} belongs to task {name!r}, not {task!r}")
        ledger = self.ledger
        reward = ledger.rewards.read(reward)
        if ledger.entry(name).was_learned(epoch, number):
            raise self.learned_twice_error(name, epoch, number)
        item = None if ledger.items is None else item_key(choice.action)
        return name, epoch, number, row, reward, choice.forced, item

    def learned_twice_error(self, name: str, epoch: int, number: int) -> ChoiceError:
        """The refusal of a choice that was learned from."""
        return ChoiceError(
            f"choice {choice_id(name, number, epoch)} was learned from "
            f"already, or is older than the {self.ledger.choice_window} choices that are remembered"
        )

    def replay(self, token: str, reward: Any) -> bool:
        """Learn from a token, unless that was done before; its task is made if it is new."""
        with self.lock:
            choice = Choice.from_token(token, self.origin)
            check_choice(choice, self.origin, self.reader.features.context_dim)
            self.ledger.rewards.read(reward)
            if self.was_replayed(choice.task, choice.epoch, choice.number):
                return False
            self.ledger.learn(self.rewarded_choice(choice, reward, None))
            return True

    def was_replayed(self, name: str, epoch: int, number: int) -> bool:
        """Whether a choice was learned from; its task is made if it is new."""
        ledger, entries = self.ledger, self.ledger.entries
        ledger.finish()
        if self.is_frozen:
            raise HeadstartError("the bandit is frozen: unfreeze it to replay a journal")
        if name not in entries:
            if number < entries.first_number:
                id = choice_id(name, number, epoch)
                raise TaskError(f"task {name!r} of choice {id} was deleted")
            entries.open(name, epoch)
        return entries[name].was_learned(epoch, number)


#: The states of this process, for the processes that are forked from it.
STATES: weakref.WeakSet[BanditState] = weakref.WeakSet()


def separate_after_fork() -> None:
    """Give the states of a forked process new locks: the old ones may never be released."""
    for state in list(STATES):
        state.separate()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=separate_after_fork)
