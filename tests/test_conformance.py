"""Every rule, transfer and belief of the library, through the public checks of headstart.testing.

A new one is picked up as soon as it exists. If it cannot be made without arguments, or has settings
to refuse, the suite fails until an example stands in ``EXAMPLES`` and a refusal in ``REFUSED``.
"""

import contextlib
import copy
import dataclasses
import importlib
import inspect
import pkgutil
import warnings

import numpy as np
import pytest
import scipy.stats

import headstart as hs
from headstart.model.mixture import MixturePrior
from headstart.settings import SETTINGS
from headstart.testing import BELIEF_CHECKS, RULE_CHECKS, SETTINGS_CHECKS, TRANSFER_CHECKS
from headstart.testing.samples import (
    divergence,
    evidence_for,
    evidence_of,
    options_for,
    play,
    require_same,
    state_after,
)

DIM = 3
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]

#: Settings worth testing; the defaults of each kind are added where there are any.
EXAMPLES = {
    hs.UCB: [
        hs.UCB(2.5),
        hs.UCB("theory", delta=0.1),
        hs.UCB("paper"),
        hs.UCB(explore=0.3),
        hs.UCB(explore=0.2, probability=(0.05, 0.6)),
    ],
    hs.Thompson: [
        hs.Thompson(0.5, draws=400),
        hs.Thompson("paper", horizon=9),
        hs.Thompson("theory", alpha=0.5),
        hs.Thompson(probability=(0.1, 0.7)),
    ],
    hs.Greedy: [hs.Greedy(explore=0.2)],
    hs.Uniform: [],
    hs.Forced: [
        hs.Forced(4, hs.UCB()),
        hs.Forced(2, hs.Thompson(explore=0.1)),
        hs.Forced(4, hs.Greedy(), probability=(0.1, 0.8)),
    ],
    hs.Independent: [hs.Independent("plug-in"), hs.Independent("theory"), hs.Independent(3.0)],
    hs.Bias: [hs.Bias("pooled", 2.0), hs.Bias(lam="theory", min_rounds=3)],
    hs.Subspace: [
        hs.Subspace(rank=1, warmup=2, min_rounds=1, lam1=25.0, lam2=2.0),
        hs.Subspace(rank="ungated", shrink="mean", warmup=3),
        hs.Subspace(rank="paper", pca="ccipca", lam2="paper", lam1=25.0),
        hs.Subspace(rank=2, pca=hs.CCIPCA("weng", amnesia=1.0), warmup=2, lam2="theory"),
    ],
    hs.Gaussian: [hs.Gaussian(forced=False, warmup=2), hs.Gaussian(estimate="ridge", warmup=4)],
    hs.EmpiricalBayes: [
        hs.EmpiricalBayes(decay_tasks=20.0, low_rank=False),
        hs.EmpiricalBayes(decay_tasks=5, running=False),
    ],
    hs.Mixture: [hs.Mixture(groups=1), hs.Mixture(groups=3)],
    hs.Oracle: [
        hs.Oracle.gaussian([1.0, 0.0, -1.0], np.diag([1.0, 0.5, 0.1])),
        hs.Oracle.subspace([1.0, 0.0, -1.0], BASIS[:, :1], lam1=50.0),
        hs.Oracle.subspace(np.zeros(DIM), BASIS[:, :2], residual=0.1),
    ],
}

