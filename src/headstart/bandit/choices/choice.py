"""A choice: what was picked, how likely that was, and a token to learn from it elsewhere."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import functools
import hashlib
import hmac
import json
import struct
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from headstart import checks
from headstart.errors import ChoiceError, InputError
from headstart.features.conversion import MAX_VALUE
from headstart.records import Array, set_read_only
from headstart.rules import Propensities

__all__ = ["Choice", "check_choice", "choice_id"]

TOKEN_VERSION = 2
LABELLED_TOKEN_VERSION = 3  # the same, followed by what the arm is called, as JSON
# version, forced, epoch, number, arm, dimension, length of the task id
TOKEN_HEAD = struct.Struct("<BBQQIIH")
DIGEST_BYTES = 12


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Choice:
    """What a task chose. Pass it, or its token, to ``learn`` together with the reward.

    Attributes
    ----------
    arm
        The row of the contexts that was picked, as it was given.
    score
        The rule's index of that arm (UCB's bound, Thompson's draw), in rewards' units.
    action
        The name of the arm: the id of the action, its label in the index of a frame, or else the
        row number.
    task
        The task's id.
    number
        Which choice of the task this is.
    epoch
        Which copy of the bandit made it: 0 for one that was never loaded, copied or forked. Copies
        that continue from the same state use the same numbers.
    """

    arm: int
    score: float
    task: str
    number: int
    forced: bool
    context: Array = dataclasses.field(repr=False)
    origin: bytes = dataclasses.field(repr=False)
    compute_propensities: Callable[[], Propensities] | None = dataclasses.field(
        repr=False, default=None
    )
    epoch: int = 0
    action: Any = None

    #: The context as the model sees it, with its units and intercept. Only the bandit that made a
    #: choice sets it; it is not a field, so a copy is without it and is checked again.
    row: ClassVar[Array | None] = None

    def __post_init__(self) -> None:
        if self.action is None:
            object.__setattr__(self, "action", self.arm)

    @property
    def id(self) -> str:
        """Unique among all copies of the bandit: task, number, and epoch unless that is 0."""
        return choice_id(self.task, self.number, self.epoch)

    @functools.cached_property
    def all_propensities(self) -> Propensities:
        """The probability of every arm on offer, computed on first use."""
        if self.compute_propensities is None:
            raise ChoiceError(
                f"choice {self.id} was read from a token, which carries what learning needs "
                f"and no propensities: log them where the choice was made"
            )
        return self.compute_propensities()

    @property
    def propensities(self) -> Array:
        """The probability of every arm on offer."""
        return self.all_propensities.values

    @property
    def propensity(self) -> float:
        """The probability with which this arm was picked."""
        return float(self.all_propensities.values[self.arm])

    @property
    def propensity_is_estimate(self) -> bool:
        """Whether the probabilities were estimated (Thompson sampling) and not exact."""
        return self.all_propensities.draws is not None

    @property
    def propensity_draws(self) -> int | None:
        """The number of draws they were estimated from; ``None`` where they are exact."""
        return self.all_propensities.draws

    @functools.cached_property
    def token(self) -> str:
        """A string that carries all that is needed to learn from the choice in another process.

        It is sealed with the bandit's identity: a damaged token, or another bandit's, is refused.
        It carries an ``action`` that is text or a whole number; any other is left out.
        """
        try:
            task = self.task.encode()
            place = self.epoch, self.number, self.arm
            label = plain_label(self.action)
            has_label = label is not None and label != self.arm
            version = LABELLED_TOKEN_VERSION if has_label else TOKEN_VERSION
            head = TOKEN_HEAD.pack(version, self.forced, *place, len(self.context), len(task))
            body = head + task + self.context.astype("<f8").tobytes()
            if has_label:
                body += json.dumps(label).encode()
            return base64.urlsafe_b64encode(body + keyed_digest(body, self.origin)).decode()
        except (ArithmeticError, AttributeError, TypeError, ValueError, struct.error) as error:
            raise ChoiceError(f"the choice was made by hand and fits no token ({error})") from error

    @classmethod
    def from_token(cls, token: str, origin: bytes) -> Choice:
        """The inverse of :attr:`token`, for the bandit of that origin."""
        try:
            raw = base64.b64decode(token.encode(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise ChoiceError(f"token {token_excerpt(token)} is not a headstart token") from None
        body, digest = raw[:-DIGEST_BYTES], raw[-DIGEST_BYTES:]
        versions = (TOKEN_VERSION, LABELLED_TOKEN_VERSION)
        if len(body) < TOKEN_HEAD.size or body[0] not in versions:
            raise ChoiceError(f"token {token_excerpt(token)} is not a token of this version")
        if not hmac.compare_digest(keyed_digest(body, origin), digest):
            raise ChoiceError(
                f"token {token_excerpt(token)} is damaged, or belongs to another bandit than this "
                f"one"
            )
        version, forced, epoch, number, arm, dim, length = TOKEN_HEAD.unpack_from(body)
        task = body[TOKEN_HEAD.size : TOKEN_HEAD.size + length].decode()
        context = np.frombuffer(body, dtype="<f8", offset=TOKEN_HEAD.size + length, count=dim)
        context = set_read_only(context.astype(np.float64))
        has_label = version == LABELLED_TOKEN_VERSION
        action = json.loads(body[TOKEN_HEAD.size + length + 8 * dim :]) if has_label else None
        score, mark = float("nan"), bool(forced)
        return cls(arm, score, task, number, mark, context, origin, epoch=epoch, action=action)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Choice):
            return NotImplemented
        return self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def identity(self) -> tuple[bytes, str, int, int]:
        """What identifies a choice among all others."""
        return self.origin, self.task, self.epoch, self.number

    def __repr__(self) -> str:
        action = "" if self.action == self.arm else f", action={self.action!r}"
        return f"Choice(id={self.id!r}, arm={self.arm}{action}, score={self.score:.4g})"

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the propensities too: the other process has no belief to compute them from."""
        state = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        if self.compute_propensities is not None:
            state["compute_propensities"] = functools.partial(Propensities, *self.all_propensities)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


