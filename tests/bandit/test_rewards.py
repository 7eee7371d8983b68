"""Clicks, costs and other rewards through the bandit."""

import numpy as np
import pytest
from scipy.special import expit, logit

import headstart as hs
from headstart.model.logistic import linearize

DIM = 3
TRANSFERS = {
    "independent": hs.Independent(),
    "bias": hs.Bias(),
    "subspace": hs.Subspace(rank=1, warmup=2),
    "mixture": hs.Mixture(groups=2),
    "gaussian": hs.Gaussian(warmup=2),
    "default": hs.EmpiricalBayes(),
}
RULES = [hs.UCB(), hs.Thompson(0.3), hs.Greedy(explore=0.1), hs.Forced(5, hs.UCB())]


def chance(x, task, level=-1.5):
    """The probability of a click in a small world of three features."""
    taste = np.array([1.0, -0.5, 0.0]) + 0.5 * np.random.default_rng(
        [7, int(task)]
    ).standard_normal(3)
    return expit(level + np.asarray(x) @ taste)


def play(bandit, tasks, rounds, seed=0, reward=None, close=True):
    """Play tasks in turn; returns the arms that were picked."""
    rng = np.random.default_rng(seed)
    arms = []
    for name in tasks:
        task = bandit.task(name)
        for _ in range(rounds):
            contexts = rng.standard_normal((4, DIM))
            choice = task.choose(contexts)
            click = rng.random() < chance(contexts[choice.arm], name)
            task.learn(choice, click if reward is None else reward(click))
            arms.append(choice.arm)
        if close:
            task.close()
    return arms


def same(left, right, rows):
    np.testing.assert_array_equal(left.predict(rows).mean, right.predict(rows).mean)