#: Settings that must be refused: the argument at fault, and all that is given.
REFUSED = {
    hs.UCB: [
        *(("radius", {"radius": bad}) for bad in (-1.0, "wide", None, float("nan"), True)),
        *(("delta", {"delta": bad}) for bad in (0.0, 1.0, -1, "x")),
        *(("horizon", {"horizon": bad}) for bad in (1, 2.5, None)),
        *(("explore", {"explore": bad}) for bad in (2, -0.1, None, "x", float("nan"))),
        *(("probability", {"probability": bad}) for bad in (0.5, (0.5, 0.2), (0, 2), "ab", (0.1,))),
    ],
    hs.Thompson: [
        *(("scale", {"scale": bad}) for bad in (-1.0, "wide", None, float("inf"))),
        *(("draws", {"draws": bad}) for bad in (0, 2.5, None)),
        ("delta", {"delta": 1.5}),
        ("horizon", {"horizon": 0}),
        *(("alpha", {"alpha": bad}) for bad in (0, 1.5, -1, "x", float("nan"))),
        ("explore", {"explore": 2}),
        ("probability", {"probability": 0.5}),
    ],
    hs.Greedy: [("explore", {"explore": 2}), ("probability", {"probability": (0.3, 0.3)})],
    hs.Uniform: [("probability", {"probability": (-0.1, 1.0)})],
    hs.Forced: [
        ("probability", {"rounds": 3, "then": hs.UCB(), "probability": (0.1, 1.1)}),
        *(("rounds", {"rounds": bad, "then": hs.UCB()}) for bad in (-1, 2.5, None, True)),
        *(("then", {"rounds": 3, "then": bad}) for bad in (None, "ucb", hs.UCB, hs.Bias())),
    ],
    hs.Independent: [
        *(("lam", {"lam": bad}) for bad in (0, -1, "x", None, float("nan"))),
        ("bound", {"bound": 0}),
        ("ridge", {"ridge": -1}),
    ],
    hs.Bias: [
        ("method", {"method": "median"}),
        *(("lam", {"lam": bad}) for bad in (0, "x", None)),
        ("ridge", {"ridge": 0}),
        ("horizon", {"horizon": 1}),
        ("bound", {"bound": -1}),
        ("min_rounds", {"min_rounds": 0}),
    ],
    hs.Subspace: [
        *(("rank", {"rank": bad}) for bad in (-1, 1.5, "x", None, True)),
        *(("pca", {"pca": bad}) for bad in ("x", None, hs.ExactPCA)),
        ("shrink", {"shrink": "x"}),
        *(("lam1", {"lam1": bad}) for bad in (0, -1, "x", None)),
        *(("lam2", {"lam2": bad}) for bad in (0, -1, "x", None)),
        ("warmup", {"warmup": -1}),
        ("ridge", {"ridge": 0}),
        ("horizon", {"horizon": 1}),
        ("bound", {"bound": 0}),
        ("residual", {"residual": -1}),
        ("min_rounds", {"min_rounds": 1.5}),
    ],
    hs.Gaussian: [
        ("forced", {"forced": "yes"}),
        ("estimate", {"estimate": "x"}),
        ("ridge", {"ridge": 0}),
        ("widen", {"widen": -1}),
        ("floor", {"floor": 0}),
        ("warmup", {"warmup": 1}),
        ("lam", {"lam": 0}),
    ],
    hs.EmpiricalBayes: [
        *(("units", {"units": bad}) for bad in ("metric", None, 1)),
        *(("constant", {"constant": bad}) for bad in (None, 1, "yes")),
        *(("free_intercept", {"free_intercept": bad}) for bad in (None, 1, "yes")),
        *(
            ("decay_tasks", {"decay_tasks": bad})
            for bad in (0, 0.5, -1, "x", None, True, float("nan"))
        ),
        *(("running", {"running": bad}) for bad in (None, 1, 0.0, "yes")),
        *(("low_rank", {"low_rank": bad}) for bad in (None, 1, 0.0, "yes")),
    ],
    hs.Mixture: [
        *(("groups", {"groups": bad}) for bad in (0, -1, 2.5, "x", None, True, float("nan"))),
        *(("units", {"units": bad}) for bad in ("metric", None, 1)),
        *(("constant", {"constant": bad}) for bad in (None, 1, "yes")),
        *(("free_intercept", {"free_intercept": bad}) for bad in (None, 1, "yes")),
    ],
    hs.Oracle: [
        ("mean", {"mean": "x", "covariance": np.eye(DIM)}),
        ("mean", {"mean": [np.nan] * DIM, "covariance": np.eye(DIM)}),
        ("mean", {"mean": 1.0, "covariance": np.eye(DIM)}),
        ("covariance", {"mean": np.zeros(DIM), "covariance": np.eye(2)}),
        ("covariance", {"mean": np.zeros(DIM), "covariance": -np.eye(DIM)}),
        ("covariance", {"mean": np.zeros(DIM), "covariance": np.triu(np.ones((DIM, DIM)))}),
        ("basis", {"mean": np.zeros(DIM), "basis": np.ones((DIM, 2))}),
        ("basis", {"mean": np.zeros(DIM), "basis": np.eye(4)}),
        ("covariance", {"mean": np.zeros(DIM)}),
        ("lam1", {"mean": np.zeros(DIM), "basis": BASIS, "lam1": 0}),
        ("lam2", {"mean": np.zeros(DIM), "basis": BASIS, "lam2": "x"}),
        ("bound", {"mean": np.zeros(DIM), "basis": BASIS, "bound": 0}),
        ("residual", {"mean": np.zeros(DIM), "basis": BASIS, "residual": -1}),
    ],
}

