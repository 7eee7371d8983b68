"""Compiled loops: the same decisions and beliefs as with NumPy, only faster."""

import contextlib
import functools
import subprocess
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

import headstart as hs
from headstart.features.conversion import Features
from headstart.kernels.switch import loops
from headstart.rules.ties import best_arms, select_by_uniform
from headstart.transfer.noise import LAMBDA_GRID, ridge_terms

compiled = pytest.importorskip("headstart.kernels.compiled", reason="needs Numba")

seeds = st.integers(0, 2**32 - 1)
RULES = [
    hs.UCB(),
    hs.UCB(0.0),
    hs.UCB(2),
    hs.UCB("theory"),
    hs.UCB("paper", delta=0.1),
    hs.UCB(explore=0.3),
    hs.Thompson(),
    hs.Thompson(0),
    hs.Thompson("paper"),
    hs.Thompson(0.5, explore=0.3),
    hs.Greedy(),
    hs.Greedy(explore=0.3),
    hs.Uniform(),
    hs.Forced(5, hs.UCB()),
    hs.Forced(5, hs.Thompson()),
]
each_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


@pytest.fixture(autouse=True)
def _numpy_afterwards():
    """Whatever a test does, the next one starts with NumPy."""
    hs.use_numba(False)
    yield
    hs.use_numba(False)


@contextlib.contextmanager
def numba():
    hs.use_numba()
    try:
        yield
    finally:
        hs.use_numba(False)


def both(call):
    """What a call gives with NumPy, and with compiled loops."""
    plain = call()
    with numba():
        return plain, call()


def random_belief(seed, dim, rounds=4):
    rng = np.random.default_rng(seed)
    root = rng.standard_normal((dim, dim)) / np.sqrt(dim) + np.eye(dim)
    prior = hs.Prior(rng.standard_normal(dim), root, noise=0.4, bias=0.3, printed_bias=0.7)
    belief = hs.Belief.start(prior)
    for _ in range(rounds):
        belief = belief.learn(rng.standard_normal(dim), rng.standard_normal())
    return belief


def game(rule, seed, dim, arms, rounds, copies=1):
    """Arms, scores and the last belief of one task; with ``copies``, every arm stands there often.

    Rewards depend on the arm, so that one decision that differs changes all that follow.
    """
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal(dim)
    belief, draws, picks = random_belief(seed, dim), np.random.default_rng(seed + 1), []
    for _ in range(rounds):
        table = np.tile(rng.standard_normal((arms, dim)), (copies, 1))
        noise = rng.standard_normal(len(table))
        pick = rule.choose(belief, table, draws)
        belief = belief.learn(table[pick.arm], table[pick.arm] @ theta + 0.4 * noise[pick.arm])
        picks.append((pick.arm, pick.score, pick.forced))
    return picks, belief


def assert_same_belief(one, other, tolerance=1e-10):
    """Roots too: both ways apply the same updates to the same root."""
    for name in ("mean", "root", "covariance", "information"):
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), rtol=tolerance, atol=tolerance
        )
    assert (one.rounds, one.noise, one.prior) == (other.rounds, other.noise, other.prior)


def assert_same_game(plain, fast):
    (picks, belief), (others, other) = plain, fast
    assert [(arm, forced) for arm, _, forced in others] == [(arm, mark) for arm, _, mark in picks]
    scores = [[score for _, score, _ in game] for game in (others, picks)]
    np.testing.assert_allclose(*scores, rtol=1e-10, atol=1e-10)
    assert_same_belief(other, belief)


