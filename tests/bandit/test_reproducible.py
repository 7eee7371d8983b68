"""One seed, one history: run after run, in any process, however tasks are interleaved."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import dirichlet

import headstart as hs
from headstart.algorithms import meta_ts_unforced
from headstart.random import Stream, Streams
from headstart.rules import Pick

DIM = 3

NAMED = {
    "bandit": lambda **o: hs.Bandit(**o),
    "linucb": hs.linucb,
    "lints": hs.lints,
    "bias_oful": hs.bias_oful,
    "bias_oful, pooled": lambda **o: hs.bias_oful(method="pooled", **o),
    "projected_linucb": hs.projected_linucb,
    "projected_ts": hs.projected_ts,
    "meta_ts": hs.meta_ts,
    "meta_ts, control": lambda **o: meta_ts_unforced(**o),
    "ccipca": lambda **o: hs.Bandit(transfer=hs.Subspace(pca="ccipca", rank=1), **o),
    "greedy": lambda **o: hs.Bandit(rule=hs.Greedy(explore=0.2), **o),
    "uniform": lambda **o: hs.Bandit(rule=hs.Uniform(), **o),
}
# Only finished tasks count, and features in the units given: running tasks share nothing.
ALONE = hs.EmpiricalBayes(running=False, units="given")
APART = NAMED | {
    "bandit": lambda **o: hs.Bandit(transfer=ALONE, **o),
    "greedy": lambda **o: hs.Bandit(transfer=ALONE, rule=hs.Greedy(explore=0.2), **o),
}

each_algorithm = pytest.mark.parametrize("make", NAMED.values(), ids=NAMED)
each_that_keeps_apart = pytest.mark.parametrize("make", APART.values(), ids=APART)


def tasks_of(world, count=6, rounds=10):
    return {f"task {n}": world(seed=n, rounds=rounds, dim=DIM) for n in range(count)}


def one_after_another(bandit, tasks, play):
    arms = {}
    for id, rounds in tasks.items():
        arms[id] = play(bandit, id, rounds)
        bandit.task(id).close()
    return arms


class TestSeeds:
    @each_algorithm
    def test_one_seed_gives_one_history(self, make, world, play):
        tasks = tasks_of(world)
        first = one_after_another(make(dim=DIM, seed=7), tasks, play)
        assert first == one_after_another(make(dim=DIM, seed=7), tasks, play)

    def test_in_a_fresh_process_too(self, world, play):
        script = """
import json, sys
import numpy as np, headstart as hs
arms = []
bandit = hs.projected_ts(dim=4, seed=11)
for id in range(8):
    rng, task = np.random.default_rng(id), bandit.task(id)
    theta = rng.standard_normal(4)
    for _ in range(12):
        offer = rng.standard_normal((5, 4))
        choice = task.choose(offer)
        arms.append((choice.arm, choice.score.hex(), choice.propensity.hex()))
        task.learn(choice, float(offer[choice.arm] @ theta + rng.standard_normal()))
    task.close()
print(json.dumps([arms, bandit.prior.root.tolist()]))
"""
        told = [
            subprocess.run(
                [sys.executable, "-c", script], capture_output=True, text=True, check=True
            ).stdout
            for _ in range(2)
        ]
        assert told[0] == told[1]
        here = {}
        exec(
            script.replace("print(", "answer = (").replace("import json, sys", "import json"), here
        )
        assert here["answer"] == told[0].strip()
        assert len(json.loads(told[0])[0]) == 96

    def test_hash_randomisation_changes_nothing(self):
        script = """
import numpy as np, headstart as hs
bandit = hs.Bandit(dim=2, rule=hs.Thompson(), seed=3)
for id in ("a", "ü", "任务"):
    print([bandit.task(id).choose(np.eye(2)).arm for _ in range(30)])