#: Those that are fitted by iteration, with as much regularisation as has predicted well: what they
#: make of tasks depends a little on the way there, so that it is close where others are exact.
ITERATED = (hs.EmpiricalBayes, hs.Mixture)
CLOSE = 0.05  # nats per dimension; to leave one of seven tasks out makes a difference of about 0.02


def found(base):
    """Every kind that the library itself defines; the laboratory's adapters are its own matter."""
    for module in pkgutil.walk_packages(hs.__path__, "headstart.", onerror=lambda name: None):
        if not module.name.endswith(("cli", "__main__")):
            with contextlib.suppress(ImportError):  # of a part that needs more than the core
                importlib.import_module(module.name)
    kinds, waiting = [], [base]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        ours = kind.__module__.startswith("headstart.")
        ours = ours and not kind.__module__.startswith(("headstart.lab.", "headstart.testing."))
        if ours and not inspect.isabstract(kind):
            kinds.append(kind)
    return sorted(set(kinds), key=lambda kind: kind.__name__)


def examples_of(kind):
    """The registered examples of a kind, and its defaults where it has any."""
    listed = list(EXAMPLES.get(kind, []))
    needs = [
        parameter.name
        for parameter in inspect.signature(kind).parameters.values()
        if parameter.default is parameter.empty
    ]
    if not needs:
        listed.insert(0, kind())
    return listed


RULES = [rule for kind in found(hs.Rule) for rule in examples_of(kind)]
TRANSFERS = [transfer for kind in found(hs.Transfer) for transfer in examples_of(kind)]


def label(thing):
    """A name that does not change from run to run."""
    return repr(thing)[:70]


def alternatives(thing):
    return [other for other in RULES + TRANSFERS if other is not thing]


each_rule = pytest.mark.parametrize("rule", RULES, ids=label)
each_transfer = pytest.mark.parametrize("transfer", TRANSFERS, ids=label)
each_of_both = pytest.mark.parametrize("thing", RULES + TRANSFERS, ids=label)
PRIORS = [
    hs.Prior.isotropic(DIM, lam=2.0, noise=0.5),
    hs.Prior.gaussian(np.arange(3.0), np.diag([1.0, 0.5, 0.0]), noise=0.2),
    MixturePrior(
        hs.Prior([np.zeros(DIM), np.ones(DIM)], [np.eye(DIM), 0.5 * np.eye(DIM)], noise=0.5),
        np.log([0.3, 0.7]),
    ),
]


def each_check(checks):
    return pytest.mark.parametrize("check", checks, ids=lambda check: check.__name__)


each_kind = pytest.mark.parametrize(
    "kind", found(hs.Rule) + found(hs.Transfer), ids=lambda kind: kind.__name__
)


def assert_same(transfer, left, right):
    """One prior, up to rounding; or nearly one, where it is fitted by iteration."""
    require_same(left, right, tolerance_of(transfer))


def tolerance_of(transfer):
    return CLOSE if isinstance(transfer, ITERATED) else 0.0


def states_a_bound(transfer):
    """Whether its priors bound how far θ* may be from their mean."""
    return np.isfinite(getattr(transfer.prior(transfer.init(DIM, 0.3)), "bias", np.inf))


