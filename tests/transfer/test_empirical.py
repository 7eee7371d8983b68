"""Empirical Bayes: it finds the population, keeps to its cost, forgets, and does no harm."""

import functools

import numpy as np
import pytest

import headstart as hs
from headstart.transfer.empirical_bayes import state as kept_state
from headstart.transfer.empirical_bayes.full_covariance import posteriors
from headstart.transfer.empirical_bayes.full_covariance.posteriors import log_likelihood
from headstart.transfer.empirical_bayes.scoring import STRENGTHS, prefers_isotropic
from headstart.transfer.empirical_bayes.strength import mean_strength

DIM, NOISE = 5, 0.3
TRANSFER = hs.EmpiricalBayes()


def population(seed, rank=2, rest=0.02):
    """A random mean, and a covariance that is 1 in some directions and little in the others."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((DIM, DIM)))[0]
    spread = np.where(np.arange(DIM) < rank, 1.0, rest)
    return rng.standard_normal(DIM), (turn * spread) @ turn.T


def another(seed):
    """That population, and one with another mean, across the origin, and other directions."""
    here, there = population(seed), population(1000 + seed)
    return here, (there[0] - here[0], there[1])


NOTHING_SHARED = np.zeros(DIM), np.eye(DIM)


def draw(seed, mean, covariance, tasks, rounds=20, noise=NOISE):
    """The evidence of tasks from a population."""
    rng = np.random.default_rng(seed)
    told = []
    for _ in range(tasks):
        theta = rng.multivariate_normal(mean, covariance)
        contexts = rng.standard_normal((rounds, len(mean)))
        told.append(
            hs.Evidence.of(contexts, contexts @ theta + noise * rng.standard_normal(rounds))
        )
    return told


def folded(told, transfer=TRANSFER, state=None, noise=None):
    state = transfer.init(told[0].dim, noise) if state is None else state
    for evidence in told:
        state = transfer.fold(state, evidence)
    return state


def learned(told, transfer=TRANSFER):
    return transfer.prior(folded(told, transfer))


def apart(mean, covariance, prior):
    """KL(truth ‖ prior), in nats per dimension: what a task loses by starting from the prior."""
    precision, shift = np.linalg.inv(prior.covariance), mean - prior.mean
    ratio = precision @ covariance
    surprise = np.trace(ratio) + shift @ precision @ shift - np.linalg.slogdet(ratio)[1]
    return (surprise / len(mean) - 1.0) / 2.0


def between(one, other):
    """The same between two priors."""
    return apart(one.mean, one.covariance, other)


def log_density(prior, told):
    """The mean log density of tasks' rewards under a prior, up to a constant."""
    variance = prior.noise**2
    return np.mean(
        [
            float(log_likelihood(prior.mean, prior.covariance, variance, evidence))
            - evidence.rounds * np.log(prior.noise)
            - evidence.squares / (2 * variance)
            for evidence in told
        ]
    )


class TestWhatItFinds:
    @pytest.mark.parametrize("seed", range(2))
    def test_mean_covariance_and_noise_of_the_population(self, seed):
        truth = population(seed)
        prior = learned(draw(seed, *truth, tasks=160))
        assert apart(*truth, prior) < 0.06
        assert prior.noise == pytest.approx(NOISE, rel=0.05)
        np.testing.assert_allclose(prior.mean, truth[0], atol=0.35)
        np.testing.assert_allclose(prior.covariance, truth[1], atol=0.4)

    def test_more_exactly_with_every_task(self):
        errors = np.zeros(3)
        for seed in range(3):
            truth, state = population(seed), None
            told = draw(seed + 100, *truth, tasks=120)
            for at, part in enumerate((told[:8], told[8:30], told[30:])):
                state = folded(part, state=state)
                errors[at] += apart(*truth, TRANSFER.prior(state))
        assert errors[1] < 0.5 * errors[0]
        assert errors[2] < 0.5 * errors[1]

    def test_from_tasks_with_fewer_rounds_than_dimensions(self):
        """No task can be estimated by itself, and only many together tell R from the spread."""
        truth = population(0)
        told = draw(1, *truth, tasks=250, rounds=3)
        prior = TRANSFER.prior(TRANSFER.refit(told))
        assert apart(*truth, prior) < 0.2
        assert prior.noise == pytest.approx(NOISE, rel=0.25)

    def test_a_noise_that_is_given_is_kept(self):
        told = draw(0, *population(0), tasks=10)
        assert TRANSFER.prior(folded(told, noise=0.7)).noise == pytest.approx(0.7, rel=1e-12)
        assert TRANSFER.prior(TRANSFER.refit(told, 0.7)).noise == pytest.approx(0.7, rel=1e-12)

    @pytest.mark.parametrize("seed", range(2))
    def test_one_by_one_is_nearly_all_at_once(self, seed):
        """0.02 nats per dimension: a tenth of a nat for a new task.

        Each fold takes a step or so, and chooses its strength by prediction in order; a refit
        iterates to the end, and chooses by cross-validation. Neither is nearer to the truth.
        """
        told = draw(seed + 100, *population(seed), tasks=60)
        one_by_one, at_once = learned(told), TRANSFER.prior(TRANSFER.refit(told))
        assert between(one_by_one, at_once) < 0.02
        assert between(at_once, one_by_one) < 0.02
        assert one_by_one.noise == pytest.approx(at_once.noise, rel=0.02)