"""
        told = {
            subprocess.run(
                [sys.executable, "-c", script],
                capture_output=True,
                check=True,
                env={"PYTHONHASHSEED": str(seed), "PATH": ""},
            ).stdout
            for seed in (1, 2)
        }
        assert len(told) == 1

    @pytest.mark.parametrize("make", [hs.lints, hs.projected_ts, hs.meta_ts, NAMED["uniform"]])
    def test_different_seeds_differ(self, make, world, play):
        tasks = tasks_of(world)
        histories = [one_after_another(make(dim=DIM, seed=seed), tasks, play) for seed in range(3)]
        assert histories[0] != histories[1] != histories[2] != histories[0]

    def test_no_seed_is_a_fresh_one(self):
        def arms():
            task = hs.Bandit(dim=2, rule=hs.Uniform()).task("a")
            return [task.choose(np.eye(2)).arm for _ in range(64)]

        assert arms() != arms()

    def test_tasks_differ_from_each_other(self):
        bandit = hs.Bandit(dim=2, rule=hs.Uniform(), seed=0)
        histories = {
            tuple(bandit.task(id).choose(np.eye(2)).arm for _ in range(64)) for id in range(20)
        }
        assert len(histories) == 20

    def test_ties_break_by_the_seed(self):
        def first_arms(seed):
            bandit = hs.Bandit(dim=2, seed=seed)
            return [bandit.task(id).choose(np.ones((3, 2))).arm for id in range(30)]

        assert first_arms(1) == first_arms(1) != first_arms(2)
        counts = np.bincount([arm for seed in range(30) for arm in first_arms(seed)], minlength=3)
        assert counts.min() > 900 / 3 - 4 * np.sqrt(900 * 2 / 9)

    def test_global_random_state_is_neither_used_nor_touched(self, world, play):
        import random

        tasks = tasks_of(world)
        np.random.seed(1)  # noqa: NPY002
        random.seed(1)
        before = hashlib.sha256(repr((random.getstate(), np.random.get_state())).encode())  # noqa: NPY002
        first = one_after_another(hs.projected_ts(dim=DIM, seed=7), tasks, play)
        after = hashlib.sha256(repr((random.getstate(), np.random.get_state())).encode())  # noqa: NPY002
        assert before.digest() == after.digest()
        np.random.seed(2)  # noqa: NPY002
        random.seed(2)
        assert first == one_after_another(hs.projected_ts(dim=DIM, seed=7), tasks, play)


def orders(tasks):
    """In turns, and at random."""
    in_turns = [id for _ in range(12) for id in tasks]
    return in_turns, np.random.default_rng(0).permutation(in_turns).tolist()


def interleaved(bandit, tasks, order):
    """The arms of each task, played a round at a time in that order."""
    arms = {id: [] for id in tasks}
    for id in order:
        at, task = len(arms[id]), bandit.task(id)
        choice = task.choose(tasks[id].offers[at])
        task.learn(choice, tasks[id].rewards[at, choice.arm])
        arms[id].append(choice.arm)
    return arms


class TestInterleaving:
    @each_that_keeps_apart
    def test_a_tasks_decisions_do_not_depend_on_when_other_tasks_play(self, make, world, play):
        """Eight open tasks: one after another, in turns, and at random."""
        tasks = tasks_of(world, count=8, rounds=12)
        apart = make(dim=DIM, seed=7)
        expected = {id: play(apart, id, rounds) for id, rounds in tasks.items()}
        for order in orders(tasks):
            assert interleaved(make(dim=DIM, seed=7), tasks, order) == expected

    def test_by_default_they_do_because_running_tasks_learn_from_each_other(self, world, play):
        tasks = tasks_of(world, count=8, rounds=12)
        apart = hs.Bandit(DIM, seed=7)
        expected = {id: play(apart, id, rounds) for id, rounds in tasks.items()}
        for order in orders(tasks):
            bandit = hs.Bandit(DIM, seed=7)
            arms = interleaved(bandit, tasks, order)
            assert arms != expected
            assert bandit.prior != hs.Bandit(DIM).prior  # though no task has finished
        assert 'running=False, units="given"' in hs.Bandit.__doc__.partition("Notes")[2]

    @pytest.mark.parametrize("name", ["bandit", "linucb", "bias_oful", "greedy", "uniform"])
    def test_nor_on_which_tasks_go_idle_unless_it_draws_through_a_root(self, name, world, play):
        """Thompson sampling may differ then, as the documentation says: roots are not unique.

        So may empirical Bayes while a task alone tells its scale, which it looks for again: here
        the noise is given.
        """
        tasks = tasks_of(world, count=8, rounds=12)
        options = {"dim": DIM, "seed": 7} | ({"noise": 0.1} if name in ("bandit", "greedy") else {})
        apart = APART[name](**options)
        expected = {id: play(apart, id, rounds) for id, rounds in tasks.items()}
        for order in orders(tasks):
            assert interleaved(APART[name](cache_size=2, **options), tasks, order) == expected
        assert "``cache_size``" in hs.Bandit.__doc__.partition("Notes")[2]

    @each_algorithm
    def test_the_same_calls_give_the_same_decisions_however_few_are_live(self, make, world):
        tasks = tasks_of(world, count=8, rounds=12)
        for order in orders(tasks):
            first, second = (
                interleaved(make(dim=DIM, seed=7, cache_size=2), tasks, order) for _ in range(2)
            )
            assert first == second

    def test_other_tasks_may_come_and_go(self, world, play):
        """Tasks made, played and deleted in between leave no trace in another one's decisions."""
        rounds = world(seed=1, rounds=20, dim=DIM)
        given = hs.EmpiricalBayes(units="given")  # the first offers of any task tell of units
        alone = play(hs.Bandit(DIM, given, hs.Thompson(), seed=7), "mine", rounds)
        bandit = hs.Bandit(DIM, given, hs.Thompson(), seed=7)
        for n in range(3):
            play(bandit, f"other {n}", world(seed=n, rounds=5, dim=DIM))
            bandit.delete(f"other {n}")
        assert play(bandit, "mine", rounds) == alone

    def test_rewards_of_other_tasks_may_come_at_any_time(self, world):
        rounds = world(seed=1, rounds=10, dim=DIM)
        histories = []
        for late in (False, True):
            bandit = hs.Bandit(DIM, ALONE, hs.Thompson(), seed=7)
            other = [bandit.task("other").choose(np.eye(DIM)) for _ in range(10)]
            if not late:
                bandit.learn(other, np.arange(10.0))
            task, arms = bandit.task("mine"), []
            for at, offer in enumerate(rounds.offers):
                choice = task.choose(offer)
                task.learn(choice, rounds.rewards[at, choice.arm])
                arms.append(choice.arm)
                if late:
                    bandit.learn(other[at], float(at))
            histories.append(arms)
        assert histories[0] == histories[1]