class TestEveryKindIsCovered:
    def test_they_are_found(self):
        assert {hs.UCB, hs.Thompson, hs.Greedy, hs.Uniform, hs.Forced} <= set(found(hs.Rule))
        learning = {hs.Bias, hs.Subspace, hs.Gaussian, hs.EmpiricalBayes, hs.Mixture}
        assert {hs.Independent, hs.Oracle} | learning <= set(found(hs.Transfer))

    @each_kind
    def test_each_has_an_example(self, kind):
        assert examples_of(kind), f"put an example of {kind.__name__} into EXAMPLES"

    @each_kind
    def test_each_has_settings_that_are_refused(self, kind):
        names = {field.name for field in dataclasses.fields(kind)}
        refused = {name for name, _ in REFUSED.get(kind, [])}
        assert names == refused, f"show in REFUSED how {kind.__name__} refuses {names - refused}"

    @each_kind
    def test_each_is_public_documented_and_can_be_named_in_a_file(self, kind):
        assert getattr(hs, kind.__name__) is kind
        assert inspect.getdoc(kind)
        assert SETTINGS[f"headstart.{kind.__name__}"] is kind


class TestSettings:
    @each_of_both
    def test_it_prints_as_it_is_written(self, thing):
        names = {name: getattr(hs, name) for name in hs.__all__}
        text = repr(thing)
        assert text == repr(copy.deepcopy(thing))
        assert text.startswith(type(thing).__name__ + "(")
        assert "0x" not in text
        if "<array" not in text:
            assert eval(text, names | {"array": np.array}) == thing

    def test_no_two_examples_print_alike(self):
        texts = [repr(thing) for thing in RULES + TRANSFERS]
        assert len(set(texts)) == len(texts)

    @each_of_both
    def test_equal_to_nothing_else(self, thing):
        assert all(thing != other for other in alternatives(thing))
        assert thing != repr(thing)
        assert thing is not None

    @each_of_both
    @each_check(SETTINGS_CHECKS)
    def test_it_passes_the_public_checks(self, thing, check):
        check(thing)

    @pytest.mark.parametrize(
        ("kind", "name", "options"),
        [
            pytest.param(kind, name, options, id=f"{kind.__name__}-{name}-{at}")
            for kind, cases in REFUSED.items()
            for at, (name, options) in enumerate(cases)
        ],
    )
    def test_bad_settings_are_refused_by_name(self, kind, name, options):
        with pytest.raises(hs.InputError, match=name) as caught:
            kind(**options)
        assert isinstance(caught.value, ValueError)


@each_rule
@each_check(RULE_CHECKS)
def test_every_rule_passes_the_public_checks(rule, check):
    check(rule)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
@each_check(BELIEF_CHECKS)
def test_every_belief_passes_the_public_checks(prior, check):
    check(prior.belief())


