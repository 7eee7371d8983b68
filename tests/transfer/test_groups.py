"""Groups of tasks: how many there are, who belongs where, and what a new task gains from it."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

import headstart as hs
from headstart.lab import Policy, simulate
from headstart.lab.policies import policy
from headstart.model.mixture import MixtureBelief, MixturePrior
from headstart.records import flatten
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.full_covariance.posteriors import (
    log_likelihood,
    task_likelihoods,
)
from headstart.transfer.empirical_bayes.tasks import Tasks
from headstart.transfer.mixture import transfer as groups
from headstart.worlds import Synthetic

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)
NOISE = 0.1
THREE = 4.0 * np.eye(3)  # centres of well separated groups
told_or_not = pytest.mark.parametrize("noise", [None, NOISE], ids=["noise unknown", "noise told"])
some_seeds = pytest.mark.parametrize(
    ("seed", "noise"), [(0, None), (2, NOISE)], ids=["0", "2, noise told"]
)


def thetas_of(seed, centres, owners, within=0.1):
    """The tasks' parameters, each around its group's centre."""
    rng = np.random.default_rng([seed, 0])
    centres = np.asarray(centres, dtype=float)
    return centres[owners] + within * rng.standard_normal((len(owners), centres.shape[1]))


def evidence_of(theta, seed, rounds=12):
    """Random contexts of a task, and their rewards."""
    rng = np.random.default_rng([seed, 1])
    contexts = rng.standard_normal((rounds, len(theta)))
    return contexts, contexts @ theta + NOISE * rng.standard_normal(rounds)


def tasks_of(seed, centres, owners, within=0.1, rounds=12):
    thetas = thetas_of(seed, centres, owners, within)
    return [
        hs.Evidence.of(*evidence_of(theta, [seed, at], rounds)) for at, theta in enumerate(thetas)
    ]


def folded(transfer, evidences, noise=None, dim=3):
    state = transfer.init(dim, noise)
    for evidence in evidences:
        state = transfer.fold(state, evidence)
    return state


def prior_of(evidences, noise=None, dim=3, units="free", **options):
    transfer = hs.Mixture(units=units, **options)
    return transfer.prior(folded(transfer, evidences, noise, dim))


def count(prior):
    return 1 if isinstance(prior, hs.Prior) else len(prior.log_weights)


def in_turn(number, tasks):
    """Groups one after another, so that each shows early."""
    return np.arange(tasks) % number


@functools.cache
def three_groups():
    return prior_of(tasks_of(0, THREE, in_turn(3, 36)), NOISE)


def density(prior, contexts, rewards):
    """The log density of rewards under a prior, as SciPy has it."""
    if isinstance(prior, hs.Prior):
        prior = MixturePrior.of(prior)
    noise = prior.noise**2 * np.eye(len(rewards))
    logs = [
        weight
        + stats.multivariate_normal(
            contexts @ mean, contexts @ covariance @ contexts.T + noise
        ).logpdf(rewards)
        for weight, mean, covariance in zip(
            prior.log_weights, prior.parts.mean, prior.parts.covariance, strict=True
        )
    ]
    return special.logsumexp(logs)


def purity(prior, evidences, owners):
    """The share of tasks that are in a group mostly of their own kind."""
    found = np.array([prior.belief(evidence).weights.argmax() for evidence in evidences])
    return sum(np.bincount(owners[found == one]).max() for one in set(found)) / len(owners)


def check_three_groups(prior, evidences, owners):
    """Means, weights and deviations of the three groups are found, and every task's group."""
    assert count(prior) == 3
    assert purity(prior, evidences, owners) == 1.0
    found = prior.parts.mean[np.abs(prior.parts.mean[:, None] - THREE).sum(-1).argmin(0)]
    np.testing.assert_allclose(found, THREE, atol=0.12)
    np.testing.assert_allclose(np.exp(prior.log_weights), 1 / 3, atol=0.02)
    deviations = np.sqrt(prior.parts.covariance.trace(axis1=-2, axis2=-1) / 3)
    np.testing.assert_allclose(deviations, 0.1, rtol=0.5)


