"""The exceptions headstart raises; every one is a :class:`ValueError` too.

A refused call changes nothing: the state before and after is identical.
"""

import re

__all__ = [
    "ChoiceError",
    "FileError",
    "HeadstartError",
    "InputError",
    "MissingFileError",
    "TaskError",
    "visible",
]


class HeadstartError(ValueError):
    """Base of every exception that headstart raises on purpose."""


class InputError(HeadstartError):
    """An argument has the wrong type, shape or value.

    The message names the argument, what is wanted and what was given.
    """


class ChoiceError(HeadstartError):
    """A choice cannot be learned from: unknown, damaged, expired or already learned from."""


class TaskError(HeadstartError):
    """A task id is unknown, or the task has been deleted."""


class FileError(HeadstartError, OSError):
    """A file could not be written or read: truncated, foreign, corrupted, too new, disk full."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no file at the path given."""


#: Characters that a terminal acts upon or that change how text is read: control codes, marks of
#: direction, marks of no width, separators of lines, and halves of surrogate pairs.
CONTROL_CHARACTERS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ufff9-\ufffb\ud800-\udfff"
)
UNSAFE_IN_TEXT, UNSAFE_IN_LINE = (
    re.compile(f"[{CONTROL_CHARACTERS}{more}]") for more in ("", "\\t\\n")
)


def visible(text: str, line: bool = False) -> str:
    r"""Text from elsewhere, safe to print: control characters as escapes that can be read.

    Ends of lines and tabs stay unless it must be one ``line``.

    >>> print(visible("x\x1b[31m"), visible("a\nb", line=True))
    x\u001b[31m a\u000ab
    """
    unsafe = UNSAFE_IN_LINE if line else UNSAFE_IN_TEXT
    return unsafe.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
