"""Methods of a bandit that learn from data other than its own choices: rows, sums, journals.

A base class of :class:`~headstart.Bandit` holds them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Self

from headstart import checks
from headstart.bandit.files.journal import Journal, ReplayResult, replay_lines
from headstart.bandit.offline.observation import add_task_evidence, replay_entry
from headstart.bandit.queries import BanditQueries
from headstart.model.evidence import Evidence
from headstart.storage.atomic import PathLike


class BanditFromData(BanditQueries):
    """The part of a bandit that learns from data other than its own choices."""

    def add_evidence(self, id: str | int, evidence: Evidence) -> bool:
        """Add the sums of rounds that were not choices of this bandit to a task.

        Parameters
        ----------
        id : str or int
            The task; a new one is created.
        evidence : Evidence
            Sums over contexts as in ``task.evidence``: with the intercept last if the bandit has
            one, and standardized if the bandit was fitted with standardized features.

        Returns
        -------
        bool
            ``False`` if the bandit is frozen and nothing was learned, else ``True``.

        Notes
        -----
        A journal does not record it: save the bandit afterwards.
        """
        return add_task_evidence(self._state, checks.task_name(id), evidence)

    def fit(
        self,
        frame: Any,
        *,
        task: str,
        reward: str,
        weight: str | None = None,
        mean_of: str | None = None,
        features: Sequence[str] | None = None,
        standardize: bool = True,
    ) -> Self:
        """Learn the prior from rows in memory, as ``headstart fit`` does from logs.

        Afterwards the tasks of the rows are closed tasks of the bandit. A task that returns
        continues from its own evidence, under a prior that excludes it.

        Parameters
        ----------
        frame : pandas or Polars data frame, list of dict, array with names, or dict of arrays
            One row per round; with ``identity=True`` in order of time.
        task, reward : str
            The columns of the tasks' ids and of the rewards.
        weight : str, optional
            The column of the weights: a row of weight w counts as w equal rows.
        mean_of : str, optional
            The column that says of how many rewards a row's reward is the mean; 1 unless given.
        features : sequence of str, optional
            The columns of the features, in the order that arrays will have; by default all other
            columns. With a schema, its fields are used.
        standardize : bool, default True
            Whether features are centred (with an intercept) and divided by their standard
            deviations. The bandit then transforms every context in the same way.

        Notes
        -----
        Returns the bandit itself, which must have no tasks. Rows with missing values are refused.
        If the bandit has a ``half_life``, the rows of a task must be in their order in time.

        Examples
        --------
        >>> import headstart as hs
        >>> rows = {"user": ["a", "a", "b"], "price": [1.0, 2.0, 1.5], "bought": [1, 0, 1]}
        >>> bandit = hs.Bandit(dim=1, seed=0).fit(rows, task="user", reward="bought")
        >>> len(bandit), bandit.task("a").rounds
        (2, 2)
        """
        from headstart.bandit.offline.fitting import fit_rows

        fit_rows(self._state, frame, (task, reward, weight, mean_of), features, standardize)
        return self

    def replay(self, journal: Journal | PathLike) -> ReplayResult:
        """Learn from the rewards and rounds in a journal that were not learned from yet.

        After a crash, load the last file and replay the journal. What the file already holds is
        skipped, so a journal may start before the file was saved, and may be replayed more than
        once. Tasks created after the file was saved are created again.

        Parameters
        ----------
        journal : Journal, str or path-like
            A journal, or its path.

        Returns
        -------
        ReplayResult
        """
        return replay_lines(journal, functools.partial(replay_entry, self._state))