class TestBinary:
    def test_a_task_learns_the_linear_rounds_that_stand_for_its_clicks(self):
        bandit = hs.Bandit(DIM, hs.Independent(), reward="binary", seed=0)
        task = bandit.task("a")
        rng = np.random.default_rng(1)
        belief = hs.Prior.isotropic(DIM).belief()
        evidence = hs.Evidence.zero(DIM)
        for _ in range(70):
            choice = task.choose(rng.standard_normal((4, DIM)))
            click = bool(rng.random() < chance(choice.context, 0))
            task.learn(choice, click)
            row, target = linearize(belief, choice.context, float(click))
            belief, evidence = belief.learn(row, target), evidence.add(row, target)
        np.testing.assert_allclose(task.belief.mean, belief.mean, rtol=1e-9)
        np.testing.assert_allclose(task.evidence.gram, evidence.gram, rtol=1e-9)
        assert (task.rounds, task.evidence.rounds, task.belief.noise) == (70, 70.0, 1.0)

    def test_probabilities_are_calibrated(self):
        bandit = hs.Bandit(DIM, reward="binary", seed=0)
        play(bandit, range(30), 60)
        rng = np.random.default_rng(5)
        inside, predicted, true = [], [], []
        for name in range(100, 140):
            play(bandit, [name], 25, seed=name)
            rows = rng.standard_normal((20, DIM))
            found = bandit.task(name).predict(rows, level=0.9)
            values = chance(rows, name)
            assert (found.lower < found.upper).all()
            assert (found.lower > 0).all()
            assert (found.upper < 1).all()
            inside.append((found.lower <= values) & (values <= found.upper))
            predicted.append(found.mean)
            true.append(values)
        assert 0.84 <= np.mean(inside) <= 0.96  # 0.9, and three standard errors of 40 tasks
        assert np.mean(predicted) == pytest.approx(np.mean(true), abs=0.03)

    def test_scores_and_single_rewards_are_probabilities_and_clicks(self):
        bandit = hs.Bandit(DIM, hs.Independent(), reward="binary", seed=0)
        task = bandit.task(1)
        play(bandit, [1], 40, close=False)
        rows = np.eye(DIM)
        found, belief = task.predict(rows), task.belief
        ucb = belief.predict(rows) + belief.width(rows)
        choice = task.choose(rows)
        assert choice.score == pytest.approx(expit(ucb.max()))
        assert 0 < choice.propensity <= 1
        np.testing.assert_allclose(
            logit(found.upper) - logit(found.lower), 3.92 * belief.width(rows), rtol=1e-3
        )
        narrow = task.predict(rows, level=0.2, of_reward=True)
        for mean, low, high in zip(*narrow[:3], strict=True):
            assert (low, high) == ((1, 1) if mean >= 0.6 else (0, 0) if mean <= 0.4 else (0, 1))

    @pytest.mark.parametrize("reward", [0.5, 2, -1, "1", None, np.nan, [1], np.float64(0.1)])
    def test_other_rewards_are_refused_and_change_nothing(self, reward):
        bandit = hs.Bandit(DIM, reward="binary", seed=0)
        task = bandit.task("a")
        first, second = task.choose(np.eye(DIM)), task.choose(np.eye(DIM))
        with pytest.raises(hs.InputError, match="reward"):
            task.learn(first, reward)
        with pytest.raises(hs.InputError, match="reward"):
            bandit.learn([first, second], [1, reward])
        assert task.rounds == 0
        assert task.learn([first, second], [np.bool_(True), np.int64(0)])

    def test_arguments(self):
        with pytest.raises(hs.InputError, match="reward must be one of 'number', 'binary'"):
            hs.Bandit(DIM, reward="clicks")
        with pytest.raises(hs.InputError, match="noise must be 'auto' with reward='binary'"):
            hs.Bandit(DIM, reward="binary", noise=0.5)
        with pytest.raises(hs.InputError, match="minimize must be True or False"):
            hs.Bandit(DIM, minimize="yes")
        for rule in (hs.UCB("paper"), hs.Forced(3, hs.Thompson("theory"))):
            with pytest.raises(hs.InputError, match="must be a number with reward='binary'"):
                hs.Bandit(DIM, hs.Bias(), rule, reward="binary")
        bandit = hs.Bandit(DIM, reward="binary", minimize=True)
        assert "reward='binary', minimize=True" in repr(bandit)

    @pytest.mark.parametrize("transfer", TRANSFERS.values(), ids=TRANSFERS)
    @pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
    @pytest.mark.filterwarnings("ignore:.*forced rounds")
    def test_every_transfer_and_rule(self, transfer, rule):
        bandit = hs.Bandit(DIM, transfer, rule, reward="binary", seed=0, intercept=True)
        play(bandit, range(6), 20)
        found = bandit.task("new").predict(np.eye(DIM))
        assert ((found.mean > 0) & (found.mean < 1)).all()
        assert bandit.prior.noise == 1.0

    def test_a_reward_of_an_evicted_task_is_expanded_around_its_rebuilt_belief(self):
        options = {"transfer": hs.Independent(), "reward": "binary", "seed": 0}
        small, large = (hs.Bandit(DIM, cache_size=size, **options) for size in (1, 8))
        for bandit in (small, large):
            late = bandit.task(0).choose(np.eye(DIM))
            play(bandit, [0], 40, close=False)
            play(bandit, [1], 5, close=False)
            bandit.learn(late, 1)
        np.testing.assert_allclose(
            small.task(0).evidence.gram, large.task(0).evidence.gram, rtol=1e-8
        )
        np.testing.assert_allclose(small.task(0).belief.mean, large.task(0).belief.mean, rtol=1e-8)

    def test_files_batches_and_journals(self, tmp_path):
        bandit, rows = hs.Bandit(DIM, reward="binary", seed=3), np.eye(DIM)
        play(bandit, range(4), 30)
        play(bandit, [9], 10, close=False)
        bandit.save(tmp_path / "bandit")
        loaded = hs.load(tmp_path / "bandit")
        assert repr(loaded) == repr(bandit)
        same(loaded.task(9), bandit.task(9), rows)
        table = np.random.default_rng(0).standard_normal((3, 4, DIM))
        one, many = [], bandit.choose_many(["x", 9, "y"], table)
        for name, contexts in zip(["x", 9, "y"], table, strict=True):
            one.append(loaded.task(name).choose(contexts))
        assert [choice.arm for choice in one] == list(many.arms)
        np.testing.assert_allclose([choice.score for choice in one], many.scores, rtol=1e-9)
        with hs.Journal(tmp_path / "journal") as journal:
            for choice, reward in zip(one, (1, 0, 1), strict=True):
                journal.append(choice, reward)
                loaded.learn(choice, reward)
        bandit.learn(many, [True, False, True])
        for name in ("x", 9, "y"):
            np.testing.assert_allclose(
                loaded.task(name).belief.mean, bandit.task(name).belief.mean, rtol=1e-9
            )
        again = hs.load(tmp_path / "bandit")
        assert again.replay(tmp_path / "journal").learned == 3
        for name in ("x", 9, "y"):
            found, wanted = again.task(name).predict(rows), loaded.task(name).predict(rows)
            np.testing.assert_allclose(found.mean, wanted.mean, atol=0.02)

    def test_deleting_and_returning(self):
        """A deleted task leaves nothing behind, a returning one meets a prior without itself."""
        kept, deleted = (
            hs.Bandit(DIM, hs.Bias(), reward="binary", seed=0, intercept=True) for _ in range(2)
        )
        play(kept, range(6), 30)
        play(deleted, range(6), 30)
        play(deleted, [77], 30, seed=9)
        deleted.delete(77)
        np.testing.assert_allclose(deleted.prior.mean, kept.prior.mean, rtol=1e-7, atol=1e-9)
        task = kept.task(3)
        before = task.predict(np.eye(DIM)).mean
        late = task.choose(np.eye(DIM))
        task.learn(late, 0)
        task.close()
        assert task.rounds == 31
        assert not np.array_equal(task.predict(np.eye(DIM)).mean, before)

    def test_a_half_life_forgets_clicks(self):
        bandit = hs.Bandit(1, hs.Independent(), reward="binary", half_life=8.0, seed=0)
        task = bandit.task("a")
        for click in [1] * 60 + [0] * 60:
            task.learn(task.choose([[1.0]]), click)
        assert task.predict([[1.0]]).mean[0] < 0.2
        assert task.rounds == 120
        assert 10 < task.evidence.rounds < 13

    def test_the_first_task_finds_its_scale(self):
        """The mean square of θ, which is 0 and 3, though a prior holds it near 1."""
        ends = []
        for size in (0.0, 3.0):
            bandit = hs.Bandit(2, reward="binary", seed=0)
            task, rng = bandit.task("a"), np.random.default_rng(0)
            for _ in range(256):
                contexts = rng.standard_normal((1, 2))
                task.learn(task.choose(contexts), rng.random() < expit(size * contexts[0, 0]))
            ends.append(task.belief.prior.covariance[0, 0] * 1.0)
            assert task.belief.noise == 1.0
        assert ends[0] < 0.75
        assert 2.0 < ends[1] < 4.5

    def test_the_report_speaks_of_clicks(self):
        bandit = hs.Bandit(DIM, reward="binary", seed=0)
        play(bandit, range(5), 20)
        text = str(bandit.report())
        assert "rewards         0 or 1, by a logistic model" in text
        assert "noise" not in text