class TestLooking:
    @each_algorithm
    def test_asking_for_propensities_changes_nothing(self, make, world, play):
        tasks = tasks_of(world)
        plain = one_after_another(make(dim=DIM, seed=7), tasks, play)

        def play_and_ask(bandit, id, rounds):
            task, arms = bandit.task(id), []
            for offer, rewards in zip(rounds.offers, rounds.rewards, strict=True):
                choice = task.choose(offer)
                assert choice.propensities.sum() == pytest.approx(1.0)
                assert choice.propensity > 0
                task.learn(choice, rewards[choice.arm])
                assert choice.propensities.sum() == pytest.approx(1.0)
                arms.append(choice.arm)
            return arms

        assert one_after_another(make(dim=DIM, seed=7), tasks, play_and_ask) == plain

    def test_asking_in_the_middle_of_another_decision_changes_nothing(self, world, play):
        """As a thread may do at any moment; here the rule itself does it, before it draws."""
        earlier = []

        class Nosy(hs.Thompson):
            def choose(self, belief, contexts, rng, allowed=None):
                if earlier:
                    earlier.pop().propensities  # noqa: B018
                return super().choose(belief, contexts, rng, allowed)

        rounds = world(seed=1, rounds=20, dim=DIM)
        plain = play(hs.lints(dim=DIM, seed=7), "mine", rounds)
        bandit = hs.Bandit(DIM, hs.Independent(), Nosy(), seed=7)
        asked = [bandit.task("other").choose(np.eye(DIM)) for _ in range(20)]
        earlier.extend(asked)
        assert play(bandit, "mine", rounds) == plain
        assert not earlier

    def test_propensities_are_the_same_whenever_they_are_asked_for(self):
        choices = [
            hs.lints(dim=DIM, seed=7).task("a").choose(np.random.default_rng(0).normal(size=(4, 3)))
            for _ in range(2)
        ]
        choices[0].task  # noqa: B018
        np.testing.assert_array_equal(choices[0].propensities, choices[1].propensities)
        np.testing.assert_array_equal(choices[0].propensities, choices[0].propensities)

    def test_reports_priors_and_repr_change_nothing(self, world, play):
        tasks = tasks_of(world)
        plain = one_after_another(hs.projected_ts(dim=DIM, seed=7), tasks, play)
        bandit = hs.projected_ts(dim=DIM, seed=7)
        curious = {}
        for id, rounds in tasks.items():
            str(bandit.report()), repr(bandit), bandit.prior, len(bandit)
            curious[id] = play(bandit, id, rounds)
            repr(bandit.task(id)), bandit.task(id).evidence
            bandit.task(id).close()
        assert curious == plain