class TestOrder:
    def check(self, told):
        expected = TRANSFER.prior(TRANSFER.refit(told))
        for seed in range(2):
            order = np.random.default_rng(seed).permutation(len(told))
            prior = TRANSFER.prior(TRANSFER.refit([told[at] for at in order]))
            size = np.abs(expected.covariance).max()
            np.testing.assert_allclose(prior.mean, expected.mean, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(
                prior.covariance, expected.covariance, rtol=1e-9, atol=1e-9 * size
            )
            assert prior.noise == pytest.approx(expected.noise, rel=1e-9)

    def test_a_refit_does_not_depend_on_it(self):
        self.check(draw(3, *population(3), tasks=40))

    def test_nor_where_tasks_are_hard_to_tell_apart(self):
        """Clicks, an intercept and two flags: many tasks have as many clicks in as many rounds."""
        rng, told = np.random.default_rng(0), []
        for _ in range(40):
            contexts = np.column_stack([np.ones(12), rng.integers(0, 2, (12, 2))])
            often = rng.uniform(0.05, 0.5) * contexts.mean(1)
            told.append(hs.Evidence.of(contexts, (rng.random(12) < often).astype(float)))
        self.check(told)


def play_like(bandit, id, theta, rounds):
    """Play some rounds of a task with this parameter."""
    for _ in range(rounds):
        rng = np.random.default_rng(bandit.task(id).rounds)
        choice = bandit.task(id).choose(rng.standard_normal((4, DIM)))
        bandit.learn(choice, float(choice.context @ theta + NOISE * rng.standard_normal()))


@functools.cache
def history(transfer=None, reward_unit=1.0, context_unit=1.0, at_once=1):
    """Every decision of some tasks with something in common, so many of them at a time."""
    bandit, arms = hs.Bandit(DIM, transfer, seed=0), []
    mean, covariance = population(0)
    for first in range(0, 24, at_once):
        group = range(first, first + at_once)
        rngs = [np.random.default_rng(id) for id in group]
        thetas = [rng.multivariate_normal(mean, covariance) for rng in rngs]
        for _ in range(12):
            for id, rng, theta in zip(group, rngs, thetas, strict=True):
                offer = rng.standard_normal((6, DIM))
                choice = bandit.task(id).choose(context_unit * offer)
                worth = offer[choice.arm] @ theta + NOISE * rng.standard_normal()
                bandit.learn(choice, reward_unit * worth)
                arms.append(choice.arm)
        for id in group:
            bandit.task(id).close()
    return arms


class TestUnits:
    @pytest.mark.parametrize(("unit", "at_once"), [(1e-3, 4), (1e3, 1)])
    def test_rewards_in_another_unit_change_no_decision(self, unit, at_once):
        assert history(reward_unit=unit, at_once=at_once) == history(at_once=at_once)

    @pytest.mark.parametrize(("unit", "at_once"), [(1e-3, 4), (1e3, 1)])
    def test_nor_do_contexts(self, unit, at_once):
        """Before the first reward nothing tells the size of θ; then each finds out by itself."""
        assert history(context_unit=unit, at_once=at_once) == history(at_once=at_once)

    def test_nor_where_no_running_task_counts(self):
        apart = hs.EmpiricalBayes(running=False)
        plain = history(apart, at_once=4)
        assert history(apart, reward_unit=1e-3, at_once=4) == plain
        assert history(apart, context_unit=1e3, at_once=4) == plain

    def test_a_lone_task_keeps_its_scale_when_it_comes_back(self, world, play):
        """Idle and alive again, it starts from what it has shown of its own scale, not from 1."""
        bandit = hs.Bandit(DIM, seed=0, cache_size=1)
        rounds = world(seed=0, rounds=7, dim=DIM, noise=0.1)
        rounds.offers = 1e-3 * rounds.offers  # so that θ is about 1000 for the same rewards
        play(bandit, "mine", rounds)
        running = bandit.task("mine").belief
        bandit.task("other").choose(np.eye(DIM))
        again = bandit.task("mine").belief
        assert np.linalg.norm(again.mean) > 0.3 * np.linalg.norm(running.mean)

    def test_nor_does_it_lose_its_scale_where_some_choices_are_never_rewarded(self):
        """After 32 choices and 30 rewards it takes a new prior: there is nobody to learn from."""
        bandit, rng = hs.Bandit(DIM, seed=0), np.random.default_rng(0)
        task, sizes = bandit.task("mine"), []
        for at in range(40):
            choice = task.choose(1e-3 * rng.standard_normal((4, DIM)))
            if at not in (2, 5):
                task.learn(choice, float(1e3 * choice.context.sum() + 0.1 * rng.standard_normal()))
                sizes.append(np.linalg.norm(task.belief.mean))
        assert (np.diff(np.log(sizes)) > np.log(0.1)).all()


class TestNoHarm:
    def test_tasks_without_rounds_add_nothing(self):
        told = draw(0, *population(0), tasks=12)
        state = folded(told)
        empty = hs.Evidence.zero(DIM)
        padded = folded([empty, *told[:6], empty, empty, *told[6:], empty])
        assert between(TRANSFER.prior(padded), TRANSFER.prior(state)) < 0.01
        at_once = TRANSFER.prior(TRANSFER.refit([empty, *told, empty]))
        assert between(at_once, TRANSFER.prior(TRANSFER.refit(told))) < 0.01

    def test_before_any_reward_that_is_not_zero_it_claims_nothing(self):
        silent = draw(0, np.zeros(DIM), 0 * np.eye(DIM), tasks=5, noise=0.0)
        assert all(evidence.squares == 0 for evidence in silent)
        first = TRANSFER.prior(TRANSFER.init(DIM))
        for prior in (learned(silent), TRANSFER.prior(TRANSFER.refit(silent))):
            np.testing.assert_array_equal(prior.mean, 0.0)
            # One over the features' mean squares: all that is known is their units.
            units = sum(np.diag(evidence.gram) for evidence in silent)
            units = units / sum(evidence.rounds for evidence in silent)
            np.testing.assert_allclose(prior.covariance, np.diag(1.0 / units), rtol=1e-9)
            assert prior.noise == first.noise

    def test_tasks_without_any_success_do_not_keep_it_from_learning(self):
        truth = population(1)
        silent = draw(0, np.zeros(DIM), 0 * np.eye(DIM), tasks=4, noise=0.0)
        told = draw(2, *truth, tasks=80)
        new = draw(3, *truth, tasks=50)
        after = learned(silent + told)
        lone = hs.Prior.gaussian(np.zeros(DIM), np.eye(DIM), noise=NOISE)
        assert log_density(after, new) > log_density(lone, new)
        assert log_density(after, new) > log_density(learned(told), new) - 2.0

    @pytest.mark.parametrize("seed", range(2))
    def test_where_tasks_share_nothing_it_says_so(self, seed):
        """Nearly the same variance everywhere, around zero."""
        state = folded(draw(seed, *NOTHING_SHARED, tasks=50))
        values = np.linalg.eigvalsh(TRANSFER.prior(state).covariance)
        assert values[-1] < 1.5 * values[0]
        assert bool(prefers_isotropic(state)) or mean_strength(state.scores[:-1], STRENGTHS) > 1.0

    def test_there_it_costs_new_tasks_little_however_few_were_seen(self):
        """Next to a learner told the right size, noise and units: a few nats at first."""
        lone = hs.Prior.gaussian(*NOTHING_SHARED, noise=NOISE)
        counts, margins = (1, 2, 4, 8, 16, 32), np.zeros(6)
        for seed in range(6):
            new = draw(seed + 50, *NOTHING_SHARED, tasks=30)
            told, state, seen = draw(seed, *NOTHING_SHARED, tasks=32), None, 0
            for at, count in enumerate(counts):
                state, seen = folded(told[seen:count], state=state), count
                margins[at] += log_density(TRANSFER.prior(state), new) - log_density(lone, new)
        assert (margins / 6 > [-3.2, -3.2, -3.2, -0.3, -0.3, -0.3]).all()


class TestManyTasks:
    @pytest.mark.parametrize("seed", range(2))
    def test_with_few_at_hand_the_prior_is_nearly_that_of_all(self, seed, monkeypatch):
        truth = population(seed)
        told = draw(seed + 100, *truth, tasks=100)
        everything = learned(told)
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 16)
        state = folded(told)
        few = TRANSFER.prior(state)
        assert len(state.tasks) == 16
        assert state.past.count == pytest.approx(84.0)
        assert between(few, everything) < 0.01
        assert apart(*truth, few) < apart(*truth, everything) + 0.01
        assert few.noise == pytest.approx(everything.noise, rel=0.02)  # the past keeps E[1/R²]

    def test_so_is_that_of_a_refit(self, monkeypatch):
        told = draw(100, *population(0), tasks=50)
        everything = TRANSFER.refit(told)
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 16)
        state = TRANSFER.refit(told)
        assert len(state.tasks) == 16
        assert state.past.count == pytest.approx(34.0)
        for after in (0, 1, 5):  # and when it goes on from there
            more = draw(7, *population(0), tasks=after) if after else []
            one, other = (folded(more, state=s) if more else s for s in (state, everything))
            assert between(TRANSFER.prior(one), TRANSFER.prior(other)) < 0.02

    def test_the_space_it_may_take_bounds_how_many_are_at_hand(self, monkeypatch):
        monkeypatch.setattr(kept_state, "KEPT_NUMBERS", 40 * DIM**2)
        assert len(folded(draw(0, *population(0), tasks=60)).tasks) == 40
        assert kept_state.capacity(10_000) == kept_state.MIN_KEPT_TASKS

    def test_a_fold_costs_the_same_however_many_tasks_there_were(self, monkeypatch):
        """Counted in tasks that are looked at again."""
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 16)
        seen = []
        usual = posteriors.posteriors

        def counting(fit, root, tasks):
            seen.append(len(tasks))
            return usual(fit, root, tasks)

        monkeypatch.setattr(posteriors, "posteriors", counting)
        state, costs = TRANSFER.init(DIM), []
        for evidence in draw(0, *population(0), tasks=200):
            seen.clear()
            state = TRANSFER.fold(state, evidence)
            costs.append(sum(seen))
        assert max(costs[100:]) <= max(costs[16:100]) <= 6 * 16 + 1
        assert np.mean(costs[100:]) <= np.mean(costs[16:100])
        assert np.mean(costs[100:]) < 2 * 16  # mostly, the fit is not due

    def test_memory_does_not_grow_with_tasks(self, monkeypatch):
        from headstart.records import flatten

        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 16)
        told = draw(0, *population(0), tasks=60)
        sizes = [
            sum(array.size for array in flatten(folded(told[:count])).values())
            for count in (20, 60)
        ]
        assert sizes[0] == sizes[1]


