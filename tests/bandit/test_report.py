"""The report says what was learned, in numbers that can be checked and words that can be read."""

import numpy as np
import pytest

import headstart as hs
from headstart.bandit.reports.gain import NO_GAIN, expected_gain

DIM, RANK, NOISE = 8, 2, 0.1
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]
MEAN = 2.0 * BASIS[:, -1]  # off the plane: that is what makes it affine
SUBSPACE = hs.Subspace(shrink="mean")


def theta_of(seed):
    """A task in the plane of the first two directions, shifted by the mean."""
    rng = np.random.default_rng(1000 + seed)
    return MEAN + BASIS[:, :RANK] @ rng.standard_normal(RANK)


@pytest.fixture
def shared_plane(world, play):
    """``shared_plane(tasks, …)``: a bandit that has finished so many tasks of that plane."""

    def make(tasks, rounds=40, **options):
        bandit = hs.Bandit(DIM, seed=0, **options)
        for id in range(tasks):
            task_world = world(id, rounds, DIM, theta=theta_of(id), noise=NOISE)
            play(bandit, id, task_world)
            bandit.task(id).close()
        return bandit

    return make


def test_counts(shared_plane, world, play):
    bandit = shared_plane(3, rounds=10)
    play(bandit, "running", world(9, 7, DIM))
    bandit.task("made")
    bandit.task("closed without rewards").close()
    report = bandit.report()
    assert (report.closed_tasks, report.open_tasks, report.rounds) == (4, 2, 37)
    assert report.dim == DIM + 1  # with the intercept
    assert report.transfer == repr(bandit.transfer)
    assert report.rule == repr(bandit.rule)


def test_rank_variance_and_noise_of_a_shared_plane(shared_plane):
    report = shared_plane(40, transfer=SUBSPACE).report()
    assert report.rank == RANK
    assert report.explained > 0.95
    assert report.noise == pytest.approx(NOISE, rel=0.1)
    assert report.eigenvalues.shape == (DIM,)
    assert (np.diff(report.eigenvalues) <= 0).all()
    thetas = np.array([theta_of(id) for id in range(40)])
    truth = np.linalg.eigvalsh(np.cov(thetas.T, bias=True))[::-1][:RANK]
    np.testing.assert_allclose(report.eigenvalues[:RANK], truth, rtol=0.1)
    assert report.eigenvalues[RANK] < 0.05 * report.eigenvalues[RANK - 1]
    assert report.lower is report.upper is report.support is None
    assert report.effective_rank == pytest.approx(RANK, abs=0.3)


