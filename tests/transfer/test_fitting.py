"""The fit of a population to its tasks, against dense algebra, SciPy and plain EM."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_triangular
from scipy.stats import multivariate_normal

import headstart as hs
from headstart.model.prior import symmetric_root
from headstart.transfer.empirical_bayes.full_covariance import fitting, task_noise
from headstart.transfer.empirical_bayes.full_covariance.fitting import covariance_step, scoring_step
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import log_likelihood, posteriors
from headstart.transfer.empirical_bayes.tasks import Tasks

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=30, deadline=None, derandomize=True)

NOISE = 0.5
TINY = 1e-9  # a strength that regularises nothing


def random_covariance(rng, dim, batch=()):
    root = rng.standard_normal((*batch, dim, dim)) * rng.choice([0.1, 0.5, 1.0, 2.0], dim)
    return root @ root.swapaxes(-1, -2) + 1e-3 * np.eye(dim)


def simulate(rng, mean, covariance, tasks=12, rounds=6, noise=NOISE):
    """Contexts and rewards of tasks θ ~ N(mean, covariance)."""
    thetas = rng.multivariate_normal(mean, covariance, size=tasks)
    contexts = rng.standard_normal((tasks, rounds, len(mean)))
    values = (contexts @ thetas[..., None])[..., 0]
    return contexts, values + noise * rng.standard_normal((tasks, rounds))


def evidence_of(contexts, rewards):
    """All of them side by side, as the fit takes them."""
    told = [hs.Evidence.of(x, r) for x, r in zip(contexts, rewards, strict=True)]
    return Tasks.of(told[0]).join(*(Tasks.of(evidence) for evidence in told[1:]))


def instance(seed, dim=None, tasks=None, rounds=None):
    """A random population, some of its tasks, and a random fit that knows nothing of it."""
    rng = np.random.default_rng(seed)
    dim = int(rng.integers(1, 5)) if dim is None else dim
    tasks = int(rng.integers(2, 30)) if tasks is None else tasks
    rounds = int(rng.integers(1, 15)) if rounds is None else rounds
    mean = rng.standard_normal(dim) * rng.choice([0.0, 0.3, 3.0])
    raw = simulate(rng, mean, random_covariance(rng, dim), tasks, rounds)
    other = Fit(
        rng.standard_normal(dim), random_covariance(rng, dim), np.zeros((dim, dim)), NOISE**2
    )
    return raw, evidence_of(*raw), other


def at(record, index):
    """One element of a batch."""
    return type(record)(*(getattr(record, name)[index] for name in record.__slots__))


def joint(tasks):
    """A batch of tasks from a list of them."""
    return Tasks(*(np.stack([getattr(t, name) for t in tasks]) for name in Tasks.__slots__))


def marginal(fit, contexts, rewards):
    """The log density of all rewards given μ, by SciPy: r ~ N(X μ, R² I + X Σ Xᵀ)."""
    return sum(
        multivariate_normal.logpdf(
            r, x @ fit.mean, float(fit.noise_variance) * np.eye(len(r)) + x @ fit.covariance @ x.T
        )
        for x, r in zip(contexts, rewards, strict=True)
    )


def integrated(covariance, noise, tau, contexts, rewards):
    """The log density of all rewards together, with μ ~ N(0, τ² I) as unknown as the θ's."""
    every = contexts.reshape(-1, contexts.shape[-1])
    which = np.repeat(np.arange(len(contexts)), contexts.shape[1])
    same = which[:, None] == which[None, :]
    spread = same * (every @ covariance @ every.T) + tau * every @ every.T
    lower = np.linalg.cholesky(spread + noise * np.eye(len(every)))
    white = solve_triangular(lower, rewards.ravel(), lower=True)
    return -np.log(np.diag(lower)).sum() - (white @ white + len(every) * np.log(2 * np.pi)) / 2


def information(fit, tasks):
    """F⁻¹ Σ K F⁻¹, what the tasks tell of μ."""
    grams = tasks.gram / fit.noise_variance
    left = np.eye(len(fit.mean)) + grams @ fit.covariance
    return np.linalg.solve(left, grams).sum(0)