def plain_label(action: object) -> str | int | None:
    """An action that is text or a whole number, NumPy's included, as JSON has them."""
    if isinstance(action, str):
        return checks.plain_text(action)
    return int(action) if checks.is_whole(action) else None


def choice_id(task: str, number: int, epoch: int) -> str:
    """The id of a choice."""
    return f"{task}#{number}" + (f"@{epoch:016x}" if epoch else "")


def check_choice(choice: Choice, origin: bytes, dim: int) -> None:
    """Refuse what no choice of the bandit of that origin holds: anybody can make a ``Choice``."""
    number, epoch, context = choice.number, choice.epoch, choice.context
    if type(choice.task) is not str:
        raise checks.invalid("choice.task", "a task's id, as text", choice.task)
    if type(choice.origin) is not bytes:
        raise checks.invalid("choice.origin", "a key of bytes", choice.origin)
    if type(number) is not int or not 0 <= number < 2**61:
        raise checks.invalid("choice.number", "a whole number, 0 or more", number)
    if type(epoch) is not int or not 0 <= epoch < 2**64:
        raise checks.invalid("choice.epoch", "a whole number of 64 bits", epoch)
    if choice.origin != origin:
        raise ChoiceError(f"choice {choice.id} is unknown: it belongs to another bandit")
    if type(choice.forced) is not bool:
        raise checks.invalid("choice.forced", "True or False", choice.forced)
    want = f"a vector of {dim} finite numbers (float64)"
    if type(context) is not np.ndarray or context.dtype != np.float64 or context.shape != (dim,):
        raise checks.invalid("choice.context", want, context)
    if not np.abs(checks.finite_array("choice.context", context, want)).max() <= MAX_VALUE:
        raise InputError(f"choice.context must be below {MAX_VALUE:g} in size everywhere")


def keyed_digest(body: bytes, origin: bytes) -> bytes:
    """A short keyed digest."""
    return hashlib.blake2b(body, key=origin, digest_size=DIGEST_BYTES).digest()


def token_excerpt(token: str) -> str:
    """A token as a message shows it."""
    return repr(token if len(token) <= 24 else token[:20] + "…")