class TestOfTheDefault:
    """Empirical Bayes reports a rank with an interval, variances, and its own record."""

    def test_variances_with_intervals_and_an_effective_rank(self, shared_plane):
        report = shared_plane(40).report()
        assert report.rank == RANK
        least, most = report.rank_interval
        assert least <= RANK <= most
        assert sum(report.weights.values()) == pytest.approx(1.0)
        assert report.weights["low rank"] > 0.5
        assert report.explained is None
        assert report.noise == pytest.approx(NOISE, rel=0.1)
        assert report.lower.shape == report.eigenvalues.shape == report.upper.shape == (DIM + 1,)
        assert (report.lower < report.eigenvalues).all()
        assert (report.eigenvalues < report.upper).all()
        assert (report.lower > 0).all()
        thetas = np.array([theta_of(id) for id in range(40)])
        truth = np.linalg.eigvalsh(np.cov(thetas.T, bias=True))[::-1][:RANK]
        assert (report.lower[:RANK] < truth).all()
        assert (truth < report.upper[:RANK]).all()
        assert report.eigenvalues[RANK] < 0.05 * report.eigenvalues[RANK - 1]
        assert report.effective_rank == pytest.approx(RANK, abs=0.3)

    def test_the_support_is_the_evidence_for_transfer(self, shared_plane, world, play):
        assert shared_plane(40).report().support > 40.0  # more than a nat a task
        nothing_shared = hs.Bandit(DIM, seed=0)
        for id in range(40):  # zero on average, and spread alike in all directions
            play(nothing_shared, id, world(id, 20, DIM, noise=NOISE))
            nothing_shared.task(id).close()
        assert abs(nothing_shared.report().support) < 40.0

    def test_it_is_said_in_words(self, shared_plane):
        report = shared_plane(40).report()
        lines = dict(line.split("  ", 1) for line in str(report).splitlines()[1:])
        shown = {name.strip(): rest.strip() for name, rest in lines.items()}
        assert shown["learns by"] == "EmpiricalBayes()"
        assert shown["eigenvalues"].startswith(f"{report.eigenvalues[0]:.3g} ")
        first = f"{report.lower[0]:.2g}–{report.upper[0]:.2g} "
        assert shown["95 % intervals"].startswith(first)
        assert shown["95 % intervals"].count("–") == 4
        assert shown["95 % intervals"].endswith("…")
        assert shown["effective rank"] == f"{report.effective_rank:.1f} of {DIM + 1}"
        assert shown["evidence"] == f"for transfer: {report.support / 40:.3g} nats a task"
        least, most = report.rank_interval
        assert shown["subspace"] == f"{RANK} ({least}–{most}) of {DIM + 1} dimensions"
        assert "% low rank" in shown["prior"]
        assert "note" not in shown

    def test_evidence_against_it_is_called_that(self, shared_plane):
        report = shared_plane(3).report().replace(support=-6.0)
        assert "against transfer: 2 nats a task" in str(report)

    def test_before_any_task_has_finished_it_says_so(self):
        report = hs.Bandit(DIM, seed=0).report()
        assert report.eigenvalues is report.lower is report.support is None
        assert report.effective_rank is None
        assert "no task has finished yet" in str(report)
        for word in ("eigenvalues", "intervals", "effective", "evidence"):
            assert word not in str(report)

    def test_where_all_rewards_are_0_it_says_so(self):
        bandit = hs.Bandit(2, seed=0)
        for name in range(3):
            task = bandit.task(name)
            for _ in range(5):
                task.learn(task.choose(np.eye(2)), 0.0)
            task.close()
        report = bandit.report()
        assert report.closed_tasks == 3
        assert report.note == "no finished task has had a reward other than 0"

    def test_after_one_task_nothing_is_said_of_others(self, shared_plane):
        assert "evidence" not in str(shared_plane(1).report())

    def test_running_tasks_are_counted_as_running(self, shared_plane, world, play):
        """What they have shown is in the prior and in the gain, but not in the finished tasks."""
        bandit = shared_plane(20)
        before = bandit.report()
        for id in range(100, 110):
            play(bandit, id, world(id, 40, DIM, theta=theta_of(id), noise=NOISE))
        report = bandit.report()
        assert (report.closed_tasks, report.open_tasks, report.rounds) == (20, 10, 1200)
        assert report.noise == bandit.prior.noise
        assert report.gain != before.gain


def test_the_effective_rank_does_not_depend_on_how_features_are_written():
    """Flags of a category, all of them or all but one, and columns that never vary."""
    rng = np.random.default_rng(0)
    task, group = np.repeat(np.arange(60), 30), rng.integers(0, 3, 1800)
    slope, level = rng.standard_normal((60, 3)), rng.standard_normal(60)
    rewards = slope[task, group] + level[task] + 0.3 * rng.standard_normal(1800)
    flags = np.eye(3)[group]
    ranks = []
    for x in (flags, flags[:, :2], np.hstack([flags, np.zeros((1800, 6))])):
        frame = {"task": task, "reward": rewards} | {f"x{at}": x[:, at] for at in range(x.shape[1])}
        bandit = hs.Bandit(x.shape[1], seed=0).fit(frame, task="task", reward="reward")
        ranks.append(bandit.report().effective_rank)
    assert 1.5 < ranks[0] < 3.0
    np.testing.assert_allclose(ranks, ranks[0], rtol=0.1)


def test_the_gain_is_in_the_middle_of_its_interval():
    """With little data most populations that may be true gain less than the estimate."""
    prior = hs.Prior.gaussian([0.2, 0.1, 0.0], np.diag([0.03, 0.015, 0.003]))
    gain = expected_gain(prior, np.eye(3), rounds=30, tasks=5)
    assert gain.low + 0.1 < gain.saved < gain.high - 0.1


