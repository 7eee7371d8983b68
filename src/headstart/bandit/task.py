"""One task of a bandit, as users hold it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

from headstart import checks
from headstart.bandit.choices.choice import Choice
from headstart.bandit.files.journal import Journal
from headstart.bandit.offline.observation import observe_rounds
from headstart.bandit.state import BanditState
from headstart.features.requests import request_of
from headstart.model.base import BaseBelief
from headstart.model.evidence import Evidence
from headstart.records import Array

if TYPE_CHECKING:
    from headstart.bandit.reports.explanation import Explanation

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
    """One task of a bandit: a lightweight handle, which may be kept or obtained again.

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
        """The number of rewards that were learned."""
        return self._state.reward_count(self._id)

    @property
    def evidence(self) -> Evidence:
        """The sufficient statistics of its rounds."""
        return self._state.evidence(self._id)

    @property
    def belief(self) -> BaseBelief:
        """The posterior given the task's evidence, under a prior that excludes this evidence.

        The prior of one of many closed tasks may include it, where that hardly changes the belief.
        """
        return self._state.belief(self._id)

    @overload
    def choose(
        self,
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: None = None,
    ) -> Choice: ...
    @overload
    def choose(
        self,
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: int,
    ) -> list[Choice]: ...
    def choose(
        self,
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: int | None = None,
    ) -> Choice | list[Choice]:
        """Choose one of the arms on offer, or several different ones.

        Parameters
        ----------
        contexts : array_like of shape (K, dim), or data frame
            One row of features per arm. With a schema, the actions.
        exclude : sequence of int, of bool or of ids, default None
            Arms that must not be picked: row numbers, a mask, or ids of actions. Whole numbers are
            rows if any id is text, and ids otherwise.
        context : dict, optional
            With a schema, the fields of the context by name. They may be columns of a frame of
            actions instead.
        actions : list of dict, data frame, array with names, or list of ids, optional
            With a schema, the actions on offer: each a dict of its fields and its ``id``, or a row.
        k : int, optional
            How many arms to pick, for example the length of a list that is shown.

        Returns
        -------
        Choice or list of Choice
            With ``k``, a list of ``k`` choices of different arms, best first. Each is learned from
            by itself, and its propensities are those given the arms before it in the list.

        Notes
        -----
        Position after position, the rule picks among the arms that are left. A draw of Thompson
        sampling ranks all arms, unless its rule explores uniformly (``explore``): then every
        position has a draw of its own. All choices of a list are made from the same belief.

        Examples
        --------
        >>> import headstart as hs
        >>> task = hs.Bandit(dim=2, seed=0).task("user-42")
        >>> choices = task.choose([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]], k=2)
        >>> task.learn(choices, [0.0, 1.0])
        True
        """
        if contexts is None or context is not None or actions is not None:
            contexts = request_of(contexts, context, actions)
        return self._state.choose(self._id, contexts, exclude, k)

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
        reward : float or bool, or a sequence of these
            A finite number (0 or 1 with ``reward="binary"``, a cost with ``minimize=True``), or as
            many as there are choices.

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

    def observe(
        self,
        contexts: Any,
        rewards: Any,
        weight: Any = None,
        *,
        mean_of: Any = None,
        context: Any = None,
        journal: Journal | None = None,
    ) -> bool:
        """Learn from rounds that were not choices of this bandit, such as rows of a log.

        Parameters
        ----------
        contexts : array_like of shape (n, dim), or data frame
            The context of the arm that was picked in each round. With a schema, rows as
            :meth:`choose` takes them, with the fields of the context as further columns.
        rewards : array_like of shape (n,)
            The reward of each round.
        weight : float, or array_like of shape (n,), optional
            How often each round counts: 1 unless given. A round of weight w counts as w equal
            ones; one of weight 0 is left out.
        mean_of : float, or array_like of shape (n,), optional
            Of how many rewards each reward is the mean: 1 unless given. A mean of n rewards has
            1/n of the variance of a single one, and counts as one round.
        context : dict, optional
            With a schema, the fields of the context, if they are the same in all rounds.
        journal : Journal, optional
            Where the rounds are recorded before they are learned from. :meth:`Bandit.replay` learns
            from them once, unless that was done before.

        Returns
        -------
        bool
            ``False`` if the bandit is frozen and nothing was learned, else ``True``.

        Notes
        -----
        The evidence is the same as if the bandit had chosen these contexts and learned these
        rewards, and does not depend on how rounds are divided into calls. With
        ``reward="binary"`` it depends a little on the belief at the time. Unlike ``learn``, it
        cannot tell whether rounds are passed twice: after an exception from outside (Ctrl-C, a time
        limit), :attr:`rounds` says whether they were learned from.

        Examples
        --------
        >>> import headstart as hs
        >>> task = hs.Bandit(dim=2, seed=0).task("user-42")
        >>> task.observe([[1.0, 0.0], [0.0, 1.0]], [0.3, 0.8], weight=[1.0, 2.0])
        True
        >>> task.rounds, task.evidence.rounds
        (2, 3.0)
        """
        if context is not None:
            contexts = request_of(contexts, context, None)
        return observe_rounds(self._state, self._id, contexts, rewards, weight, mean_of, journal)

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

        With ``reward="binary"`` they are probabilities of a reward of 1, and intervals of single
        rewards begin and end at 0 or 1. With ``minimize=True`` they are expected costs.

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
        level = checks.fraction("level", level, open_ends=True)
        of_reward = checks.flag("of_reward", of_reward)
        belief, rows = self._state.belief_for(self._id, request_of(contexts, context, actions))
        interval = self._state.ledger.rewards.interval(belief, rows, level, of_reward)
        return Prediction(*interval, level)

    def explain(
        self, choice: Choice, *, against: int | str = "runner-up", level: float = 0.95
    ) -> Explanation:
        """Which features made an arm win, and what sets this task apart from the average one.

        Parameters
        ----------
        choice : Choice
            A choice of this task, made in this process: a token does not carry the other arms.
        against : "runner-up", "average" or int, default "runner-up"
            What the arm is compared with: the next best arm by the rule's index (by the expected
            reward if the rule draws at random), the mean of the other arms, or another arm.
        level : float, default 0.95
            The probability of the intervals.

        Returns
        -------
        Explanation
            A record that prints as two tables.

        Notes
        -----
        Everything is as it was when the choice was made. Later rewards do not change it.

        Examples
        --------
        >>> import headstart as hs
        >>> bandit = hs.Bandit(2, hs.Independent(), hs.Greedy(), noise=1.0, intercept=True, seed=0)
        >>> task = bandit.task("ann")
        >>> task.observe([[1.0, 0.0], [0.0, 1.0]] * 20, [3.0, 1.0] * 20)
        True
        >>> task.explain(task.choose([[1.0, 0.5], [0.0, 1.0]]))
        ann#0: arm 0 compared with arm 1 (intervals of 95%)
          expected reward +1.756 [+1.029, +2.483], bonus for being less known +0, propensity 1
          feature  chosen  other  contribution            interval
          x0            1      0        +1.608   [+0.4323, +2.784]
          x1          0.5      1       +0.1483  [-0.4396, +0.7362]
        what sets the task apart: coefficients compared with those of an average one
          feature       task          interval  average  difference
          x0           1.608   [0.4323, 2.784]        0      +1.608
          intercept    1.311   [0.1615, 2.461]        0      +1.311
          x1         -0.2966  [-1.472, 0.8791]        0     -0.2966
        """
        from headstart.bandit.reports.explanation import explain_choice

        return explain_choice(self._state, self._id, choice, against, level)

    def refresh(self) -> None:
        """Take the newest prior, which excludes this task's own evidence."""
        self._state.refresh(self._id)

    def close(self) -> None:
        """Add the task's evidence to the prior, once.

        Late rewards are still learned and folded in. Choosing again reopens the task, and takes no
        longer than for a task that was never closed; so a user who may return can be closed after
        every visit. With the default transfer this is not necessary, because running tasks count as
        well: close a task when it is over, or has not been used for a long time.
        """
        self._state.close(self._id)

    def delete(self) -> None:
        """Delete the task: its evidence, and what it contributed to the prior."""
        self._state.delete(self._id)