def click_rows(seed, tasks=40, rounds=60):
    """Rows of clicks of tasks around (1, −1, 0.5) with the level −2, in awkward units."""
    rng = np.random.default_rng(seed)
    rows = []
    for name in range(tasks):
        theta = np.array([1.0, -1.0, 0.5, -2.0]) + 0.5 * rng.standard_normal(4)
        x = rng.standard_normal((rounds, 3))
        click = rng.random(rounds) < expit(x @ theta[:3] + theta[3])
        rows.append(np.column_stack([np.full(rounds, name), x * (1, 100, 0.01) + (0, 7, 0), click]))
    table = np.concatenate(rows)
    frame = dict(zip(("user", "a", "b", "c", "click"), table.T, strict=True))
    return frame | {"user": frame["user"].astype(int)}


class TestRows:
    def test_a_fit_finds_the_population_in_any_order_of_rows(self):
        frame = click_rows(0)
        order = np.random.default_rng(1).permutation(len(frame["user"]))
        shuffled = {name: column[order] for name, column in frame.items()}
        means = []
        for rows in (frame, shuffled):
            bandit = hs.Bandit(DIM, reward="binary", seed=0)
            bandit.fit(rows, task="user", reward="click")
            means.append(bandit.prior.mean)
        np.testing.assert_allclose(means[0], means[1], rtol=1e-9)
        np.testing.assert_allclose(
            means[0], [1.0, -1.0, 0.5, -2.0], atol=0.3
        )  # ± 2.5 standard errors
        deviations = np.sqrt(np.diag(bandit.prior.covariance))
        assert ((deviations > 0.3) & (deviations < 0.8)).all()
        # The average arm of a new task, and that of one of the tasks that were fitted.
        assert 0.1 < bandit.task("new").predict([[0.0, 7.0, 0.0]]).mean[0] < 0.2
        assert bandit.task(3).rounds == 60
        task = bandit.task(3)
        task.learn(task.choose([[0.0, 7.0, 0.0]]), True)
        with pytest.raises(hs.InputError, match="rewards must be 0 or 1"):
            hs.Bandit(DIM, reward="binary").fit(
                frame | {"click": frame["click"] * 0.5}, task="user", reward="click"
            )

    def test_rounds_that_were_observed_count_like_choices(self):
        rng = np.random.default_rng(0)
        contexts, clicks = rng.standard_normal((30, DIM)), rng.random(30) < 0.3
        observed, chosen = (
            hs.Bandit(DIM, hs.Independent(), reward="binary", seed=0).task("a") for _ in range(2)
        )
        observed.observe(contexts, clicks)
        for row, click in zip(contexts, clicks, strict=True):
            chosen.learn(chosen.choose([row]), click)
        np.testing.assert_allclose(observed.belief.mean, chosen.belief.mean, rtol=1e-9)
        assert observed.rounds == chosen.rounds == 30
        before = observed.belief.mean
        with pytest.raises(hs.InputError, match="0 or 1"):
            observed.observe(contexts, 0.5 * clicks)
        np.testing.assert_array_equal(observed.belief.mean, before)
        observed.observe(contexts[:1], [1], weight=10.0)
        assert observed.predict(contexts[:1]).mean[0] > expit(contexts[0] @ before)
        assert observed.evidence.rounds == pytest.approx(40.0)

    def test_costs_in_rows(self):
        frame = click_rows(2, tasks=20)
        gain = hs.Bandit(DIM, seed=0).fit(frame, task="user", reward="click")
        cost = hs.Bandit(DIM, seed=0, minimize=True)
        cost.fit(frame | {"click": -frame["click"]}, task="user", reward="click")
        np.testing.assert_allclose(gain.prior.mean, cost.prior.mean, rtol=1e-9)


