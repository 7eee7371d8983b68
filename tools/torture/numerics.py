"""Beliefs against exact arithmetic, on contexts of wild scales.

Features differ by factors of 10^±6, lie up to 10⁴ standard deviations from zero, are constant or
repeated; single rows are 10^10 or 10^16 long. Whatever is accepted, a task's belief is what its
prior and its rounds give, computed with fractions from the same numbers: while the task is live,
when it is idle, after it was saved and loaded, and when others have closed. Nothing is ever
infinite or NaN. A row may be refused, and so may a task that has learned from such a row before
anything told that it was one: then it is deleted, and the others go on.

For a row x the expected reward may be off by a thousandth of its posterior standard deviation, and
the width by a thousandth of itself, and by what rounding to doubles makes of any row: 100 ε times
Σ|x_i||θ_i| and times what the prior's standard deviation was.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from common import Accepted, Case, finite, inner, reloaded

import headstart as hs

SHARE = 2.0
TOLERANCE = 1e-3
ROUNDING = 100 * np.finfo(float).eps


def attack(case: Case) -> None:
    rng, dim = case.rng, int(case.rng.integers(1, 5))
    transfer = case.pick(
        [None, None, hs.Independent(), hs.Bias(), hs.Subspace(), hs.EmpiricalBayes(running=False)]
    )
    noise = case.pick(["auto", 0.1, 1.0])
    bandit = hs.Bandit(
        dim, transfer, noise=noise, seed=0, cache_size=2, intercept=case.pick([True, False])
    )
    world = World(rng, dim)
    rounds: dict[str, list] = {}
    for name in ("closed", "a", "b"):
        theta = world.centre + 0.3 * rng.normal(size=dim)
        rounds[name] = []
        for _ in range(int(rng.integers(dim + 3, 20))):
            row = world.row(rng)
            reward = float((row / world.scale) @ theta / np.linalg.norm(row / world.scale))
            learn(bandit, name, row, reward + 0.1 * rng.normal(), rounds[name])
        if name == "closed":
            usable(bandit, name, rounds, hs.Task.close)
    check(bandit, "a", rounds, world, "live")
    for name in ("c", "d"):  # only two are live at a time
        learn(bandit, name, world.row(rng), float(rng.normal()), rounds.setdefault(name, []))
    check(bandit, "a", rounds, world, "idle")
    check(bandit, "b", rounds, world, "idle")
    bandit = reloaded(bandit, case.folder)
    check(bandit, "a", rounds, world, "idle, loaded")
    usable(bandit, "b", rounds, hs.Task.close)
    check(bandit, "a", rounds, world, "idle, another closed")
    if usable(bandit, "a", rounds, lambda task: task.belief):
        learn(bandit, "a", world.row(rng), float(rng.normal()), rounds["a"])
        check(bandit, "a", rounds, world, "live again")
        usable(bandit, "a", rounds, hs.Task.close)
    check(bandit, "a", rounds, world, "closed")
    learn(bandit, "e", world.row(rng), float(rng.normal()), rounds.setdefault("e", []))
    check(bandit, "e", rounds, world, "new")
    finite("the report", bandit.report().noise)


def usable(bandit: hs.Bandit, name: str, rounds: dict[str, list], use) -> bool:
    """Use a task, and tell whether it can be used; one whose contexts are far apart may be refused.

    It is deleted then.
    """
    if name not in bandit:
        return False
    try:
        use(bandit.task(name))
    except hs.TaskError as refusal:
        usual = np.median([np.abs(row) for told in rounds.values() for row, _ in told], axis=0)
        if not any((np.abs(row) > 1e3 * usual).any() for row, _ in rounds[name]):
            raise Accepted(f"a task is refused without a reason: {refusal}") from refusal
        bandit.delete(name)
        return False
    return True


class World:
    """Where rows come from."""

    def __init__(self, rng: np.random.Generator, dim: int) -> None:
        self.scale = 10.0 ** rng.uniform(-6, 6, dim) if rng.random() < 0.5 else np.ones(dim)
        self.shift = rng.uniform(-1e4, 1e4, dim) if rng.random() < 0.3 else np.zeros(dim)
        self.constant = (rng.random(dim) < 0.15) * rng.normal(size=dim)
        self.huge = float(rng.choice([0.0, 0.0, 1e10, 1e16]))
        self.centre = rng.normal(size=dim)
        self.last: np.ndarray | None = None

    def row(self, rng: np.random.Generator) -> np.ndarray:
        if self.last is not None and rng.random() < 0.1:
            return self.last
        row = rng.normal(size=len(self.scale)) + self.shift
        row = np.where(self.constant != 0, self.constant, row) * self.scale
        if self.huge and rng.random() < 0.1:
            row = row / np.linalg.norm(row) * self.huge
        self.last = row
        return row


def learn(bandit: hs.Bandit, name: str, row: np.ndarray, reward: float, rounds: list) -> None:
    """One round; a row may be refused with a reason, and then does not count."""
    task = bandit.task(name)
    try:
        choice = task.choose([row])
    except hs.InputError:
        return
    finite("a score", choice.score)
    task.learn(choice, reward)
    rounds.append((row, reward))


def check(
    bandit: hs.Bandit, name: str, everything: dict[str, list], world: World, when: str
) -> None:
    if not usable(bandit, name, everything, lambda task: task.belief):
        return
    belief, rounds = bandit.task(name).belief, everything[name]
    rng = np.random.default_rng(len(rounds))
    raw = [world.row(rng) for _ in range(3)] + [row for row, _ in rounds[-2:]]
    rows = inner(bandit, raw)
    finite(f"{when}: a prediction", *bandit.task(name).predict(raw))
    finite(f"{when}: the belief", belief.mean, belief.root, belief.noise)
    # The prior's covariance does not depend on the task's own noise: its root is in steps of two.
    prior = belief.prior.replace(root=belief.prior.root / belief.noise_ratio)
    contexts = inner(bandit, [row for row, _ in rounds]) if rounds else []
    means, widths = exact(prior, contexts, rounds, rows)
    before = ROUNDING * np.linalg.norm(np.abs(rows) @ np.abs(belief.prior.root), axis=1)
    slack = ROUNDING * np.abs(rows) @ np.abs(belief.mean) + before * float(belief.noise)
    error = np.abs(belief.predict(rows) - means) - slack
    worst = float((error / np.maximum(widths * float(belief.noise), 1e-300)).max())
    if not worst <= TOLERANCE:
        raise Accepted(f"{when}: expected rewards are off by {worst:.2g} standard deviations")
    error = np.abs(belief.width(rows) - widths) - before
    worst = float((error / np.maximum(widths, 1e-300)).max())
    if not worst <= TOLERANCE:
        raise Accepted(f"{when}: widths are off by {worst:.2g} of themselves")


def exact(prior: hs.Prior, contexts, rounds: list, rows) -> tuple[np.ndarray, np.ndarray]:
    """The expected reward and the width ‖x‖ of rows, by fractions.

    With A = X F₀ and M = I + AᵀA: θ̂ = θ̂₀ + F₀ M⁻¹ Aᵀ(r − X θ̂₀) and F Fᵀ = F₀ M⁻¹ F₀ᵀ.
    """
    mean, root = fractions_of(prior.mean), fractions_of(prior.root)
    contexts, rows = fractions_of(contexts), fractions_of(rows)
    rewards = [Fraction(reward) for _, reward in rounds]
    surprise = [reward - dot(x, mean) for x, reward in zip(contexts, rewards, strict=True)]
    columns = list(zip(*root, strict=True))
    projected = [[dot(x, column) for column in columns] for x in contexts]
    across = list(zip(*projected, strict=True)) or [()] * len(mean)
    matrix = [
        [dot(left, right) + (i == j) for j, right in enumerate(across)]
        for i, left in enumerate(across)
    ]
    probes = [[dot(x, column) for column in columns] for x in rows]
    right = [
        [dot(column, surprise)] + [probe[i] for probe in probes] for i, column in enumerate(across)
    ]
    solved = solve(matrix, right)
    step = [line[0] for line in solved]
    means, widths = [], []
    for number, (x, probe) in enumerate(zip(rows, probes, strict=True)):
        means.append(float(dot(x, mean) + dot(probe, step)))
        square = dot(probe, [line[1 + number] for line in solved])
        widths.append(math.sqrt(float(square)))
    return np.array(means), np.array(widths)


def fractions_of(array) -> list:
    return [fractions_of(row) for row in array] if np.ndim(array) else Fraction(float(array))


def dot(left, right) -> Fraction:
    return sum((x * y for x, y in zip(left, right, strict=True)), Fraction(0))


def solve(matrix: list, right: list) -> list:
    """M⁻¹ times columns, by elimination; M is positive definite, so that no pivot is zero."""
    lines = [[*row, *more] for row, more in zip(matrix, right, strict=True)]
    size = len(lines)
    for i in range(size):
        lines[i] = [value / lines[i][i] for value in lines[i]]
        for j in range(size):
            if j != i and lines[j][i]:
                factor = lines[j][i]
                lines[j] = [b - factor * a for a, b in zip(lines[i], lines[j], strict=True)]
    return [line[size:] for line in lines]