def tau_of(fit, new, tasks):
    """The τ² that a step took: μ's error is (F⁻¹ Σ K F⁻¹ + I/τ²)⁻¹."""
    excess = np.linalg.inv(new.error) - information(fit, tasks)
    return len(excess) / np.trace(excess)


def fitted(tasks, dim, steps, strength=TINY, noise=NOISE, past=None):
    """From an isotropic start; the last two fits."""
    fit = new = Fit.isotropic(np.zeros(dim), 1.0, NOISE**2)
    for _ in range(steps):
        fit, new = new, scoring_step(new, tasks, past or Past.zero(dim), strength, noise)[0]
    return fit, new


class TestPosteriors:
    @on_random_instances
    @given(seeds)
    def test_they_are_those_of_a_dense_solve(self, seed):
        """C = (Σ⁻¹ + G/R²)⁻¹ and m = C (Σ⁻¹μ + b/R²)."""
        _, tasks, fit = instance(seed)
        root = symmetric_root(fit.covariance)
        known, z = posteriors(fit, root, tasks)
        inverse = np.linalg.inv(fit.covariance)
        for n in range(len(tasks)):
            covariance = np.linalg.inv(inverse + tasks.gram[n] / fit.noise_variance)
            mean = covariance @ (inverse @ fit.mean + tasks.moment[n] / fit.noise_variance)
            found = root @ (np.eye(len(root)) - known[n]) @ root
            np.testing.assert_allclose(found, covariance, rtol=1e-6, atol=1e-9)
            np.testing.assert_allclose(fit.mean + root @ z[n], mean, rtol=1e-6, atol=1e-8)

    def test_they_are_those_of_a_belief(self):
        _, tasks, fit = instance(1, dim=3)
        root = symmetric_root(fit.covariance)
        known, z = posteriors(fit, root, tasks)
        prior = hs.Prior.gaussian(fit.mean, fit.covariance, noise=NOISE)
        for n in range(len(tasks)):
            belief = hs.Belief.of(prior, tasks.task(n))
            np.testing.assert_allclose(fit.mean + root @ z[n], belief.mean, atol=1e-9)
            np.testing.assert_allclose(
                root @ (np.eye(3) - known[n]) @ root, belief.covariance, atol=1e-9
            )

    def test_a_task_without_rounds_knows_nothing(self):
        fit = Fit.isotropic(np.ones(3), 2.0, 0.25)
        known, z = posteriors(fit, np.sqrt(2.0) * np.eye(3), Tasks.of(hs.Evidence.zero(3)))
        np.testing.assert_allclose(known, 0.0, atol=1e-15)
        np.testing.assert_allclose(z, 0.0, atol=1e-15)