def rare_clicks(seed: int) -> dict[str, np.ndarray]:
    """Tasks of very different lengths; one row in 200 is a click, as likely for every value."""
    rng = np.random.default_rng(seed)
    lengths = np.ceil(rng.pareto(0.8, 80) * 8).clip(1, 500).astype(int)
    rows = lengths.sum()
    return {
        "user": np.repeat(np.arange(80), lengths),
        "colour": rng.choice(list("abcdefgh"), rows, p=rng.dirichlet(np.ones(8))),
        "shape": rng.choice(list("klmnop"), rows, p=rng.dirichlet(np.ones(6))),
        "click": (rng.random(rows) < 0.005).astype(int),
    }


def test_a_fit_of_rare_clicks_on_categories_predicts_their_rate():
    """One click in a short task, on a rare value, is no sign that tasks differ."""
    frame = rare_clicks(0)
    fields = {name: frame[name].tolist() for name in ("colour", "shape")}
    schema = hs.Schema(
        action={name: hs.category(*sorted(set(values))) for name, values in fields.items()}
    )
    bandit = hs.Bandit(schema, reward="binary", seed=0).fit(frame, task="user", reward="click")
    actions = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]
    distinct = {tuple(action.values()): action for action in actions}
    found = bandit.task("new").predict(actions=list(distinct.values()), level=0.9)
    chance = dict(zip(distinct, found.mean, strict=True))
    rate = frame["click"].mean()
    average = np.mean([chance[tuple(action.values())] for action in actions])
    # Predicted rates are somewhat too high where clicks are rare. They were ten times as high.
    assert rate < average < 1.5 * rate
    assert found.mean.max() < 8 * rate
    assert found.upper.max() < 0.2


