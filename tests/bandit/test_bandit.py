"""Choosing, learning and predicting: what a user meets first, and how bad input is answered."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

import headstart as hs

X = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6]])


def test_the_example_of_the_design_runs(tmp_path):
    contexts = np.random.default_rng(0).standard_normal((5, 18))
    bandit = hs.Bandit(dim=18)
    task = bandit.task("user-42")
    choice = task.choose(contexts)
    assert task.learn(choice, 1.0)
    bandit.save(tmp_path / "shop.headstart")
    bandit = hs.load(tmp_path / "shop.headstart")
    assert bandit.task("user-42").rounds == 1


def test_defaults_are_empirical_bayes_with_optimism_and_estimated_noise():
    bandit = hs.Bandit(dim=3)
    assert bandit.transfer == hs.EmpiricalBayes(constant=True)
    assert bandit.prior.mean.shape == (4,)  # with an intercept
    assert bandit.transfer.counts_running
    assert bandit.rule == hs.UCB()
    assert "noise='auto'" in repr(bandit)
    assert not bandit.frozen
    assert bandit.feature_names is None


def test_parts_can_be_given_by_position_and_by_name():
    transfer, rule = hs.Bias(), hs.Thompson(0.1)
    by_name = hs.Bandit(dim=3, seed=0, transfer=transfer, rule=rule, noise=0.5)
    by_position = hs.Bandit(3, transfer, rule, 0.5, 0)
    for bandit in (by_name, by_position):
        assert (bandit.dim, bandit.transfer, bandit.rule) == (3, transfer, rule)
        assert bandit.prior.noise == 0.5


def test_a_choice_is_the_row_with_the_largest_score():
    bandit = hs.Bandit(dim=2, rule=hs.Greedy(), noise=1.0, seed=0, intercept=False)
    task = bandit.task("a")
    task.learn(task.choose(X[1:2]), 5.0)
    choice = task.choose(X)
    assert choice.arm == 1
    assert choice.score == pytest.approx(float((X @ task.belief.mean)[1]))


def test_learning_adds_exactly_the_chosen_rounds(world, play):
    rounds = world(seed=3, rounds=20, dim=4)
    bandit = hs.Bandit(dim=4, seed=0, intercept=False)
    arms = play(bandit, "a", rounds)
    picked = rounds.offers[np.arange(20), arms]
    shown = bandit.task("a").evidence
    expected = hs.Evidence.of(picked, rounds.rewards[np.arange(20), arms])
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(getattr(shown, name), getattr(expected, name), rtol=1e-12)
    assert bandit.task("a").rounds == 20


def test_a_running_belief_is_its_prior_and_its_evidence(world, play, same_belief):
    bandit, untaught = (
        hs.Bandit(4, hs.EmpiricalBayes(units="given"), noise=0.3, seed=0) for _ in range(2)
    )
    play(bandit, "a", world(seed=1, rounds=30, dim=4))
    task, untaught = bandit.task("a"), untaught.prior
    same_belief(task.belief, hs.Belief.of(untaught, task.evidence))


def test_the_order_of_rewards_does_not_matter(world, same_belief):
    rounds = world(seed=5, rounds=12, dim=3)
    beliefs = []
    for order in (np.arange(12), np.random.default_rng(0).permutation(12)):
        task = hs.Bandit(dim=3, noise=0.1, seed=0).task("a")
        choices = [task.choose(offer) for offer in rounds.offers]
        for at in order:
            task.learn(choices[at], rounds.rewards[at, choices[at].arm])
        beliefs.append(task.belief)
    same_belief(*beliefs, tolerance=1e-10)


def test_only_the_chosen_task_learns():
    bandit = hs.Bandit(dim=2, seed=0)
    one, other = bandit.task("one"), bandit.task("other")
    one.learn(one.choose(X), 1.0)
    assert (one.rounds, other.rounds) == (1, 0)
    assert other.evidence == hs.Evidence.zero(3)  # with the intercept


def test_one_arm_is_always_chosen_and_many_are_fine():
    task = hs.Bandit(dim=2, seed=0).task("a")
    assert task.choose(X[:1]).arm == 0
    assert 0 <= task.choose(np.random.default_rng(0).standard_normal((20_000, 2))).arm < 20_000


def test_arm_sets_change_from_round_to_round():
    rng = np.random.default_rng(0)
    task = hs.Bandit(dim=3, seed=0).task("a")
    for arms in (1, 7, 2, 50, 3, 1):
        choice = task.choose(rng.standard_normal((arms, 3)))
        assert 0 <= choice.arm < arms
        task.learn(choice, rng.standard_normal())
    assert task.rounds == 6


def test_contexts_longer_than_one_are_accepted_and_the_documentation_says_so():
    task = hs.Bandit(dim=2, seed=0).task("a")
    task.learn(task.choose(1e3 * X), 7.0)
    assert task.rounds == 1
    assert "longer than 1" in hs.Bandit.__doc__


@pytest.mark.parametrize("length", [1e4, 1.7e9, 1e15, 1e40])
def test_long_contexts_survive_the_whole_life_of_a_task(length, world, play):
    """A raw time stamp as a feature is unwise, but it must not break a task when it is resumed."""
    bandit = hs.Bandit(dim=5, seed=0, cache_size=1)
    for id in range(8):
        rounds = world(seed=id, rounds=3, dim=5)
        rounds.offers = rounds.offers * length
        play(bandit, id, rounds)
        bandit.task(id).close()
        assert np.isfinite(bandit.task(id).belief.mean).all()
    for id in range(8):
        bandit.task(id).choose(rounds.offers[0])
    assert np.isfinite(bandit.prior.root).all()


def largest_accepted(attempt):
    for exponent in range(307, 0, -1):
        try:
            attempt(10.0**exponent)
        except hs.InputError:
            continue
        return 10.0**exponent
    raise AssertionError("nothing is accepted")


def test_the_largest_accepted_numbers_leave_a_working_bandit(world, play):
    """Whatever is accepted as a context or reward must not make the prior overflow."""
    task = hs.Bandit(dim=2).task("a")
    length = largest_accepted(lambda size: task.choose([[size, size]]))
    reward = largest_accepted(lambda size: task.learn(task.choose(X), size))
    bandit = hs.Bandit(dim=2, seed=0)
    for id in range(4):
        rounds = world(seed=id, rounds=5, dim=2, arms=3)
        rounds.offers = length * np.sign(rounds.offers)
        rounds.rewards = reward * np.sign(rounds.rewards)
        play(bandit, id, rounds)
        bandit.task(id).close()
    assert np.isfinite(bandit.prior.mean).all()
    assert np.isfinite(bandit.prior.root).all()


def test_noise_is_estimated_from_residuals(world, play):
    for scale in (0.02, 3.0):
        bandit = hs.Bandit(dim=4, seed=0)
        for id in range(12):
            play(bandit, id, world(seed=id, rounds=40, dim=4, noise=scale))
            bandit.task(id).close()
        assert bandit.prior.noise == pytest.approx(scale, rel=0.15)


def test_noise_that_is_given_is_kept(world, play):
    bandit = hs.Bandit(dim=4, noise=0.7, seed=0)
    play(bandit, 0, world(seed=0, rounds=40, dim=4))
    bandit.task(0).close()
    assert bandit.prior.noise == 0.7


class TestPredict:
    @pytest.fixture
    def bandit(self, world, play):
        bandit = hs.Bandit(dim=2, noise=0.5, seed=0, intercept=False)
        play(bandit, "a", world(seed=1, rounds=10, dim=2))
        return bandit

    @pytest.fixture
    def task(self, bandit):
        return bandit.task("a")

    def test_expected_rewards_with_normal_intervals(self, task):
        predicted = task.predict(X, level=0.9)
        half = norm.ppf(0.95) * 0.5 * task.belief.width(X)
        np.testing.assert_allclose(predicted.mean, X @ task.belief.mean)
        np.testing.assert_allclose(predicted.lower, predicted.mean - half)
        np.testing.assert_allclose(predicted.upper, predicted.mean + half)
        assert predicted.level == 0.9

    def test_higher_levels_and_single_rewards_are_wider(self, task):
        def width(**options):
            predicted = task.predict(X, **options)
            return predicted.upper - predicted.lower

        assert (width(level=0.99) > width(level=0.5)).all()
        assert (width(of_reward=True) > width()).all()
        np.testing.assert_allclose(
            width(of_reward=True, level=0.9) / 2 / norm.ppf(0.95),
            0.5 * np.sqrt(1 + task.belief.width(X) ** 2),
        )

    def test_intervals_hold_the_truth_as_often_as_they_say(self):
        """θ drawn from the prior, noise known: then the intervals are exact."""
        rng = np.random.default_rng(0)
        inside, inside_reward = [], []
        for repeat in range(300):
            theta = 0.5 * rng.standard_normal(3)
            bandit = hs.Bandit(3, hs.Independent(lam=1.0), hs.Uniform(), noise=0.5, seed=repeat)
            task = bandit.task("a")
            for _ in range(4):
                choice = task.choose(rng.standard_normal((3, 3)))
                task.learn(choice, choice.context @ theta + 0.5 * rng.standard_normal())
            offer = rng.standard_normal((5, 3))
            _, lower, upper, _ = task.predict(offer, level=0.8)
            inside.extend((lower <= offer @ theta) & (offer @ theta <= upper))
            _, lower, upper, _ = task.predict(offer, level=0.8, of_reward=True)
            reward = offer @ theta + 0.5 * rng.standard_normal(5)
            inside_reward.extend((lower <= reward) & (reward <= upper))
        assert np.mean(inside) == pytest.approx(0.8, abs=0.04)
        assert np.mean(inside_reward) == pytest.approx(0.8, abs=0.04)

    def test_a_new_task_predicts_from_the_prior(self):
        bandit = hs.Bandit(dim=2, noise=2.0, seed=0)
        predicted = bandit.task("new").predict(X)
        np.testing.assert_array_equal(predicted.mean, 0.0)
        assert (predicted.upper > 0).all()

    def test_predicting_between_rounds_changes_no_decision(self, world, content):
        rounds = world(seed=2, rounds=15, dim=3)
        arms = []
        for look in (False, True):
            bandit = hs.Bandit(dim=3, rule=hs.Thompson(), seed=0)
            task, mine = bandit.task("a"), []
            for offer, rewards in zip(rounds.offers, rounds.rewards, strict=True):
                if look:
                    task.predict(offer)
                choice = task.choose(offer)
                if look:
                    task.predict(offer, of_reward=True)
                    str(task), task.evidence, task.rounds, bandit.report()
                task.learn(choice, rewards[choice.arm])
                mine.append(choice.arm)
            arms.append(mine)
        assert arms[0] == arms[1]

    @pytest.mark.parametrize("level", [0, 1, -0.5, 2, "x", None, float("nan"), True, [0.5]])
    def test_levels_outside_zero_to_one_are_refused(self, bandit, task, level, refused):
        with refused(bandit, "level", "between 0 and 1"):
            task.predict(X, level=level)


class TestTaskIds:
    def test_a_task_is_made_once_and_found_again(self):
        bandit = hs.Bandit(dim=2, seed=0)
        first = bandit.task("a")
        first.learn(first.choose(X), 1.0)
        assert bandit.task("a").rounds == 1
        assert len(bandit) == 1
        assert bandit.task("a").id == "a"

    def test_a_number_is_the_same_id_as_its_digits(self):
        bandit = hs.Bandit(dim=2, seed=0)
        bandit.task(42)
        bandit.task(np.int64(42))
        assert list(bandit) == ["42"]
        assert "42" in bandit
        assert 42 in bandit
        assert np.int64(42) in bandit
        assert 43 not in bandit

    def test_asking_whether_a_task_is_known_never_fails(self):
        bandit = hs.Bandit(dim=2)
        for strange in (None, True, 1.5, [1], {"a": 1}, b"a"):
            assert strange not in bandit

    def test_tasks_are_listed_in_the_order_they_were_made(self):
        bandit = hs.Bandit(dim=2)
        for id in ("b", "a", "ü", "任务", " ", "x\ny", "c" * 1000):
            bandit.task(id)
        assert list(bandit) == ["b", "a", "ü", "任务", " ", "x\ny", "c" * 1000]

    @pytest.mark.parametrize(
        "id",
        [None, True, np.True_, 1.5, float("nan"), [1], (1,), {}, b"a", "", "x" * 1001, "\ud800"],
        ids=repr,
    )
    def test_other_ids_are_refused(self, id, refused):
        bandit = hs.Bandit(dim=2)
        with refused(bandit, "id must be", "got"):
            bandit.task(id)
        with refused(bandit, "id must be", "got"):
            bandit.delete(id)

    @pytest.mark.parametrize("digits", [1001, 5000])
    def test_numbers_of_more_than_a_thousand_digits_are_refused(self, digits, refused):
        bandit = hs.Bandit(dim=2)
        with refused(bandit, "id must be"):
            bandit.task(10**digits)

    def test_a_task_prints_its_state(self):
        task = hs.Bandit(dim=2, seed=0).task("a")
        assert repr(task) == "Task('a', open, 0 rounds)"
        task.close()
        assert repr(task) == "Task('a', closed, 0 rounds)"


BAD_SETTINGS = {
    "dim": [0, -1, 2.5, True, None, "3", [3], float("nan"), np.array([2, 3])],
    "noise": [0, -1, 0.0, "x", "Auto", None, float("nan"), float("inf"), True, [1.0], 1j, 10**400],
    "seed": [-1, 1.5, "a", True, [1, 2], float("nan"), np.array([1, 2]), np.array([0.5])],
    "transfer": ["subspace", hs.Subspace, hs.UCB(), 1, []],
    "rule": ["ucb", hs.UCB, hs.Subspace(), 1, []],
    "intercept": [1, 0.0, "yes"],
    "cache_size": [0, -1, 2.5, True, None, "8"],
    "choice_window": [0, -1, 2.5, True, None, "8"],
    "half_life": [0, -1, 0.0, True, "8", float("nan"), float("inf"), [5.0], 1j],
}


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD_SETTINGS.items() for value in values],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:20],
)
def test_bad_settings_are_refused_by_name(name, value):
    with pytest.raises(hs.InputError, match=rf"^{name} must be .*; got ") as caught:
        hs.Bandit(**{"dim": 2} | {name: value})
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("seed", [0, 2**200, np.int64(3), np.uint8(7), None])
def test_whole_numbers_of_any_size_are_seeds(seed):
    assert hs.Bandit(dim=2, seed=seed).task("a").choose(X).arm in (0, 1, 2)


def test_numpy_generators_and_seed_sequences_are_seeds():
    def arms(seed):
        task = hs.Bandit(dim=2, rule=hs.Uniform(), seed=seed).task("a")
        return [task.choose(X).arm for _ in range(20)]

    for make in (np.random.default_rng, np.random.SeedSequence):
        assert arms(make(5)) == arms(make(5)) != arms(make(6))


def test_whole_number_types_of_numpy_are_dimensions():
    assert hs.Bandit(dim=np.int32(2)).dim == 2


BAD_CONTEXTS = {
    "none": None,
    "text": "abc",
    "number": 1.0,
    "one vector": [1.0, 0.0],
    "one vector as array": np.array([1.0, 0.0]),
    "short vector": [1.0],
    "three axes": np.zeros((2, 3, 2)),
    "too few columns": [[1.0], [2.0]],
    "too many columns": np.ones((3, 3)),
    "ragged": [[1.0, 2.0], [3.0]],
    "no arms": [],
    "no arms as array": np.empty((0, 2)),
    "no columns": np.empty((3, 0)),
    "nan": [[1.0, np.nan], [0.0, 1.0]],
    "nan in float32": np.array([[1.0, np.nan]], dtype=np.float32),
    "infinity": np.array([[1.0, 0.0], [-np.inf, 1.0]]),
    "huge": [[1.0, 2e100]],
    "huge whole number": [[1.0, 10**400]],
    "huge long double": np.array([["1e4000", "1"]], dtype=np.longdouble),
    "None inside": [[1.0, None]],
    "complex list": [[1j, 2.0]],
    "complex array": np.array([[1.0 + 0j, 2.0]]),
    "text inside": [["a", "b"]],
    "digits as text": [["1", "2"]],
    "dates": np.array([["2020-01-01", "2021-01-01"]], dtype="M8[D]"),
    "durations": np.array([[1, 2]], dtype="m8[s]"),
    "object array": np.array([[object(), 1.0]], dtype=object),
    "dict": {"a": [1.0], "b": [2.0]},
    "a choice set": {1.0, 2.0},
}


@pytest.mark.parametrize("kind", BAD_CONTEXTS)
@pytest.mark.parametrize("call", ["choose", "predict"])
@pytest.mark.filterwarnings("always::RuntimeWarning", "always::numpy.exceptions.ComplexWarning")
def test_bad_contexts_are_refused_and_nothing_changes(kind, call, refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    task.learn(task.choose(X), 1.0)
    with refused(bandit, "contexts must", "got"):
        getattr(task, call)(BAD_CONTEXTS[kind])


def test_a_closed_task_stays_closed_when_its_contexts_are_refused(refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    task.learn(task.choose(X), 1.0)
    task.close()
    with refused(bandit, "contexts"):
        task.choose([[np.nan, 0.0]])
    with refused(bandit, "exclude"):
        task.choose(X, exclude=[9])
    assert task.closed


class Hesitant(hs.Rule):
    """A user's rule that refuses what it is offered."""

    def choose(self, belief, contexts, rng, allowed=None):
        if contexts[0, 0] < 0:
            raise hs.InputError("contexts must not be negative; got one that is")
        return hs.UCB().choose(belief, contexts, rng, allowed)

    def propensities(self, belief, contexts, rng, allowed=None):
        return hs.UCB().propensities(belief, contexts, rng, allowed)


