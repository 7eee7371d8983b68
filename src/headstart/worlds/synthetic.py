"""Synthetic worlds: tasks near an affine subspace, in clusters, or on a curve."""

from __future__ import annotations

import dataclasses

import numpy as np

from headstart import checks
from headstart.records import Array
from headstart.worlds.base import Episode, Population, Truth, World


@dataclasses.dataclass(frozen=True, repr=False)
class Synthetic(World):
    """The paper's synthetic setting, with what it leaves open as parameters.

    θ* = μ + U z + U⊥ e, with z ~ N(0, s² I_p), s the spread ``inside`` the plane, and e ~ N(0,
    s'² I_q), s' the spread ``outside``. Contexts are N(0, diag(c)), redrawn every round and divided
    by max(1, ‖x‖), with c ~ U(0, 1) drawn once per population, unless ``contexts`` says otherwise.
    Rewards are xᵀθ* + N(0, R²).

    Parameters
    ----------
    dim, rank, arms
        d, p and K. ``rank=dim`` with ``offset=0`` is a world without structure.
    noise
        R.
    inside, outside
        The standard deviation of tasks inside the plane and outside it.
    offset, mean
        ‖μ‖, and where μ points: ``"off"`` the plane (at right angles to it: that makes the subspace
        affine), ``"on"`` it, or ``"anywhere"``.
    clusters, separation
        Several affine subspaces, each with its own mean and directions, and the distance between
        their means.
    curve
        If above 0, tasks lie on a closed curve of this radius that winds through four dimensions,
        and ``rank`` and ``inside`` do not matter.
    drift
        How far the directions and the mean turn from one task to the next, in radians.
    contexts
        ``"normal"``, as above, or ``"sphere"``: uniform on the unit sphere, so that all features
        vary alike.
    logistic
        If above 0, rewards are 1 with probability 1/(1 + exp(−a·xᵀθ*)), a this number, else 0.
    task_dof, reward_dof
        If above 0, the degrees of freedom (more than 2) of a Student distribution of the tasks
        around their mean, or of the noise of rewards, with the variance that the normal one has.
    """

    dim: int = 30
    rank: int = 15
    arms: int = 20
    noise: float = 0.1
    inside: float = 0.25
    outside: float = 0.02
    offset: float = 0.5
    mean: str = "off"
    clusters: int = 1
    separation: float = 1.0
    curve: float = 0.0
    drift: float = 0.0
    logistic: float = 0.0
    contexts: str = "normal"
    task_dof: float = 0.0
    reward_dof: float = 0.0

    def __post_init__(self) -> None:
        checks.integer("dim", self.dim, 1)
        if not self.curve:
            checks.integer("rank", self.rank, 0, self.dim)
        checks.integer("arms", self.arms, 1)
        checks.integer("clusters", self.clusters, 1)
        checks.one_of("mean", self.mean, ("off", "on", "anywhere"))
        checks.one_of("contexts", self.contexts, ("normal", "sphere"))
        checks.positive("noise", self.noise)
        for name in ("inside", "outside", "offset", "separation", "curve", "drift", "logistic"):
            checks.non_negative(name, getattr(self, name))
        for name in ("task_dof", "reward_dof"):
            dof = checks.non_negative(name, getattr(self, name))
            if 0.0 < dof <= 2.0:  # no variance
                raise checks.invalid(name, "0, or more than 2", dof)
        if self.curve > 0 and self.dim < 4:
            raise checks.invalid("dim", "4 or more for a curve", self.dim)
        nowhere = {"off": self.plane == self.dim, "on": self.plane == 0, "anywhere": False}
        if self.offset > 0 and nowhere[self.mean]:
            want = f"0 where no direction is {self.mean} the plane"
            raise checks.invalid("offset", want, self.offset)

    @property
    def gaussian(self) -> bool:
        """Whether contexts, tasks and noise are normal, and the tasks do not drift.

        Only such worlds run on a GPU.
        """
        normal = self.contexts == "normal" and not (self.task_dof or self.reward_dof)
        return normal and not self.drift

    @property
    def plane(self) -> int:
        """How many dimensions the tasks mostly lie in."""
        return 4 if self.curve else self.rank

    @property
    def name(self) -> str:
        """A short name for tables and figures."""
        if self.curve:
            return "curve"
        return "clusters" if self.clusters > 1 else "synthetic"

    def population(self, seed: int) -> SyntheticPopulation:
        """The population of a seed."""
        return SyntheticPopulation(self, checks.integer("seed", seed))


