"""One task of a bandit, as users hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headstart import checks
from headstart.features.reader import request_of
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.bandit.choice import Choice
    from headstart.bandit.state import BanditState
    from headstart.model.base import BaseBelief
    from headstart.model.evidence import Evidence

__all__ = ["Prediction", "Task"]


class Prediction(NamedTuple):
    """Expected rewards with intervals.

    Attributes
    ----------
    mean : ndarray of shape (K,)
        The expected reward of each arm.
    lower, upper : ndarray of shape (K,)
        The ends of the intervals.
    level : float
        The probability of each interval.
    """

    mean: Array
    lower: Array
    upper: Array
    level: float


class Task:
    """One task of a bandit: a light handle, to be kept or asked for anew each time.

    Get one with :meth:`Bandit.task`.
    """

    __slots__ = ("_id", "_state")

    def __init__(self, state: BanditState, id: str) -> None:
        self._state = state
        self._id = id

    def __repr__(self) -> str:
        if not self._state.has_task(self._id):
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
        return self._state.is_closed(self._id)

    @property
    def rounds(self) -> int:
        """How many rewards it has seen."""
        return self._state.reward_count(self._id)

    @property
    def evidence(self) -> Evidence:
        """The sufficient statistics of its rounds."""
        return self._state.evidence(self._id)

    @property
    def belief(self) -> BaseBelief:
        """The posterior: a prior without the task's own evidence, and its evidence."""
        return self._state.belief(self._id)

    def choose(
        self,
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
    ) -> Choice:
        """Choose one of the arms on offer.

        Parameters
        ----------
        contexts : array_like of shape (K, dim), or data frame
            One row of features per arm. With a schema, the actions.
        exclude : sequence of int, of bool or of ids, default None
            Arms that must not be picked: row numbers, a mask, or ids of actions.
        context : dict, optional
            With a schema, the fields of the context by name. They may be columns of a frame of
            actions instead.
        actions : list of dict, data frame, array with names, or list of ids, optional
            With a schema, the actions on offer: each a dict of its fields and its ``id``, or a row.

        Returns
        -------
        Choice
        """
        return self._state.choose(self._id, request_of(contexts, context, actions), exclude)

    def encode(self, contexts: Any = None, *, context: Any = None, actions: Any = None) -> Any:
        """The rows that the schema makes of actions, as the task would choose from them now.

        ``choose`` accepts them in place of the actions and decides on them as they are, so that a
        decision can be repeated when more is known of the items.

        Parameters
        ----------
        contexts, context, actions
            As for :meth:`choose`.

        Returns
        -------
        EncodedRows
            With ``table``, an array of shape (K, dim), and ``labels``, the ids of the actions.
        """
        return self._state.encode(self._id, request_of(contexts, context, actions))

    def learn(self, choice: Any, reward: Any) -> bool:
        """Learn the reward of a choice of this task, or of several.

        Rewards may come late, in any order and after closing; each choice is learned from once.

        Parameters
        ----------
        choice : Choice, str, or a sequence of these
            A choice or its token.
        reward : float, or a sequence of float
            A finite number, or as many as there are choices.

        Returns
        -------
        bool
            ``False`` if the bandit is frozen and nothing was learned, else ``True``.

        Raises
        ------
        ChoiceError
            If a choice was learned from already, or belongs to another task or bandit.
        """
        return self._state.learn(choice, reward, self._id)

    def predict(
        self,
        contexts: Any = None,
        level: float = 0.95,
        *,
        context: Any = None,
        actions: Any = None,
        of_reward: bool = False,
    ) -> Prediction:
        """Expected rewards of arms, with intervals.

        Parameters
        ----------
        contexts, context, actions
            As for :meth:`choose`.
        level : float, default 0.95
            The probability with which an interval contains the expected reward.
        of_reward : bool, default False
            Whether the intervals are for single rewards, noise included.

        Returns
        -------
        Prediction
        """
        from scipy.special import ndtri

        level = checks.fraction("level", level, open_ends=True)
        of_reward = checks.flag("of_reward", of_reward)
        belief, rows = self._state.belief_for(self._id, request_of(contexts, context, actions))
        mean, width = belief.predict(rows), belief.width(rows)
        spread = belief.noise * (np.sqrt(1.0 + width**2) if of_reward else width)
        half = float(ndtri(0.5 + level / 2.0)) * spread
        return Prediction(mean, mean - half, mean + half, level)

    def refresh(self) -> None:
        """Take the newest prior, which never holds this task's own evidence."""
        self._state.refresh(self._id)

    def close(self) -> None:
        """Fold what the task has shown into the prior, once.

        Late rewards are still learned and folded in. Choosing again reopens the task, and costs as
        much as for a task that was never closed; so a user who may return can be closed after every
        visit. Where running tasks count anyway (the default), there is no need to: close a task
        when it is over, or has not been used for long.
        """
        self._state.close(self._id)

    def delete(self) -> None:
        """Delete the task: its evidence, and what it contributed to the prior."""
        self._state.delete(self._id)