class TestHowMany:
    @some_seeds
    def test_three_groups_are_found_and_told_apart(self, seed, noise):
        owners = in_turn(3, 36)
        evidences = tasks_of(seed, THREE, owners)
        prior = prior_of(evidences, noise)
        check_three_groups(prior, evidences, owners)
        assert prior.noise == pytest.approx(NOISE, rel=0.1)

    @some_seeds
    def test_two_groups_are_two(self, seed, noise):
        owners = in_turn(2, 40)
        evidences = tasks_of(seed, THREE[:2], owners)
        prior = prior_of(evidences, noise)
        assert count(prior) == 2
        assert purity(prior, evidences, owners) == 1.0

    @pytest.mark.parametrize(
        ("centre", "within"),
        [([4.0, 0.0, 0.0], 0.1), ([0.5, 0.5, 0.0], 1.0), ([0.0, 0.0, 0.0], [0.5, 0.05, 0.0])],
        ids=["far from zero", "wide", "near a line"],
    )
    def test_one_population_is_mostly_one_group(self, centre, within):
        counts = []
        for seed in range(5):
            evidences = tasks_of(seed, [centre], in_turn(1, 36), np.array(within))
            counts.append(count(prior_of(evidences, NOISE if seed % 2 else None)))
        assert counts.count(1) >= 4, counts

    @told_or_not
    def test_a_group_that_first_shows_late_does_not_spoil_the_count(self, noise):
        owners = np.append(np.zeros(6, dtype=int), in_turn(2, 44))
        evidences = tasks_of(0, THREE[:2], owners)
        prior = prior_of(evidences, noise)
        assert count(prior) == 2
        assert purity(prior, evidences, owners) == 1.0

    @told_or_not
    def test_with_one_group_new_tasks_are_predicted_as_by_empirical_bayes(self, noise):
        thetas = thetas_of(5, [[1.0, 0.5, 0.0]], np.zeros(60, dtype=int), within=0.3)
        rounds = [evidence_of(theta, [5, at]) for at, theta in enumerate(thetas)]
        evidences = [hs.Evidence.of(*each) for each in rounds[:40]]
        ours, theirs = (
            transfer.prior(folded(transfer, evidences, noise))
            for transfer in (hs.Mixture(), hs.EmpiricalBayes())
        )
        gain = [density(ours, *each) - density(theirs, *each) for each in rounds[40:]]
        assert abs(np.mean(gain)) < 0.1

    @told_or_not
    def test_with_groups_new_tasks_are_predicted_better_than_by_empirical_bayes(self, noise):
        thetas = thetas_of(6, THREE, in_turn(3, 63))
        rounds = [evidence_of(theta, [6, at]) for at, theta in enumerate(thetas)]
        evidences = [hs.Evidence.of(*each) for each in rounds[:48]]
        ours, theirs = (
            transfer.prior(folded(transfer, evidences, noise))
            for transfer in (hs.Mixture(), hs.EmpiricalBayes())
        )
        gain = [density(ours, *each) - density(theirs, *each) for each in rounds[48:]]
        assert np.mean(gain) > 2.0

    def test_no_more_groups_than_asked_for(self):
        evidences = tasks_of(0, THREE, in_turn(3, 40))
        assert [fit.groups for fit in hs.Mixture(groups=5).init(2).fits] == [1, 2, 3, 4]
        assert count(prior_of(evidences, groups=1)) == 1
        assert count(prior_of(evidences, groups=2)) <= 2

    def test_options_are_scored_by_how_likely_they_made_the_rewards(self):
        """Each option has its own R, so all that R enters must be in the score."""
        thetas = thetas_of(3, [[2.0, 0.0, 0.0]], np.zeros(21, dtype=int), within=0.4)
        rounds = [evidence_of(theta, [3, at]) for at, theta in enumerate(thetas)]
        state = folded(hs.Mixture(groups=4), [hs.Evidence.of(*each) for each in rounds[:20]])
        contexts, rewards = rounds[20]
        task = state.units.convert_tasks(Tasks.of(hs.Evidence.of(contexts, rewards)))
        contexts = contexts * state.units.inverse
        after = groups.score_task(state, task, 1.0, constant=False)
        gained = after.scores - groups.SCORE_DECAY * state.scores
        expected = np.empty_like(gained)
        for row, option in enumerate(state.fits):
            deviation = np.sqrt(option.fit.noise_variance)
            for column, root in enumerate(option.roots):
                parts = hs.Prior(option.fit.mean, root / deviation[:, None, None], noise=deviation)
                expected[row, column] = density(
                    MixturePrior(parts, option.log_weights), contexts, rewards
                )
        np.testing.assert_allclose(
            gained - gained.max(), expected - expected.max(), rtol=1e-6, atol=1e-6
        )


