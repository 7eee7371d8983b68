"""The literature's algorithms by name: what each one is, and that it learns."""

import inspect

import numpy as np
import pytest

import headstart as hs
from headstart import algorithms

DIM, RANK, NOISE = 8, 2, 0.2
BASIS = np.linalg.qr(np.random.default_rng(3).standard_normal((DIM, DIM)))[0]
MEAN = 1.0 * BASIS[:, -1]
COVARIANCE = 0.49 * BASIS[:, :RANK] @ BASIS[:, :RANK].T

ORACLES = {
    "projection_oracle": {"mean": MEAN, "basis": BASIS[:, :RANK]},
    "bayes_oracle": {"mean": MEAN, "covariance": COVARIANCE},
}
NAMES = [
    "linucb",
    "lints",
    "bias_oful",
    "projected_linucb",
    "projected_ts",
    "meta_ts",
    "meta_ts_unforced",
    *ORACLES,
]
OWN = {"empirical_bayes", "empirical_bayes_ts", "mixture"}  # headstart's, not at its top level


def make(name, dim=DIM, **options):
    return getattr(hs, name)(dim=dim, **ORACLES.get(name, {}) | options)


PRINTED = [name for name in NAMES if algorithms.ALGORITHMS[name].printed is not None]

each_name = pytest.mark.parametrize("name", NAMES)

RECIPES = {
    "linucb": (hs.Independent, hs.UCB),
    "lints": (hs.Independent, hs.Thompson),
    "bias_oful": (hs.Bias, hs.UCB),
    "projected_linucb": (hs.Subspace, hs.UCB),
    "projected_ts": (hs.Subspace, hs.Thompson),
    "meta_ts": (hs.Gaussian, hs.Forced),
    "meta_ts_unforced": (hs.Gaussian, hs.Thompson),
    "projection_oracle": (hs.Oracle, hs.UCB),
    "bayes_oracle": (hs.Oracle, hs.UCB),
}