class TestTakingOut:
    @pytest.mark.parametrize("at", [2, 38])
    @pytest.mark.parametrize("kept", [256, 16], ids=["at hand", "in the past"])
    def test_a_task_taken_out_is_nearly_as_if_it_had_never_been(self, at, kept, monkeypatch):
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", kept)
        for seed in (0, 2):
            told = draw(seed + 100, *population(seed), tasks=40)
            state = TRANSFER.fold(folded(told), told[at], -1.0)
            never = TRANSFER.prior(TRANSFER.refit(told[:at] + told[at + 1 :]))
            assert state.task_count == 39.0
            assert state.tasks.weight.sum() + state.past.count == pytest.approx(39.0)
            assert between(TRANSFER.prior(state), never) < 0.03

    @pytest.mark.parametrize("at", [0, 30])
    @pytest.mark.parametrize("kept", [256, 16], ids=["at hand", "in the past"])
    def test_what_a_strange_task_did_to_the_prior_is_undone(self, at, kept, monkeypatch):
        """A task far from all others (deleted, say, because its rewards were wrong)."""
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", kept)
        for seed in (0, 2):
            mean, covariance = population(seed)
            told = draw(seed + 100, mean, covariance, tasks=40)
            (strange,) = draw(seed, mean + 3.0, covariance, tasks=1)
            state = folded([*told[:at], strange, *told[at:]])
            never = TRANSFER.prior(TRANSFER.refit(told))
            disturbed = between(TRANSFER.prior(state), never)
            undone = between(TRANSFER.prior(TRANSFER.fold(state, strange, -1.0)), never)
            assert disturbed > 0.5
            assert undone < 0.1 * disturbed

    @pytest.mark.parametrize("units", ["free", "given"])
    @pytest.mark.parametrize("noise", [None, 0.1])
    def test_taking_the_only_task_out_overflows_nowhere(self, units, noise):
        transfer = hs.EmpiricalBayes(units=units)
        task = hs.Evidence.of(np.eye(2), [1e6, -1e6])
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            state = transfer.fold(transfer.fold(transfer.init(2, noise), task), task, -1.0)
            prior = transfer.prior(state)
        assert prior == transfer.prior(transfer.init(2, noise))

    def test_taking_everything_out_leaves_nothing_at_hand(self):
        told = draw(0, *population(0), tasks=6)
        state = folded(told)
        for evidence in told:
            state = TRANSFER.fold(state, evidence, -1.0)
        assert len(state.tasks) == 0
        assert state.task_count == state.past.count == 0.0
        assert np.isfinite(TRANSFER.prior(state).root).all()

    def test_a_task_that_was_folded_twice_is_taken_out_once(self):
        told = draw(0, *population(0), tasks=6)
        state = TRANSFER.fold(folded([*told, told[2]]), told[2], -1.0)
        assert state.tasks.weight.tolist() == [1.0] * 6

    @pytest.mark.parametrize("memory", [3.0, "auto"])
    def test_a_task_that_was_forgotten_is_not_subtracted(self, memory, monkeypatch):
        """It is in no sum any more: there is nothing to take out."""
        monkeypatch.setattr(kept_state, "MAX_KEPT_TASKS", 16 if memory == 3.0 else 256)
        transfer = hs.EmpiricalBayes(decay_tasks=memory)
        old, new = another(4)
        told = draw(0, *old, tasks=30)
        state = folded(told + draw(5, *new, tasks=40), transfer)
        gone = transfer.fold(state, told[0], -1.0)
        assert state.tasks.weight[:-2].sum() + state.past.count < 60  # it has forgotten
        assert gone.past.count >= 0.0
        assert between(transfer.prior(state), transfer.prior(gone)) < 0.02


