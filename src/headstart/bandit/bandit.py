"""The public object: a :class:`Bandit` holds all tasks and hands out a :class:`Task` for each."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from headstart import checks
from headstart.bandit.choices.batch import Choices, choose_many
from headstart.bandit.choices.choice import Choice
from headstart.bandit.files.encoding import check_kinds
from headstart.bandit.ledger.items import ItemLedger
from headstart.bandit.ledger.ledger import Ledger
from headstart.bandit.ledger.prior_state import StartingFit
from headstart.bandit.offline.from_data import BanditFromData
from headstart.bandit.rewards import reward_model
from headstart.bandit.state import BanditState
from headstart.bandit.task import Task
from headstart.features.conversion import Features
from headstart.features.reader import ContextReader
from headstart.features.requests import plain_contexts, request_of, requests_of
from headstart.features.schema.schema import Schema
from headstart.features.transformer import encoder_of
from headstart.random import seed_as_integer
from headstart.records import Array
from headstart.rules import UCB, Rule
from headstart.storage.atomic import PathLike
from headstart.transfer import EmpiricalBayes, Transfer

if TYPE_CHECKING:
    from headstart.random import Seed

__all__ = ["Bandit", "load"]


class Bandit(BanditFromData):
    """A contextual bandit for many related tasks, which learns the prior that they share.

    Parameters
    ----------
    dim : int, Schema or transformer
        The number of features of a context; a :class:`~headstart.Schema` of the fields of contexts
        and actions; or anything fitted that has ``transform`` and a fixed width, such as a
        scikit-learn ``ColumnTransformer``.
    transfer : Transfer, default EmpiricalBayes()
        How to learn a prior from other tasks.
    rule : Rule, default UCB()
        How to choose.
    noise : float or "auto", default "auto"
        R, the scale of the rewards' noise; ``"auto"`` estimates it from residuals.
    seed : int, numpy Generator, numpy SeedSequence or None, default None
        The same seed and the same calls give the same decisions. ``None`` draws a seed from the
        operating system.
    intercept : bool, optional
        Whether to add a constant feature, for rewards that do not average zero; ``prior.mean`` then
        has ``dim`` + 1 entries, the intercept last. The default is ``True`` for a transfer that
        takes the units of features from data (:class:`~headstart.EmpiricalBayes` and
        :class:`~headstart.Mixture`), and ``False`` otherwise.
    cache_size : int, default 256
        The number of beliefs that are cached. Any number of tasks may be open; of the least
        recently used ones only the evidence is kept, and their belief is computed from the newest
        prior when they are next used.
    choice_window : int, default 4096
        How many of a task's latest choices can still be learned from.
    half_life : float, optional
        For tasks whose parameter drifts: a reward counts half after this many later rewards of its
        task. By default nothing is forgotten. (With a half-life, learning from a reward takes
        O(d³).)
    reward : {"number", "binary"}, default "number"
        What rewards are. ``"number"``: any finite numbers, with the expectation xᵀθ. ``"binary"``:
        0 or 1 (clicks), which are 1 with the probability 1/(1 + exp(−xᵀθ)); ``noise`` must then be
        ``"auto"``, and :meth:`Task.predict` gives probabilities.
    minimize : bool, default False
        Whether rewards are costs. Scores and predictions are then costs; evidence, beliefs and the
        prior are those of the rewards of opposite sign.

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
    All methods are thread-safe: each call is atomic. Where running tasks count (the default), or
    the first contexts determine the units of features, decisions depend on the order of the calls
    for different tasks. They do not with ``EmpiricalBayes(running=False, units="given")``, or with
    a transfer that neither counts running tasks nor is unit-free, as long as no task is closed
    meanwhile and no more than ``cache_size`` tasks are in use (the root of a belief that was
    evicted is another root of the same covariance, and Thompson draws depend on the root).
    Contexts may be longer than 1: the bound ‖x‖ ≤ 1 matters to the theory radius only.
    """

    def __init__(
        self,
        dim: int | Any,
        transfer: Transfer | None = None,
        rule: Rule | None = None,
        noise: float | str = "auto",
        seed: Seed = None,
        *,
        intercept: bool | None = None,
        cache_size: int = 256,
        choice_window: int = 4096,
        half_life: float | None = None,
        reward: str = "number",
        minimize: bool = False,
    ) -> None:
        encoder = encoder_of(dim)
        names = None if encoder is None else encoder.feature_names
        if encoder is None and not checks.is_whole(dim):
            raise checks.invalid(
                "dim", "a whole number of features, a Schema or a transformer", dim
            )
        dim = checks.dimension(dim if names is None else len(names))
        if intercept is not None:
            intercept = checks.flag("intercept", intercept)
        transfer = EmpiricalBayes() if transfer is None else transfer
        rule = UCB() if rule is None else rule
        check_kinds(transfer, rule)
        intercept = transfer.unit_free if intercept is None else intercept
        features = Features(dim, names, intercept=intercept)
        transfer = transfer.with_constant(intercept)
        rewards = reward_model(reward, minimize)
        ledger = Ledger(
            features, encoder, transfer, rewards, noise, cache_size, choice_window, half_life
        )
        ledger.check_rule(rule)
        if transfer.keeps_forced and not rule.forces:
            warnings.warn(
                f"{transfer!r} learns from forced rounds alone, and {rule!r} has none: no prior "
                f"will be learned. Use rule=headstart.Forced(rounds, {rule!r}).",
                stacklevel=2,
            )
        seed = seed_as_integer(seed)
        reader = ContextReader(features, encoder=encoder)
        self._state = BanditState(ledger, rule, reader, seed, os.urandom(16))

    @classmethod
    def from_fit(
        cls,
        fit: StartingFit,
        features: Features,
        transfer: Transfer,
        rule: Rule | None = None,
        noise: float | str = "auto",
        seed: Seed = None,
        *,
        tasks: Iterable[tuple[Sequence[str], Array]] | None = None,
        reward: str = "number",
        minimize: bool = False,
        schema: Schema | None = None,
        items: ItemLedger | None = None,
    ) -> Self:
        """A bandit that starts from a prior fitted to logs (:meth:`headstart.fleet.Fitted.bandit`).

        Parameters
        ----------
        fit : StartingFit
            The state of the transfer, and the tasks it was fitted to.
        features : Features
            The columns of contexts.
        transfer : Transfer
            The transfer that was fitted.
        rule, noise, seed, reward, minimize
            As for :class:`Bandit`.
        tasks : iterable of (ids, packed evidence), optional
            The tasks that were fitted, if they are to be closed tasks of the bandit. Their evidence
            is then taken out of their own prior when they return.
        schema : Schema, optional
            The schema that makes the columns of contexts.
        items : ItemLedger, optional
            What was learned of items, if the schema knows them by their ids.
        """
        intercept = features.intercept
        dim = features.context_dim if schema is None else schema
        how: Any = {"intercept": intercept, "reward": reward, "minimize": minimize}
        bandit = cls(dim, transfer, rule, noise, seed, **how)
        bandit._state.start_from(fit, features, tasks, items)
        return bandit

    def __copy__(self) -> Self:
        return self._of(copy.copy(self._state))

    @classmethod
    def _of(cls, state: BanditState) -> Self:
        bandit = cls.__new__(cls)
        bandit._state = state
        return bandit

    def __repr__(self) -> str:
        ledger = self._state.ledger
        return (
            f"Bandit(dim={self.dim}, transfer={self.transfer!r}, rule={self.rule!r}, "
            f"{ledger.rewards.arguments(ledger.prior_state.noise)}) with {len(self)} tasks"
        )

    @property
    def dim(self) -> int:
        """The number of features of a context, without the intercept."""
        return self._state.reader.features.context_dim

    def task(self, id: str | int) -> Task:
        """The task with this id; a new task is created.

        Parameters
        ----------
        id : str or int
            The id; a whole number is the same id as its decimal digits.
        """
        name = checks.task_name(id)
        self._state.open(name)
        return Task(self._state, name)

    def delete(self, id: str | int) -> None:
        """Delete a task: its evidence, and what it contributed to the prior."""
        self._state.delete(checks.task_name(id))

    @overload
    def choose_many(
        self,
        ids: Sequence[str | int],
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: None = None,
    ) -> Choices: ...
    @overload
    def choose_many(
        self,
        ids: Sequence[str | int],
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: int,
    ) -> list[list[Choice]]: ...
    def choose_many(
        self,
        ids: Sequence[str | int],
        contexts: Any = None,
        exclude: Any = None,
        *,
        context: Any = None,
        actions: Any = None,
        k: int | None = None,
    ) -> Choices | list[list[Choice]]:
        """Choose for several tasks in one call: the same decisions as one by one, but faster.

        New tasks are created. Set ``cache_size`` to the number of tasks that are served at once;
        otherwise their beliefs are recomputed each time.

        Parameters
        ----------
        ids : sequence of str or int
            The tasks' ids.
        contexts : array_like of shape (tasks, arms, dim), or sequence of tables
            What is on offer to each task. Tables, one per task, may be arrays, lists or data
            frames, and differ in their number of arms.
        exclude : sequence, default None
            For each task, the arms that must not be picked (row numbers, a mask, or ids of
            actions), or ``None``.
        context : dict, or sequence of dict, optional
            With a schema, the context of all tasks, or of each.
        actions : sequence, optional
            With a schema, the actions on offer to all tasks, or a list of those of each.
        k : int, optional
            How many arms to pick for each task, as for :meth:`Task.choose`.

        Returns
        -------
        Choices, or list of list of Choice
            With ``k``, for each task a list of ``k`` choices of different arms, best first.

        Examples
        --------
        >>> import headstart as hs
        >>> bandit = hs.Bandit(dim=2, seed=0)
        >>> choices = bandit.choose_many(["ann", "bob"], [[[1.0, 0.0], [0.0, 1.0]]] * 2)
        >>> choices.arms.shape, choices[1].task
        ((2,), 'bob')
        >>> bandit.learn(choices, [1.0, 0.0])
        True
        >>> rankings = bandit.choose_many(["ann", "bob"], [[[1.0, 0.0], [0.0, 1.0]]] * 2, k=2)
        >>> [len(ranking) for ranking in rankings]
        [2, 2]
        """
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Sequence):
            raise checks.invalid("ids", "a list of task ids", ids)
        names = [checks.task_name(id) for id in ids]
        if self.schema is not None:
            contexts = requests_of(len(names), contexts, context, actions)
        else:
            contexts = plain_contexts(request_of(contexts, context, actions))
        return choose_many(self._state, names, contexts, exclude, k)

    def freeze(self) -> None:
        """Stop learning: ``learn`` and ``close`` change nothing, and tasks can still choose."""
        self._state.set_frozen(True)

    def unfreeze(self) -> None:
        """Resume learning."""
        self._state.set_frozen(False)

    def learn(self, choice: Any, reward: Any) -> bool:
        """Learn from a choice or a token of any task, or from several of them.

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
            If a choice was learned from already, or belongs to another bandit.

        Notes
        -----
        If one choice is refused, none is learned from. An exception from outside (Ctrl-C, a signal
        handler, a time limit) leaves nothing half done: try again, and if the choice was learned
        from already, a :class:`ChoiceError` says so.
        """
        return self._state.learn(choice, reward)

    def save(self, path: PathLike) -> None:
        """Write everything to a file, atomically; :func:`load` continues exactly from there."""
        from headstart.bandit.files import snapshot  # importing headstart must stay cheap
        from headstart.storage import tensor_file

        tensor_file.write(path, *snapshot.pack(self._state))

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        transfer: Transfer | None = None,
        rule: Rule | None = None,
        schema: Any = None,
    ) -> Self:
        """Load the bandit that was saved at a path.

        It makes the same decisions as the saved one would have. Its choices have a new epoch, so
        that tokens created after the file was saved are not confused with them.

        Parameters
        ----------
        path : str or path-like
            A file written by :meth:`save`.
        transfer, rule : Transfer, Rule, optional
            Those of the saved bandit, if they are not classes of this library: a file holds
            settings, never code.
        schema : transformer, optional
            The transformer of the saved bandit, if it has one. A :class:`~headstart.Schema` is in
            the file.
        """
        from headstart.bandit.files import snapshot

        check_kinds(transfer, rule)
        state = snapshot.unpack(path, transfer, rule, schema)
        state.separate()
        return cls._of(state)


load = Bandit.load