class TestWhatTheyAre:
    def test_every_constructor_is_listed_here(self):
        assert all(getattr(hs, name) is getattr(algorithms, name) for name in NAMES)
        assert set(NAMES) | OWN == set(algorithms.ALGORITHMS)
        assert set(algorithms.ALGORITHMS) < set(algorithms.__all__)

    @pytest.mark.parametrize("name", algorithms.ALGORITHMS)
    def test_the_registry_and_the_signature_agree(self, name):
        """A constructor's options are those of the registry, with the same defaults."""
        entry, signature = (
            algorithms.ALGORITHMS[name],
            inspect.signature(getattr(algorithms, name)).parameters,
        )
        for option, default in entry.options.items():
            assert signature[option].default == default
        assert ("paper" in entry.options) == (entry.printed is not None)
        assert set(entry.printed or ()) <= set(entry.options)
        assert entry.summary.endswith(".")

    def test_headstarts_own_are_built_too(self):
        default = algorithms.empirical_bayes(DIM, 3)
        assert (default.transfer, default.rule) == (hs.EmpiricalBayes(), hs.UCB())
        assert default.task("a").belief.dim == DIM + 1
        assert algorithms.mixture(DIM, groups=2).transfer == hs.Mixture(groups=2)
        assert algorithms.empirical_bayes_ts(DIM).rule == hs.Thompson()

    @each_name
    def test_each_is_one_transfer_and_one_rule(self, name):
        bandit = make(name, seed=0)
        transfer, rule = RECIPES[name]
        assert type(bandit) is hs.Bandit
        assert type(bandit.transfer) is transfer
        assert type(bandit.rule) is rule

    @each_name
    def test_each_takes_dim_and_seed_by_name_and_by_position(self, name):
        signature = inspect.signature(getattr(hs, name))
        assert list(signature.parameters)[:2] == ["dim", "seed"]
        arms = []
        for bandit in (
            make(name, seed=4),
            getattr(hs, name)(DIM, 4, **ORACLES.get(name, {})),
        ):
            task = bandit.task("a")
            arms.append([task.choose(np.ones((5, DIM))).arm for _ in range(20)])
        assert arms[0] == arms[1]
        assert bandit.dim == DIM

    @each_name
    def test_each_passes_on_what_a_bandit_takes(self, name):
        options = {} if name in ORACLES else {"intercept": True}
        bandit = make(name, seed=0, noise=0.3, cache_size=2, choice_window=3, **options)
        assert bandit.prior.noise == 0.3
        task = bandit.task("a")
        assert task.belief.dim == DIM + len(options)
        first = task.choose(np.ones((2, DIM)))
        for _ in range(3):
            task.choose(np.ones((2, DIM)))
        with pytest.raises(hs.ChoiceError, match="older than the 3"):
            task.learn(first, 1.0)

    @each_name
    @pytest.mark.parametrize("dim", [0, -1, 2.5, True, None, "8", [8]], ids=repr)
    def test_a_bad_dimension_is_refused_by_name(self, name, dim):
        with pytest.raises(hs.InputError, match="dim must be"):
            make(name, dim=dim)

    @pytest.mark.parametrize("name", ["projected_linucb", "projected_ts", "bias_oful"])
    @pytest.mark.parametrize("dim", [0, 2.5, None, "8"], ids=repr)
    def test_in_the_printed_form_too(self, name, dim):
        with pytest.raises(hs.InputError, match="dim must be"):
            make(name, dim=dim, paper=True)

    def test_how_much_to_explore_can_be_set(self):
        assert hs.linucb(DIM, radius=2.0).rule == hs.UCB(2.0)
        assert hs.lints(DIM, scale=0.5).rule == hs.Thompson(0.5)
        assert hs.bias_oful(DIM, radius="theory", noise=0.1).rule == hs.UCB("theory")
        assert hs.projected_linucb(DIM, radius=0.1).rule == hs.UCB(0.1)
        assert hs.projected_ts(DIM, scale=0.1).rule == hs.Thompson(0.1)
        assert hs.meta_ts(DIM, scale=0.1).rule == hs.Forced(2 * DIM, hs.Thompson(0.1))

    def test_defaults_need_no_tuning(self):
        """λ is learned, not guessed, wherever there is something to learn it from."""
        assert hs.bias_oful(DIM).transfer.lam == "plug-in"
        for bandit in (hs.projected_linucb(DIM), hs.projected_ts(DIM)):
            assert (bandit.transfer.lam1, bandit.transfer.lam2) == ("plug-in", "plug-in")
            assert bandit.transfer.rank == "log-gap"
            assert bandit.transfer.pca == "corrected"

    def test_the_printed_forms(self):
        projected = hs.projected_linucb(DIM, paper=True)
        assert projected.rule == hs.UCB("paper")
        assert projected.transfer == hs.projected_ts(DIM, paper=True).transfer
        assert projected.transfer.rank == "paper"
        assert projected.transfer.pca == "paper"
        assert projected.transfer.pca_method().form == "paper"
        assert projected.transfer.min_rounds == 1  # Algorithm 1 leaves no task out
        assert projected.transfer.shrink == "zero"
        assert projected.transfer.lam2 == "paper"
        assert projected.transfer.warmup == DIM - 1  # “if t < d”, with t − 1 tasks finished
        assert hs.projected_ts(DIM, paper=True).rule == hs.Thompson("paper")
        cella = hs.bias_oful(DIM, noise=0.1, paper=True)
        assert cella.transfer.lam == "theory"
        assert cella.rule == hs.UCB("theory")

    @pytest.mark.parametrize(
        ("name", "given"),
        [
            ("linucb", {"lam": 2.0}),
            ("linucb", {"radius": 1.0}),
            ("lints", {"lam": 2.0, "scale": 0.5}),
            ("bias_oful", {"lam": "plug-in", "radius": 1.0, "noise": 0.1}),
            ("projected_linucb", {"rank": 3, "radius": 7.0}),
            ("projected_linucb", {"lam1": 50.0}),
            ("projected_linucb", {"lam1": [100.0]}),
            ("projected_ts", {"rank": "log-gap"}),
            ("projected_ts", {"scale": 1.0, "lam2": 1.0}),
            ("projected_linucb", {"pca": "exact", "warmup": 4}),
            ("linucb", {"lam": 1.0, "bound": 2.0}),
            ("projection_oracle", {"lam1": 25.0, "radius": 1.0}),
            ("meta_ts", {"forced_rounds": 5, "estimate": "ridge"}),
            ("meta_ts", {"scale": "paper"}),
        ],
        ids=repr,
    )
    def test_what_contradicts_the_printed_form_is_refused_by_name(self, name, given):
        """A setting that is the default elsewhere too, if the printed form has another."""
        with pytest.raises(hs.InputError, match="must be left out with paper=True") as caught:
            make(name, **given, paper=True)
        message = str(caught.value).partition(" must be")[0]
        assert set(message.split(" and ")) == set(given) - {"noise", "bound"}

    def test_what_agrees_with_the_printed_form_is_taken(self):
        told = make("projected_linucb", rank="paper", lam1=100, noise=0.1, paper=True)
        assert told.transfer == make("projected_linucb", paper=True).transfer
        assert make("meta_ts", scale=1.0, paper=True).rule == make("meta_ts", paper=True).rule
        assert make("bias_oful", method="pooled", noise=0.1, paper=True).transfer.method == "pooled"

    def test_the_papers_constants_are_parameters_of_the_printed_form(self):
        """n, V, δ and α: the horizon, the bound, the probability and the Thompson constant."""
        constants = {"horizon": 100, "bound": 2.0, "delta": 0.05}
        for name in ("linucb", "projected_linucb", "projection_oracle"):
            assert make(name, paper=True, **constants).rule == hs.UCB("paper", 0.05, 100)
        for name in ("lints", "projected_ts"):
            rule = make(name, paper=True, alpha=0.3, **constants).rule
            assert rule == hs.Thompson("paper", delta=0.05, horizon=100, alpha=0.3)
        for name in ("linucb", "lints"):
            assert make(name, paper=True, **constants).transfer.lam == 0.25  # 1/V²
        assert make("projection_oracle", paper=True, **constants).transfer.lam2 == 0.25
        subspace = make("projected_linucb", paper=True, **constants).transfer
        assert (subspace.horizon, subspace.bound) == (100, 2.0)
        cella = make("bias_oful", paper=True, noise=0.1, **constants)
        assert (cella.transfer.horizon, cella.transfer.bound) == (100, 2.0)
        assert cella.rule == hs.UCB("theory", 0.05, 100)

    @pytest.mark.parametrize("paper", [1, 0, "no", None], ids=repr)
    @pytest.mark.parametrize("name", PRINTED)
    def test_paper_is_true_or_false(self, name, paper):
        with pytest.raises(hs.InputError, match="paper must be True or False"):
            make(name, paper=paper)

    def test_every_setting_of_the_printed_form_is_one_of_the_constructor(self):
        """And each constructor that has a printed form names what it stands for."""
        for name in NAMES:
            signature = inspect.signature(getattr(hs, name)).parameters
            assert ("paper" in signature) == (name in PRINTED)

    def test_meta_ts_forces_twice_the_dimension_or_what_is_asked(self):
        assert hs.meta_ts(5).rule.rounds == 10
        assert hs.meta_ts(5, intercept=True).rule.rounds == 12
        assert hs.meta_ts(5, forced_rounds=3).rule.rounds == 3
        control = hs.meta_ts_unforced(5)
        assert control.rule == hs.Thompson()
        assert not control.transfer.forced

    def test_oracles_start_from_the_truth(self):
        bandit = make("bayes_oracle", noise=NOISE)
        np.testing.assert_allclose(bandit.prior.mean, MEAN)
        np.testing.assert_allclose(bandit.prior.covariance, COVARIANCE, atol=1e-12)
        bandit = make("projection_oracle", lam1=25.0, lam2=4.0, radius=2.0)
        inside = BASIS[:, :RANK] @ BASIS[:, :RANK].T
        np.testing.assert_allclose(bandit.prior.mean, MEAN, atol=1e-12)
        np.testing.assert_allclose(
            bandit.prior.root, 0.5 * inside + 0.2 * (np.eye(DIM) - inside), atol=1e-12
        )
        assert bandit.rule == hs.UCB(2.0)

    def test_oracles_of_another_dimension_are_refused(self):
        with pytest.raises(hs.InputError, match="dim must be"):
            hs.bayes_oracle(dim=3, mean=MEAN, covariance=COVARIANCE)


