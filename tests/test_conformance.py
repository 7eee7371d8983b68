"""What every rule and every transfer must do: one suite, which finds them all by itself.

A new one is picked up as soon as it exists. If it cannot be made without arguments, or has settings
to refuse, the suite fails until an example stands in ``EXAMPLES`` and a refusal in ``REFUSED``.
"""

import contextlib
import copy
import dataclasses
import importlib
import inspect
import pickle
import pkgutil
import warnings

import numpy as np
import pytest
import scipy.stats

import headstart as hs
from headstart.records import SETTINGS, flatten
from headstart.rules import Pick, Propensities

DIM = 3
BASIS = np.linalg.qr(np.random.default_rng(0).standard_normal((DIM, DIM)))[0]

#: Settings worth testing; the defaults of each kind are added where there are any.
EXAMPLES = {
    hs.UCB: [hs.UCB(2.5), hs.UCB("theory", delta=0.1), hs.UCB("paper"), hs.UCB(explore=0.3)],
    hs.Thompson: [
        hs.Thompson(0.5, draws=400),
        hs.Thompson("paper", horizon=9),
        hs.Thompson("theory", alpha=0.5),
    ],
    hs.Greedy: [hs.Greedy(explore=0.2)],
    hs.Uniform: [],
    hs.Forced: [hs.Forced(4, hs.UCB()), hs.Forced(2, hs.Thompson(explore=0.1))],
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
        hs.EmpiricalBayes(decay_tasks=20.0),
        hs.EmpiricalBayes(running=False),
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
    ],
    hs.Thompson: [
        *(("scale", {"scale": bad}) for bad in (-1.0, "wide", None, float("inf"))),
        *(("draws", {"draws": bad}) for bad in (0, 2.5, None)),
        ("delta", {"delta": 1.5}),
        ("horizon", {"horizon": 0}),
        *(("alpha", {"alpha": bad}) for bad in (0, 1.5, -1, "x", float("nan"))),
        ("explore", {"explore": 2}),
    ],
    hs.Greedy: [("explore", {"explore": 2})],
    hs.Forced: [
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
        *(
            ("decay_tasks", {"decay_tasks": bad})
            for bad in (0, 0.5, -1, "x", None, True, float("nan"))
        ),
        *(("running", {"running": bad}) for bad in (None, 1, 0.0, "yes")),
    ],
    hs.Mixture: [
        *(("groups", {"groups": bad}) for bad in (0, -1, 2.5, "x", None, True, float("nan"))),
        *(("units", {"units": bad}) for bad in ("metric", None, 1)),
        *(("constant", {"constant": bad}) for bad in (None, 1, "yes")),
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
        ours = kind.__module__.startswith("headstart.") and ".lab." not in kind.__module__
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
each_kind = pytest.mark.parametrize(
    "kind", found(hs.Rule) + found(hs.Transfer), ids=lambda kind: kind.__name__
)


def belief_of(seed, rounds=6, batch=()):
    rng = np.random.default_rng(seed)
    root = 0.4 * rng.standard_normal((*batch, DIM, DIM)) + np.eye(DIM)
    prior = hs.Prior(rng.standard_normal((*batch, DIM)), root, noise=0.7, bias=0.3)
    belief = hs.Belief.start(prior)
    for _ in range(rounds):
        belief = belief.learn(rng.standard_normal((*batch, DIM)), rng.standard_normal(batch))
    return belief


def evidence_of(seed, batch=(), rounds=9, forced=5):
    """Evidence with its forced rounds apart; transfers that do not want these leave them alone."""
    rng = np.random.default_rng(seed)
    evidence = hs.Evidence.zero(DIM, batch, forced=True)
    theta = rng.standard_normal((*batch, DIM))
    for at in range(rounds):
        x = rng.standard_normal((*batch, DIM))
        r = (x * theta).sum(-1) + 0.3 * rng.standard_normal(batch)
        evidence = evidence.add(x, r, forced=at < forced)
    return evidence


def fit_for(transfer, evidence):
    return evidence if transfer.keeps_forced else evidence.replace(forced=None)


def pick(evidence, at):
    """One task of a batch."""
    forced = None if evidence.forced is None else pick(evidence.forced, at)
    return hs.Evidence(
        evidence.gram[at], evidence.moment[at], evidence.rounds[at], evidence.squares[at], forced
    )


def folded(transfer, evidences, weights=None, **start):
    state = transfer.init(DIM, **start)
    for at, evidence in enumerate(evidences):
        weight = 1.0 if weights is None else weights[at]
        state = transfer.fold(state, fit_for(transfer, evidence), weight)
    return state


def whole(prior):
    """A prior itself, or the Gaussian that stands for a mixture."""
    return prior.as_gaussian()


def apart(left, right):
    """The Kullback–Leibler divergence of one prior from another, in nats per dimension."""
    precision = np.linalg.inv(right.covariance)
    ratio, shift = precision @ left.covariance, left.mean - right.mean
    surprise = np.trace(ratio) - DIM + shift @ precision @ shift - np.linalg.slogdet(ratio)[1]
    return 0.5 * surprise / DIM


def assert_same(transfer, left, right):
    """One prior, up to rounding; or nearly one, where it is fitted by iteration."""
    left, right = whole(left), whole(right)
    if isinstance(transfer, ITERATED):
        assert apart(left, right) < CLOSE
        assert apart(right, left) < CLOSE
        assert left.noise == pytest.approx(right.noise, rel=0.05)
        return
    np.testing.assert_allclose(left.mean, right.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(left.covariance, right.covariance, rtol=1e-9, atol=1e-10)
    assert left.noise == pytest.approx(right.noise, rel=1e-9)


def image(*things):
    """The bytes of everything inside, to see whether anything was changed."""
    return [
        (name, array.dtype.str, array.shape, array.tobytes())
        for thing in things
        for name, array in flatten(thing).items()
    ]


def states_a_bound(transfer):
    """Whether its priors bound how far θ* may be from their mean."""
    return np.isfinite(getattr(transfer.prior(transfer.init(DIM, 0.3)), "bias", np.inf))


def needed_by(rule):
    """What a bandit needs besides this rule: a radius from an analysis asks for a bound and R."""
    try:
        rule.check_bandit(hs.Prior.isotropic(DIM), None, None, None)
    except hs.InputError:
        return {"transfer": hs.Independent(), "noise": 0.3}
    return {}


def play(bandit, tasks=7, rounds=8, start=0):
    """Every decision of a few short tasks, to the last bit."""
    trace = []
    for id in range(start, start + tasks):
        rng, task = np.random.default_rng(id), bandit.task(id)
        theta = rng.standard_normal(DIM)
        for _ in range(rounds):
            offer = rng.standard_normal((4, DIM))
            choice = task.choose(offer)
            reward = float(offer[choice.arm] @ theta + 0.3 * rng.standard_normal())
            task.learn(choice, reward)
            trace.append((choice.arm, choice.score.hex()))
        task.close()
    return trace


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
    def test_equal_to_its_like_and_to_nothing_else(self, thing):
        fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        twin = type(thing)(**fields)
        assert thing == twin
        assert (thing != twin) is False
        assert all(thing != other for other in alternatives(thing))
        assert thing != repr(thing)
        assert thing is not None

    @each_of_both
    @pytest.mark.parametrize(
        "clone",
        [copy.copy, copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))],
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_copies_are_equal(self, thing, clone):
        twin = clone(thing)
        assert type(twin) is type(thing)
        assert twin == thing
        assert repr(twin) == repr(thing)

    @each_of_both
    def test_it_cannot_be_changed(self, thing):
        for field in dataclasses.fields(thing):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(thing, field.name, None)
            value = getattr(thing, field.name)
            if isinstance(value, np.ndarray):
                assert not value.flags.writeable

    @each_of_both
    def test_it_keeps_no_hold_of_the_callers_arrays(self, thing):
        fields = {f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)}
        mine = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in fields.items()
        }
        twin = type(thing)(**mine)
        for value in mine.values():
            if isinstance(value, np.ndarray):
                value[...] = 7.0
        assert twin == thing

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

    @each_of_both
    def test_it_is_saved_and_loaded_inside_a_bandit(self, thing, tmp_path):
        part = "rule" if isinstance(thing, hs.Rule) else "transfer"
        parts = {part: thing}
        if part == "transfer" and thing.keeps_forced:
            parts["rule"] = hs.Forced(3, hs.UCB())
        needed = needed_by(thing) if part == "rule" else {}
        bandit = hs.Bandit(DIM, seed=0, **needed, **parts)
        play(bandit)
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert getattr(loaded, part) == thing
        assert repr(getattr(loaded, part)) == repr(thing)
        assert loaded.prior == bandit.prior
        assert play(loaded, start=50) == play(bandit, start=50)
        assert loaded.prior == bandit.prior