class TestNewTasks:
    @pytest.mark.parametrize("owner", range(3))
    def test_a_few_rewards_tell_the_group(self, owner):
        prior = three_groups()
        wanted = np.abs(prior.parts.mean - THREE[owner]).sum(-1).argmin()
        belief = prior.belief()
        contexts, rewards = evidence_of(THREE[owner], [9, owner], rounds=4)
        for x, r in zip(contexts, rewards, strict=True):
            belief = belief.update(x, r)
        assert belief.weights[wanted] > 0.99
        np.testing.assert_allclose(belief.mean, THREE[owner], atol=0.4)

    def test_before_any_reward_they_are_in_every_group_at_once(self):
        prior = three_groups()
        belief = prior.belief()
        np.testing.assert_allclose(belief.weights, 1 / 3, atol=0.02)
        np.testing.assert_allclose(belief.mean, THREE.mean(0), atol=0.2)
        # As uncertain as the groups are apart.
        width = NOISE * belief.width(np.eye(3))
        np.testing.assert_allclose(width, 4 * np.sqrt(2) / 3, rtol=0.1)


class TestLikelihoods:
    @on_random_instances
    @given(seeds, st.integers(1, 4), st.integers(1, 3), st.integers(0, 5))
    def test_they_are_those_of_every_task_in_every_group(self, seed, dim, number, tasks):
        rng = np.random.default_rng(seed)
        half = rng.standard_normal((number, dim, dim))
        fit = Fit(
            rng.standard_normal((number, dim)),
            half @ half.swapaxes(-1, -2) + 0.1 * np.eye(dim),
            np.zeros((number, dim, dim)),
            rng.uniform(0.05, 2.0, number),
        )
        evidences = [
            hs.Evidence.of(rng.standard_normal((n, dim)), rng.standard_normal(n))
            for n in rng.integers(0, 8, tasks)
        ]
        together = Tasks.empty(dim).join(*(Tasks.of(evidence) for evidence in evidences))
        found = task_likelihoods(fit, together)
        assert found.shape == (number, tasks)
        for group in range(number):
            for at, evidence in enumerate(evidences):
                alone = log_likelihood(
                    fit.mean[group], fit.covariance[group], fit.noise_variance[group], evidence
                )
                assert found[group, at] == pytest.approx(float(alone), rel=1e-7, abs=1e-7)

    def test_another_root_stands_for_another_covariance(self):
        rng = np.random.default_rng(1)
        fit = Fit(np.zeros((2, 3)), np.stack([np.eye(3)] * 2), np.zeros((2, 3, 3)), np.ones(2))
        roots = np.stack([scale * np.stack([np.eye(3)] * 2) for scale in (0.5, 2.0)])
        tasks = Tasks.of(hs.Evidence.of(rng.standard_normal((5, 3)), rng.standard_normal(5)))
        found = task_likelihoods(fit, tasks, roots)
        assert found.shape == (2, 2, 1)
        for row, scale in enumerate((0.5, 2.0)):
            wide = fit.replace(covariance=scale**2 * fit.covariance)
            np.testing.assert_allclose(found[row], task_likelihoods(wide, tasks), rtol=1e-9)


def usable(prior, dim=3):
    """Whether a prior can be chosen by."""
    belief = prior.belief()
    for _ in range(3):
        rng = np.random.default_rng(0)
        pick = hs.UCB().choose(belief, rng.standard_normal((4, dim)), rng)
        belief = belief.update(rng.standard_normal(dim), 1.0)
        if not np.isfinite(pick.score):
            return False
    return bool(prior.noise > 0)


