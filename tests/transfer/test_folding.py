"""What holds for every transfer: folding tasks in, taking them out, weights, batches, units."""

import warnings

import numpy as np
import pytest

import headstart as hs

DIM = 3

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # λ from the bound Y warns, as test_theory.py checks
    FROM_BOUND = hs.Subspace(rank=1, lam1="theory", lam2="theory")

SUMS = [  # those that can take a task back
    hs.Independent(),
    hs.Independent("plug-in"),
    hs.Independent("theory", bound=2.0),
    hs.Bias(),
    hs.Bias("pooled"),
    hs.Bias("pooled", lam="theory"),
    hs.Bias(lam=3.0, min_rounds=7),
    hs.Subspace(),
    hs.Subspace(rank=1, lam1=50.0, lam2=0.5, warmup=0),
    hs.Subspace(rank=0, warmup=2, min_rounds=7),
    hs.Subspace(rank=2, shrink="mean"),
    hs.Subspace(rank="paper", warmup=4),
    hs.Subspace(rank="ungated", residual=0.3),
    hs.Gaussian(),
    hs.Gaussian(estimate="ridge", widen=0.5),
    hs.Gaussian(forced=False),
    hs.Oracle.subspace([0.1, 0.2, 0.9], [[1.0], [0.0], [0.0]]),
    hs.Oracle.gaussian([0.1, 0.2, 0.9], np.diag([1.0, 0.5, 0.1])),
]
STREAMS = [
    hs.Subspace(pca="ccipca"),
    hs.Subspace(rank=1, pca="ccipca", lam1=100.0, lam2=1.0, warmup=4),
    hs.Subspace(rank="paper", pca=hs.CCIPCA("weng", amnesia=1.0)),
    FROM_BOUND,
]
FITTED = [  # by iteration: close to all this, as test_empirical.py tells, but not exact
    hs.EmpiricalBayes(),
    hs.EmpiricalBayes(decay_tasks=9.0, running=False),
]
each_sum = pytest.mark.parametrize("transfer", SUMS, ids=repr)
each_transfer = pytest.mark.parametrize("transfer", SUMS + STREAMS + FITTED, ids=repr)