class TestLogLikelihood:
    @on_random_instances
    @given(seeds)
    def test_differences_are_those_of_the_rewards_densities(self, seed):
        """Two priors with the same R: what they share drops out."""
        (contexts, rewards), tasks, one = instance(seed)
        rng = np.random.default_rng(seed + 1)
        dim = len(one.mean)
        other = one.replace(mean=rng.standard_normal(dim), covariance=random_covariance(rng, dim))
        for n in range(len(tasks)):
            found = [
                float(log_likelihood(fit.mean, fit.covariance, fit.noise_variance, tasks.task(n)))
                for fit in (one, other)
            ]
            truth = [marginal(fit, contexts[n : n + 1], rewards[n : n + 1]) for fit in (one, other)]
            assert found[1] - found[0] == pytest.approx(truth[1] - truth[0], rel=1e-8, abs=1e-7)

    def test_several_covariances_at_once_are_a_loop(self):
        _, tasks, fit = instance(3, dim=3)
        several = random_covariance(np.random.default_rng(4), 3, (5,))
        together = log_likelihood(fit.mean, several, fit.noise_variance, tasks.task(0))
        assert together.shape == (5,)
        for covariance, value in zip(several, together, strict=True):
            alone = log_likelihood(fit.mean, covariance, fit.noise_variance, tasks.task(0))
            assert value == pytest.approx(float(alone), rel=1e-12)

    def test_so_are_batch_axes_with_or_without_several(self):
        rng = np.random.default_rng(5)
        evidence = hs.Evidence.of(rng.standard_normal((2, 6, 3)), rng.standard_normal((2, 6)))
        means, noises = rng.standard_normal((2, 3)), np.array([0.3, 2.0])
        for several in (random_covariance(rng, 3, (2,)), random_covariance(rng, 3, (2, 4))):
            together = log_likelihood(means, several, noises, evidence)
            assert together.shape == several.shape[:-2]
            for n in range(2):
                one = Tasks.of(evidence).task(0)
                alone = hs.Evidence(one.gram[n], one.moment[n], one.rounds[n], one.squares[n])
                expected = log_likelihood(means[n], several[n], noises[n], alone)
                np.testing.assert_allclose(together[n], expected, rtol=1e-12)

    @pytest.mark.parametrize("seed", range(5))
    def test_it_holds_where_directions_are_so_unequal_that_there_is_no_cholesky_factor(self, seed):
        rng = np.random.default_rng(seed)
        turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        flat = turn @ np.diag([1.0, 1e-4, 1e-19, 0.0]) @ turn.T - 1e-17 * np.eye(4)
        with pytest.raises(np.linalg.LinAlgError):
            np.linalg.cholesky(flat)
        contexts, rewards = rng.standard_normal((6, 4)), rng.standard_normal(6)
        evidence = hs.Evidence.of(contexts, rewards)
        mean, full = rng.standard_normal(4), random_covariance(rng, 4)
        found = log_likelihood(mean, np.stack([flat, full]), NOISE**2, evidence)
        truth = [
            multivariate_normal.logpdf(
                rewards, contexts @ mean, NOISE**2 * np.eye(6) + contexts @ sigma @ contexts.T
            )
            for sigma in (flat, full)
        ]
        assert found[1] - found[0] == pytest.approx(truth[1] - truth[0], rel=1e-8)
        # The way round the factor is the same function where there is one.
        assert found[1] == pytest.approx(float(log_likelihood(mean, full, NOISE**2, evidence)))


