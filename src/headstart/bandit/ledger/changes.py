"""Atomic changes of several fields: an exception cannot leave them half made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Step = tuple[Any, ...]  # a function and its arguments


class Changes:
    """The change in progress, as steps that give the same result when they are repeated.

    An exception may be raised at any moment: Ctrl-C, a signal handler, a time limit. So a change is
    computed first, as a sequence of idempotent steps, and becomes effective by one assignment.
    Steps that were not executed are executed by :meth:`finish` before the ledger is used again. The
    same holds in a child process that was forked while another thread was changing something.
    """

    __slots__ = ("steps",)

    def __init__(self) -> None:
        self.steps: Sequence[Step] = ()

    def commit(self, *steps: Step) -> None:
        """Make a change."""
        self.steps = steps
        self.finish()

    def commit_one(self, function: Callable[[Any], None], argument: Any) -> None:
        """Make a change of one step: :meth:`commit`, but faster."""
        self.steps = ((function, argument),)
        function(argument)
        self.steps = ()

    def finish(self) -> None:
        """Execute the steps of the change in progress, if there is one."""
        for function, *arguments in self.steps:
            function(*arguments)
        self.steps = ()