PLANE = 0.7 * BASIS[:, :RANK] @ BASIS[:, :RANK].T  # tasks differ along two directions only
POINT = 0.1 * np.eye(DIM)  # tasks scatter closely around their mean


def regrets(bandit, seed, shape=PLANE, tasks=40, rounds=40, arms=5):
    """The regret of each round of many related tasks, one after another."""
    rng = np.random.default_rng(seed)
    each = np.empty((tasks, rounds))
    for id in range(tasks):
        theta = MEAN + shape @ rng.standard_normal(DIM)
        task = bandit.task(id)
        for at in range(rounds):
            offer = rng.standard_normal((arms, DIM))
            offer /= np.linalg.norm(offer, axis=1, keepdims=True)
            choice = task.choose(offer)
            worth = offer @ theta
            task.learn(choice, worth[choice.arm] + NOISE * rng.standard_normal())
            each[id, at] = worth.max() - worth[choice.arm]
        task.close()
    return each


class TestLearning:
    @each_name
    def test_within_a_task_later_rounds_are_better(self, name, world):
        """Regret per round falls in a long task, unless the start was as good already."""
        early = late = 0.0
        for seed in range(3):
            bandit = make(name, seed=seed)
            rounds = world(seed, 200, DIM, theta=MEAN + BASIS[:, 0], noise=NOISE)
            task = bandit.task("a")
            for at, offer in enumerate(rounds.offers):
                choice = task.choose(offer)
                task.learn(choice, rounds.rewards[at, choice.arm])
                if at < 40:
                    early += rounds.regrets[at, choice.arm]
                elif at >= 160:
                    late += rounds.regrets[at, choice.arm]
        assert late < (0.9 if name in ORACLES else 0.5) * early + 0.5

    @pytest.mark.parametrize(
        ("name", "options", "shape"),
        [
            ("bias_oful", {}, POINT),
            ("bias_oful", {"method": "pooled"}, POINT),
            ("projected_linucb", {}, PLANE),
            ("projected_ts", {}, PLANE),
            ("meta_ts_unforced", {}, PLANE),
        ],
        ids=["bias", "pooled", "projected_linucb", "projected_ts", "control"],
    )
    @pytest.mark.parametrize("seed", range(4))
    def test_late_tasks_have_a_head_start(self, name, options, shape, seed):
        """The last tasks cost much less than the first ones."""
        each = regrets(make(name, seed=seed, noise=NOISE, **options), seed, shape).sum(1)
        assert each[-15:].mean() < 0.75 * each[:5].mean()

    @pytest.mark.parametrize("seed", range(4))
    def test_after_its_forced_rounds_meta_ts_is_ahead_too(self, seed):
        """The forced rounds cost what they cost, in every task; those that follow are better."""
        bandit = make("meta_ts", seed=seed, noise=NOISE)
        forced = bandit.rule.rounds
        each = regrets(bandit, seed)[:, forced : forced + 10].sum(1)
        assert each[-15:].mean() < 0.75 * each[:5].mean()

    @pytest.mark.parametrize("seed", range(4))
    def test_so_have_those_of_the_default(self, seed):
        """Ahead of lone learners that meet the same tasks: by then its own first ones were, too."""
        each = regrets(hs.Bandit(DIM, seed=seed), seed).sum(1)
        lone = regrets(make("linucb", seed=seed), seed).sum(1)
        assert each[-15:].mean() < 0.75 * lone[-15:].mean()
        assert each.sum() < 0.85 * lone.sum()

    def test_independent_learners_have_none(self):
        each = np.mean(
            [regrets(make("linucb", seed=seed, noise=NOISE), seed).sum(1) for seed in range(4)], 0
        )
        assert each[-15:].mean() == pytest.approx(each[:5].mean(), rel=0.2)

    def test_learned_priors_come_between_independent_ones_and_the_truth(self):
        totals = dict.fromkeys(("linucb", "projected_linucb", "bayes_oracle"), 0.0)
        for seed in range(3):
            for name in totals:
                totals[name] += regrets(make(name, seed=seed), seed).sum()
        assert totals["bayes_oracle"] < totals["projected_linucb"] < 0.85 * totals["linucb"]