class TestOddTasks:
    @pytest.mark.parametrize("where", ["first", "between", "last"])
    @pytest.mark.parametrize("odd", ["no rounds", "no rewards"])
    def test_tasks_that_tell_nothing_are_harmless(self, where, odd):
        rounds = 0 if odd == "no rounds" else 6
        contexts = np.random.default_rng(0).standard_normal((rounds, 3))
        blank = hs.Evidence.of(contexts, np.zeros(rounds))
        owners = in_turn(3, 36)
        evidences = tasks_of(1, THREE, owners)
        mixed = list(evidences)
        for at in {"first": [0, 0], "between": [7, 19], "last": [36, 37]}[where]:
            mixed.insert(at, blank)
        prior = prior_of(mixed, NOISE, groups=3)
        assert usable(prior)
        if odd == "no rounds":
            assert count(prior) == 3
            assert purity(prior, evidences, owners) == 1.0

    @pytest.mark.parametrize("noise", [None, 0.4])
    @pytest.mark.parametrize("rounds", [0, 5])
    def test_nothing_but_blank_tasks_leaves_a_usable_prior(self, noise, rounds):
        contexts = np.random.default_rng(0).standard_normal((rounds, 3))
        prior = prior_of([hs.Evidence.of(contexts, np.zeros(rounds))] * 20, noise)
        assert count(prior) == 1
        assert usable(prior)

    def test_the_same_task_again_and_again_leaves_a_usable_prior(self):
        evidence = tasks_of(0, THREE, [1])[0]
        assert usable(prior_of([evidence] * 20))

    @pytest.mark.parametrize(("dim", "rounds"), [(3, 1), (10, 1), (10, 3), (20, 2)])
    def test_tasks_shorter_than_they_have_dimensions_are_fitted(self, dim, rounds):
        """No prior may expect rewards larger than the tasks' own mean square, times five."""
        for seed in range(2):
            centre = np.ones((1, dim)) / np.sqrt(dim)
            evidences = tasks_of(seed, centre, in_turn(1, 16), 0.2, rounds)
            transfer = hs.Mixture(groups=3)
            state = transfer.init(dim)
            pooled = hs.Evidence.zero(dim)
            for evidence in evidences:
                state, pooled = transfer.fold(state, evidence), pooled + evidence
                prior = transfer.prior(state)
                whole = prior.as_gaussian()
                spread = np.outer(whole.mean, whole.mean) + whole.covariance
                square = np.trace(spread @ pooled.gram) / pooled.rounds
                assert usable(prior, dim)
                assert square < 5 * (1 + 0.04 * dim)

    def test_a_weight_counts_like_so_many_tasks(self):
        transfer = hs.Mixture(groups=2)
        evidences = tasks_of(2, THREE[:2], in_turn(2, 30))
        state = transfer.refit(evidences, NOISE, [3.0 if at % 2 else 1.0 for at in range(30)])
        prior = transfer.prior(state)
        np.testing.assert_allclose(np.sort(np.exp(prior.log_weights)), [0.25, 0.75], atol=0.05)


class TestManyTasks:
    def test_old_tasks_are_replaced_by_what_they_showed(self, monkeypatch):
        monkeypatch.setattr(groups, "KEPT_TASKS", 16)
        owners = in_turn(3, 60)
        evidences = tasks_of(1, THREE, owners)
        transfer = hs.Mixture()
        state = folded(transfer, evidences, NOISE)
        assert len(state.tasks) == 16
        for option in state.fits:
            assert option.past.count.sum() == pytest.approx(44.0)
            assert (option.past.count >= 0).all()
        prior = transfer.prior(state)
        check_three_groups(prior, evidences, owners)

    def test_the_same_tasks_give_the_same_state_to_the_last_bit(self):
        evidences = tasks_of(4, THREE, in_turn(3, 20), within=0.5)
        states = [folded(hs.Mixture(), evidences) for _ in range(2)]
        left, right = (
            {name: array.tobytes() for name, array in flatten(state).items()} for state in states
        )
        assert left == right

    def test_refit_is_folding_one_after_another(self):
        evidences = tasks_of(4, THREE, in_turn(3, 20), within=0.5)
        transfer = hs.Mixture(groups=3)
        left, right = transfer.refit(evidences, NOISE), folded(transfer, evidences, NOISE)
        assert transfer.prior(left) == transfer.prior(right)