class TestSwitching:
    def test_on_and_off(self):
        assert loops() is None
        hs.use_numba()
        assert loops() is compiled
        hs.use_numba(True)
        assert loops() is compiled
        hs.use_numba(False)
        assert loops() is None
        hs.use_numba(False)
        assert loops() is None

    def test_in_the_middle_of_a_task(self):
        tables = np.random.default_rng(0).standard_normal((40, 5, 4))
        arms = []
        for switches in (False, True):
            task, mine = hs.Bandit(4, noise=0.3, seed=1, rule=hs.Thompson()).task("a"), []
            for at, table in enumerate(tables):
                hs.use_numba(switches and at % 3 > 0)
                choice = task.choose(table)
                task.learn(choice, float(choice.context[0]))
                mine.append(choice.arm)
            arms.append(mine)
        assert arms[0] == arms[1]

    def test_the_loops_are_used(self, monkeypatch):
        called = []
        for name in ("choose_ucb", "choose_thompson", "learn"):
            real = getattr(compiled, name)
            monkeypatch.setattr(
                compiled, name, lambda *a, real=real, name=name: called.append(name) or real(*a)
            )
        with numba():
            for rule in (hs.UCB(), hs.Thompson()):
                task = hs.Bandit(3, rule=rule, seed=1).task("a")
                task.learn(task.choose(np.eye(3)), 1.0)
        assert called == ["choose_ucb", "learn", "choose_thompson", "learn"]

    def test_without_numba_it_says_how_to_get_it(self):
        script = """
import sys
sys.modules["numba"] = None  # as if it were not installed
import headstart as hs
from headstart.kernels.switch import loops
for _ in range(2):
    try:
        hs.use_numba()
    except hs.InputError as error:
        print(error)
assert loops() is None
hs.use_numba(False)
assert hs.Bandit(2, seed=0).task("a").choose([[1.0, 0.0], [0.0, 1.0]]).arm in (0, 1)
"""
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        told = done.stdout.splitlines()
        assert told[0] == told[1]
        for word in ("use_numba", "Numba", "not installed", "pip install 'headstart[fast]'"):
            assert word in told[0]

    def test_numba_is_only_loaded_when_it_is_asked_for(self):
        script = "import sys, headstart; headstart.use_numba(False); print('numba' in sys.modules)"
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == "False"


class TestTheSameGame:
    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(seeds, st.integers(1, 12), st.integers(1, 9), st.sampled_from(RULES))
    def test_decisions_scores_and_beliefs(self, seed, dim, arms, rule):
        assert_same_game(*both(lambda: game(rule, seed, dim, arms, rounds=25)))

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(), hs.UCB("theory")], ids=repr)
    def test_over_many_rounds(self, rule):
        assert_same_game(*both(lambda: game(rule, 7, dim=20, arms=10, rounds=1500)))

    @each_rule
    @pytest.mark.parametrize("copies", [2, 5])
    def test_ties_break_the_same_way(self, rule, copies):
        """Every arm stands there several times, as in the worst of catalogues."""
        assert_same_game(*both(lambda: game(rule, 3, 4, 3, rounds=60, copies=copies)))

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(1e-3)], ids=repr)
    def test_ties_break_uniformly(self, rule):
        belief = random_belief(8, 3)
        best = belief.mean / np.linalg.norm(belief.mean)
        table = np.vstack([-9 * best, best, best, -9 * best, best]) * 30
        rng = np.random.default_rng(0)
        with numba():
            counts = np.bincount(
                [rule.choose(belief, table, rng).arm for _ in range(3000)], minlength=5
            )
        assert counts[[0, 3]].sum() == 0
        assert chisquare(counts[[1, 2, 4]]).pvalue > 1e-4

    @each_rule
    def test_arms_that_may_not_be_picked(self, rule):
        def play():
            picks = []
            for seed in range(25):
                rng = np.random.default_rng(seed)
                table = np.tile(rng.standard_normal((3, 4)), (2, 1))
                allowed = rng.random(6) < 0.5
                allowed[seed % 6] = True
                pick = rule.choose(random_belief(seed, 4), table, rng, allowed)
                assert allowed[pick.arm]
                picks.append((pick.arm, round(pick.score, 10)))
            return picks

        plain, fast = both(play)
        assert plain == fast

    @each_rule
    def test_kinds_of_numbers_are_the_same(self, rule):
        belief, table = random_belief(1, 3), np.random.default_rng(1).standard_normal((4, 3))
        for pick in both(lambda: rule.choose(belief, table, np.random.default_rng(2))):
            assert type(pick.arm) is int
            assert type(pick.score) is float
        for learned in both(lambda: belief.learn(table[0], 1.0)):
            assert type(learned.information) is float
            assert type(learned.rounds) is float
            with pytest.raises(ValueError, match="read-only"):
                learned.mean[0] = 1.0
            with pytest.raises(ValueError, match="read-only"):
                learned.root[0, 0] = 1.0

    def test_a_belief_is_never_written_to(self):
        belief, x = random_belief(1, 3), np.ones(3)
        kept = belief.mean.copy(), belief.root.copy(), x.copy()
        with numba():
            assert belief.learn(x, 2.0) != belief
            hs.Thompson().choose(belief, np.eye(3), np.random.default_rng(0))
        for now, before in zip((belief.mean, belief.root, x), kept, strict=True):
            np.testing.assert_array_equal(now, before)

    def test_the_largest_contexts_stay_finite(self):
        belief = hs.Belief.start(hs.Prior.isotropic(2))

        def play():
            now = belief
            for x in ([1e60, -1e60], [1e-60, 0.0], [3e59, 1.0], [0.0, 0.0]):
                pick = hs.UCB().choose(now, np.array([x]), np.random.default_rng(0))
                assert np.isfinite(pick.score)
                now = now.learn(x, 1e60)
            return now

        plain, fast = both(play)
        np.testing.assert_allclose(fast.mean, plain.mean, rtol=1e-9)
        np.testing.assert_allclose(fast.root, plain.root, rtol=1e-9, atol=1e-9)
        assert np.isfinite(fast.root).all()


