"""``paper=True`` is Algorithms 1 to 3 as printed, against an implementation written from the page.

The reference below inverts B every round, takes determinants as they stand, and runs CCIPCA by the
paper's equation. Where the page leaves something open or cannot be followed, both sides read it
the same way:

- "if t < d": at task t there are t − 1 estimates, so subspaces are used from d − 1 finished tasks
  on; principal components and θ̄ are over tasks 1 … t − 1 (spec §5, no. 6).
- B₀ has λ₂P̂ (Algorithm 1; the definition of B_k in the text has a misprint, spec §5, no. 1).
- W is its bound 2V; its term is there only when P̂⊥ ≠ 0 (spec §4).
- CCIPCA starts from the eigenvectors of the first d − 1 estimates; a v_j that is still zero takes
  the residual it is first offered, weighted as a variance. Vectors are centred by the running mean.
- the deflation takes z_jᵀû_j, as in spec §3 (the page prints θᵀû_j: the same for orthogonal û).
- û_j are sorted and orthonormalised before P̂ is formed.
- λ₂ = 1/V², λ = 1/(nV²), δ = 1/n, α = 1/log n, V = 1, n = 250; λ₁ = 100, for which the page names
  no usable number.
"""

import math

import numpy as np
import pytest

import headstart as hs

N, V, LAM1, LAM2 = 250, 1.0, 100.0, 1.0
LAM, DELTA = 1 / (N * V**2), 1 / N
DIM, ARMS, TASKS, ROUNDS = 5, 6, 16, 60


class Components:
    """CCIPCA by the paper's equation, from a batch start."""

    def __init__(self, estimates):
        theta = np.array(estimates)
        self.count = len(theta)
        self.mean = theta.mean(0)
        values, vectors = np.linalg.eigh((theta - self.mean).T @ (theta - self.mean) / len(theta))
        values = np.where(values > 1e-12 * values[-1], values, 0.0)
        self.v = [values[j] * vectors[:, j] for j in reversed(range(theta.shape[1]))]

    def add(self, estimate):
        self.count += 1
        self.mean = self.mean + (estimate - self.mean) / self.count
        i = self.count - 1
        z = estimate - self.mean
        for j in range(len(self.v)):
            length = np.linalg.norm(self.v[j])
            if length == 0:
                self.v[j] = np.linalg.norm(z) * z / (i + 1)
                break
            u = self.v[j] / length
            self.v[j] = i / (i + 1) * self.v[j] + 1 / (i + 1) * z * (z @ u)
            z = z - (z @ u) * u

    def projection(self):
        """P̂ = U Uᵀ with p at the largest eigengap."""
        v = sorted(self.v, key=lambda component: -np.linalg.norm(component))
        sigma = [np.linalg.norm(component) for component in v]
        p = 1 + int(np.argmax([sigma[j] - sigma[j + 1] for j in range(len(v) - 1)]))
        units = [v[j] / sigma[j] for j in range(p)]
        u = np.linalg.qr(np.array(units).T)[0]
        return u @ u.T, p


class Reference:
    """Algorithm 1; ``start`` begins a task, ``learn`` a round, ``finish`` ends it."""

    def __init__(self):
        self.estimates = []
        self.components = None

    def start(self):
        t = len(self.estimates) + 1
        eye = np.eye(DIM)
        if t < DIM:
            p_hat, self.p, w = eye, DIM, np.zeros(DIM)
        else:
            p_hat, self.p = self.components.projection()
            w = (eye - p_hat) @ np.sum(self.estimates, axis=0) / (t - 1)
        p_perp = eye - p_hat
        self.b_matrix = LAM1 * p_perp + LAM2 * p_hat
        self.b_vector = LAM1 * p_perp @ w
        self.a_matrix, self.a_vector = LAM * eye, np.zeros(DIM)

    @property
    def theta(self):
        return np.linalg.inv(self.b_matrix) @ self.b_vector

    def upper_bounds(self, arms):
        """Algorithm 2."""
        q = DIM - self.p
        w_bound = 2 * V if q > 0 else 0.0
        ratio = np.linalg.det(self.b_matrix) / (DELTA**2 * LAM1**q * LAM2**self.p)
        gamma = math.log(ratio) + math.sqrt(LAM2) * V + LAM1 / math.sqrt(LAM2) * w_bound
        inverse = np.linalg.inv(self.b_matrix)
        return np.array([x @ self.theta + gamma * math.sqrt(x @ inverse @ x) for x in arms])

    def sampling_distribution(self):
        """Algorithm 3: mean and covariance of θ̃."""
        alpha = 1 / math.log(N)
        v = 4 * math.sqrt(math.log(1 / DELTA) * (DIM + 2) / alpha)
        return self.theta, v**2 * np.linalg.inv(self.b_matrix)

    def learn(self, x, r):
        self.b_matrix = self.b_matrix + np.outer(x, x)
        self.a_matrix = self.a_matrix + np.outer(x, x)
        self.b_vector = self.b_vector + r * x
        self.a_vector = self.a_vector + r * x

    def finish(self):
        self.estimates.append(np.linalg.inv(self.a_matrix) @ self.a_vector)
        if self.components is not None:
            self.components.add(self.estimates[-1])
        elif len(self.estimates) == DIM - 1:
            self.components = Components(self.estimates)