class TestForgetting:
    @pytest.mark.parametrize("memory", ["auto", 20.0])
    def test_after_an_abrupt_change_it_soon_follows_the_new_tasks(self, memory):
        """Sixty tasks of one kind, twenty of another: a new one starts nearer to the latter."""
        transfer = hs.EmpiricalBayes(decay_tasks=memory)
        for seed in range(1, 4):
            old, new = another(seed)
            before = folded(draw(seed, *old, tasks=60), transfer)
            assert apart(*old, transfer.prior(before)) < apart(*new, transfer.prior(before))
            prior = transfer.prior(folded(draw(seed + 5, *new, tasks=20), transfer, before))
            assert apart(*new, prior) < apart(*old, prior)

    def test_when_it_has_forgotten_only_new_tasks_count(self):
        """All of them, and none from before the change."""
        for seed in range(1, 3):
            old, new = another(seed)
            state = folded(draw(seed, *old, tasks=60) + draw(seed + 5, *new, tasks=20))
            assert np.flatnonzero(state.tasks.weight).tolist() == list(range(60, 80))

    def test_then_it_learns_as_fast_as_it_did_at_first(self):
        for seed in range(1, 3):
            old, new = another(seed)
            told = draw(seed + 5, *new, tasks=40)
            changed = TRANSFER.prior(folded(draw(seed, *old, tasks=60) + told))
            assert apart(*new, changed) < 2 * apart(*new, learned(told)) + 0.05

    @pytest.mark.parametrize("memory", ["auto", 20.0])
    def test_a_long_history_does_not_slow_it_down(self, memory):
        """As if thousands of tasks had come before: what counts now is renewed as often."""
        transfer = hs.EmpiricalBayes(decay_tasks=memory)
        for seed in range(1, 3):
            old, new = another(seed)
            before = folded(draw(seed, *old, tasks=60), transfer)
            long = before.replace(task_count=3000.0, fitted_count=3000.0)
            told = draw(seed + 5, *new, tasks=40)
            errors = [
                apart(*new, transfer.prior(folded(told, transfer, state)))
                for state in (before, long)
            ]
            assert errors[1] < 1.5 * errors[0] + 0.05

    def test_one_outlier_is_no_change_and_no_reason_to_give_up(self):
        """Forty ordinary tasks, one at ten times their mean, twenty ordinary ones.

        By then the prior has a mean again, not only a size.
        """
        for seed in range(3):
            mean, covariance = population(seed)
            outlier = draw(seed, 10 * mean, covariance, tasks=1)
            told = draw(seed + 100, mean, covariance, tasks=60)
            state = folded([*told[:40], *outlier, *told[40:]])
            np.testing.assert_array_equal(state.tasks.weight, np.ones(61))
            assert not prefers_isotropic(state)

    def ordinary(self, tasks=40):
        """A bandit that has finished ordinary tasks."""
        bandit = hs.Bandit(DIM, seed=0)
        for id, evidence in enumerate(draw(100, *population(0), tasks=tasks)):
            play_like(bandit, id, np.linalg.solve(evidence.gram, evidence.moment), 20)
            bandit.task(id).close()
        return bandit

    @pytest.mark.parametrize("late", [False, True], ids=["reopened", "late rewards"])
    def test_nor_is_one_strange_task_that_keeps_coming_back(self, late):
        """However often it is closed again or corrected, it is one task among forty others."""
        bandit, strange = self.ordinary(), 10 * population(0)[0]
        rng = np.random.default_rng(0)
        if late:
            choices = [
                bandit.task("strange").choose(rng.standard_normal((4, DIM))) for _ in range(8)
            ]
            bandit.task("strange").close()
            for choice in choices:
                bandit.learn(choice, float(choice.context @ strange))
                bandit.prior  # noqa: B018
        else:
            for _ in range(5):
                play_like(bandit, "strange", strange, 5)
                bandit.task("strange").close()
        bandit._state.ledger.prior_state.update()
        np.testing.assert_array_equal(
            bandit._state.ledger.prior_state.state.tasks.weight, np.ones(41)
        )

    def test_nor_is_a_task_counted_as_evidence_each_time_it_is_closed(self):
        bandit = self.ordinary()
        before = bandit.report().support
        for _ in range(20):
            play_like(bandit, 3, population(0)[0], 1)
            bandit.task(3).close()
        assert bandit.report().support == pytest.approx(before, rel=0.25)

    @pytest.mark.parametrize("seed", range(2))
    def test_where_nothing_changes_nothing_is_forgotten(self, seed):
        state = folded(draw(seed, *population(seed), tasks=80))
        np.testing.assert_array_equal(state.tasks.weight, np.ones(80))

    def test_with_a_memory_in_numbers_a_tasks_weight_falls_by_e_for_every_so_many_tasks(self):
        told = draw(0, *population(0), tasks=12)
        fading = np.exp(-np.arange(12)[::-1] / 20.0)
        for state in (
            folded(told, hs.EmpiricalBayes(decay_tasks=20)),
            hs.EmpiricalBayes(decay_tasks=20).refit(told),
        ):
            np.testing.assert_allclose(state.tasks.weight, fading, rtol=1e-12)