@pytest.mark.parametrize("closed", [False, True])
def test_a_rule_of_ones_own_may_refuse_too(closed, refused):
    bandit = hs.Bandit(dim=2, rule=Hesitant(), seed=0)
    task = bandit.task("a")
    task.learn(task.choose(X), 1.0)
    if closed:
        task.close()
    with refused(bandit, "contexts"):
        task.choose(-X)
    assert task.closed == closed
    assert bandit.feature_names is None


class Choosy(hs.Bias):
    """A user's transfer that refuses a task."""

    def fold(self, state, evidence, weight=1.0):
        if evidence.squares > 100:
            raise hs.InputError("evidence must be moderate; got rewards that are not")
        return super().fold(state, evidence, weight)


def test_a_transfer_of_ones_own_may_refuse_a_task(refused):
    bandit = hs.Bandit(dim=2, transfer=Choosy(), seed=0)
    for id, reward in (("fine", 1.0), ("wild", 1000.0)):
        task = bandit.task(id)
        task.learn(task.choose(X), reward)
    bandit.task("fine").close()
    with refused(bandit, "evidence"):
        bandit.task("wild").close()
    assert not bandit.task("wild").closed
    assert bandit.report().closed_tasks == 1


def test_the_message_says_how_to_offer_a_single_arm():
    task = hs.Bandit(dim=2).task("a")
    with pytest.raises(hs.InputError, match=r"for a single arm pass \[x\]"):
        task.choose([1.0, 2.0])