class TestStreams:
    """Every choice has a stream of its own, which is only looked for if it is drawn from."""

    @pytest.fixture
    def streams(self):
        return Streams(seed=5)

    def expected(self, key, choice):
        """Philox at that key and counter, from scratch."""
        source = np.random.Philox(key=key, counter=np.array([0, choice, 0, 0], dtype=np.uint64))
        return np.random.Generator(source)

    @pytest.mark.parametrize("choice", [0, 1, 7, 2**40])
    def test_it_is_philox_at_the_choices_place(self, streams, choice):
        key = streams.key("a")
        right, stream = self.expected(key, choice), Stream(streams, key, choice)
        assert stream.random() == right.random()
        np.testing.assert_array_equal(stream.standard_normal(5), right.standard_normal(5))
        assert stream.integers(1000) == right.integers(1000)
        assert stream.integers(2**32, dtype=np.uint32) == right.integers(2**32, dtype=np.uint32)
        np.testing.assert_array_equal(stream.random((2, 3)), right.random((2, 3)))
        np.testing.assert_array_equal(stream.permutation(9), right.permutation(9))

    def test_it_goes_on_and_can_start_again(self, streams):
        stream = Stream(streams, streams.key("a"), 3)
        first, second = stream.random(), stream.random()
        assert first != second
        again = stream.from_start()
        assert (again.random(), again.random()) == (first, second)
        assert (stream.key == again.key).all()
        assert stream.choice == again.choice

    def test_one_after_another_they_do_not_disturb_each_other(self, streams):
        key, other = streams.key("a"), streams.key("b")
        draws = []
        for mine, choice in ((key, 0), (other, 0), (key, 1), (key, 0)):
            stream = Stream(streams, mine, choice)
            draws.append((stream.random(), stream.integers(9), *stream.standard_normal(3)))
        assert draws[0] == draws[3]
        assert len(set(draws)) == 3

    def test_half_of_a_word_that_was_left_over_is_not_handed_on(self, streams):
        """Small whole numbers take half a word of the source, and leave the other half."""
        key = streams.key("a")
        untouched = [int(n) for n in self.expected(key, 1).integers(0, 2**31, 3, dtype=np.int32)]
        Stream(streams, key, 0).integers(0, 2**31, 1, dtype=np.int32)
        found = Stream(streams, key, 1).integers(0, 2**31, 3, dtype=np.int32)
        assert found.tolist() == untouched

    def test_it_is_looked_for_only_if_it_is_drawn_from(self, streams, monkeypatch):
        asked = []
        real = streams.at
        monkeypatch.setattr(streams, "at", lambda *a, **o: asked.append(a[1]) or real(*a, **o))
        stream = Stream(streams, streams.key("a"), 4)
        assert asked == []
        stream.random(), stream.random()
        assert asked == [4]

    def test_decisions_without_luck_draw_nothing(self, monkeypatch):
        bandit = hs.Bandit(DIM, hs.Independent(), noise=0.3, seed=0)
        monkeypatch.setattr(Streams, "at", lambda *arguments: pytest.fail("it was drawn from"))
        for at in range(5):
            offer = np.random.default_rng(at).standard_normal((4, DIM))
            bandit.learn(bandit.task("a").choose(offer), 1.0)
        bandit.choose_many(["a", "b"], np.random.default_rng(0).normal(size=(2, 4, DIM)))

    def test_it_has_all_methods_of_a_generator_and_no_others(self, streams):
        stream = Stream(streams, streams.key("a"), 0)
        methods = [
            name
            for name in dir(np.random.Generator)
            if not name.startswith("_") and callable(getattr(np.random.Generator, name))
        ]
        assert "choice" in methods
        assert [name for name in methods if not callable(getattr(stream, name))] == []
        with pytest.raises(AttributeError):
            stream.nonsense  # noqa: B018

    def test_a_rule_of_ones_own_may_use_all_of_a_generator(self, world, play):
        class Drawn(hs.Uniform):
            def choose(self, belief, contexts, rng, allowed=None):
                order = rng.permutation(len(contexts))
                rng.shuffle(order)
                arm = int(rng.choice(order, p=np.full(len(order), 1 / len(order))))
                return Pick(arm, 0.0, True)

        rounds = world(seed=1, rounds=12, dim=DIM)
        games = [play(hs.Bandit(DIM, rule=Drawn(), seed=7), "mine", rounds) for _ in range(2)]
        assert games[0] == games[1]
        assert len(set(games[0])) > 1

    def test_and_hand_it_on_to_other_libraries(self):
        """The interface says that it is a NumPy generator."""

        class Borrowed(hs.Uniform):
            def choose(self, belief, contexts, rng, allowed=None):
                share = dirichlet.rvs(np.ones(len(contexts)), random_state=rng)[0]
                return Pick(int(share.argmax()), 0.0, True)

        task = hs.Bandit(DIM, rule=Borrowed(), seed=7).task("a")
        assert {task.choose(np.eye(DIM)).arm for _ in range(20)} == {0, 1, 2}