class TestImprove:
    @pytest.mark.parametrize("seed", range(4))
    def test_where_it_stops_the_likelihood_has_no_slope(self, seed):
        """Of all rewards, with μ ~ N(0, τ² I) integrated out: τ² as in the last step, R known.

        That is what it maximises: μ shrunk by its own uncertainty is the posterior mean of μ, and
        the uncertainty counts in Σ, as in restricted maximum likelihood.
        """
        rng = np.random.default_rng(seed)
        raw = simulate(rng, [1.0, 0.0, -1.0], np.diag([1.0, 0.5, 0.2]), tasks=25, rounds=8)
        tasks = evidence_of(*raw)
        before, fit = fitted(tasks, 3, steps=150)
        np.testing.assert_allclose(fit.covariance, before.covariance, rtol=1e-9, atol=1e-12)
        tau, root = tau_of(before, fit, tasks), symmetric_root(fit.covariance)

        def value(change):
            return integrated(root @ (np.eye(3) + change) @ root, NOISE**2, tau, *raw)

        for i, j in zip(*np.triu_indices(3), strict=True):
            step = np.zeros((3, 3))
            step[i, j] = step[j, i] = 1e-4
            slope, curve = value(step) - value(-step), value(step) + value(-step) - 2 * value(0)
            assert abs(slope) < 0.01 * abs(curve)  # the top is within 1e-6 of here
            assert curve < 0

    @pytest.mark.parametrize("seed", range(4))
    def test_where_it_stops_the_noise_is_the_likeliest_too(self, seed):
        """Given μ and Σ: where tasks have one noise, its scale is that noise, to one per cent."""
        rng = np.random.default_rng(seed)
        raw = simulate(rng, [1.0, 0.0, -1.0], np.diag([1.0, 0.5, 0.2]), tasks=40, rounds=25)
        _, fit = fitted(evidence_of(*raw), 3, steps=150, noise=0.0)
        here, less, more = (
            marginal(fit.replace(noise_variance=share * fit.noise_variance), *raw)
            for share in (1.0, 0.99, 1.01)
        )
        # A parabola through these has its top within 1 % of here.
        assert abs(more - less) < 2.0 * abs(more + less - 2 * here)
        assert fit.dof > 100
        assert fit.noise_variance == pytest.approx(NOISE**2, rel=0.2)

    @on_random_instances
    @given(seeds, st.sampled_from([TINY, 1e-4, 3e-3, 1e-2, 0.1, 1.0, 10.0]))
    def test_no_step_makes_the_regularised_likelihood_fall(self, seed, share):
        """With τ² and the imaginary tasks' variance t as the step took them, R known::

        log p(rewards | Σ, τ²) − strength/2 (log det Σ + t tr Σ⁻¹)
        """
        raw, tasks, start = instance(seed, rounds=int(seed % 6) + 2)
        dim = len(start.mean)
        strength = share * dim

        def value(covariance, tau, imaginary):
            spread = np.trace(np.linalg.inv(covariance)) * imaginary
            penalty = strength / 2 * (np.linalg.slogdet(covariance)[1] + spread)
            return integrated(covariance, NOISE**2, tau, *raw) - penalty

        fit = Fit.isotropic(np.zeros(dim), 1.0, NOISE**2)
        for _ in range(25):
            new, _, _ = scoring_step(fit, tasks, Past.zero(dim), strength, NOISE)
            scales = tau_of(fit, new, tasks), np.trace(fit.covariance) / dim
            gain = value(new.covariance, *scales) - value(fit.covariance, *scales)
            assert gain > -1e-6
            fit = new

    @pytest.mark.parametrize("share", [10**-2.5, 0.01, 0.1, 1.0, 10.0])
    def test_it_comes_to_rest(self, share):
        """Whatever the strength, also where tasks differ little along some directions."""
        for seed in range(4):
            rng = np.random.default_rng(seed)
            raw = simulate(rng, np.ones(4), np.diag([1.0, 0.5, 1e-3, 1e-4]), tasks=30, rounds=12)
            before, fit = fitted(evidence_of(*raw), 4, steps=80, strength=4 * share)
            values = np.linalg.eigvalsh(fit.covariance)
            np.testing.assert_allclose(np.linalg.eigvalsh(before.covariance), values, rtol=1e-3)

    @pytest.mark.parametrize("seed", range(3))
    def test_it_is_as_likely_as_what_plain_em_finds(self, seed):
        """But for little: EM takes μ and Σ at the maximum of the likelihood itself.

        Here μ is shrunk by about (its error)²/τ² and Σ counts μ's error, so the two differ in the
        second order of 1/tasks; the likelihoods per task by the square of that.
        """
        rng = np.random.default_rng(seed)
        truth = random_covariance(rng, 3)
        raw = simulate(rng, [2.0, 0.0, -1.0], truth, tasks=60, rounds=7)
        tasks = evidence_of(*raw)
        grams, moments = tasks.gram / NOISE**2, tasks.moment / NOISE**2
        mean, sigma = np.zeros(3), np.eye(3)
        for _ in range(3000):
            inverse = np.linalg.inv(sigma)
            spreads = np.linalg.inv(inverse + grams)
            means = (spreads @ (inverse @ mean + moments)[..., None])[..., 0]
            mean = means.mean(0)
            sigma = spreads.mean(0) + (means - mean).T @ (means - mean) / len(means)
        best = marginal(Fit(mean, sigma, np.zeros((3, 3)), NOISE**2), *raw)
        found = marginal(fitted(tasks, 3, steps=100)[1], *raw)
        assert best - 1e-3 * 60 < found < best + 1e-6

    def test_it_needs_few_steps_where_em_needs_many(self):
        """Tasks that hardly differ along one direction: after 20 steps nothing is left to gain."""
        rng = np.random.default_rng(0)
        raw = simulate(rng, [1.0, 1.0], np.diag([1.0, 1e-4]), tasks=60, rounds=5)
        tasks = evidence_of(*raw)
        soon, late = (marginal(fitted(tasks, 2, steps)[1], *raw) for steps in (20, 500))
        assert soon > late - 0.05

    def test_a_weight_counts_a_task_as_often(self):
        _, tasks, fit = instance(6, dim=3, tasks=5)
        weighted = tasks.replace(weight=np.array([1.0, 2.0, 1.0, 3.0, 0.0]))
        repeated = tasks[[0, 1, 1, 2, 3, 3, 3]]
        for noise in (0.0, NOISE):
            one, other = (
                scoring_step(fit, told, Past.zero(3), 0.3, noise)[0]
                for told in (weighted, repeated)
            )
            for name in ("mean", "covariance", "error", "noise_variance"):
                np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-10)

    def test_tasks_without_rounds_change_nothing(self):
        _, tasks, fit = instance(7, dim=3)
        padded = tasks.join(Tasks.of(hs.Evidence.zero(3)), Tasks.of(hs.Evidence.zero(3)))
        one, other = (scoring_step(fit, told, Past.zero(3), 0.3)[0] for told in (tasks, padded))
        for name in ("mean", "covariance", "error", "noise_variance"):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12)

    def test_without_any_task_it_stays_finite(self):
        fit = Fit.isotropic(np.zeros(3), 1.0, 1.0)
        for strength in (TINY, 1.0):
            new, _, _ = scoring_step(fit, Tasks.empty(3), Past.zero(3), strength)
            assert np.isfinite(new.mean).all()
            assert np.isfinite(new.covariance).all()
            assert new.noise_variance > 0

    @pytest.mark.parametrize("unit", [1e-3, 8.0, 1e4])
    def test_the_unit_of_rewards_is_that_of_the_fit(self, unit):
        (contexts, rewards), tasks, _ = instance(8, dim=3, tasks=15, rounds=6)
        scaled = evidence_of(contexts, unit * rewards)
        _, one = fitted(tasks, 3, steps=4, strength=0.3, noise=0.0)
        other = Fit.isotropic(np.zeros(3), unit**2, unit**2 * NOISE**2)
        for _ in range(4):
            other, _, _ = scoring_step(other, scaled, Past.zero(3), 0.3)
        np.testing.assert_allclose(other.mean, unit * one.mean, rtol=1e-7)
        np.testing.assert_allclose(other.covariance, unit**2 * one.covariance, rtol=1e-7)
        assert other.noise_variance == pytest.approx(unit**2 * one.noise_variance, rel=1e-7)

    @pytest.mark.parametrize("noise", [0.0, NOISE])
    def test_batch_axes_are_a_loop(self, noise):
        told = [instance(seed, dim=3, tasks=7)[1] for seed in range(4)]
        start = Fit.isotropic(np.zeros((4, 3)), np.ones(4), np.full(4, NOISE**2))
        together, strengths = start, np.array([0.01, 0.1, 1.0, 10.0])
        for _ in range(5):
            together, taken, _ = scoring_step(
                together, joint(told), Past.zero(3, (4,)), strengths, noise
            )
        for n in range(4):
            alone = at(start, n)
            for _ in range(5):
                alone, one, _ = scoring_step(alone, told[n], Past.zero(3), strengths[n], noise)
            for name in ("mean", "covariance", "error", "noise_variance"):
                np.testing.assert_allclose(
                    getattr(together, name)[n], getattr(alone, name), rtol=1e-8, atol=1e-12
                )
            np.testing.assert_allclose(taken.excess[n], one.excess, rtol=1e-7, atol=1e-9)

    def test_it_does_not_matter_how_many_tasks_are_taken_at_once(self, monkeypatch):
        _, tasks, fit = instance(9, dim=3, tasks=11)
        past = Past.zero(3).add(fit, tasks[:2])
        whole, taken, _ = scoring_step(fit, tasks, past, 0.3)
        monkeypatch.setattr(fitting, "CHUNK_TASKS", 3)
        parts, in_parts, _ = scoring_step(fit, tasks, past, 0.3)
        for name in ("mean", "covariance", "error", "noise_variance"):
            np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)
        for one, other in zip(in_parts, taken, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)

    def test_rewards_without_noise_do_not_make_it_certain(self):
        rng = np.random.default_rng(10)
        tasks = evidence_of(*simulate(rng, np.ones(3), np.eye(3), rounds=9, noise=0.0))
        _, fit = fitted(tasks, 3, steps=30, noise=0.0)
        mean_square = tasks.squares.sum() / tasks.rounds.sum()
        assert task_noise.MIN_NOISE_SHARE * mean_square <= fit.noise_variance < 0.02 * mean_square
        assert (np.linalg.eigvalsh(fit.covariance) > 0).all()