class TestRules:
    CONTEXTS = np.random.default_rng(7).standard_normal((5, DIM))

    @each_rule
    def test_a_pick_is_a_row_with_its_score(self, rule):
        picked = rule.choose(belief_of(1), self.CONTEXTS, np.random.default_rng(0))
        assert isinstance(picked, Pick)
        assert type(picked.arm) is int
        assert 0 <= picked.arm < 5
        assert type(picked.score) is float
        assert np.isfinite(picked.score)
        assert isinstance(picked.forced, bool)

    @each_rule
    def test_one_seed_gives_one_pick(self, rule):
        belief = belief_of(1, rounds=1)
        for seed in range(5):
            first, second = (
                rule.choose(belief, self.CONTEXTS, np.random.default_rng(seed)) for _ in range(2)
            )
            assert first == second

    @each_rule
    @pytest.mark.parametrize("rounds", [0, 6])
    def test_propensities_are_a_distribution_over_the_open_arms(self, rule, rounds):
        allowed = np.array([True, False, True, True, False])
        for mask in (None, allowed):
            stated = rule.propensities(
                belief_of(2, rounds), self.CONTEXTS, np.random.default_rng(0), mask
            )
            assert isinstance(stated, Propensities)
            assert stated.values.shape == (5,)
            assert (stated.values >= 0).all()
            assert stated.values.sum() == pytest.approx(1.0, abs=1e-12)
            if mask is not None:
                np.testing.assert_array_equal(stated.values[~mask], 0.0)

    @each_rule
    @pytest.mark.parametrize("rounds", [0, 6])
    def test_it_picks_as_often_as_it_says(self, rule, rounds):
        belief, rng = belief_of(2, rounds), np.random.default_rng(0)
        allowed = np.array([True, True, True, False, True])
        picks = [rule.choose(belief, self.CONTEXTS, rng, allowed).arm for _ in range(1500)]
        stated = rule.propensities(belief, self.CONTEXTS, rng, allowed)
        counts = np.bincount(picks, minlength=5) / len(picks)
        tolerance = 4.5 * np.sqrt(0.25 / 1500 + (0.25 / stated.draws if stated.draws else 0))
        np.testing.assert_allclose(counts, stated.values, atol=tolerance)
        if stated.draws is None:
            assert (counts[stated.values == 0] == 0).all()

    @each_rule
    def test_a_single_open_arm_is_certain(self, rule):
        only = np.arange(5) == 3
        belief, rng = belief_of(1), np.random.default_rng(0)
        assert rule.choose(belief, self.CONTEXTS, rng, only).arm == 3
        np.testing.assert_allclose(
            rule.propensities(belief, self.CONTEXTS, rng, only).values, only, atol=1e-12
        )

    @each_rule
    def test_ties_are_broken_evenly_by_the_callers_generator(self, rule):
        same = np.ones((4, DIM))
        rng = np.random.default_rng(0)
        picks = [rule.choose(belief_of(1), same, rng).arm for _ in range(800)]
        assert np.bincount(picks, minlength=4).min() > 200 - 5 * np.sqrt(150)

    @each_rule
    @pytest.mark.parametrize("batch", [(4,), (2, 3)], ids=str)
    def test_batch_axes_are_a_loop(self, rule, batch):
        """Where a rule draws, it draws in another order: then frequencies agree, not picks."""
        belief = belief_of(3, batch=batch)
        rng = np.random.default_rng(5)
        contexts = rng.standard_normal((*batch, 5, DIM))
        allowed = rng.random((*batch, 5)) < 0.8
        allowed[..., 0] = True
        stated = rule.propensities(belief, contexts, np.random.default_rng(0), allowed)
        picked = rule.choose(belief, contexts, np.random.default_rng(0), allowed)
        assert stated.values.shape == (*batch, 5)
        assert picked.arm.shape == picked.score.shape == batch
        for at in np.ndindex(batch):
            prior = hs.Prior(
                belief.prior.mean[at],
                belief.prior.root[at],
                noise=belief.prior.noise,
                bias=belief.prior.bias,
            )
            alone = belief.replace(
                mean=belief.mean[at],
                root=belief.root[at],
                information=belief.information[at],
                rounds=belief.rounds[at],
                prior=prior,
            )
            expected = rule.propensities(alone, contexts[at], np.random.default_rng(0), allowed[at])
            tolerance = 1e-12 if expected.draws is None else 5 * np.sqrt(0.5 / expected.draws)
            np.testing.assert_allclose(stated.values[at], expected.values, atol=tolerance)
            assert allowed[at][picked.arm[at]]
            if expected.draws is None and expected.values.max() == 1.0:
                assert picked.arm[at] == expected.values.argmax()
                lone = rule.choose(alone, contexts[at], np.random.default_rng(0), allowed[at])
                assert picked.score[at] == pytest.approx(lone.score, rel=1e-10)

    @each_rule
    def test_arguments_are_left_as_they_are(self, rule):
        belief, contexts = belief_of(1), self.CONTEXTS.copy()
        allowed = np.array([True, True, False, True, True])
        before = image(belief, contexts, allowed)
        for mask in (None, allowed):
            rule.choose(belief, contexts, np.random.default_rng(0), mask)
            rule.propensities(belief, contexts, np.random.default_rng(0), mask)
        assert image(belief, contexts, allowed) == before
        contexts.flags.writeable = allowed.flags.writeable = False
        rule.choose(belief, contexts, np.random.default_rng(0), allowed)

    @each_rule
    def test_only_what_every_belief_can_tell_is_needed(self, rule):
        """Mean, width and draw: a mixture can take a Gaussian's place."""
        belief = belief_of(1)

        class Other:
            rounds, noise, dim = belief.rounds, belief.noise, belief.dim
            predict, width, draw = belief.predict, belief.width, belief.draw

        asks_for_a_bias = isinstance(rule, hs.UCB) and isinstance(rule.radius, str)
        if asks_for_a_bias:
            with pytest.raises(hs.InputError, match="radius must be a number"):
                rule.choose(Other(), self.CONTEXTS, np.random.default_rng(0))
            return
        expected = rule.choose(belief, self.CONTEXTS, np.random.default_rng(0))
        assert rule.choose(Other(), self.CONTEXTS, np.random.default_rng(0)) == expected
        assert rule.propensities(Other(), self.CONTEXTS, np.random.default_rng(0)).values.sum()


