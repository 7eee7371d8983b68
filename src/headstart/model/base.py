"""What every prior and every belief must offer; the protocols that a user's own kinds follow.

A transfer gives a prior; the prior gives the belief of a task, from its evidence; rules look at the
belief, and every reward updates it. Nothing else in the library depends on which kind it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.errors import InputError
from headstart.records import Array, Record, reset_inherited

if TYPE_CHECKING:
    from headstart.model.evidence import Evidence
    from headstart.model.prior import Prior

__all__ = ["BaseBelief", "BasePrior"]


class BasePrior(Record, ABC):
    """What a new task starts from: a frozen dataclass that has a ``noise`` (R).

    A subclass defines :attr:`dim`, :meth:`belief` and :meth:`as_gaussian`.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def noise(self) -> Any:
            """R, the scale of the rewards' noise."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number of features d."""

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: ``()`` for one prior."""
        return ()

    @abstractmethod
    def belief(self, evidence: Evidence | None = None) -> BaseBelief:
        """The posterior given the evidence of a task; before any reward unless given."""

    @abstractmethod
    def as_gaussian(self) -> Prior:
        """The Gaussian prior with the same mean and covariance, for reports."""

    @classmethod
    def stack(cls, priors: Sequence[Any]) -> BasePrior:
        """Priors side by side along a new first axis, for experiments with many seeds."""
        raise InputError(
            f"{cls.__name__} cannot be stacked, as experiments with many seeds need it"
        )

    def can_update_on(self, evidence: Evidence) -> bool:
        """Whether the sums of the evidence have kept the digits that the posterior needs."""
        return True

    def with_unknown_noise(self) -> BasePrior | None:
        """The same prior with R left to the task's own rewards; ``None`` if it cannot be."""
        return None


class BaseBelief(Record, ABC):
    """The posterior of one task, or of a batch of them along leading axes.

    A subclass is a frozen dataclass with fields or properties ``rounds`` (how many rewards it has
    seen), ``noise`` (R) and ``prior`` (where it started, a :class:`BasePrior`). It defines
    :meth:`predict`, :meth:`width`, :meth:`draw`, which rules use, and :meth:`update`. It must
    depend on the rounds through their sums alone: learning them one by one and
    ``prior.belief(evidence)`` give the same posterior.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def rounds(self) -> Any:
            """How many rewards it has seen."""

        @property
        def noise(self) -> Any:
            """R, the scale of the rewards' noise."""

        @property
        def prior(self) -> Any:
            """Where it started."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        reset_inherited(cls, BaseBelief, ("gaussian_parts", "loop_arrays", "stack"))

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.prior.dim)

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: ``()`` for one belief."""
        return self.prior.batch

    @abstractmethod
    def predict(self, contexts: Array) -> Array:
        """The expected reward xᵀθ̂ of each row: ``(..., K, d)`` to ``(..., K)``."""

    @abstractmethod
    def width(self, contexts: Array) -> Array:
        """The standard deviation of each row's expected reward, divided by R: ``(..., K)``."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, scale: Any, size: int | None = None) -> Array:
        """A random θ, ``(..., d)``, or ``size`` of them along a new first axis.

        ``scale`` is in rewards' units: the posterior itself is drawn from with ``scale = R``, and
        the deviations from the mean are in proportion to it.
        """

    @abstractmethod
    def update(self, x: Array, r: Any) -> Self:
        """The belief after one more round ``(x, r)``; the arguments were checked already."""

    def learn(self, context: npt.ArrayLike, reward: Any) -> Self:
        """The belief after one more round ``(x, r)``."""
        x = checks.shaped_array("context", context, (*self.batch, self.dim))
        r = checks.shaped_array("reward", reward, self.batch)
        return self.update(x, r if self.batch else float(r)).set_read_only()

    def degrees_of_freedom(self) -> tuple[Any, Any]:
        """Those of the t distributions that xᵀθ and the noise of a reward have.

        ∞ where they are Gaussian, R being known or taken to be.
        """
        return math.inf, math.inf

    @property
    def needs_rebuild(self) -> bool:
        """Whether it must be recomputed from prior and evidence."""
        return False

    def rebuild_due(self) -> Any:
        """The same for each element of a batch."""
        return self.needs_rebuild

    def as_scaled(self, before: Self) -> Self:
        """The same belief, not to be rebuilt, with the scale that ``before`` was computed at."""
        return self

    def with_rounds(self, rounds: Any) -> Self:
        """The same belief with another number of rewards."""
        return self.replace(rounds=rounds)

    def with_known(self, at: int, value: float) -> Self:
        """The belief with a coefficient that is known, and of which no round has told anything.

        A belief that does not define this keeps the coefficient that its prior has.
        """
        return self

    def split_prior(self) -> tuple[Self, Any]:
        """The belief without its prior, which many tasks may share, and the prior."""
        return self.replace(prior=None), self.prior

    def with_prior(self, prior: Any) -> Self:
        """The inverse of :meth:`split_prior`."""
        return self.replace(prior=prior)

    # Shortcuts. They are not inherited by a subclass, which may override what they stand for.

    @classmethod
    def stack(cls, beliefs: Sequence[Any]) -> Any:
        """Beliefs of this class side by side along a new first axis, as rules see them.

        ``None`` if decisions for several tasks are to be made one by one.
        """
        return None

    def loop_arrays(self) -> tuple[Array, Array] | None:
        """θ̂ and F, if compiled loops may compute :meth:`predict`, :meth:`width` and draws by them.

        They are xᵀθ̂, ‖Fᵀx‖ and θ̂ + v F z with standard normal z.
        """
        return None

    def gaussian_parts(self) -> tuple[Array, Array, Array] | None:
        """Weights, means θ̂ and roots F of the Gaussians that :meth:`draw` draws from.

        The shapes are ``(..., G)``, ``(..., G, d)`` and ``(..., G, d, d)``; a draw is θ̂ + v F z of
        the group that is drawn by its weight. ``None`` if draws are of another kind.
        """
        return None
