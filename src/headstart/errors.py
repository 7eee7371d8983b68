"""The exceptions headstart raises; every one is a :class:`ValueError` too.

A refused call changes nothing: the state before and after is identical.
"""

__all__ = [
    "ChoiceError",
    "FileError",
    "HeadstartError",
    "InputError",
    "MissingFileError",
    "TaskError",
]


class HeadstartError(ValueError):
    """Base of every exception that headstart raises on purpose."""


class InputError(HeadstartError):
    """An argument has the wrong type, shape or value.

    The message names the argument, says what it wants and what it got.
    """


class ChoiceError(HeadstartError):
    """A choice cannot be learned from: unknown, damaged, expired or already learned from."""


class TaskError(HeadstartError):
    """A task id is unknown, or the task has been deleted."""


class FileError(HeadstartError, OSError):
    """A file could not be written or read: truncated, foreign, corrupted, too new, disk full."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no file at the path given."""
