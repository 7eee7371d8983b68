"""The Gaussian prior of a task's parameter θ.

θ ~ N(mean, R² F Fᵀ) with F the ``root`` and R the ``noise``. The root is in units of R, so that the
regularisation λ of ridge regression is ``F Fᵀ = λ⁻¹ I`` in any unit of the rewards; ``covariance``
is in rewards' units.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from headstart import checks
from headstart.arrays import array_namespace, max_abs
from headstart.errors import InputError
from headstart.model.base import BasePrior
from headstart.model.information_form import sums_are_accurate
from headstart.records import Array, read_only_copy, set_read_only
from headstart.small_matrices import eigh

if TYPE_CHECKING:
    from headstart.model.belief import Belief
    from headstart.model.evidence import Evidence

__all__ = ["ONE_NOISE", "Prior"]

MAX_ENTRY = 1e150  # numbers whose squares are finite
SCALAR_FIELDS = ("noise", "bias", "printed_bias", "noise_dof")
FIELDS = ("mean", "root", *SCALAR_FIELDS)
ONE_NOISE = 1e12  # degrees of freedom that no rewards can outweigh


@dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)
class Prior(BasePrior):
    """A Gaussian prior, or a batch of them along leading axes.

    Parameters
    ----------
    mean : array of shape (..., d)
        θ̂₀.
    root : array of shape (..., d, d)
        F₀ with F₀F₀ᵀ = B₀⁻¹, so that the covariance is R² F₀F₀ᵀ.
    noise : float or array of shape (...), default 1
        R, the scale of the rewards' noise.
    bias : float or array of shape (...), default infinity
        A bound on ‖θ* − θ̂₀‖ in the norm of B₀: the term that the ``"theory"`` radius adds for what
        the prior gets wrong. In rewards' units. Infinite unless given: no bound is known, and the
        ``"theory"`` radius refuses the prior.
    printed_bias : float or array of shape (...), optional
        The same term as the paper prints it, for the ``"paper"`` radius; ``bias`` unless given.
    noise_dof : float or array of shape (...), default ``ONE_NOISE``
        ν: a task's own R_i² is scaled-inverse-χ² with scale R² and ν degrees of freedom. 0 leaves
        R_i to the task's own rewards; the default fixes it at R.

    See Also
    --------
    headstart.transfer : estimates of the prior from the evidence of many tasks.

    Examples
    --------
    >>> prior = Prior.isotropic(2, lam=4.0, noise=0.5)
    >>> prior.covariance
    array([[0.0625, 0.    ],
           [0.    , 0.0625]])
    """

    mean: Array
    root: Array
    noise: Any = 1.0
    bias: Any = math.inf
    printed_bias: Any = None
    noise_dof: Any = ONE_NOISE

    def __post_init__(self) -> None:
        mean = bounded_array("mean", self.mean, "an array of shape (..., d)")
        if mean.ndim < 1 or mean.shape[-1] < 1:
            raise checks.invalid("mean", "an array of shape (..., d)", mean)
        dim, batch = mean.shape[-1], mean.shape[:-1]
        root = bounded_array("root", self.root, "an array of shape (..., d, d)")
        if root.shape != (*batch, dim, dim):
            raise checks.invalid("root", f"an array of shape {(*batch, dim, dim)}", root)
        if not (type(self.noise) is float and 0.0 < self.noise < math.inf):
            noise = checks.finite_array("noise", self.noise, "positive")
            if (noise <= 0).any():
                raise checks.invalid("noise", "a positive finite number", self.noise)
        object.__setattr__(self, "mean", read_only_copy(mean))
        object.__setattr__(self, "root", read_only_copy(root))
        if self.printed_bias is None:
            object.__setattr__(self, "printed_bias", self.bias)
        for name in ("noise", "bias", "printed_bias", "noise_dof"):
            value = getattr(self, name)
            if is_non_negative(name, value):
                continue
            value = non_negative_array(name, value)
            if value.shape not in ((), batch):
                raise checks.invalid(name, f"a number, or an array of shape {batch}", value)
            number = float(value) if value.ndim == 0 else read_only_copy(value)
            object.__setattr__(self, name, number)

    @classmethod
    def isotropic(
        cls,
        dim: int,
        lam: float = 1.0,
        *,
        mean: npt.ArrayLike | None = None,
        noise: float = 1.0,
        bias: float = math.inf,
    ) -> Self:
        """Ridge regression's prior: N(mean, R²/λ · I)."""
        dim = checks.dimension(dim)
        centre: Array = np.zeros(dim)
        if mean is not None:
            centre = checks.shaped_array("mean", mean, (dim,))
        root = np.eye(dim) / np.sqrt(checks.positive("lam", lam))
        return cls(centre, root, noise=noise, bias=bias)

    @classmethod
    def gaussian(
        cls,
        mean: npt.ArrayLike,
        covariance: npt.ArrayLike,
        noise: float = 1.0,
        bias: float = math.inf,
    ) -> Self:
        """N(mean, covariance) with the covariance in rewards' own units.

        The root is the symmetric one, Σ^½ / R: unlike eigenvectors it is unique, so draws through
        it repeat from machine to machine.
        """
        noise = checks.positive("noise", noise)
        centre = checks.finite_array("mean", mean, "an array of shape (..., d)")
        sigma = checked_covariance(covariance, (*centre.shape, *centre.shape[-1:]))
        return cls(centre, symmetric_root(sigma) / noise, noise=noise, bias=bias)

    @property
    def dim(self) -> int:
        """The number of features d."""
        return int(self.mean.shape[-1])

    @property
    def batch(self) -> tuple[int, ...]:
        """The leading axes: ``()`` for one prior."""
        return self.mean.shape[:-1]

    def belief(self, evidence: Evidence | None = None) -> Belief:
        """The posterior given the evidence of a task; before any reward unless given."""
        from headstart.model.belief import Belief  # which builds on priors

        return Belief.start(self) if evidence is None else Belief.of(self, evidence)

    @classmethod
    def stack(cls, priors: Sequence[Prior]) -> Self:
        """Priors side by side along a new first axis."""
        return cls(*(np.stack([getattr(prior, name) for prior in priors]) for name in FIELDS))

    def as_gaussian(self) -> Prior:
        """Itself."""
        return self

    def can_update_on(self, evidence: Evidence) -> bool:
        """Whether the sums of the evidence have kept the digits that the posterior needs."""
        return sums_are_accurate(self.root, evidence.gram)

    def with_unknown_noise(self) -> Prior:
        """The same prior with R left to the task's own rewards; itself if it is so already."""
        return self.replace(noise_dof=0.0) if np.any(self.noise_dof) else self

    @property
    def covariance(self) -> Array:
        """R² F Fᵀ: the covariance of θ in rewards' own units."""
        return covariance_of(self.root, self.noise)

    @property
    def log_det(self) -> Any:
        """Log det B₀ = −2 log abs det F₀; infinite for a prior that is certain of a direction."""
        log_det = -2.0 * np.linalg.slogdet(self.root)[1]
        return float(log_det) if log_det.ndim == 0 else log_det


