"""Random streams that are a function of the seed, the task and the choice.

Every choice has its own stream of a counter-based generator (Philox): the key is a hash of seed and
task, and the counter is the number of the choice within the task. No state is stored, and the same
seed gives the same decisions however the tasks are interleaved.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headstart import checks

if TYPE_CHECKING:
    Seed: TypeAlias = int | np.random.Generator | np.random.SeedSequence | None


def seed_as_integer(seed: Seed) -> int:
    """A seed as a whole number: fresh from the system for ``None``, drawn from a generator.

    >>> seed_as_integer(7)
    7
    """
    if seed is None:
        return int.from_bytes(np.random.SeedSequence().generate_state(4).tobytes(), "little")
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    if isinstance(seed, np.random.SeedSequence):
        return int.from_bytes(seed.generate_state(4).tobytes(), "little")
    want = "a whole number 0 or more, a numpy Generator or SeedSequence, or None"
    if not checks.is_whole(seed) or int(seed) < 0:
        raise checks.invalid("seed", want, seed)
    if int(seed).bit_length() > 4096:
        raise checks.invalid("seed", f"{want} (a number has 4096 bits at most)", seed)
    return int(seed)


class Stream:
    """The stream of one choice, as a :class:`numpy.random.Generator` that is set up on first use.

    Most choices draw nothing. ``isinstance(stream, numpy.random.Generator)`` holds, and a copy or a
    pickle is a generator. All streams of a bandit share one generator: use up one before the next.
    """

    __slots__ = ("generator", "key", "place", "streams")

    def __init__(self, streams: Streams, key: npt.NDArray[np.uint64], choice: int) -> None:
        self.streams = streams
        self.key = key
        self.place = choice  # no name that a generator has
        self.generator: np.random.Generator | None = None

    __class__ = property(lambda self: np.random.Generator)

    def __reduce__(self) -> Any:
        return self.__getattr__("__reduce__")()

    def from_start(self) -> Stream:
        """The same stream from its start."""
        return Stream(self.streams, self.key, self.place)

    def apart(self) -> np.random.Generator:
        """A generator of random numbers on which no decision depends."""
        return Streams(self.streams.seed).at(self.key, self.place, stream=1)

    def __getattr__(self, name: str) -> Any:
        """A generator's method, of the stream in its present state."""
        if self.generator is None:
            self.generator = self.streams.at(self.key, self.place)
        return getattr(self.generator, name)


class StackedStreams:
    """The streams of several tasks, drawn from together: the first axis of a shape is the tasks.

    Streams share a generator, so that each can be drawn from once. Whatever else a rule asks for
    raises :class:`CannotStack`, and the decisions are then made one by one.
    """

    def __init__(self, streams: Sequence[Any]) -> None:
        self.streams = list(streams)

    def standard_normal(self, size: tuple[int, ...]) -> Any:
        """Standard normal draws."""
        return self.draw("standard_normal", size)

    def random(self, size: tuple[int, ...]) -> Any:
        """Uniform draws from [0, 1)."""
        return self.draw("random", size)

    def draw(self, method: str, size: tuple[int, ...]) -> Any:
        """Draws by a method of the generators, the first and only ones."""
        streams, self.streams = self.streams, []
        if not streams or size[:1] != (len(streams),):
            raise CannotStack
        return np.array([getattr(stream, method)(size[1:]) for stream in streams])

    def __getattr__(self, name: str) -> Any:
        raise CannotStack


class CannotStack(Exception):
    """A rule draws in a way that cannot be done for several tasks at once."""


class Streams:
    """The random streams of one bandit.

    Examples
    --------
    >>> streams = Streams(seed=1)
    >>> key = streams.key("user-42")
    >>> first = streams.at(key, choice=0).random()
    >>> other = streams.at(key, choice=1).random()
    >>> streams.at(key, choice=0).random() == first != other
    True
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.source = np.random.Philox(key=np.zeros(2, dtype=np.uint64))
        self.generator = np.random.Generator(self.source)
        self.state: Any = self.source.state

    def key(self, task: str) -> npt.NDArray[np.uint64]:
        """The key of a task's streams: 128 bits of a hash of seed and task."""
        text = f"{self.seed}\n{task}".encode()
        return np.frombuffer(hashlib.blake2b(text, digest_size=16).digest(), dtype="<u8").astype(
            np.uint64
        )

    def at(self, key: npt.NDArray[np.uint64], choice: int, stream: int = 0) -> np.random.Generator:
        """The generator, moved to the start of a choice's stream.

        It is one object, moved at each call: use it before the next call.
        """
        inner = self.state["state"]
        inner["key"] = key
        inner["counter"][:] = (0, choice, stream, 0)
        self.state["buffer_pos"] = 4
        self.state["has_uint32"] = 0
        self.source.state = self.state
        return self.generator