LAYOUTS = {
    "plain": lambda a: a,
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
    "fortran": lambda a: np.asfortranarray(a),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "strided": lambda a: np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda a: np.array(a[::-1])[::-1],
    "broadcast": lambda a: np.broadcast_to(a, (2, *a.shape))[1],
    "float32": lambda a: a.astype(np.float32),
    "float32, fortran": lambda a: np.asfortranarray(a.astype(np.float32)),
    "whole numbers, transposed": lambda a: np.ascontiguousarray(a.T.astype(int)).T,
    "long double, fortran": lambda a: np.asfortranarray(a.astype(np.longdouble)),
    "big-endian": lambda a: a.astype(">f8"),
    "list": lambda a: a.tolist(),
}
each_layout = pytest.mark.parametrize("form", LAYOUTS.values(), ids=LAYOUTS)


class TestArrays:
    TABLE = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0], [2.0, 2.0, 0.0], [1.0, 1.0, 1.0]])

    @each_layout
    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(draws=20)], ids=repr)
    def test_contexts_in_any_layout(self, rule, intercept, form):
        def play(table):
            bandit = hs.Bandit(3, hs.Independent(), rule, 0.3, 1, intercept=intercept)
            task, told = bandit.task("a"), []
            for _ in range(4):
                choice = task.choose(table)
                task.learn(choice, 1.0 + choice.arm)
                told.append((choice.arm, choice.context.tolist(), choice.propensities.tolist()))
            return told

        plain, fast = both(lambda: play(form(self.TABLE)))
        assert [arm for arm, _, _ in fast] == [arm for arm, _, _ in plain]
        assert [context for _, context, _ in fast] == [context for _, context, _ in plain]
        assert [arm for arm, _, _ in plain] == [arm for arm, _, _ in play(self.TABLE)]

    @pytest.mark.parametrize("name", [name for name in LAYOUTS if name not in ("list",)])
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(), hs.Greedy()], ids=repr)
    def test_rules_called_by_hand_take_arrays_as_they_are(self, rule, name):
        belief, table = random_belief(1, 3), LAYOUTS[name](self.TABLE)
        plain, fast = both(lambda: rule.choose(belief, table, np.random.default_rng(2)))
        assert fast.arm == plain.arm
        assert fast.score == pytest.approx(plain.score, rel=1e-6)

    @pytest.mark.parametrize(
        "x",
        [
            np.asfortranarray(TABLE)[1],
            TABLE[:3, 0],
            np.array([1.0, 0.0, 3.0])[::-1],
            np.broadcast_to(2.0, 3),
            np.array([1, 2, 3]),
            np.array([1, 2, 3], dtype=np.float32),
            np.array([1, 2, 3], dtype=">f8"),
            [1, 2.5, 3],
        ],
        ids=["row", "column", "reversed", "broadcast", "whole", "float32", "big-endian", "list"],
    )
    def test_a_context_to_learn_from_in_any_layout(self, x):
        belief = random_belief(1, 3)
        for reward in (1, 2.5, np.float32(0.5), np.array(0.25)):
            plain, fast = both(functools.partial(belief.learn, x, reward))
            assert_same_belief(fast, plain)

    def test_roots_in_any_layout(self):
        belief = random_belief(1, 3)
        turned = belief.replace(root=np.asfortranarray(belief.root))
        for rule in (hs.UCB(), hs.Thompson()):
            choose = functools.partial(rule.choose, turned, self.TABLE)
            pick, fast = both(lambda choose=choose: choose(np.random.default_rng(2)))
            assert fast.arm == pick.arm
        assert_same_belief(*both(lambda: turned.learn([1.0, 2.0, 3.0], 0.5)))

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(), hs.Greedy()], ids=repr)
    def test_single_precision_stays_as_it_is_with_numpy(self, rule):
        prior = hs.Prior(np.ones(3, np.float32), np.eye(3, dtype=np.float32), noise=0.5)
        table = self.TABLE.astype(np.float32)

        def play():
            belief = hs.Belief.start(prior)
            picks = []
            for at in range(10):
                pick = rule.choose(belief, table, np.random.default_rng(at))
                picks.append((pick.arm, float(pick.score)))
                belief = belief.learn(table[pick.arm], 1.0)
            return picks, belief

        (plain, belief), (fast, other) = both(play)
        assert fast == plain
        assert other == belief
        assert other.root.dtype == other.mean.dtype == np.float32

    def test_a_mean_in_single_and_a_root_in_double_precision(self):
        belief = hs.Belief.start(hs.Prior(np.ones(3, np.float32), np.eye(3), noise=0.5))
        for rule in (hs.UCB(), hs.Thompson()):
            choose = functools.partial(rule.choose, belief, self.TABLE)
            pick, fast = both(lambda choose=choose: choose(np.random.default_rng(2)))
            assert fast.arm == pick.arm
        plain, fast = both(lambda: belief.learn([1.0, 2.0, 3.0], 0.5))
        np.testing.assert_allclose(fast.mean, plain.mean, rtol=1e-6)

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(), hs.Greedy()], ids=repr)
    def test_batches_are_left_to_numpy(self, rule):
        prior = hs.Prior(np.ones((2, 3)), np.stack([np.eye(3), 2 * np.eye(3)]), noise=0.5)
        belief, tables = hs.Belief.start(prior), np.stack([self.TABLE, self.TABLE[::-1]])

        def play():
            pick = rule.choose(belief, tables, np.random.default_rng(2))
            return pick, belief.learn(tables[:, 0], np.ones(2))

        (plain, learned), (fast, other) = both(play)
        np.testing.assert_array_equal(fast.arm, plain.arm)
        np.testing.assert_array_equal(fast.score, plain.score)
        assert other == learned


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some of them say what they cannot do
    BANDITS = {
        "default": lambda: hs.Bandit(4, seed=1),
        "default, Thompson": lambda: hs.Bandit(4, rule=hs.Thompson(), seed=1),
        "theory": lambda: hs.projected_linucb(4, seed=1),
        "projected_ts": lambda: hs.projected_ts(4, seed=1),
        "meta_ts": lambda: hs.meta_ts(4, seed=1),
        "bias": lambda: hs.bias_oful(4, seed=1),
        "paper": lambda: hs.projected_ts(4, seed=1, paper=True),
        "mixture": lambda: hs.Bandit(4, hs.Mixture(groups=2), hs.Thompson(), seed=1),
        "half-life": lambda: hs.Bandit(4, hs.Independent(), noise=0.3, seed=1, half_life=6.0),
        "few live": lambda: hs.Bandit(4, hs.Independent(), hs.UCB(), 0.3, 1, cache_size=1),
        "oracle": lambda: hs.bayes_oracle(4, 1, mean=np.ones(4), covariance=np.eye(4)),
    }