def play(bandit, ids, owners=None, rounds=8, factor=1.0, close=True):
    """Tasks in three groups; every arm and, but for the rewards' unit, every score."""
    trace = []
    for id in ids:
        owner = id % 3 if owners is None else owners[id]
        rng, task = np.random.default_rng([id, 7]), bandit.task(id)
        theta = THREE[owner] + 0.1 * rng.standard_normal(3)
        for _ in range(rounds):
            offer = rng.standard_normal((5, 3))
            choice = task.choose(offer)
            noise = NOISE * rng.standard_normal()
            task.learn(choice, factor * float(offer[choice.arm] @ theta + noise))
            trace.append((choice.arm, choice.score / factor))
        if close:
            task.close()
    return trace


class TestInABandit:
    @pytest.mark.parametrize(("rule", "factor"), [(hs.UCB(), 1e-3), (hs.Thompson(), 1e3)], ids=repr)
    def test_the_unit_of_rewards_changes_no_decision(self, factor, rule):
        plain, other = (
            play(hs.Bandit(3, hs.Mixture(groups=3), rule, seed=0), range(24), factor=unit)
            for unit in (1.0, factor)
        )
        assert [arm for arm, _ in other] == [arm for arm, _ in plain]

    @pytest.mark.parametrize(
        ("rule", "noise"), [(hs.UCB(), "auto"), (hs.Thompson(explore=0.1), NOISE)], ids=repr
    )
    def test_a_loaded_one_continues_exactly(self, tmp_path, lasting, rule, noise):
        bandit = hs.Bandit(3, hs.Mixture(groups=3), rule, noise, seed=0)
        play(bandit, range(36), rounds=12)
        assert isinstance(bandit.prior, MixturePrior)
        play(bandit, range(36, 40), rounds=2, close=False)  # live, in the middle
        assert isinstance(bandit.task(37).belief, MixtureBelief)
        bandit.save(tmp_path / "bandit")
        loaded = hs.load(tmp_path / "bandit")
        assert loaded.transfer == hs.Mixture(groups=3)
        assert lasting(loaded) == lasting(bandit)
        assert loaded.prior == bandit.prior
        for id in range(36, 40):
            assert loaded.task(id).belief == bandit.task(id).belief
        for ids in (range(36, 40), range(40, 46)):  # the live ones, then new ones on later fits
            assert play(loaded, ids) == play(bandit, ids)
        assert loaded.prior == bandit.prior
        assert lasting(loaded) == lasting(bandit)

    def test_tasks_share_one_prior_in_a_file(self, tmp_path):
        from headstart.storage import tensor_file

        bandit = hs.Bandit(3, hs.Mixture(groups=3), noise=NOISE, seed=0)
        play(bandit, range(36), rounds=12)
        play(bandit, range(36, 42), rounds=2, close=False)
        bandit.save(tmp_path / "bandit")
        header, _ = tensor_file.read(tmp_path / "bandit")
        assert len(header["prior_outlines"]) == 1

    def test_the_report_prints_the_groups(self):
        bandit = hs.Bandit(3, hs.Mixture(), noise=NOISE, seed=0, intercept=False)
        assert "no task has finished yet" in str(bandit.report())
        play(bandit, range(1))
        assert "one group of tasks" in str(bandit.report())
        play(bandit, range(1, 48), rounds=15)
        report = bandit.report()
        assert report.note.startswith("3 groups of tasks: ")
        shares = [int(share.rstrip("%")) for share in report.note.partition(": ")[2].split(", ")]
        assert sum(shares) == pytest.approx(100, abs=2)
        assert shares == sorted(shares, reverse=True)
        assert report.note in str(report)
        assert "Mixture()" in str(report)
        assert report.noise == NOISE
        assert report.eigenvalues.shape == (3,)
        assert report.gain.low <= report.gain.saved <= report.gain.high

    def test_late_rewards_reopening_and_deleting_leave_the_prior_of_the_closed_tasks(self):
        transfer = hs.Mixture(groups=2)
        bandit = hs.Bandit(3, transfer, noise=NOISE, seed=0, intercept=False)
        play(bandit, range(16))
        late = [bandit.task(2).choose(np.eye(3)), bandit.task(5).choose(np.eye(3))]
        bandit.task(2).close()  # task 5 runs on
        bandit.learn(late, [1.0, 0.0])
        bandit.delete(9)
        order = [id for id in range(16) if id not in (2, 5, 9)] + [2]
        expected = prior_of([bandit.task(id).evidence for id in order], NOISE, groups=2)
        assert bandit.prior == expected
        without = prior_of([bandit.task(id).evidence for id in order[:-1]], NOISE, groups=2)
        belief = bandit.task(2).belief  # a closed task's prior does not hold its own evidence
        alone = without.belief(bandit.task(2).evidence)
        np.testing.assert_allclose(belief.mean, alone.mean)

    def test_forgetting_nothing_is_no_half_life(self):
        """A half-life of very many rewards: the same weights as without one."""
        forgetful, plain = (
            hs.Bandit(3, hs.Mixture(groups=3), noise=NOISE, seed=0, half_life=half_life)
            for half_life in (1e12, None)
        )
        for bandit in (forgetful, plain):
            play(bandit, range(36), rounds=12)
            assert isinstance(bandit.prior, MixturePrior)
        # A reward that says little of the group, again and again.
        for _ in range(4):
            for bandit in (forgetful, plain):
                task = bandit.task("new")
                task.learn(task.choose([[0.05, 0.03, 0.04]]), 0.0)
            np.testing.assert_allclose(
                forgetful.task("new").belief.weights, plain.task("new").belief.weights, atol=1e-6
            )

    def test_predictions_have_intervals(self):
        bandit = hs.Bandit(3, hs.Mixture(groups=3), noise=NOISE, seed=0)
        play(bandit, range(36), rounds=12)
        prediction = bandit.task("new").predict(np.eye(3), level=0.9)
        assert (prediction.lower < prediction.mean).all()
        assert (prediction.mean < prediction.upper).all()

    def test_a_radius_that_needs_a_bias_is_refused_with_a_reason(self):
        with pytest.raises(hs.InputError, match="radius must be a number with Mixture"):
            hs.Bandit(3, hs.Mixture(groups=3), hs.UCB("theory"), NOISE, seed=0)