class SyntheticPopulation(Population):
    """Directions, means and context variances, drawn once."""

    def __init__(self, world: Synthetic, seed: int) -> None:
        self.world = world
        self.seed = seed
        self.dim = world.dim
        self.noise = world.noise if not world.logistic else None
        rng = self.population_rng()
        self.frames = [random_orthogonal(world.dim, rng) for _ in range(world.clusters)]
        self.means = [self.draw_mean(frame, rng) for frame in self.frames]
        self.spreads = self.spreads_by_direction()
        self.context_sd = np.sqrt(rng.random(world.dim))
        skew = rng.standard_normal((world.dim, world.dim))
        skew -= skew.T
        size = float(np.linalg.norm(skew, 2))  # 0 in one dimension, which has no rotation
        self.drift_generator = skew / max(size, 1e-300)
        # With drift, tasks have no common distribution.
        self.truth = None if world.drift else self.true_distribution()

    def draw_mean(self, frame: Array, rng: np.random.Generator) -> Array:
        """μ of one subspace."""
        world = self.world
        raw = rng.standard_normal(world.dim)
        plane = frame[:, : world.plane]
        on = plane @ (plane.T @ raw)
        mean = {"off": raw - on, "on": on, "anywhere": raw}[world.mean]
        length = float(np.linalg.norm(mean))
        mean = mean * (world.offset / length) if length > 0 else np.zeros(world.dim)
        if world.clusters > 1:
            # Random directions in many dimensions are nearly at right angles: √2 × length apart.
            centre = rng.standard_normal(world.dim)
            mean = mean + centre * (world.separation / np.sqrt(2.0) / np.linalg.norm(centre))
        return mean

    def spreads_by_direction(self) -> Array:
        """Standard deviations along the frame's directions."""
        world = self.world
        if world.curve:
            radii = np.array([1.0, 1.0, 0.5, 0.5]) * world.curve / np.sqrt(2.0)
            return np.append(radii, np.full(world.dim - 4, world.outside))
        return np.where(np.arange(world.dim) < world.rank, world.inside, world.outside)

    def true_distribution(self) -> Truth:
        """Mean and covariance over all clusters; the plane, if there is one."""
        within = [covariance_along(frame, self.spreads) for frame in self.frames]
        mean = np.mean(self.means, axis=0)
        between = [np.outer(centre - mean, centre - mean) for centre in self.means]
        covariance = np.mean(np.array(within) + np.array(between), axis=0)
        basis = self.frames[0][:, : self.world.plane] if len(self.frames) == 1 else None
        return Truth(mean, covariance, basis)

    def draw_task(self, task: int, rng: np.random.Generator) -> Array:
        """θ* of one task."""
        world = self.world
        theta: Array = self.draw_tasks(1, rng)[0]
        if world.drift:
            from scipy.linalg import expm

            return expm(world.drift * task * self.drift_generator) @ theta
        return theta

    def draw_tasks(self, count: int, rng: np.random.Generator) -> Array:
        """θ* of many tasks, of shape ``(count, dim)``, before any drift."""
        world = self.world
        cluster = rng.integers(world.clusters, size=count)
        coordinates = self.spreads * rng.standard_normal((count, world.dim))
        if world.curve:
            angle = rng.uniform(0.0, 2.0 * np.pi, count)
            winding = [np.cos(angle), np.sin(angle), np.cos(2 * angle) / 2, np.sin(2 * angle) / 2]
            coordinates[:, :4] = world.curve * np.stack(winding, axis=-1)
        frames = np.asarray(self.frames)[cluster] if world.clusters > 1 else self.frames[0]
        offsets = (frames @ coordinates[..., None])[..., 0]
        if world.task_dof:
            offsets *= student_factors(world.task_dof, (count, 1), rng)
        return np.asarray(self.means)[cluster] + offsets

    def episode(self, task: int, rounds: int) -> Episode:
        """The episode of a task."""
        world = self.world
        rng = self.task_rng(task)
        theta = self.draw_task(task, rng)
        contexts = self.draw_contexts((rounds, world.arms, world.dim), rng)
        values = contexts @ theta
        if world.logistic:
            values = 1.0 / (1.0 + np.exp(-world.logistic * values))
            rewards = (rng.random((rounds, 1)) < values).astype(float)
            return Episode(contexts, values, rewards, theta)
        noise = world.noise * rng.standard_normal((rounds, 1))
        if world.reward_dof:
            noise *= student_factors(world.reward_dof, (rounds, 1), rng)
        return Episode(contexts, values, values + noise, theta)

    def draw_contexts(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Contexts of this shape."""
        contexts = rng.standard_normal(shape)
        if self.world.contexts == "normal":
            contexts *= self.context_sd
            contexts /= np.maximum(1.0, np.linalg.norm(contexts, axis=-1, keepdims=True))
        else:
            contexts /= np.linalg.norm(contexts, axis=-1, keepdims=True)
        return contexts


def student_factors(dof: float, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """What makes normal variables Student's with the same variance: √((ν − 2)/χ²_ν)."""
    return np.sqrt((dof - 2.0) / rng.chisquare(dof, shape))


def covariance_along(frame: Array, spreads: Array) -> Array:
    """The covariance with these standard deviations along the columns of an orthogonal matrix."""
    return (frame * spreads**2) @ frame.T


def random_orthogonal(dim: int, rng: np.random.Generator) -> Array:
    """A random orthogonal matrix (Haar): QR with the signs fixed (Mezzadri 2006)."""
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    signs = np.sign(np.diagonal(r))
    return q * np.where(signs == 0, 1.0, signs)