class TestBandits:
    def serve(self, make, together=False, tasks=5, rounds=9):
        """Tasks side by side, some closed half way; every second offer has equal arms."""
        bandit, arms = make(), []
        for at in range(rounds):
            tables = np.random.default_rng(at).standard_normal((tasks, 3, 4))
            if at % 2:
                tables = np.tile(tables, (1, 2, 1))
            if together:
                choices = bandit.choose_many(range(tasks), tables)
            else:
                choices = [bandit.task(id).choose(table) for id, table in enumerate(tables)]
            rewards = [float(choice.context @ [1.0, -0.5, 0.2, 0.0]) + 0.1 for choice in choices]
            bandit.learn(choices, rewards)
            arms.append([choice.arm for choice in choices])
            if at == rounds // 2:
                bandit.task(0).close()
                bandit.task(1).close()
        return arms, bandit

    @pytest.mark.parametrize("make", BANDITS.values(), ids=BANDITS)
    def test_every_algorithm_decides_alike(self, make):
        (plain, bandit), (fast, other) = both(lambda: self.serve(make))
        assert fast == plain
        for id in bandit:
            np.testing.assert_allclose(
                other.task(id).belief.mean, bandit.task(id).belief.mean, rtol=1e-6, atol=1e-6
            )

    @pytest.mark.parametrize("name", ["default", "projected_ts", "mixture"])
    def test_also_for_many_tasks_in_one_call(self, name):
        (plain, _), (fast, _) = both(lambda: self.serve(BANDITS[name], together=True))
        assert fast == plain
        with numba():
            assert self.serve(BANDITS[name])[0] == fast

    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson()], ids=repr)
    def test_beliefs_agree_to_ten_digits(self, rule):
        def make():
            return hs.Bandit(4, hs.Independent(), rule, 0.3, 1)

        (plain, bandit), (fast, other) = both(lambda: self.serve(make, rounds=60))
        assert fast == plain
        for id in bandit:
            assert_same_belief(other.task(id).belief, bandit.task(id).belief)
            assert other.task(id).evidence == bandit.task(id).evidence

    @pytest.mark.parametrize("kind", [hs.UCB, hs.Thompson, hs.Greedy])
    def test_a_rule_made_from_another_keeps_its_own_index(self, kind):
        """The loops stand for the index of the library's rule, not for what overrides it."""

        class Worst(kind):
            def index(self, belief, contexts, rng):
                return -belief.predict(contexts)

        belief = hs.Belief.start(hs.Prior.isotropic(4, mean=np.arange(4.0)))
        with numba():
            assert Worst().choose(belief, np.eye(4), np.random.default_rng(0)).arm == 0

    def test_a_belief_made_from_another_keeps_its_own_methods(self):
        class Sceptical(hs.Belief):
            def width(self, contexts):
                return 100.0 * super().width(contexts)

            def draw(self, rng, scale, size=None):
                return -super().draw(rng, 0.0, size)

        belief = Sceptical.start(hs.Prior.isotropic(4, mean=np.arange(4.0))).learn(np.eye(4)[3], 9)
        assert isinstance(belief, Sceptical)
        with numba():
            for rule, arm in ((hs.UCB(), 2), (hs.Thompson(), 0)):
                assert rule.choose(belief, np.eye(4), np.random.default_rng(0)).arm == arm

    def test_files_go_from_one_to_the_other(self, tmp_path):
        with numba():
            _, bandit = self.serve(BANDITS["projected_ts"])
            bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        tables = np.random.default_rng(9).standard_normal((20, 3, 4))
        plain = [loaded.task(3).choose(table).arm for table in tables]
        with numba():
            assert [bandit.task(3).choose(table).arm for table in tables] == plain