CLUSTERS = Synthetic(dim=8, rank=2, clusters=3, separation=1.0, arms=8)


class TestInTheLab:
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
    def test_seeds_play_together_as_they_play_alone(self, rule):
        world = Synthetic(dim=4, rank=1, clusters=2, separation=3.0, arms=4)
        policy = Policy("groups", hs.Mixture(groups=3), rule, False)
        seeds = [1, 2, 3]
        together = simulate(world, [policy], seeds, tasks=24, rounds=10)["groups"].regret
        for at, seed in enumerate(seeds):
            alone = simulate(world, [policy], [seed], tasks=24, rounds=10)["groups"].regret
            np.testing.assert_allclose(together[at], alone[0], rtol=1e-9, atol=1e-12)

    def test_groups_are_worth_finding(self):
        policies = [policy("empirical_bayes"), policy("mixture", groups=3)]
        traces = simulate(CLUSTERS, policies, seeds=[0, 1, 2], tasks=80, rounds=25)
        late = {name: trace.regret[:, 40:].mean() for name, trace in traces.items()}
        assert late["mixture"] < 0.9 * late["headstart (default)"]

    def test_a_curve_is_followed_piece_by_piece(self):
        world = Synthetic(dim=8, curve=0.5, arms=6)
        traces = simulate(world, [policy("mixture")], seeds=[0, 1], tasks=30, rounds=15)
        regret = traces["mixture"].regret
        assert np.isfinite(regret).all()
        assert regret[:, 15:].mean() < regret[:, :3].mean()