REWARDS = {
    "dense": lambda rng, mean, task, at: mean + 0.3 * rng.standard_normal(),
    "clicks": lambda rng, mean, task, at: float(rng.random() < 0.15),
    "nothing in the first task": lambda rng, mean, task, at: (
        0.0 if task == 0 else mean + 0.3 * rng.standard_normal()
    ),
    "nothing in the first rounds": lambda rng, mean, task, at: (
        0.0 if at < 2 else mean + 0.3 * rng.standard_normal()
    ),
    "all alike": lambda rng, mean, task, at: 1.0,
    "without noise": lambda rng, mean, task, at: mean,
}


class TestUnits:
    """With noise="auto" nothing depends on the rewards' unit: cents or euros, it decides alike."""

    @pytest.mark.parametrize("kind", REWARDS)
    @each_algorithm
    def test_rewards_in_another_unit_change_no_decision(self, make, kind):
        def history(unit):
            bandit, arms = make(dim=DIM, seed=7), []
            for id in range(6):
                rng, task = np.random.default_rng(id), bandit.task(id)
                for at in range(14):
                    offer = rng.standard_normal((5, DIM))
                    choice = task.choose(offer)
                    mean = float(offer[choice.arm] @ [1.0, 0.5, 0.2])
                    task.learn(choice, unit * REWARDS[kind](rng, mean, id, at))
                    arms.append(choice.arm)
                task.close()
            return arms

        plain = history(1.0)
        # Powers of two scale without rounding: the decisions must agree even where scores tie.
        assert history(1024.0) == plain
        assert history(1 / 1024) == plain
        if kind in ("dense", "clicks"):
            assert history(1000.0) == plain
            assert history(0.001) == plain

    @each_algorithm
    def test_what_is_believed_scales_with_the_rewards(self, make, world, play):
        priors = []
        for unit in (1.0, 1024.0):
            bandit = make(dim=DIM, seed=7)
            for id, rounds in tasks_of(world).items():
                rounds.rewards *= unit
                play(bandit, id, rounds)
                bandit.task(id).close()
            priors.append(bandit.prior)
        np.testing.assert_allclose(priors[1].mean, 1024 * priors[0].mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(
            priors[1].covariance, 1024**2 * priors[0].covariance, rtol=1e-9, atol=1e-9
        )
        assert priors[1].noise == pytest.approx(1024 * priors[0].noise)