class TestLoops:
    """The loop that plays all rounds of a task, against rules and beliefs round by round."""

    KINDS = ((0, hs.UCB(1.3)), (0, hs.Greedy()), (1, hs.Thompson(0.7)), (2, hs.Uniform()))

    class Drawn:
        """Random numbers that were drawn ahead, for a rule with one batch axis of size one."""

        def __init__(self, normals, uniforms):
            self.normals, self.uniforms, self.round = normals, uniforms, 0

        def standard_normal(self, shape):
            return self.normals[None, self.round]

        def random(self, shape):
            return self.uniforms[None, self.round]

    @settings(max_examples=40, deadline=None, derandomize=True)
    @given(
        seeds,
        st.integers(1, 6),
        st.integers(1, 5),
        st.integers(1, 3),
        st.sampled_from(KINDS),
        st.integers(0, 8),
    )
    def test_a_task_as_a_whole(self, seed, dim, arms, copies, kind, forced):
        number, rule = kind
        rng = np.random.default_rng(seed)
        rounds, offered = 20, arms * copies
        contexts = np.tile(rng.standard_normal((rounds, arms, dim)), (1, copies, 1))
        rewards = rng.standard_normal((rounds, offered))
        normals, uniforms = rng.standard_normal((rounds, dim)), rng.random(rounds)
        start = random_belief(seed, dim)
        amount = {hs.UCB: "radius", hs.Thompson: "scale"}.get(type(rule))
        amount = getattr(rule, amount) if amount else 0.0

        mean, root = start.mean.copy(), start.root.copy()
        picked = np.empty(rounds, dtype=np.intp)
        compiled.play(
            *(contexts, rewards, mean, root, number, amount, forced, normals, uniforms),
            *(start.noise, 0, rounds, picked),
        )

        prior = hs.Prior(start.mean[None], start.root[None], noise=start.noise)
        belief, draws = hs.Belief.start(prior), self.Drawn(normals, uniforms)
        for k in range(rounds):
            draws.round = k
            chooser = hs.Uniform() if k < forced else rule
            arm = int(chooser.choose(belief, contexts[None, k], draws).arm[0])
            assert picked[k] == arm
            belief = belief.learn(contexts[None, k, arm], rewards[None, k, arm])
        np.testing.assert_allclose(mean, belief.mean[0], rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(root, belief.root[0], rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("noise", [0.0, 0.5])
    def test_ties_fall_where_the_rules_say(self, noise):
        rng = np.random.default_rng(0)
        pick_arm = compiled.pick_arm
        for _ in range(300):
            scores = rng.integers(-2, 3, size=int(rng.integers(1, 7))).astype(float)
            scores *= 1.0 + 1e-15 * rng.integers(-3, 4, size=len(scores))
            for uniform in (0.0, 0.25, 0.5, rng.random(), np.nextafter(1.0, 0.0)):
                mask = best_arms(scores, None, noise)
                assert pick_arm(scores, uniform, noise) == select_by_uniform(
                    mask, np.asarray(uniform)
                )

    def test_the_second_best_is_found_wherever_it_stands(self):
        rng = np.random.default_rng(0)
        for _ in range(200):
            scores = rng.integers(-3, 4, size=int(rng.integers(2, 8))).astype(float)
            arm, top, second = compiled.best_two(scores)
            assert (arm, top) == (scores.argmax(), scores.max())
            assert second == np.sort(scores)[-2]
        assert compiled.best_two(np.array([-7.0])) == (0, -7.0, -np.inf)


# --- Beliefs and priors of one task --------------------------------------------------------------


def task_evidence(seed, dim, rounds, size=1.0):
    rng = np.random.default_rng(seed)
    contexts = size * rng.standard_normal((rounds, dim))
    rewards = contexts @ rng.standard_normal(dim) + 0.3 * rng.standard_normal(rounds)
    return hs.Evidence.of(contexts, rewards)


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e6, 1e70])
@given(seed=seeds, dim=st.integers(1, 12), rounds=st.integers(0, 30))
@settings(max_examples=20)
def test_ridge_terms_are_those_of_the_eigenvalues(seed, dim, rounds, size):
    """Also where a gram has no inverse, and where its entries are huge or tiny."""
    evidence = task_evidence(seed, dim, rounds, size)
    lambdas = size**2 * max(rounds, 1) * LAMBDA_GRID
    for plain, found in zip(*both(lambda: ridge_terms(evidence, lambdas)), strict=True):
        np.testing.assert_allclose(found, plain, rtol=1e-8, atol=1e-10)