@pytest.mark.parametrize("minimize", [False, True])
def test_items_with_ids_are_known_by_their_clicks(minimize, tmp_path):
    """Columns of items and their vectors learn from clicks, and explanations are of log-odds."""
    schema = hs.Schema(action={"price": hs.number()}, identity=True)
    bandit = hs.Bandit(schema, reward="binary", minimize=minimize, seed=0)
    rng = np.random.default_rng(0)
    rates = {f"item {at}": rate for at, rate in enumerate((0.05, 0.1, 0.3, 0.4, 0.8, 0.9))}
    for name in range(15):
        task = bandit.task(name)
        for _ in range(20):
            offered = rng.choice(list(rates))  # one, so that all are seen alike
            choice = task.choose(actions=[{"id": offered, "price": 1.0}])
            task.learn(choice, rng.random() < rates[choice.action])
        task.close()
    actions = [{"id": "item 0", "price": 1.0}, {"id": "item 5", "price": 1.0}]
    found = bandit.task("new").predict(actions=actions)
    assert found.mean[0] < 0.3 < 0.6 < found.mean[1]
    choice = bandit.task("new").choose(actions=actions)
    assert choice.action == ("item 0" if minimize else "item 5")
    explained = bandit.task("new").explain(choice)
    assert "log-odds" in repr(explained)
    assert explained.difference[0] < 0 if minimize else explained.difference[0] > 0
    bandit.save(tmp_path / "bandit")
    again = hs.load(tmp_path / "bandit").task("new").predict(actions=actions)
    np.testing.assert_array_equal(again.mean, bandit.task("new").predict(actions=actions).mean)


def stubborn(kind, rng, rounds):
    """Contexts and clicks that real data may bring."""
    contexts = rng.standard_normal((rounds, 3, 2))
    clicks = {
        "only zeros": lambda x: 0,
        "only ones": lambda x: 1,
        "rare": lambda x: rng.random() < 0.001,
        "separable": lambda x: x[0] > 0,
    }.get(kind, lambda x: rng.random() < expit(x[0] / max(abs(contexts).max(), 1) * 3))
    if kind == "huge features":
        contexts *= (1e8, 1e-8)
    if kind == "constant features":
        contexts[..., 1] = 5.0
    return contexts, clicks


@pytest.mark.parametrize(
    "kind",
    ["only zeros", "only ones", "rare", "separable", "huge features", "constant features"],
)
@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.Mixture(groups=2)], ids=repr)
def test_stubborn_data_stay_finite(kind, transfer):
    rng = np.random.default_rng(0)
    bandit = hs.Bandit(2, transfer, reward="binary", seed=0)
    for name in range(8):
        task = bandit.task(name)
        contexts, click = stubborn(kind, rng, 150 if name == 3 else 40)
        for rows in contexts:
            choice = task.choose(rows)
            task.learn(choice, bool(click(choice.context)))
        task.close()
    found = bandit.task("new").predict(contexts[0])
    for part in (found.mean, found.lower, found.upper):
        assert np.isfinite(part).all()
        assert (part >= 0).all()
        assert (part <= 1).all()
    if kind == "only zeros":
        assert (found.mean < 0.05).all()
    if kind == "only ones":
        assert (found.mean > 0.95).all()
    if kind == "separable":
        assert (found.mean[contexts[0][:, 0] > 0.5] > 0.7).all()