class TestTransfers:
    @each_transfer
    @each_check(TRANSFER_CHECKS)
    def test_it_passes_the_public_checks(self, transfer, check):
        check(transfer, tolerance_of(transfer))

    @each_transfer
    def test_it_states_a_bound_at_any_time_or_at_none(self, transfer):
        for tasks in (0, 1, 2, 3, 8):
            evidences = [evidence_of(seed) for seed in range(tasks)]
            prior = transfer.prior(state_after(transfer, evidences, noise=0.3)).as_gaussian()
            assert np.isfinite(prior.bias) == states_a_bound(transfer)

    def test_those_that_learn_nothing_say_so(self):
        for transfer in TRANSFERS:
            learns = transfer == hs.Independent("plug-in") or not isinstance(
                transfer, (hs.Independent, hs.Oracle)
            )
            assert transfer.prior_is_known(0.4) != learns
            assert not transfer.prior_is_known(None)

    @each_transfer
    def test_refitting_nothing_is_refused(self, transfer):
        with pytest.raises(hs.InputError, match="evidences"):
            transfer.refit([])

    @each_transfer
    def test_a_task_of_weight_zero_changes_nothing(self, transfer):
        evidences = [evidence_of(seed) for seed in range(6)]
        state = state_after(transfer, evidences)
        after = transfer.fold(state, evidence_for(transfer, evidence_of(77)), 0.0)
        left, right = transfer.prior(after).as_gaussian(), transfer.prior(state).as_gaussian()
        np.testing.assert_allclose(left.mean, right.mean)
        np.testing.assert_allclose(left.root, right.root)
        assert left.noise == right.noise

    @each_transfer
    def test_what_is_not_reversible_refuses_a_negative_weight(self, transfer):
        state = state_after(transfer, [evidence_of(seed) for seed in range(6)])
        extra = evidence_for(transfer, evidence_of(77))
        longer = transfer.fold(state, extra, 1.0)
        if not transfer.reversible:
            with pytest.raises(hs.InputError, match="weight"):
                transfer.fold(longer, extra, -1.0)
            return
        fades = (
            getattr(transfer, "decay_tasks", "auto") != "auto"
        )  # then the others count less for good
        if isinstance(transfer, ITERATED) and not fades:  # most of what it had changed is gone
            never = transfer.prior(state).as_gaussian()
            back = transfer.prior(transfer.fold(longer, extra, -1.0)).as_gaussian()
            assert divergence(back, never) < 0.2 * divergence(
                transfer.prior(longer).as_gaussian(), never
            )

    @each_transfer
    @pytest.mark.parametrize("dim", [0, -1, 2.5, "3", None, True], ids=repr)
    def test_a_bad_dimension_is_refused(self, transfer, dim):
        with pytest.raises(hs.InputError, match="dim"):
            transfer.init(dim)

    @each_transfer
    @pytest.mark.parametrize("noise", [0, -1, float("nan"), "auto", True], ids=repr)
    def test_a_bad_noise_is_refused(self, transfer, noise):
        with pytest.raises(hs.InputError, match="noise"):
            transfer.init(DIM, noise)

    @each_transfer
    def test_bad_evidence_is_refused(self, transfer):
        state = transfer.init(DIM)
        others = [
            hs.Evidence.zero(DIM + 1, forced=transfer.keeps_forced).add(np.ones(DIM + 1), 1.0),
            evidence_of(1, batch=(2,)) if transfer.keeps_forced else evidence_of(1, (2,)),
            "evidence",
            None,
            np.eye(DIM),
        ]
        for other in others:
            with pytest.raises(hs.InputError, match="evidence"):
                transfer.fold(state, other)

    @each_transfer
    @pytest.mark.parametrize("weight", [float("nan"), float("inf"), "1", None, True], ids=repr)
    def test_a_bad_weight_is_refused(self, transfer, weight):
        state = transfer.init(DIM)
        with pytest.raises(hs.InputError, match="weight"):
            transfer.fold(state, evidence_for(transfer, evidence_of(1)), weight)

    def test_a_rank_beyond_the_dimension_is_refused(self):
        with pytest.raises(hs.InputError, match="rank"):
            hs.Subspace(rank=DIM + 1).init(DIM)
        with pytest.raises(hs.InputError, match="rank"):
            hs.Bandit(DIM, hs.Subspace(rank=DIM + 1))


