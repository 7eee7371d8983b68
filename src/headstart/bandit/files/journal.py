"""A journal: every reward as one line, so that those learned after the last save are not lost.

A line is a JSON object with a choice's token, its reward and a checksum of both, or with rounds
that a task has observed (:meth:`headstart.Task.observe`), which are sealed. Lines that are written
by hand need no checksum. A crash may truncate the last line. It is then reported when the journal
is read, and the next line starts on a new line.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from headstart import checks
from headstart.bandit.choices.choice import Choice
from headstart.errors import ChoiceError, FileError, InputError, TaskError
from headstart.features.conversion import check_reward
from headstart.storage import atomic

__all__ = ["Journal", "ReplayResult", "replay_lines"]

#: The fields of a line of either kind.
REWARD_FIELDS = {"token", "reward"}
ROUNDS_FIELDS = {
    "task", "epoch", "number", "contexts", "rewards", "weights", "mean_of", "labels", "seal"
}  # fmt: skip


class ReplayResult(NamedTuple):
    """The result of a replay: how many lines of a journal were learned from, and which were not.

    Attributes
    ----------
    learned
        How many lines were learned from now.
    known
        How many had been learned from before, or are too old to be tracked.
    refused
        The numbers of the lines, counted from 1, that belong to another bandit or to a deleted
        task, or whose reward is invalid; each with the reason.
    damaged
        The numbers of the lines that hold neither a token with a reward nor rounds, or whose
        checksum is wrong: a crash may have truncated one.
    """

    learned: int
    known: int
    refused: dict[int, str]
    damaged: list[int]


class Journal:
    """A file to which rewards are appended, each before it is learned from.

    Parameters
    ----------
    path
        The path of the file. It is created if it does not exist, and appended to if it does.
    sync
        Whether to wait until a line is on the disk, so that it also survives a power failure.
        Otherwise lines are passed to the operating system one by one, and survive the end of the
        process.

    Examples
    --------
    >>> import headstart as hs, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> bandit = hs.Bandit(dim=2, seed=0)
    >>> bandit.save(folder.name + "/bandit")
    >>> choice = bandit.task("a").choose([[1.0, 0.0], [0.0, 1.0]])
    >>> with hs.Journal(folder.name + "/journal") as journal:
    ...     journal.append(choice, 1.0)
    ...     _ = bandit.learn(choice, 1.0)

    The process ends here. The next one continues from the file and the journal:

    >>> bandit = hs.load(folder.name + "/bandit")
    >>> bandit.replay(folder.name + "/journal").learned, bandit.task("a").rounds
    (1, 1)
    >>> folder.cleanup()

    Rounds that were not choices are recorded and learned from by one call,
    ``task.observe(contexts, rewards, journal=journal)``.

    Notes
    -----
    Several threads may share one, and several processes may append to one file (on a local file
    system of Unix, where a line is appended as a whole).
    """

    def __init__(self, path: atomic.PathLike, *, sync: bool = False) -> None:
        self.path = atomic.checked_path(path)
        self.sync = checks.flag("sync", sync)
        with append_errors(self.path):
            if self.path.exists() and not self.path.is_file():
                raise FileError(f"path {str(self.path)!r} must be a file; it is of another kind")
            self._file: IO[bytes] = self.path.open("ab+", buffering=0)
            end = self._file.seek(0, os.SEEK_END)
            self._file.seek(max(end - 1, 0))
            self._truncated = self._file.read(1) not in (
                b"",
                b"\n",
            )  # a crash has truncated the last line

    def append(self, choice: Choice | str, reward: Any) -> None:
        """Record the reward of a choice, or of a token."""
        token = choice.token if isinstance(choice, Choice) else choice
        if not isinstance(token, str):
            raise checks.invalid("choice", "a Choice or a token", choice)
        number = check_reward(reward)
        # The checksum comes first, so that damage to the reward alone cannot remove it.
        entry = {"checksum": checksum(token, number), "token": token, "reward": number}
        self.append_entry(entry)

    def append_entry(self, entry: dict[str, Any]) -> None:
        """Append a line."""
        text = json.dumps(entry)
        line = f"\n{text}\n".encode() if self._truncated else f"{text}\n".encode()
        with append_errors(self.path):
            self._truncated = True  # unless it is written as a whole
            # In one call, so that the lines of several writers do not mix.
            if self._file.write(line) != len(line):
                raise OSError("not all of a line was written")
            self._truncated = False
            if self.sync:
                os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def append_errors(path: Path) -> Iterator[None]:
    """Errors of appending to a journal, as a ``FileError`` that names it."""
    try:
        yield
    except (OSError, ValueError) as error:  # the latter from a file that is closed
        reason = getattr(error, "strerror", None) or str(error)
        raise FileError(f"path {str(path)!r} cannot be appended to ({reason})") from error


def replay_lines(
    journal: Journal | atomic.PathLike, replay: Callable[[dict[str, Any]], bool]
) -> ReplayResult:
    """The result of replaying lines; ``replay`` returns whether a line was learned from now."""
    counts = {True: 0, False: 0}
    refused: dict[int, str] = {}
    damaged: list[int] = []
    for number, entry in read_lines(journal):
        if entry is None:
            damaged.append(number)
            continue
        try:
            counts[replay(entry)] += 1
        except (ChoiceError, InputError, TaskError) as error:
            refused[number] = str(error)
    return ReplayResult(counts[True], counts[False], refused, damaged)


def read_lines(
    journal: Journal | atomic.PathLike,
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The lines of a journal with their numbers; ``None`` for a line that is damaged."""
    path = journal.path if isinstance(journal, Journal) else atomic.checked_path(journal)
    with (
        atomic.explain_read_errors(path, "a journal"),
        atomic.open_regular(path, "a journal") as file,
    ):
        for number, text in enumerate(file, 1):
            if text.strip():
                yield number, parse_line(text)


def parse_line(text: bytes) -> dict[str, Any] | None:
    """The content of a line; ``None`` if it is damaged.

    >>> parse_line(b'{"token": "x", "reward": 1.0}')["reward"], parse_line(b'{"token": "x", "re')
    (1.0, None)
    """
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    check = entry.pop("checksum", None) if "token" in entry else None
    if set(entry) not in (REWARD_FIELDS, ROUNDS_FIELDS):
        return None
    if not isinstance(entry["token" if "token" in entry else "seal"], str):
        return None
    is_damaged = check is not None and check != checksum(entry["token"], entry["reward"])
    return None if is_damaged else entry


def checksum(token: str, reward: object) -> int:
    """A checksum of a choice's token and its reward.

    >>> checksum("x", 1.0) == checksum("x", 2.0)
    False
    """
    return zlib.crc32(f"{token} {reward!r}".encode(errors="replace"))