def test_ten_thousand_rounds_of_one_task():
    bandit = hs.Bandit(2, reward="binary", seed=0)
    task, rng = bandit.task("a"), np.random.default_rng(0)
    theta = np.array([1.0, -1.0])
    for _ in range(10_000):
        contexts = rng.standard_normal((2, 2))
        choice = task.choose(contexts)
        task.learn(choice, rng.random() < expit(-2.0 + contexts[choice.arm] @ theta))
    found = task.predict(np.eye(2), level=0.999)
    truth = expit(-2.0 + theta)
    assert ((found.lower < truth) & (truth < found.upper)).all()
    np.testing.assert_allclose(task.belief.mean, [1.0, -1.0, -2.0], atol=0.15)


class TestCosts:
    @pytest.mark.parametrize("seed", [0, 1])
    def test_costs_are_rewards_of_the_opposite_sign(self, seed):
        gain, cost = (hs.Bandit(DIM, seed=1, minimize=flag) for flag in (False, True))
        assert play(gain, [1, 2], 6, seed, float) == play(
            cost, [1, 2], 6, seed, lambda c: -float(c)
        )
        ours, theirs = gain.task(5).predict(np.eye(DIM)), cost.task(5).predict(np.eye(DIM))
        np.testing.assert_array_equal(ours.mean, -theirs.mean)
        np.testing.assert_array_equal(ours.lower, -theirs.upper)
        choices = [bandit.task(5).choose(np.eye(DIM)) for bandit in (gain, cost)]
        assert choices[0].score == -choices[1].score

    def test_failures_are_made_rare(self):
        """Binary costs: the arm that fails least is picked, and predictions are of failures."""
        bandit = hs.Bandit(2, reward="binary", minimize=True, seed=0)
        rng = np.random.default_rng(0)
        for name in range(4):
            task = bandit.task(name)
            for _ in range(60):
                choice = task.choose(np.eye(2))
                task.learn(choice, rng.random() < (0.6, 0.1)[choice.arm])
            task.close()
        found = bandit.task("new").predict(np.eye(2))
        assert found.mean[0] > 0.3 > 0.2 > found.mean[1]
        assert (found.lower < found.mean).all()
        assert (found.mean < found.upper).all()
        assert bandit.task("new").choose(np.eye(2)).arm == 1
        assert "to be minimized" in str(bandit.report())

    def test_a_saved_bandit_still_minimizes(self, tmp_path):
        bandit = hs.Bandit(DIM, minimize=True, seed=0)
        play(bandit, [1, 2], 10, reward=float)
        bandit.save(tmp_path / "bandit")
        loaded = hs.load(tmp_path / "bandit")
        same(loaded.task(1), bandit.task(1), np.eye(DIM))
        assert loaded.report().rewards == bandit.report().rewards != ""


def test_counts_and_ratings_are_numbers():
    """Stars of 1 to 5 and counts need no option: the intercept holds their level."""
    rng = np.random.default_rng(0)
    for draw in (
        lambda mean: np.clip(np.rint(3.5 + mean + rng.normal()), 1, 5),
        lambda mean: rng.poisson(np.exp(mean)),
    ):
        bandit = hs.Bandit(2, seed=0)
        for name in range(10):
            task = bandit.task(name)
            for _ in range(30):
                contexts = rng.standard_normal((4, 2))
                choice = task.choose(contexts)
                task.learn(choice, draw(0.7 * contexts[choice.arm, 0]))
            task.close()
        best = bandit.task("new").predict([[1.0, 0.0], [-1.0, 0.0]]).mean
        assert best[0] > best[1] + 0.5