class TestExplanations:
    def test_intervals_hold_the_true_variances_most_of_the_time(self):
        truth = np.array([2.0, 1.0, 0.5, 0.2, 0.1])
        inside = []
        for seed in range(8):
            turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((DIM, DIM)))[0]
            told = draw(seed + 100, np.ones(DIM), (turn * truth) @ turn.T, tasks=50)
            found = TRANSFER.explain(folded(told))
            assert (found.lower < found.eigenvalues).all()
            assert (found.eigenvalues < found.upper).all()
            inside.append((found.lower <= truth) & (truth <= found.upper))
        assert np.mean(inside) > 0.85

    def test_intervals_narrow_with_tasks(self):
        told = draw(0, *population(0), tasks=80)
        ratios = [found.upper[0] / found.lower[0] for found in map(explained, (told[:10], told))]
        assert ratios[1] < ratios[0] / 1.5

    @pytest.mark.parametrize("seed", range(2))
    def test_the_support_is_large_where_there_is_structure_and_not_where_there_is_none(self, seed):
        assert explained(draw(seed, *population(seed), tasks=50)).support > 2.0 * 50
        nothing = explained(draw(seed, *NOTHING_SHARED, tasks=50))
        assert abs(nothing.support) < 0.4 * 50
        assert "isotropic" in nothing.note

    def test_the_support_is_known_after_a_refit_too(self):
        """Tasks are fitted anew whenever a bandit has taken many of them back."""
        told = draw(0, *population(0), tasks=50)
        assert TRANSFER.explain(TRANSFER.refit(told)).support > 2.0 * 50

    def test_before_any_task_there_is_nothing_to_say(self):
        found = TRANSFER.explain(TRANSFER.init(DIM))
        assert found.eigenvalues is found.support is None
        assert "no task" in found.note