class TestTransfers:
    @each_transfer
    @pytest.mark.parametrize("noise", [None, 0.4])
    @pytest.mark.parametrize("tasks", [0, 1, 2, 3, 8])
    def test_there_is_a_usable_prior_at_any_time(self, transfer, noise, tasks):
        state = folded(transfer, [evidence_of(seed) for seed in range(tasks)], noise=noise)
        found = transfer.prior(state)
        found.belief(evidence_of(99).replace(forced=None))
        prior = whole(found)
        assert isinstance(prior, hs.Prior)
        assert prior.dim == DIM
        assert prior.batch == ()
        assert np.isfinite(prior.mean).all()
        assert np.isfinite(prior.root).all()
        assert prior.noise > 0
        assert prior.bias >= 0
        assert np.isfinite(prior.bias) == states_a_bound(transfer)  # at any time, or at none
        assert noise is None or prior.noise == noise

    @each_transfer
    def test_refit_is_folding_one_after_another(self, transfer):
        evidences = [evidence_of(seed) for seed in range(7)]
        told = [fit_for(transfer, evidence) for evidence in evidences]
        weights = [1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 1.0]
        for given in (None, weights):
            refit = transfer.prior(transfer.refit(told, 0.4, given))
            one_by_one = transfer.prior(folded(transfer, evidences, given, noise=0.4))
            assert_same(transfer, refit, one_by_one)
            if not isinstance(transfer, ITERATED):
                np.testing.assert_allclose(refit.root, one_by_one.root, rtol=1e-9, atol=1e-12)

    @each_transfer
    @pytest.mark.parametrize("noise", [None, 0.4])
    @pytest.mark.parametrize("batch", [(), (2,)], ids=["one", "batch"])
    def test_a_prior_that_is_said_to_be_fixed_never_changes(self, transfer, noise, batch):
        """Then nobody needs to fold: experiments leave it out."""
        if not transfer.fixed(noise):
            return
        assert noise is not None  # which tasks always tell something of
        evidences = [evidence_of(seed, batch) for seed in range(8)]
        state = first = transfer.init(DIM, noise, batch)
        for evidence in evidences:
            state = transfer.fold(state, fit_for(transfer, evidence))
            assert transfer.prior(state) == transfer.prior(first)
        state = transfer.fold(state, fit_for(transfer, evidences[0]), -1.0)
        assert transfer.prior(state) == transfer.prior(first)
        joined = transfer.with_running(state, [fit_for(transfer, evidences[1])])
        assert transfer.prior(joined) == transfer.prior(first)
        refit = transfer.refit([fit_for(transfer, evidence) for evidence in evidences], noise)
        assert transfer.prior(refit) == transfer.prior(first)

    def test_those_that_learn_nothing_say_so(self):
        for transfer in TRANSFERS:
            learns = transfer == hs.Independent("plug-in") or not isinstance(
                transfer, (hs.Independent, hs.Oracle)
            )
            assert transfer.fixed(0.4) != learns
            assert not transfer.fixed(None)

    @each_transfer
    def test_refitting_nothing_is_refused(self, transfer):
        with pytest.raises(hs.InputError, match="evidences"):
            transfer.refit([])

    @each_transfer
    @pytest.mark.parametrize("noise", [None, 0.4])
    @pytest.mark.parametrize("batch", [(3,), (2, 2)], ids=str)
    def test_batch_axes_are_a_loop(self, transfer, noise, batch):
        if not transfer.batched:
            pytest.skip("works on one task at a time; experiments loop over it")
        evidences = [evidence_of(seed, batch) for seed in range(6)]
        together = transfer.prior(folded(transfer, evidences, noise=noise, batch=batch))
        assert together.mean.shape == (*batch, DIM)
        for at in np.ndindex(batch):
            alone = transfer.prior(
                folded(transfer, [pick(evidence, at) for evidence in evidences], noise=noise)
            )
            np.testing.assert_allclose(together.mean[at], alone.mean, rtol=1e-9, atol=1e-10)
            np.testing.assert_allclose(
                together.covariance[at], alone.covariance, rtol=1e-9, atol=1e-10
            )
            for name in ("noise", "bias", "printed_bias"):
                each = np.broadcast_to(getattr(together, name), batch)
                assert each[at] == pytest.approx(getattr(alone, name), rel=1e-9)

    @each_transfer
    def test_a_task_of_weight_zero_changes_nothing(self, transfer):
        evidences = [evidence_of(seed) for seed in range(6)]
        state = folded(transfer, evidences)
        after = transfer.fold(state, fit_for(transfer, evidence_of(77)), 0.0)
        left, right = whole(transfer.prior(after)), whole(transfer.prior(state))
        np.testing.assert_allclose(left.mean, right.mean)
        np.testing.assert_allclose(left.root, right.root)
        assert left.noise == right.noise

    @each_transfer
    def test_a_weight_of_two_is_twice_the_same_task(self, transfer):
        if not transfer.reversible:
            pytest.skip("depends on the order, so on where the second one stands")
        evidences = [evidence_of(seed) for seed in range(6)]
        twice = transfer.prior(folded(transfer, [*evidences, evidences[2]]))
        weighted = transfer.prior(folded(transfer, evidences, [1.0, 1.0, 2.0, 1.0, 1.0, 1.0]))
        assert_same(transfer, weighted, twice)

    @each_transfer
    def test_what_is_reversible_can_be_taken_back_and_the_rest_refuses(self, transfer):
        state = folded(transfer, [evidence_of(seed) for seed in range(6)])
        extra = fit_for(transfer, evidence_of(77))
        longer = transfer.fold(state, extra, 1.0)
        if not transfer.reversible:
            with pytest.raises(hs.InputError, match="weight"):
                transfer.fold(longer, extra, -1.0)
            return
        back, never = transfer.prior(transfer.fold(longer, extra, -1.0)), transfer.prior(state)
        assert_same(transfer, back, never)
        fades = (
            getattr(transfer, "decay_tasks", "auto") != "auto"
        )  # then the others count less for good
        if isinstance(transfer, ITERATED) and not fades:  # most of what it had changed is gone
            assert apart(back, never) < 0.2 * apart(transfer.prior(longer), never)

    @each_transfer
    def test_arguments_are_left_as_they_are(self, transfer):
        state = folded(transfer, [evidence_of(seed) for seed in range(6)])
        evidence = fit_for(transfer, evidence_of(9))
        before = image(state, evidence)
        transfer.prior(state)
        transfer.explain(state)
        transfer.fold(state, evidence, 0.5)
        transfer.prior(transfer.fold(state, evidence))
        transfer.refit([evidence, evidence])
        assert image(state, evidence) == before

    @each_transfer
    def test_the_same_tasks_give_the_same_prior_to_the_last_bit(self, transfer):
        evidences = [evidence_of(seed) for seed in range(8)]
        first, second = (transfer.prior(folded(transfer, evidences)) for _ in range(2))
        assert first == second

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
            transfer.fold(state, fit_for(transfer, evidence_of(1)), weight)

    def test_a_rank_beyond_the_dimension_is_refused(self):
        with pytest.raises(hs.InputError, match="rank"):
            hs.Subspace(rank=DIM + 1).init(DIM)
        with pytest.raises(hs.InputError, match="rank"):
            hs.Bandit(DIM, hs.Subspace(rank=DIM + 1))


class TestEndToEnd:
    @pytest.mark.parametrize("transfer", TRANSFERS, ids=label)
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.UCB("theory"), hs.Thompson()], ids=label)
    def test_every_transfer_with_the_main_rules(self, transfer, rule):
        if transfer.keeps_forced:
            rule = hs.Forced(4, rule)
        needed = {}
        if needed_by(rule):
            if not states_a_bound(transfer):
                with pytest.raises(hs.InputError, match="radius must be a number"):
                    hs.Bandit(DIM, transfer, rule, 0.3)
                return
            needed = {"noise": 0.3}
        self.check(transfer, rule, **needed)

    @each_rule
    def test_every_rule_with_the_default_transfer(self, rule):
        if needed_by(rule):
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