class TestEndToEnd:
    @pytest.mark.parametrize("transfer", TRANSFERS, ids=label)
    @pytest.mark.parametrize("rule", [hs.UCB("theory"), hs.Thompson()], ids=label)
    def test_every_transfer_with_the_main_rules(self, transfer, rule):
        if transfer.keeps_forced:
            rule = hs.Forced(4, rule)
        needed = {}
        if options_for(rule):
            if not states_a_bound(transfer):
                with pytest.raises(hs.InputError, match="radius must be a number"):
                    hs.Bandit(DIM, transfer, rule, 0.3)
                return
            needed = {"noise": 0.3}
        self.check(transfer, rule, **needed)

    @each_rule
    def test_every_rule_with_the_default_transfer(self, rule):
        if options_for(rule):
            with pytest.raises(hs.InputError, match="radius must be a number"):
                hs.Bandit(DIM, rule=rule, noise=0.3)
            return
        self.check(hs.EmpiricalBayes(), rule)

    def check(self, transfer, rule, noise=None):
        scale = "auto" if noise is None else noise
        first, second = (
            hs.Bandit(DIM, transfer, rule, scale, seed=3, intercept=False) for _ in range(2)
        )
        trace = play(first)
        assert trace == play(second)
        assert np.isfinite([float.fromhex(score) for _, score in trace]).all()
        evidences = [first.task(id).evidence for id in first]
        assert_same(transfer, first.prior, transfer.prior(transfer.refit(evidences, noise)))
        assert type(transfer).__name__ in str(first.report())

    def test_a_transfer_that_asks_for_a_warning_gives_it_once_and_works(self):
        with pytest.warns(UserWarning, match="lam1"):
            transfer = hs.Subspace(lam1="theory", warmup=3, rank=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.check(transfer, hs.UCB())


class TestTheTheoryRadius:
    """With probability 1 − δ nothing leaves it in any round; what cannot keep that is refused."""

    NOISE, DELTA, RUNS = 0.1, 0.05, 20

    def tasks(self, transfer, rng):
        """θ* of tasks that agree, then of one that is nothing like them; all as long as allowed.

        A bound on the residual that was given is a promise of the user's, and kept.
        """
        bound = getattr(transfer, "bound", 1.0)
        usual = rng.standard_normal(DIM)
        usual *= bound / np.linalg.norm(usual)
        tasks = [usual + 0.02 * rng.standard_normal(DIM) for _ in range(5)]
        tasks = [theta * min(1.0, bound / np.linalg.norm(theta)) for theta in tasks]
        tasks.append(-usual)
        residual = getattr(transfer, "residual", None)
        if residual is not None:
            inside = np.asarray(transfer.basis) @ np.asarray(transfer.basis).T
            for theta in tasks:
                off = theta - inside @ theta
                theta -= off * (1.0 - min(1.0, residual / np.linalg.norm(off)))
        return tasks

    def leaves(self, transfer, seed):
        """Whether ‖θ* − θ̂‖_B was above γ in any round, for each task."""
        rng = np.random.default_rng(seed)
        rule = hs.UCB("theory", delta=self.DELTA)
        bandit = hs.Bandit(DIM, transfer, rule, self.NOISE, seed=seed)
        outside = []
        for id, theta in enumerate(self.tasks(transfer, rng)):
            task, left = bandit.task(id), False
            for _ in range(12):
                belief = task.belief
                error = np.linalg.norm(np.linalg.solve(belief.root, theta - belief.mean))
                left |= bool(error > rule.gamma(belief) * (1.0 + 1e-9))
                offer = rng.standard_normal((4, DIM))
                choice = task.choose(offer / np.linalg.norm(offer, axis=1, keepdims=True))
                task.learn(choice, choice.context @ theta + self.NOISE * rng.standard_normal())
            outside.append(left)
            task.close()
        return outside

    @each_transfer
    def test_it_covers_or_is_refused(self, transfer):
        if not states_a_bound(transfer):
            for rule in (hs.UCB("theory"), hs.UCB("paper"), hs.Forced(2, hs.UCB("theory"))):
                with pytest.raises(hs.InputError, match="radius must be a number with"):
                    hs.Bandit(DIM, transfer, rule, self.NOISE)
            return
        failures = np.sum([self.leaves(transfer, seed) for seed in range(self.RUNS)], 0)
        assert failures.max() <= scipy.stats.binom.ppf(0.9999, self.RUNS, self.DELTA)

    def test_a_prior_that_a_user_makes_states_no_bound_unless_told(self):
        belief = hs.Belief.start(hs.Prior.isotropic(DIM))
        for radius in ("theory", "paper"):
            with pytest.raises(hs.InputError, match="radius must be a number with a prior that"):
                hs.UCB(radius).choose(belief, np.eye(DIM), np.random.default_rng(0))

    def test_an_estimate_of_the_noise_and_forgetting_are_refused(self):
        for rule in (hs.UCB("theory"), hs.Forced(2, hs.UCB("theory"))):
            with pytest.raises(hs.InputError, match="noise must be a number"):
                hs.Bandit(DIM, hs.Independent(), rule)
            with pytest.raises(hs.InputError, match="half_life must be None"):
                hs.Bandit(DIM, hs.Independent(), rule, 0.3, half_life=20.0)
        hs.Bandit(DIM, hs.Independent(), hs.UCB("paper"), half_life=20.0)  # promises nothing

    def test_a_refused_bandit_can_still_be_made_with_a_number(self):
        with pytest.raises(hs.InputError, match="EmpiricalBayes"):
            hs.Bandit(DIM, rule=hs.UCB("theory"), noise=0.1)
        hs.Bandit(DIM, rule=hs.UCB(2.0), noise=0.1)