def explained(told):
    return TRANSFER.explain(folded(told))


class TestRunningTasks:
    def test_joining_none_is_the_state_itself(self):
        state = folded(draw(0, *population(0), tasks=8))
        assert TRANSFER.with_running(state, []) is state

    def test_joined_tasks_count_and_the_state_is_left_alone(self):
        truth = population(0)
        told, running = draw(0, *truth, tasks=10), draw(1, *truth, tasks=30)
        state = folded(told)
        before = TRANSFER.prior(state)
        joined = TRANSFER.with_running(state, running)
        assert len(joined.tasks) == 40
        assert apart(*truth, TRANSFER.prior(joined)) < 0.7 * apart(*truth, before)
        assert TRANSFER.prior(state) == before
        assert state.task_count == joined.task_count == 10.0

    def test_they_count_before_any_task_has_finished(self):
        truth = population(0)
        state = TRANSFER.init(DIM)
        prior = TRANSFER.prior(TRANSFER.with_running(state, draw(1, *truth, tasks=20)))
        flat = hs.Prior.isotropic(DIM)
        assert apart(*truth, prior) < 0.5 * apart(*truth, flat)
        assert prior.noise == pytest.approx(NOISE, rel=0.15)

    def test_the_lone_prior_has_the_tasks_own_scale(self):
        (evidence,) = draw(0, *population(0), tasks=1, rounds=100)
        prior = TRANSFER.single_task_prior(TRANSFER.init(DIM), evidence)
        assert prior.noise == pytest.approx(NOISE, rel=0.2)
        np.testing.assert_array_equal(prior.mean, 0.0)
        theta = np.linalg.solve(evidence.gram, evidence.moment)
        sizes = np.diag(prior.covariance) * np.diag(evidence.gram) / evidence.rounds
        np.testing.assert_allclose(sizes, sizes[0], rtol=1e-9)  # in units of the features' own
        assert 0.2 < sizes[0] / np.mean(theta**2) < 5.0


def test_a_saved_bandit_goes_on_exactly(tmp_path, world, play, lasting):
    bandit = hs.Bandit(DIM, rule=hs.Thompson(), seed=0)
    for id in range(12):
        play(bandit, id, world(id, 10, DIM))
        if id % 3:
            bandit.task(id).close()
    bandit.save(tmp_path / "b")
    loaded = hs.load(tmp_path / "b")
    assert lasting(loaded) == lasting(bandit)
    for id in (*range(20, 26), 0, 3):
        rounds = world(id, 10, DIM)
        assert play(loaded, id, rounds) == play(bandit, id, rounds)
        loaded.task(id).close()
        bandit.task(id).close()
    assert loaded.prior == bandit.prior
    assert loaded.report() == bandit.report()