def task(seed, rounds=None, unit=1.0, batch=()):
    """One task's evidence: an intercept-like mean, some noise, the first half of it forced."""
    rng = np.random.default_rng(seed)
    rounds = int(rng.integers(6, 14)) if rounds is None else rounds
    theta = np.array([0.3, -0.2, 0.8]) + rng.standard_normal((*batch, DIM)) * [1.0, 0.5, 0.1]
    contexts = rng.standard_normal((*batch, rounds, DIM))
    rewards = (contexts @ theta[..., None])[..., 0] + 0.3 * rng.standard_normal((*batch, rounds))
    evidence = hs.Evidence.zero(DIM, batch, forced=True)
    for k in range(rounds):
        reward = unit * (rewards[..., k] if batch else float(rewards[k]))
        evidence = evidence.add(contexts[..., k, :], reward, forced=k < rounds // 2)
    return evidence


def tasks(count, **options):
    return [task(seed, **options) for seed in range(count)]


def folded(transfer, evidences, noise=None, weights=None, batch=()):
    state = transfer.init(DIM, noise, batch)
    for at, evidence in enumerate(evidences):
        state = transfer.fold(state, evidence, 1.0 if weights is None else weights[at])
    return state


def assert_same_prior(left, right, tolerance=1e-9):
    for name in ("mean", "covariance", "noise", "bias", "printed_bias"):
        np.testing.assert_allclose(
            getattr(left, name), getattr(right, name), rtol=tolerance, atol=tolerance, err_msg=name
        )


@pytest.mark.parametrize("transfer", SUMS + STREAMS, ids=repr)
@pytest.mark.parametrize("noise", [None, 0.4])
def test_refitting_is_folding_in_order(transfer, noise):
    evidences = tasks(9)
    weights = [1.0, 2.0, 0.5, 1.0, 1.0, 0.0, 1.5, 1.0, 1.0]
    by_fold = transfer.prior(folded(transfer, evidences, noise, weights))
    assert transfer.prior(transfer.refit(evidences, noise, weights)) == by_fold
    assert transfer.prior(transfer.refit(iter(evidences), noise)) == transfer.prior(
        folded(transfer, evidences, noise)
    )


@each_transfer
def test_a_given_noise_is_the_priors(transfer):
    assert transfer.prior(transfer.init(DIM, 0.4)).noise == 0.4
    assert transfer.prior(folded(transfer, tasks(5), 0.4)).noise == 0.4


@each_sum
def test_order_of_tasks_does_not_matter_to_sums(transfer):
    evidences = tasks(9)
    order = np.random.default_rng(0).permutation(9)
    assert transfer.reversible
    assert_same_prior(
        transfer.prior(folded(transfer, evidences)),
        transfer.prior(folded(transfer, [evidences[at] for at in order])),
    )


@each_sum
@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_a_negative_weight_undoes_a_fold(transfer, count):
    before = folded(transfer, tasks(count))
    extra = task(99)
    undone = transfer.fold(transfer.fold(before, extra, 1.0), extra, -1.0)
    assert_same_prior(transfer.prior(undone), transfer.prior(before))


@each_sum
def test_taking_out_one_of_many_is_never_having_folded_it(transfer):
    evidences = tasks(8)
    state = transfer.fold(folded(transfer, evidences), evidences[2], -1.0)
    without = folded(transfer, evidences[:2] + evidences[3:])
    assert_same_prior(transfer.prior(state), transfer.prior(without))


@each_sum
def test_taking_everything_out_is_the_start(transfer):
    evidences = tasks(6)
    state = folded(transfer, evidences)
    for evidence in reversed(evidences):
        state = transfer.fold(state, evidence, -1.0)
    assert_same_prior(transfer.prior(state), transfer.prior(transfer.init(DIM)))


@pytest.mark.parametrize("transfer", STREAMS, ids=repr)
def test_those_that_cannot_take_a_task_back_say_so(transfer):
    assert not transfer.reversible


@each_sum
def test_a_weight_counts_a_task_as_often(transfer):
    evidences = tasks(6)
    weighted = folded(transfer, evidences, weights=[1.0, 3.0, 1.0, 2.0, 1.0, 1.0])
    doubled = [evidences[at] for at in (0, 1, 1, 1, 2, 3, 3, 4, 5)]
    assert_same_prior(transfer.prior(weighted), transfer.prior(folded(transfer, doubled)))


@each_transfer
def test_weight_zero_counts_for_nothing(transfer):
    before = folded(transfer, tasks(6))
    after = transfer.fold(before, task(99), 0.0)
    assert_same_prior(transfer.prior(after), transfer.prior(before), 1e-12)


@each_transfer
@pytest.mark.parametrize("noise", [None, 0.4])
def test_batch_axes_are_a_loop(transfer, noise):
    batch = (2, 2)
    batched = [task(seed, rounds=8, batch=batch) for seed in range(7)]
    state = transfer.init(DIM, noise, batch)
    lone = {at: transfer.init(DIM, noise) for at in np.ndindex(batch)}
    for count in range(8):
        together = transfer.prior(state)
        assert together.batch == batch
        for at in np.ndindex(batch):
            alone = transfer.prior(lone[at])
            np.testing.assert_allclose(together.mean[at], alone.mean, atol=1e-9)
            np.testing.assert_allclose(together.covariance[at], alone.covariance, atol=1e-9)
            for name in ("noise", "bias", "printed_bias"):
                values = np.broadcast_to(getattr(together, name), batch)
                np.testing.assert_allclose(values[at], getattr(alone, name), rtol=1e-9)
        if count < 7:
            state = transfer.fold(state, batched[count])
            lone = {at: transfer.fold(lone[at], pick(batched[count], at)) for at in lone}


@pytest.mark.parametrize("transfer", [*SUMS, *FITTED, hs.EmpiricalBayes(units="given")], ids=repr)
def test_a_refit_of_a_batch_is_one_of_each_element(transfer):
    """Its elements may hold their tasks in different orders, of which none is the right one."""
    tolerance = 1e-9 if transfer in SUMS else 1e-6
    batched = [task(seed, rounds=8, batch=(2,)) for seed in range(13)]
    together = transfer.prior(transfer.refit(batched))
    for at in range(2):
        alone = transfer.prior(transfer.refit([pick(evidence, at) for evidence in batched]))
        np.testing.assert_allclose(together.mean[at], alone.mean, atol=tolerance)
        np.testing.assert_allclose(together.covariance[at], alone.covariance, atol=tolerance)
        values = np.broadcast_to(together.noise, (2,))
        np.testing.assert_allclose(values[at], alone.noise, rtol=tolerance)


@pytest.mark.parametrize("transfer", [hs.EmpiricalBayes(), hs.EmpiricalBayes(units="given")])
def test_a_refit_of_a_batch_does_not_depend_on_the_order_of_tasks(transfer):
    batched = [task(seed, rounds=8, batch=(2,)) for seed in range(13)]
    one = transfer.prior(transfer.refit(batched))
    other = transfer.prior(transfer.refit(batched[::-1]))
    np.testing.assert_array_equal(one.mean, other.mean)
    np.testing.assert_array_equal(one.covariance, other.covariance)


def pick(evidence, at):
    """One task of a batch."""
    forced = None if evidence.forced is None else pick(evidence.forced, at)
    return hs.Evidence(
        evidence.gram[at], evidence.moment[at], evidence.rounds[at], evidence.squares[at], forced
    )


def test_a_batch_may_hold_tasks_too_short_to_count():
    """One element's task has an estimate, the other's has not: each goes its own way."""
    long, short = task(1, rounds=8), task(2, rounds=2)
    both = hs.Evidence(
        np.stack([long.gram, short.gram]),
        np.stack([long.moment, short.moment]),
        [8.0, 2.0],
        [long.squares, short.squares],
    )
    transfer = hs.Subspace(rank=1, lam1=50.0, lam2=0.5, warmup=1)
    together = transfer.prior(transfer.fold(transfer.init(DIM, 0.4, (2,)), both))
    for at, alone in enumerate((long, short)):
        one = transfer.prior(folded(transfer, [alone], 0.4))
        np.testing.assert_allclose(together.mean[at], one.mean, atol=1e-12)
        np.testing.assert_allclose(together.covariance[at], one.covariance, atol=1e-12)


@pytest.mark.parametrize(
    "transfer",
    # Not where a bound or the truth is given in rewards' units, nor Weng's start, whose v_j begin
    # as lengths and so depend on the unit.
    [
        t
        for t in [*SUMS, *STREAMS, *FITTED]
        if not isinstance(t, hs.Oracle) and "theory" not in repr(t) and "weng" not in repr(t)
    ]
    + [hs.Bias(lam="theory")],
    ids=repr,
)
@pytest.mark.parametrize("unit", [1e-3, 7.0, 1e4])
def test_the_unit_of_rewards_scales_noise_and_mean_and_leaves_the_root(transfer, unit):
    for count in (1, 2, 9):
        one = transfer.prior(folded(transfer, tasks(count)))
        other = transfer.prior(folded(transfer, tasks(count, unit=unit)))
        assert other.noise == pytest.approx(unit * one.noise, rel=1e-8)
        np.testing.assert_allclose(other.mean, unit * one.mean, rtol=1e-7, atol=1e-9 * unit)
        np.testing.assert_allclose(
            other.root @ other.root.T, one.root @ one.root.T, rtol=1e-6, atol=1e-8
        )


@each_transfer
def test_folding_leaves_state_and_evidence_alone(transfer):
    evidence, before = task(5), folded(transfer, tasks(4))
    kept_evidence, kept_prior = evidence.pack(), transfer.prior(before)
    transfer.fold(before, evidence)
    assert evidence.pack().tolist() == kept_evidence.tolist()
    assert transfer.prior(before) == kept_prior
    assert transfer.prior(before) == transfer.prior(before)
    with pytest.raises(ValueError, match="read-only"):
        transfer.prior(before).mean[0] = 1.0


def test_settings_cannot_be_changed():
    for transfer in (hs.Bias(), hs.Gaussian(), hs.Oracle.gaussian([0.0], [[1.0]])):
        with pytest.raises(AttributeError):
            transfer.bound = 2.0


@pytest.mark.parametrize(
    "transfer",
    [hs.Independent(), hs.Bias(), hs.Subspace(rank=1), hs.Gaussian(), SUMS[-1]],
    ids=lambda transfer: type(transfer).__name__,
)
@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda t: t.init(0), "dim"),
        (lambda t: t.init(2.0), "dim"),
        (lambda t: t.init(DIM, 0.0), "noise"),
        (lambda t: t.init(DIM, -1.0), "noise"),
        (lambda t: t.init(DIM, float("nan")), "noise"),
        (lambda t: t.init(DIM, "auto"), "noise"),
        (lambda t: t.fold(t.init(DIM), hs.Evidence.zero(2, forced=True)), "evidence"),
        (lambda t: t.fold(t.init(DIM), task(0, batch=(2,))), "evidence"),
        (lambda t: t.fold(t.init(DIM), [1.0, 2.0, 3.0]), "evidence"),
        (lambda t: t.fold(t.init(DIM), task(0), float("nan")), "weight"),
        (lambda t: t.fold(t.init(DIM), task(0), float("inf")), "weight"),
        (lambda t: t.fold(t.init(DIM), task(0), "twice"), "weight"),
        (lambda t: t.refit([]), "evidences"),
    ],
    ids=[
        "dim zero", "dim float", "noise zero", "noise negative", "noise nan", "noise text",
        "evidence dim", "evidence batch", "evidence type", "weight nan", "weight inf",
        "weight text", "no evidences",
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(transfer, call, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        call(transfer)