class TestShrunk:
    def test_the_stronger_the_more_alike_the_directions_and_the_size_remains(self):
        rng = np.random.default_rng(0)
        tasks = evidence_of(*simulate(rng, np.zeros(3), np.diag([4.0, 1.0, 0.1]), tasks=40))
        ratios = []
        for strength in (TINY, 4.0, 40.0, 4000.0):
            _, fit = fitted(tasks, 3, steps=60, strength=strength)
            values = np.linalg.eigvalsh(fit.covariance)
            ratios.append(values[-1] / values[0])
            assert 0.5 < values.sum() / 5.1 < 2.0
        assert ratios[0] > ratios[1] > ratios[2] > ratios[3]
        assert ratios[3] < 1.1

    def test_no_variance_grows_or_falls_without_bound_in_one_step(self):
        """However wrong the start is."""
        rng = np.random.default_rng(1)
        tasks = evidence_of(*simulate(rng, np.zeros(3), np.eye(3), rounds=20))
        for size in (1e-6, 1.0, 1e6):
            fit = Fit.isotropic(np.zeros(3), size, NOISE**2)
            new, taken, _ = scoring_step(fit, tasks, Past.zero(3), TINY, NOISE)
            values = np.linalg.eigvalsh(new.covariance)
            assert (values > 0).all()
            assert (values < (1.0 + fitting.MAX_GROWTH) * size * 1.001).all()
            np.testing.assert_array_equal(covariance_step(taken, TINY), new.covariance)