def offers(seed):
    """Tasks near a plane off the origin: for each, θ* and the contexts and noise of its rounds."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    for _ in range(TASKS):
        theta = (
            0.4 * turn[:, 4] + turn[:, :2] @ rng.normal(0, [0.5, 0.4]) + rng.normal(0, 0.01, DIM)
        )
        arms = rng.standard_normal((ROUNDS, ARMS, DIM))
        # Lengths all different, so that nothing ties while nothing is known.
        arms *= rng.uniform(0.2, 1, (ROUNDS, ARMS, 1)) / np.linalg.norm(
            arms, axis=-1, keepdims=True
        )
        yield theta, arms, 0.1 * rng.standard_normal(ROUNDS)


@pytest.mark.parametrize("lengths", ["equal", "some short"])
@pytest.mark.parametrize("noise", ["auto", 0.1, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_projected_linucb_decides_as_algorithms_1_and_2(seed, noise, lengths):
    """Whatever R is said to be, as printed nothing depends on it; and every task counts."""
    bandit, reference = hs.projected_linucb(dim=DIM, seed=1, paper=True, noise=noise), Reference()
    ranks = []
    for t, (theta, arms, errors) in enumerate(offers(seed)):
        task = bandit.task(t)
        reference.start()
        ranks.append(reference.p)
        rounds = 2 if lengths == "some short" and t % 3 == 1 else ROUNDS
        for k in range(rounds):
            bounds = reference.upper_bounds(arms[k])
            choice = task.choose(arms[k])
            assert choice.arm == bounds.argmax(), f"task {t}, round {k}"
            assert choice.score == pytest.approx(bounds.max(), rel=1e-8)
            reward = arms[k, choice.arm] @ theta + errors[k]
            task.learn(choice, reward)
            reference.learn(arms[k, choice.arm], reward)
        np.testing.assert_allclose(task.belief.mean, reference.theta, atol=1e-7)
        task.close()
        reference.finish()
    assert ranks[: DIM - 1] == [DIM] * (DIM - 1)  # the initial phase: t < d
    assert all(rank < DIM for rank in ranks[DIM - 1 :])


@pytest.mark.parametrize("seed", range(3))
def test_projected_ts_samples_as_algorithms_1_and_3(seed):
    """Draws go through another root, so what is compared is the distribution they come from."""
    bandit, reference = hs.projected_ts(dim=DIM, seed=1, paper=True, noise=0.1), Reference()
    for t, (theta, arms, errors) in enumerate(offers(seed)):
        task = bandit.task(t)
        reference.start()
        for k in range(ROUNDS):
            if k % 10 == 0:
                mean, covariance = reference.sampling_distribution()
                spread = bandit.rule.draw_scale(task.belief)
                np.testing.assert_allclose(task.belief.mean, mean, atol=1e-7)
                np.testing.assert_allclose(
                    spread**2 * task.belief.root @ task.belief.root.T,
                    covariance,
                    rtol=1e-6,
                    atol=1e-5,
                )
            choice = task.choose(arms[k])
            reward = arms[k, choice.arm] @ theta + errors[k]
            task.learn(choice, reward)
            reference.learn(arms[k, choice.arm], reward)
        task.close()
        reference.finish()


def test_projected_ts_draws_from_that_distribution():
    bandit, reference = hs.projected_ts(dim=DIM, seed=1, paper=True, noise=0.1), Reference()
    for t, (theta, arms, errors) in enumerate(offers(9)):
        task = bandit.task(t)
        reference.start()
        for k in range(ROUNDS):
            choice = task.choose(arms[k])
            reward = arms[k, choice.arm] @ theta + errors[k]
            task.learn(choice, reward)
            reference.learn(arms[k, choice.arm], reward)
        if t == TASKS - 1:
            break
        task.close()
        reference.finish()
    mean, covariance = reference.sampling_distribution()
    rng = np.random.default_rng(0)
    scores = np.array([bandit.rule.index(task.belief, np.eye(DIM), rng) for _ in range(20_000)])
    deviation = math.sqrt(np.diagonal(covariance).max())
    np.testing.assert_allclose(scores.mean(0), mean, atol=5 * deviation / math.sqrt(20_000))
    np.testing.assert_allclose(np.cov(scores.T), covariance, atol=0.05 * deviation**2)


def test_the_printed_settings_are_what_the_paper_names():
    linucb = hs.projected_linucb(dim=30, paper=True)
    assert linucb.rule == hs.UCB("paper")
    transfer = linucb.transfer
    assert (transfer.rank, transfer.pca, transfer.lam2) == ("paper", "paper", "paper")
    assert transfer.warmup == 29
    assert transfer.estimate_ridge() == pytest.approx(1 / 250)
    assert hs.projected_ts(dim=30, paper=True).rule == hs.Thompson("paper")
    assert hs.projected_ts(dim=30, paper=True).transfer == transfer


def test_the_printed_radius_explores_far_more_than_the_corrected_one():
    """Correction 2 of spec §5: the square root and R are missing in Algorithm 2."""
    prior = hs.Prior.isotropic(5, noise=0.1, bias=1.0)
    assert hs.UCB("paper").gamma(hs.Belief.start(prior)) > 5 * hs.UCB("theory").gamma(
        hs.Belief.start(prior)
    )
