"""Methods and properties that read a bandit without changing it.

A base class of :class:`~headstart.Bandit` holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headstart import checks
from headstart.bandit.reports.report import Report, make_report
from headstart.bandit.state import BanditState
from headstart.errors import InputError
from headstart.model.base import BasePrior
from headstart.rules import Rule
from headstart.transfer import Transfer


class BanditQueries:
    """The part of a bandit that changes nothing: its settings, its tasks, and what was learned."""

    _state: BanditState

    @property
    def schema(self) -> Any:
        """The schema or the transformer that encodes contexts and actions; ``None`` for neither."""
        encoder = self._state.reader.encoder
        return None if encoder is None else encoder.schema

    @property
    def transfer(self) -> Transfer:
        """How it learns a prior."""
        return self._state.ledger.prior_state.transfer

    @property
    def rule(self) -> Rule:
        """How it chooses."""
        return self._state.rule

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the features, from the schema or from a data frame that was passed."""
        return self._state.reader.features.names

    @property
    def prior(self) -> BasePrior:
        """The prior of a new task.

        Its coefficients are those of features as they were given. After a fit of rows or logs,
        they are those of standardized features, unless ``standardize=False``; ``task.explain``
        shows coefficients of the features as given.
        """
        return self._state.prior()

    @property
    def frozen(self) -> bool:
        """Whether learning is stopped."""
        return self._state.is_frozen

    def __len__(self) -> int:
        return len(self._state.task_names())

    def __contains__(self, task: object) -> bool:
        try:
            return self._state.has_task(checks.task_name(task))
        except InputError:
            return False

    def __iter__(self) -> Iterator[str]:
        """The ids of all tasks, in the order they were made."""
        return iter(self._state.task_names())

    def report(self) -> Report:
        """A summary: tasks, subspace, eigenvalues, and the gain expected for a new task."""
        state = self._state
        with state.lock:
            return make_report(state.ledger, repr(state.rule), state.reader.features)