class TestPast:
    @on_random_instances
    @given(seeds)
    def test_what_is_added_and_taken_out_again_cancels(self, seed):
        _, tasks, fit = instance(seed)
        before = Past.zero(len(fit.mean)).add(fit, tasks[:1])
        after = before.add(fit, tasks[1:]).subtract(fit, tasks[1:])
        for name in Past.__slots__:
            np.testing.assert_allclose(
                getattr(after, name), getattr(before, name), rtol=1e-9, atol=1e-8, err_msg=name
            )

    def test_the_sums_are_those_of_dense_posteriors(self):
        _, tasks, fit = instance(2, dim=3, tasks=4)
        weights = np.array([1.0, 0.5, 2.0, 0.0])
        past = Past.zero(3).add(fit, tasks.replace(weight=weights))
        inverse = np.linalg.inv(fit.covariance)
        spreads = np.linalg.inv(inverse + tasks.gram / fit.noise_variance)
        means = (spreads @ (inverse @ fit.mean + tasks.moment / fit.noise_variance)[..., None])[
            ..., 0
        ]
        second = spreads + means[:, :, None] * means[:, None, :]
        assert past.count == 3.5
        np.testing.assert_allclose(past.first, weights @ means, rtol=1e-8)
        np.testing.assert_allclose(past.second, np.tensordot(weights, second, 1), rtol=1e-8)

    def test_counting_less_is_a_factor_on_everything(self):
        _, tasks, fit = instance(3, dim=3)
        past = Past.zero(3).add(fit, tasks)
        for name in Past.__slots__:
            np.testing.assert_allclose(
                getattr(past.discount(0.25), name), 0.25 * getattr(past, name), rtol=1e-12
            )

    def test_batch_axes_are_a_loop(self):
        told = [instance(seed, dim=3, tasks=5)[1] for seed in range(3)]
        fits = [instance(seed, dim=3)[2] for seed in range(3)]
        stacked = Fit(*(np.stack([getattr(fit, name) for fit in fits]) for name in Fit.__slots__))
        together = Past.zero(3, (3,)).add(stacked, joint(told)).discount(np.array([1, 0.5, 0]))
        for n, factor in enumerate((1.0, 0.5, 0.0)):
            alone = Past.zero(3).add(fits[n], told[n]).discount(factor)
            for name in Past.__slots__:
                np.testing.assert_allclose(
                    getattr(together, name)[n], getattr(alone, name), rtol=1e-9, atol=1e-12
                )

    def test_tasks_that_become_past_leave_the_fit_nearly_where_it_is(self):
        """Where the fit stands still, so it does with half of the tasks as their posteriors.

        The covariance's condition is the same sum; the mean's uncertainty is not quite, because the
        past counts as if it had been observed whole.
        """
        rng = np.random.default_rng(4)
        raw = simulate(rng, [1.0, 0.0, -1.0], np.diag([1.0, 0.5, 0.2]), tasks=60, rounds=8)
        tasks = evidence_of(*raw)
        _, fit = fitted(tasks, 3, steps=150, noise=0.0)
        past = Past.zero(3).add(fit, tasks[:30])
        new = fit
        for _ in range(100):
            new, _, _ = scoring_step(new, tasks[30:], past, TINY)
        np.testing.assert_allclose(new.mean, fit.mean, atol=0.02)
        np.testing.assert_allclose(new.covariance, fit.covariance, atol=0.02)
        assert new.noise_variance == pytest.approx(fit.noise_variance, rel=0.01)


