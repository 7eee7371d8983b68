"""One task, as users hold it: a light handle on what the bandit keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from headstart.bandit.choice import Choice
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.bandit.bandit import Bandit
    from headstart.model.base import BaseBelief
    from headstart.model.evidence import Evidence

__all__ = ["Prediction", "Task"]


class Prediction(NamedTuple):
    """Expected rewards with intervals."""

    mean: Array
    lower: Array
    upper: Array
    level: float


class Task:
    """One task of a bandit: a light handle, to be kept or asked for anew each time.

    Get one with :meth:`Bandit.task`.
    """

    __slots__ = ("_bandit", "_id")

    def __init__(self, bandit: Bandit, id: str) -> None:
        self._bandit = bandit
        self._id = id

    def __repr__(self) -> str:
        if self._id not in self._bandit:
            return f"Task({self._id!r}, deleted)"
        state = "closed" if self.closed else "open"
        return f"Task({self._id!r}, {state}, {self.rounds} rounds)"

    @property
    def id(self) -> str:
        """The task's id."""
        return self._id

    @property
    def closed(self) -> bool:
        """Whether it is folded into the prior."""
        with self._bandit._lock:
            return self._bandit._entry(self._id).closed

    @property
    def rounds(self) -> int:
        """How many rewards it has seen."""
        with self._bandit._lock:
            return self._bandit._entry(self._id).rewards

    @property
    def evidence(self) -> Evidence:
        """What it has shown."""
        with self._bandit._lock:
            return self._bandit._ledger.evidence(self._bandit._entry(self._id))

    @property
    def belief(self) -> BaseBelief:
        """What is believed of it: a prior without its own evidence, plus its evidence."""
        with self._bandit._lock, self._bandit._ledger.looking():
            self._bandit._entry(self._id)
            return self._bandit._ledger.belief(self._id, keep=False)[0].sealed()

    def choose(self, contexts: Any, exclude: Any = None) -> Choice:
        """Choose among the arms on offer; a closed task runs on from here.

        Parameters
        ----------
        contexts
            One row per arm: an array, a list of lists, or a pandas or Polars frame. Any number of
            arms, different ones every time.
        exclude
            Rows that must not be picked: their numbers, or a mask.
        """
        return self._bandit._choose(self._id, contexts, exclude)

    def learn(self, choice: Any, reward: Any) -> bool:
        """Learn the reward of a choice of this task, or of many at once.

        Now, later, out of order, and after closing; each choice once.

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
        """
        with self._bandit._lock:
            if not isinstance(choice, Choice):  # a choice tells its task, and is checked by it
                self._bandit._entry(self._id)
            return self._bandit._learn(choice, reward, self._id)

    def predict(self, contexts: Any, level: float = 0.95, *, of_reward: bool = False) -> Prediction:
        """Expected rewards of arms, with intervals that hold them with probability ``level``.

        With ``of_reward`` the intervals are for single rewards, noise included.
        """
        return self._bandit._predict(self._id, contexts, level, of_reward)

    def refresh(self) -> None:
        """Take the newest prior, which never holds this task's own evidence."""
        with self._bandit._lock:
            self._bandit._entry(self._id)
            if not self._bandit._frozen:
                self._bandit._ledger.refresh(self._id)

    def close(self) -> None:
        """Fold what the task has shown into the prior, once.

        Late rewards are still learned and folded in; choosing again reopens it, and costs what it
        costs for a task that was never closed. So a user who may return can be closed after every
        visit. Where running tasks count anyway (as they do by default) there is no need to: close
        a task when it is over, or has not been seen for long.
        """
        self._bandit._close(self._id)

    def delete(self) -> None:
        """Forget the task: its evidence, and what it contributed to the prior."""
        self._bandit.delete(self._id)