def test_rounding_does_not_change_the_gain():
    """A flag and its complement: which of the two is the larger entry is rounding."""
    rng = np.random.default_rng(0)
    flag = rng.integers(0, 2, 400)
    x = np.column_stack([flag, 1 - flag, rng.standard_normal(400), np.ones(400)])
    root = np.diag([0.5, 0.5, 0.3, 0.2])
    prior = hs.Prior(np.array([0.3, -0.3, 0.5, 1.0]), root, noise=1.0)
    gains = []
    for seed in range(6):
        jitter = 1e-14 * np.random.default_rng(seed).standard_normal((4, 4))
        gram = x.T @ x / 400 + jitter + jitter.T
        gains.append(expected_gain(prior, gram, 20, 50, intercept=3).saved)
    np.testing.assert_allclose(gains, gains[0], atol=1e-9)


def test_the_more_tasks_the_surer_the_gain(shared_plane):
    few, many = shared_plane(10).report().gain, shared_plane(40).report().gain
    assert (few.tasks, many.tasks) == (10, 40)
    assert many.rounds == 40
    assert 0.3 < many.low <= many.saved <= many.high < 1.0
    assert many.high - many.low < few.high - few.low


def simulated_regret(prior, theta, contexts, rng, noise):
    """The regret of choosing by the posterior mean, arms on offer like those that are learned."""
    belief = hs.Belief.start(prior)
    lost = 0.0
    for arms in contexts:
        values = arms @ theta
        lost += values.max() - values[np.argmax(belief.predict(arms))]
        x = arms[rng.integers(len(arms))]
        belief = belief.learn(x, float(x @ theta + noise * rng.standard_normal()))
    return lost


def test_the_gain_is_what_a_simulation_finds():
    """Tasks drawn from the population, arms offered, rewards learned one by one."""
    rng = np.random.default_rng(0)
    dim, rounds, noise = 5, 25, 0.7
    root = rng.standard_normal((dim, dim)) * [1.0, 0.7, 0.3, 0.05, 0.05]
    prior = hs.Prior.gaussian([1.0, 0.0, 0.0, 0.0, 1.0], root @ root.T, noise=noise)
    mixing = np.linalg.cholesky(0.5 * np.eye(dim) + 0.5)
    gram = mixing @ mixing.T
    gain = expected_gain(prior, gram, rounds, 10**9)
    size = prior.mean @ gram @ prior.mean + np.trace(prior.covariance @ gram)
    lone = hs.Prior.gaussian(np.zeros(dim), size / dim * np.eye(dim), noise=noise)
    sure = hs.Prior.gaussian(prior.mean, 1e-12 * np.eye(dim), noise=noise)
    lost = np.zeros(4)
    for _ in range(600):
        theta = prior.mean + root @ rng.standard_normal(dim)
        contexts = rng.standard_normal((rounds, 4, dim)) @ mixing.T
        for at, start in enumerate((prior, sure, lone)):
            lost[at] += simulated_regret(start, theta, contexts, rng, noise)
        lost[3] += sum((arms @ theta).max() - (arms @ theta).mean() for arms in contexts)
    shares = lost[:3] / lost[3]
    np.testing.assert_allclose([gain.learned, gain.pooled, gain.alone], shares, rtol=0.1)
    assert gain.saved == pytest.approx(
        1.0 - (shares[0] + 0.01) / (shares[1:].min() + 0.01), abs=0.1
    )
    assert gain.high - gain.low < 0.05


@pytest.mark.parametrize("rounds", [1.0, 2.4, 17.0, 165.6])
def test_the_gain_counts_all_rounds_of_a_task(rounds):
    prior = hs.Prior.gaussian([1.0, 0.0, 0.0], np.diag([1.0, 0.2, 0.2]))
    gain = expected_gain(prior, np.eye(3), rounds, 1000)
    assert gain.times[0] == 0
    assert gain.times[-1] == round(rounds) - 1
    assert gain.curves.shape == (3, len(gain.times))
    assert (np.diff(gain.curves[[0, 2]]) < 0).all()  # both learn
    assert np.ptp(gain.curves[1]) == 0.0  # pooled slopes stay
    weights = np.interp(np.arange(round(rounds)), gain.times, gain.curves[0])
    assert gain.learned == pytest.approx(weights.mean(), rel=0.1)


def test_tasks_that_differ_by_an_offset_gain_nothing():
    gram = np.array([[3.0, 0.0, 1.0], [0.0, 3.0, -1.0], [1.0, -1.0, 1.0]])  # the last is constant
    spread = np.diag([1e-9, 1e-9, 25.0])
    offset = hs.Prior.gaussian([1.0, -1.0, 3.0], spread)
    gain = expected_gain(offset, gram, 50, 200, intercept=2)
    assert gain.over == "pooled"
    assert abs(gain.saved) < 0.02
    assert gain.high < 0.05