BAD_REWARDS = [
    None,
    "1",
    "x",
    b"1",
    float("nan"),
    float("inf"),
    -float("inf"),
    np.ma.masked,
    np.ma.array(1.0, mask=True),
    np.ma.array([1.0], mask=[True]),
    1j,
    np.complex128(1),
    [1.0],
    (),
    np.array([1.0]),
    np.array([]),
    {},
    object(),
    2e100,
    10**400,
    np.datetime64("2020-01-01"),
]


@pytest.mark.parametrize("reward", BAD_REWARDS, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("closed", [False, True])
def test_bad_rewards_are_refused_and_nothing_changes(reward, closed, refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    task.learn(task.choose(X), 1.0)
    choice = task.choose(X)
    if closed:
        task.close()
    with refused(bandit, "reward must be", "got"):
        task.learn(choice, reward)
    with refused(bandit, "reward must be", "got"):
        bandit.learn([choice], [reward])
    assert task.learn(choice, 1.0)


@pytest.mark.parametrize(
    "reward",
    [1, 1.0, -2, np.float32(1), np.float64(1), np.int8(1), np.array(1.0), True, False, np.True_],
    ids=repr,
)
def test_numbers_of_any_kind_are_rewards(reward):
    task = hs.Bandit(dim=2, seed=0).task("a")
    task.learn(task.choose(X), reward)
    assert task.evidence.squares == float(reward) ** 2


BAD_CHOICES = [None, 1, 1.5, True, {}, object(), b"token", {"a"}, np.array("token"), np.array(1.0)]


@pytest.mark.parametrize("choice", BAD_CHOICES, ids=lambda value: repr(value)[:20])
def test_what_is_no_choice_is_refused(choice, refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    with refused(bandit, "choice must be"):
        task.learn(choice, 1.0)
    with refused(bandit, "choice must be"):
        task.learn([choice], [1.0])


def test_a_task_that_was_deleted_refuses_everything(refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    choice = task.choose(X)
    bandit.task("b")
    task.delete()
    calls = [
        lambda: task.choose(X),
        lambda: task.learn(choice, 1.0),
        lambda: task.predict(X),
        lambda: task.refresh(),
        lambda: task.close(),
        lambda: task.delete(),
        lambda: bandit.delete("a"),
        lambda: bandit.learn(choice, 1.0),
        lambda: task.rounds,
        lambda: task.evidence,
        lambda: task.belief,
        lambda: task.closed,
    ]
    for call in calls:
        with refused(bandit, "'a'", error=hs.TaskError):
            call()


def test_every_exception_is_of_one_family():
    family = [hs.InputError, hs.ChoiceError, hs.TaskError, hs.FileError, hs.MissingFileError]
    for kind in family:
        assert issubclass(kind, hs.HeadstartError)
        assert issubclass(kind, ValueError)
    assert issubclass(hs.FileError, OSError)
    assert issubclass(hs.MissingFileError, FileNotFoundError)


MASKED = [
    np.ma.array([[1.0, 0.0], [0.0, 1.0]], mask=[[True, False], [False, False]]),
    [np.ma.array([1.0, 0.0], mask=[True, False]), [0.0, 1.0]],
    [[1.0, np.ma.masked], [0.0, 1.0]],
    ([1.0, 0.0], (0.0, np.ma.array(2.0, mask=True))),
]


@pytest.mark.filterwarnings("ignore:.*masked element:UserWarning")
@pytest.mark.parametrize("contexts", MASKED, ids=range(len(MASKED)))
def test_masked_contexts_are_refused(contexts, refused):
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    for call in (
        lambda: task.choose(contexts),
        lambda: task.predict(contexts),
        lambda: bandit.choose_many(["a"], [contexts]),
        lambda: hs.Evidence.of(contexts, [1.0, 1.0]),
    ):
        with refused(bandit, "contexts", "masked"):
            call()
    with refused(bandit, "exclude", "masked"):
        task.choose(np.eye(2), exclude=np.ma.array([0, 1], mask=[True, False]))


@pytest.mark.parametrize(
    "rewards",
    [
        np.ma.array([1.0, 2.0], mask=[False, True]),
        [1.0, np.ma.masked],
        [1.0, np.ma.array(2.0, mask=True)],
    ],
    ids=range(3),
)
def test_masked_rewards_are_refused(rewards, refused):
    bandit = hs.Bandit(dim=2, seed=0)
    choices = [bandit.task("a").choose(X) for _ in range(2)]
    with refused(bandit, "reward", "masked"):
        bandit.learn(choices, rewards)


def test_missing_values_of_pandas_are_refused(refused):
    pandas = pytest.importorskip("pandas")
    bandit = hs.Bandit(dim=2, seed=0)
    choice = bandit.task("a").choose(X)
    with refused(bandit, "reward"):
        bandit.learn(choice, pandas.NA)
    with refused(bandit, "reward"):
        bandit.learn([choice], pandas.array([None], dtype="Int64"))
    for kind in ("Int64", "Float64", "object"):
        frame = pandas.DataFrame({"x": [1, None], "y": [1, 2]}, dtype=kind)
        with refused(bandit, "contexts"):
            bandit.task("a").choose(frame)
    with refused(bandit, "contexts"):
        bandit.task("a").choose([[1.0, pandas.NA], [1.0, 2.0]])


def test_clicks_are_booleans():
    bandit = hs.Bandit(dim=2, seed=0)
    choices = [bandit.task("a").choose(X) for _ in range(5)]
    bandit.learn(choices[0], True)
    bandit.learn(choices[1], np.False_)
    bandit.learn(choices[2:], np.array([True, False, True]))
    assert bandit.task("a").evidence.squares == 3.0
    assert bandit.task("a").rounds == 5


ODD_NUMBERS = [
    2**70,
    10**400,
    10**5000,
    1e308,
    1e200,
    1e-200,
    5e-324,
    Fraction(1, 3),
    Fraction(10**400),
    Decimal("0.5"),
    True,
    np.True_,
    np.float16(0.5),
    np.longdouble(0.5),
    np.uint64(2**64 - 1),
    np.array(0.5),
    np.array(3),
    np.ma.masked,
]
SETTINGS = {
    "noise": lambda value: hs.Bandit(2, noise=value, seed=0),
    "seed": lambda value: hs.Bandit(2, seed=value),
    "choice_window": lambda value: hs.Bandit(2, choice_window=value, seed=0),
    "cache_size": lambda value: hs.Bandit(2, cache_size=value, seed=0),
    "half_life": lambda value: hs.Bandit(2, half_life=value, seed=0),
    "UCB radius": lambda value: hs.Bandit(2, rule=hs.UCB(value), seed=0),
    "UCB delta": lambda value: hs.Bandit(
        2, hs.Independent(), hs.UCB("theory", delta=value), noise=0.3, seed=0
    ),
    "Thompson scale": lambda value: hs.Bandit(2, rule=hs.Thompson(value), seed=0),
    "Forced rounds": lambda value: hs.Bandit(2, rule=hs.Forced(value, hs.UCB()), seed=0),
    "explore": lambda value: hs.Bandit(2, rule=hs.Greedy(explore=value), seed=0),
    "EmpiricalBayes decay_tasks": lambda value: hs.Bandit(
        2, hs.EmpiricalBayes(decay_tasks=value), seed=0
    ),
    "Independent lam": lambda value: hs.Bandit(2, hs.Independent(lam=value), seed=0),
    "Bias lam": lambda value: hs.Bandit(2, hs.Bias(lam=value), seed=0),
    "Bias horizon": lambda value: hs.Bandit(2, hs.Bias(horizon=value), seed=0),
    "Subspace lam1": lambda value: hs.Bandit(2, hs.Subspace(lam1=value), seed=0),
    "Gaussian ridge": lambda value: hs.Bandit(2, hs.Gaussian(ridge=value), seed=0),
    "linucb lam": lambda value: hs.linucb(2, lam=value, seed=0),
}


@pytest.mark.filterwarnings("ignore:.*learns from forced rounds")
@pytest.mark.parametrize("make", SETTINGS.values(), ids=SETTINGS)
def test_numbers_of_any_kind_and_size_are_settings_or_refused(make):
    accepted = 0
    for value in ODD_NUMBERS:
        try:
            bandit = make(value)
        except hs.InputError:
            continue
        accepted += 1
        for id in range(3):
            task = bandit.task(id)
            for reward in (1.0, 0.5, 0.0):
                task.learn(task.choose(X), reward)
            task.close()
        assert np.isfinite(bandit.prior.mean).all()
        assert np.isfinite(bandit.task(9).predict(X).upper).all()
        str(bandit.report())
    assert accepted < len(ODD_NUMBERS)


def test_a_deleted_task_prints_as_such():
    bandit = hs.Bandit(dim=2, seed=0)
    task = bandit.task("a")
    task.delete()
    assert repr(task) == "Task('a', deleted)"