class TestTasks:
    def test_they_can_be_joined_picked_and_taken_out_one_by_one(self):
        rng = np.random.default_rng(0)
        told = [hs.Evidence.of(rng.standard_normal((n, 2)), rng.standard_normal(n)) for n in (3, 5)]
        tasks = Tasks.empty(2).join(Tasks.of(told[0]), Tasks.of(told[1], 0.5))
        assert len(Tasks.empty(2)) == 0
        assert len(tasks) == 2
        assert [tasks.task(n) for n in range(2)] == told
        assert tasks.weight.tolist() == [1.0, 0.5]
        assert tasks[1:].task(0) == tasks[[1]].task(0) == told[1]

    def test_batch_axes_come_first(self):
        rng = np.random.default_rng(1)
        evidence = hs.Evidence.of(rng.standard_normal((4, 5, 2)), rng.standard_normal((4, 5)))
        tasks = Tasks.empty(2, (4,)).join(Tasks.of(evidence), Tasks.of(evidence))
        assert tasks.gram.shape == (4, 2, 2, 2)
        assert tasks.weight.shape == (4, 2)
        assert tasks.task(1) == evidence


def test_a_free_intercept_follows_the_level_of_rewards_and_moves_nothing_else():
    """As where clicks are rare: log-odds five lower for all."""
    rng = np.random.default_rng(0)
    transfer = hs.EmpiricalBayes(constant=True, free_intercept=True)
    rounds = []
    for _ in range(30):
        x = np.column_stack([rng.standard_normal((20, 2)), np.ones(20)])
        theta = [1.0, -1.0, 0.0] + 0.5 * rng.standard_normal(3)  # which no isotropic prior fits
        rounds.append((x, x @ theta + rng.standard_normal(20)))
    priors = [
        transfer.prior(transfer.refit([hs.Evidence.of(x, r - level) for x, r in rounds], noise=1.0))
        for level in (0.0, 5.0)
    ]
    np.testing.assert_allclose(priors[0].mean - priors[1].mean, [0.0, 0.0, 5.0], atol=0.004)
    spreads = [np.diag(prior.covariance) for prior in priors]
    np.testing.assert_allclose(spreads[0], spreads[1], rtol=0.03)