@given(seed=seeds, dim=st.integers(1, 12), rounds=st.integers(0, 30))
def test_a_belief_from_evidence_is_the_same(seed, dim, rounds):
    prior = random_belief(seed, dim).prior.replace(noise_dof=0.0)
    plain, found = both(lambda: prior.belief(task_evidence(seed, dim, rounds)))
    np.testing.assert_allclose(found.mean, plain.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(found.covariance, plain.covariance, rtol=1e-6, atol=1e-8)
    for name in ("information", "rounds", "noise"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-6, abs=1e-8)


def test_a_belief_from_evidence_of_many_sizes_is_the_same():
    """Compiled loops would lose the digits of what is small, and leave it to NumPy."""
    evidence = hs.Evidence.of(np.diag([1e16, 1.0]), [1.0, 3.0])
    plain, found = both(lambda: hs.Prior.isotropic(2).belief(evidence))
    assert np.array_equal(plain.mean, found.mean)
    assert found.mean[1] == pytest.approx(1.5)


def test_contexts_are_read_and_refused_alike():
    rng = np.random.default_rng(0)
    for intercept in (True, False):
        features = Features(3, intercept=intercept)
        for table in (rng.standard_normal((4, 3)), rng.standard_normal((3, 4)).T):
            plain, found = both(functools.partial(features.read_rows, table))
            assert np.array_equal(plain[3], found[3])
            assert found[1] == pytest.approx(plain[1])
            assert not np.shares_memory(found[3], table)
        for bad in (
            np.zeros((0, 3)),
            np.zeros((2, 4)),
            np.full((2, 3), np.nan),
            np.full((1, 3), 1e90),
        ):
            for switch in (contextlib.nullcontext, numba):
                with switch(), pytest.raises(hs.HeadstartError, match="contexts must"):
                    features.read_rows(bad)