def bounded_array(name: str, value: Any, want: str) -> Array:
    """An array of numbers whose squares are finite."""
    usual = type(value) is np.ndarray and value.dtype == np.float64
    if usual and max_abs(value) <= MAX_ENTRY:  # which neither NaN nor infinity is
        return value
    array = checks.finite_array(name, value, want)
    if not max_abs(array) <= MAX_ENTRY:
        raise InputError(f"{name} must be below {MAX_ENTRY:g} in size; got more")
    return array


def is_non_negative(name: str, value: Any) -> bool:
    """Whether a value is a float 0 or more; a bias may be infinite, the noise may not."""
    return type(value) is float and (
        0.0 <= value < math.inf or (name.endswith("bias") and value > 0.0)
    )


def non_negative_array(name: str, value: Any) -> Array:
    """A number or an array of them, 0 or more; a bias may be infinite, the noise may not."""
    want, may_be_infinite = "0 or more", name.endswith("bias")
    if not may_be_infinite or checks.has_masked(value):
        array = checks.finite_array(name, value, want)
    else:
        with contextlib.suppress(TypeError, ValueError):  # refused below
            value = np.asarray(value)
        unknown: Any = np.False_
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            unknown = np.isposinf(value)
        finite = np.where(unknown, 0.0, value) if unknown.any() else value
        array = checks.finite_array(name, finite, want)
        array = np.where(unknown, np.inf, array) if unknown.any() else array
    if (array < 0).any():
        raise checks.invalid(name, want, value)
    return array


def checked_covariance(covariance: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
    """A finite, symmetric, positive semi-definite matrix of this shape."""
    want = f"symmetric, positive semi-definite and of shape {shape}"
    sigma = checks.finite_array("covariance", covariance, want)
    if not max_abs(sigma) <= checks.MAX_MAGNITUDE**2:
        raise InputError(f"covariance must be below {checks.MAX_MAGNITUDE**2:g} in size; got more")
    if sigma.shape != shape or not np.allclose(sigma, sigma.swapaxes(-1, -2)):
        raise checks.invalid("covariance", want, sigma)
    if (np.linalg.eigvalsh(sigma) < -1e-10 * np.abs(sigma).max(initial=1e-300)).any():
        raise InputError(f"covariance must be {want}; got one with a negative eigenvalue")
    return sigma


def covariance_of(root: Array, noise: Any) -> Array:
    """R² F Fᵀ."""
    variance = np.asarray(noise)[..., None, None] ** 2
    return variance * (root @ root.swapaxes(-1, -2))


def symmetric_root(matrix: Array) -> Array:
    """The positive semi-definite square root; negative eigenvalues count as zero.

    >>> symmetric_root(np.array([[4.0, 0.0], [0.0, 9.0]]))
    array([[2., 0.],
           [0., 3.]])
    """
    xp = array_namespace(matrix)
    values, vectors = eigh(matrix)
    scaled = vectors * xp.sqrt(xp.maximum(values, 0.0))[..., None, :]
    root: Array = scaled @ vectors.swapaxes(-1, -2)
    return set_read_only(root) if xp is np else root