@pytest.mark.parametrize("intercept", [None, 3])
def test_the_gain_does_not_depend_on_units(intercept):
    rng = np.random.default_rng(0)
    x = rng.normal([1.0, 2.0, 3.0, 0.0], 1.0, (500, 4))
    if intercept is not None:
        x[:, intercept] = 1.0
    root = 0.3 * rng.standard_normal((4, 4))
    plain = hs.Prior.gaussian(rng.standard_normal(4), root @ root.T, noise=0.8)
    wanted = expected_gain(plain, x.T @ x / 500, 30, 40, intercept)
    unit = np.array([1e6, 1e-6, 3.0, 1.0])
    scaled = hs.Prior(1e3 * plain.mean / unit, plain.root / unit[:, None], noise=800.0)
    gain = expected_gain(scaled, (x * unit).T @ (x * unit) / 500, 30, 40, intercept)
    for name in ("saved", "low", "high", "learned", "pooled", "alone"):
        assert getattr(gain, name) == pytest.approx(getattr(wanted, name), abs=1e-6), name


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1.0, 1e12])
@pytest.mark.parametrize("rounds", [0.4, 1.0, 2.0, 1e7])
@pytest.mark.parametrize("tasks", [1, 10**6])
def test_the_gain_is_a_share_whatever_the_prior(scale, rounds, tasks):
    gram = np.diag([1.0, 1e-20, 0.0])
    prior = hs.Prior(np.ones(3), scale * np.eye(3), noise=1e-3)
    gain = expected_gain(prior, gram, rounds, tasks)
    assert -10.0 < gain.low <= gain.saved <= gain.high <= 1.0
    assert np.isfinite(gain.curves).all()
    nothing = expected_gain(prior.replace(mean=np.zeros(3)), np.zeros((3, 3)), rounds, tasks)
    assert (nothing.saved, nothing.low, nothing.high) == (0.0, 0.0, 0.0)


def test_the_interval_is_about_right():
    """The gain of the prior that is learned, on new tasks of the true population."""
    rng = np.random.default_rng(0)
    dim, rounds, tasks = 4, 15, 60
    truth = hs.Prior.gaussian([1.0, 0.5, 0.0, 0.0], np.diag([0.5, 0.3, 0.1, 0.02]), noise=0.8)
    inside = 0
    for _ in range(20):
        theta = rng.multivariate_normal(truth.mean, truth.covariance, tasks)
        x = rng.standard_normal((tasks, rounds, dim))
        rewards = np.einsum("tnd,td->tn", x, theta) + 0.8 * rng.standard_normal((tasks, rounds))
        transfer = hs.EmpiricalBayes()
        each = [hs.Evidence.of(*pair) for pair in zip(x, rewards, strict=True)]
        found = expected_gain(transfer.prior(transfer.refit(each)), np.eye(dim), rounds, tasks)
        best = expected_gain(truth, np.eye(dim), rounds, 10**9)
        inside += found.low <= best.saved <= found.high
    assert inside >= 16


def test_a_bandit_that_knows_nothing_promises_nothing():
    report = hs.Bandit(dim=4, seed=0).report()
    assert (report.closed_tasks, report.open_tasks, report.rounds) == (0, 0, 0)
    assert report.gain == NO_GAIN
    assert "0 tasks finished" in str(report)


@pytest.mark.parametrize("tasks", [0, 1, 2, 8, 20])
@pytest.mark.parametrize(
    "transfer",
    [
        hs.EmpiricalBayes(),
        hs.Subspace(),
        hs.Subspace(pca="ccipca", rank="paper"),
        hs.Bias(),
        hs.Independent("plug-in"),
        hs.Gaussian(forced=False),
        hs.Oracle.gaussian(MEAN, np.eye(DIM)),
        hs.Oracle.subspace(MEAN, BASIS[:, :RANK]),
    ],
    ids=lambda transfer: type(transfer).__name__,
)
def test_it_can_be_asked_for_at_any_time_and_printed(shared_plane, tasks, transfer):
    report = shared_plane(tasks, rounds=DIM, transfer=transfer).report()
    text = str(report)
    assert f"{tasks} tasks finished" in text
    assert type(transfer).__name__ in text
    assert "nan" not in text
    assert -1.0 < report.gain.low <= report.gain.saved <= report.gain.high <= 1.0


def test_the_words_name_what_the_numbers_say(shared_plane):
    report = shared_plane(40, transfer=SUBSPACE).report()
    text = str(report)
    for words in (
        "40 tasks finished, 0 running, 1600 rewards, 8 features",
        "2 of 8 dimensions",
        f"{report.noise:.4g}",
        f"is expected to save {report.gain}",
        f"{report.eigenvalues[0]:.3g}",
    ):
        assert words in text


def test_it_is_up_to_date_after_late_rewards_and_deletions(shared_plane):
    bandit = shared_plane(12, rounds=10)
    choice = bandit.task("late").choose(np.eye(DIM))
    bandit.task("late").close()
    bandit.learn(choice, 1.0)
    assert bandit.report().rounds == 121
    bandit.delete("late")
    bandit.delete(3)
    report = bandit.report()
    assert (report.closed_tasks, report.rounds) == (11, 110)
    assert report.noise == bandit.prior.noise


def test_it_is_a_record_that_compares_by_content(shared_plane):
    bandit = shared_plane(5, rounds=10)
    assert bandit.report() == bandit.report()
    before = bandit.report()
    bandit.task("one more")
    assert bandit.report() != before


def test_the_gain_does_not_depend_on_the_rewards_unit(world, play):
    gains = []
    for unit in (1.0, 1000.0):
        bandit = hs.Bandit(DIM, seed=0)
        for id in range(20):
            rounds = world(id, 30, DIM, theta=theta_of(id))
            rounds.rewards *= unit
            play(bandit, id, rounds)
            bandit.task(id).close()
        gains.append(bandit.report().gain.saved)
    assert gains[0] == pytest.approx(gains[1], abs=1e-6)


def test_running_tasks_are_reported_on_while_none_has_finished():
    rng = np.random.default_rng(0)
    bandit = hs.Bandit(dim=4, seed=0)
    for user in range(40):
        theta = 1.0 + 0.3 * rng.normal(size=4)
        for _ in range(15):
            contexts = rng.normal(size=(5, 4))
            choice = bandit.task(user).choose(contexts)
            bandit.learn(choice, float(contexts[choice.arm] @ theta + 0.2 * rng.normal()))
    report = bandit.report()
    assert (report.closed_tasks, report.open_tasks, report.counted_tasks) == (0, 40, 40)
    assert report.noise == pytest.approx(0.2, rel=0.1)
    assert report.eigenvalues is not None
    assert report.gain.saved > 0.2
    assert "from running ones" in str(report)


def test_a_noise_at_its_lower_bound_is_noted(shared_plane, world, play):
    exact = hs.Bandit(DIM, seed=0)
    for id in range(4):
        play(exact, id, world(id, 30, DIM, theta=theta_of(id), noise=0.0))
        exact.task(id).close()
    assert "R is at its lower bound, as if rewards were exact" in exact.report().note
    assert "lower bound" not in shared_plane(4).report().note
    given = hs.Bandit(DIM, seed=0, noise=1e-4)
    play(given, 0, world(0, 30, DIM, theta=theta_of(0), noise=0.0))
    assert "lower bound" not in given.report().note


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_amounts_that_follow_the_size_of_the_task_are_told(fitted, scale):
    rng = np.random.default_rng(0)
    amount = np.geomspace(20.0, 5000.0, 20)[:, None] * rng.lognormal(0.0, 0.3, (20, 12))
    rewards = np.log(amount) + 0.1 * rng.normal(size=amount.shape)
    table = np.stack([rng.normal(size=amount.shape), scale * amount], -1)
    bandit = hs.Bandit(2, seed=0)
    if fitted:
        ids = {"task": np.repeat(np.arange(20), 12), "reward": rewards.ravel()}
        columns = {"age": table[..., 0].ravel(), "sales": table[..., 1].ravel()}
        bandit.fit(ids | columns, task="task", reward="reward")
    else:
        for id in range(20):
            bandit.task(id).observe(table[id], rewards[id])
            bandit.task(id).close()
    name = "sales" if fitted else "x1"
    assert f"{name} differs tenfold or more between tasks" in bandit.report().note
