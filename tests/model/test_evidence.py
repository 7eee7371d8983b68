"""Evidence is four sums: they add, commute, merge, pack, and give the ridge estimate."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def random_rounds(seed, rounds=12, dim=3, batch=()):
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((*batch, rounds, dim))
    return contexts, rng.standard_normal((*batch, rounds))


def random_forced(seed, dim=3):
    """Evidence that keeps its forced rounds (every second one) apart."""
    evidence = hs.Evidence.zero(dim, forced=True)
    for at, (x, r) in enumerate(zip(*random_rounds(seed, dim=dim), strict=True)):
        evidence = evidence.add(x, r, forced=at % 2 == 0)
    return evidence


def assert_close(left, right, tolerance=1e-10):
    for name in ("gram", "moment", "rounds", "squares"):
        np.testing.assert_allclose(
            getattr(left, name), getattr(right, name), rtol=tolerance, atol=tolerance
        )
    assert (left.forced is None) == (right.forced is None)
    if left.forced is not None:
        assert_close(left.forced, right.forced, tolerance)


def test_the_sums_by_hand():
    evidence = hs.Evidence.of([[1.0, 2.0], [3.0, 0.0]], [5.0, -1.0])
    assert evidence.gram.tolist() == [[10.0, 2.0], [2.0, 4.0]]
    assert evidence.moment.tolist() == [2.0, 10.0]
    assert (evidence.rounds, evidence.squares) == (2.0, 26.0)
    assert (evidence.dim, evidence.batch) == (2, ())


def test_nothing_seen_is_zero_and_neutral():
    zero = hs.Evidence.zero(3)
    some = hs.Evidence.of(*random_rounds(1))
    assert zero == hs.Evidence.of(np.empty((0, 3)), [])
    assert zero + some == some == some + zero


@on_random_instances
@given(seeds)
def test_round_by_round_is_all_at_once(seed):
    contexts, rewards = random_rounds(seed)
    one_by_one = hs.Evidence.zero(3)
    for x, r in zip(contexts, rewards, strict=True):
        one_by_one = one_by_one.add(x, r)
    assert_close(one_by_one, hs.Evidence.of(contexts, rewards))


@on_random_instances
@given(seeds, st.permutations(range(12)))
def test_order_of_rounds_does_not_matter(seed, order):
    contexts, rewards = random_rounds(seed)
    assert_close(hs.Evidence.of(contexts, rewards), hs.Evidence.of(contexts[order], rewards[order]))


@on_random_instances
@given(seeds, st.integers(0, 12))
def test_merging_is_concatenating_rounds(seed, cut):
    contexts, rewards = random_rounds(seed)
    merged = hs.Evidence.of(contexts[:cut], rewards[:cut]) + hs.Evidence.of(
        contexts[cut:], rewards[cut:]
    )
    assert_close(merged, hs.Evidence.of(contexts, rewards))


@on_random_instances
@given(seeds)
def test_addition_commutes_and_associates(seed):
    a, b, c = (random_forced(seed + offset) for offset in range(3))
    assert a + b == b + a
    assert_close((a + b) + c, a + (b + c))


def test_sum_of_a_list():
    parts = [random_forced(seed) for seed in range(4)]
    assert sum(parts) == parts[0] + parts[1] + parts[2] + parts[3]


def test_forced_rounds_are_kept_apart_and_counted_in_the_whole():
    whole = hs.Evidence.zero(2, forced=True)
    whole = whole.add([1.0, 0.0], 3.0, forced=True).add([0.0, 2.0], 5.0)
    assert whole.moment.tolist() == [3.0, 10.0]
    assert whole.forced == hs.Evidence.of([[1.0, 0.0]], [3.0])


@on_random_instances
@given(seeds, st.floats(1e-3, 1.0))
def test_fading_is_a_factor_on_every_sum(seed, factor):
    evidence = random_forced(seed)
    faded = evidence.discount(factor)
    for one, other in ((evidence, faded), (evidence.forced, faded.forced)):
        for name in ("gram", "moment", "rounds", "squares"):
            np.testing.assert_allclose(getattr(other, name), factor * np.array(getattr(one, name)))
    assert evidence.replace(forced=None).discount(factor).forced is None
    assert hs.Evidence.zero(3).discount(factor) == hs.Evidence.zero(3)


def test_forced_rounds_are_ordinary_where_none_are_kept_apart():
    plain = hs.Evidence.zero(2).add([1.0, 0.0], 3.0, forced=True)
    assert plain == hs.Evidence.of([[1.0, 0.0]], [3.0])


def test_evidence_with_and_without_forced_rounds_cannot_be_mixed():
    with pytest.raises(hs.InputError, match="forced"):
        hs.Evidence.zero(2) + hs.Evidence.zero(2, forced=True)


@on_random_instances
@given(seeds, st.integers(1, 6), st.booleans())
def test_packing_keeps_every_bit(seed, dim, forced):
    evidence = random_forced(seed, dim)
    if not forced:
        evidence = evidence.replace(forced=None)
    size = dim * (dim + 1) // 2 + dim + 2
    packed = evidence.pack()
    assert packed.shape == (size * (2 if forced else 1),)
    assert hs.Evidence.unpack(packed, dim) == evidence


def test_packed_order_by_hand():
    packed = hs.Evidence.of([[1.0, 2.0]], [3.0]).pack()
    assert packed.tolist() == [1, 2, 4, 3, 6, 1, 9]  # gram's upper triangle, moment, n, Σr²


def test_packing_works_along_batch_axes():
    evidence = hs.Evidence.of(*random_rounds(5, batch=(2, 4)))
    assert evidence.pack().shape == (2, 4, 11)
    assert hs.Evidence.unpack(evidence.pack(), 3) == evidence


def test_batch_axes_are_a_loop():
    contexts, rewards = random_rounds(6, batch=(4,))
    x, r = random_rounds(7, rounds=4)
    together = hs.Evidence.of(contexts, rewards).add(x, r)
    for at in range(4):
        alone = hs.Evidence.of(contexts[at], rewards[at]).add(x[at], r[at])
        assert_close(
            hs.Evidence(
                together.gram[at], together.moment[at], together.rounds[at], together.squares[at]
            ),
            alone,
        )
        np.testing.assert_allclose(together.ridge(0.5)[at], alone.ridge(0.5), rtol=1e-12)


@on_random_instances
@given(seeds, st.floats(1e-3, 1e3))
def test_ridge_is_scikit_learns(seed, lam):
    contexts, rewards = random_rounds(seed)
    theirs = Ridge(alpha=lam, fit_intercept=False).fit(contexts, rewards).coef_
    ours = hs.Evidence.of(contexts, rewards).ridge(lam)
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_ridge_by_hand():
    # gram = diag(1, 4), moment = (2, 6), λ = 1: (2/2, 6/5).
    evidence = hs.Evidence.of([[1.0, 0.0], [0.0, 2.0]], [2.0, 3.0])
    np.testing.assert_allclose(evidence.ridge(1.0), [1.0, 1.2])


def test_float32_stays_float32():
    contexts, rewards = random_rounds(8)
    evidence = hs.Evidence.of(contexts.astype(np.float32), rewards.astype(np.float32))
    assert evidence.gram.dtype == evidence.moment.dtype == np.float32
    np.testing.assert_allclose(evidence.gram, contexts.T @ contexts, rtol=1e-5, atol=1e-5)


def test_arrays_cannot_be_written_to():
    evidence = hs.Evidence.of(*random_rounds(9, batch=(2,)))
    for record in (evidence, evidence + evidence, evidence.add(np.ones((2, 3)), np.ones(2))):
        for array in (record.gram, record.moment, record.rounds, record.squares):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 7.0
    with pytest.raises(AttributeError):
        evidence.gram = np.eye(3)


def test_the_callers_arrays_are_left_alone_and_later_writes_do_not_leak_in():
    gram, moment = np.eye(2), np.ones(2)
    rounds, squares = np.array(2.0), np.array(3.0)
    evidence = hs.Evidence(gram, moment, rounds, squares)
    before = evidence.pack()
    for array in (gram, moment, rounds, squares):
        array[...] = 9.0
    assert evidence.pack().tolist() == before.tolist()

    contexts, rewards = random_rounds(10)
    kept = contexts.copy(), rewards.copy()
    evidence = hs.Evidence.of(contexts, rewards)
    before = evidence.pack()
    x = np.ones(3)
    added = evidence.add(x, 1.0).pack()
    assert (contexts == kept[0]).all()
    assert (rewards == kept[1]).all()
    contexts[:] = rewards[:] = x[:] = 0.0
    assert evidence.pack().tolist() == before.tolist()
    assert evidence.add(np.ones(3), 1.0).pack().tolist() == added.tolist()


def test_unpacking_does_not_share_the_vector():
    packed = random_forced(11).pack()
    evidence = hs.Evidence.unpack(packed, 3)
    before = evidence.pack()
    packed[:] = 0.0
    assert evidence.pack().tolist() == before.tolist()


def test_copies_and_pickles_are_equal():
    evidence = random_forced(12)
    assert copy.copy(evidence) == copy.deepcopy(evidence) == evidence
    assert pickle.loads(pickle.dumps(evidence)) == evidence
    assert evidence != evidence.add(np.ones(3), 1.0)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: hs.Evidence.of([1.0, 2.0], [1.0]), "contexts"),
        (lambda: hs.Evidence.of([[1.0, np.nan]], [1.0]), "contexts"),
        (lambda: hs.Evidence.of([[1.0, np.inf]], [1.0]), "contexts"),
        (lambda: hs.Evidence.of([[1.0, 2.0]], [1.0, 2.0]), "rewards"),
        (lambda: hs.Evidence.of([[1.0, 2.0]], [np.nan]), "rewards"),
        (lambda: hs.Evidence.of([["a", "b"]], [1.0]), "contexts"),
        (lambda: hs.Evidence.of([[1.0], [1.0, 2.0]], [1.0, 1.0]), "contexts"),
        (lambda: hs.Evidence.zero(0), "dim"),
        (lambda: hs.Evidence.zero(2.0), "dim"),
        (lambda: hs.Evidence(np.eye(3), np.ones(2), 1, 1), "gram"),
        (lambda: hs.Evidence([[1.0, 2.0], [0.0, 1.0]], np.ones(2), 1, 1), "gram"),
        (lambda: hs.Evidence(np.eye(2), [np.nan, 0.0], 1, 1), "moment"),
        (lambda: hs.Evidence(np.eye(2), np.ones(2), -1, 1), "rounds"),
        (lambda: hs.Evidence(np.eye(2), np.ones(2), 1, np.inf), "squares"),
        (lambda: hs.Evidence(np.eye(2), np.ones(2), [1, 1], 1), "rounds"),
        (lambda: hs.Evidence(np.eye(2), np.ones(2), 1, 1, hs.Evidence.zero(3)), "forced"),
        (lambda: hs.Evidence(np.eye(2), np.ones(2), 1, 1, "all of it"), "forced"),
        (lambda: hs.Evidence.zero(2).add([1.0], 1.0), "context"),
        (lambda: hs.Evidence.zero(2).add([1.0, np.inf], 1.0), "context"),
        (lambda: hs.Evidence.zero(2).add([1.0, 2.0], np.nan), "reward"),
        (lambda: hs.Evidence.zero(2).add([1.0, 2.0], [1.0]), "reward"),
        (lambda: hs.Evidence.zero(2) + hs.Evidence.zero(3), "dimension"),
        (lambda: hs.Evidence.zero(2).ridge(0.0), "lam"),
        (lambda: hs.Evidence.zero(2).ridge(-1.0), "lam"),
        (lambda: hs.Evidence.zero(2).ridge(np.nan), "lam"),
        (lambda: hs.Evidence.unpack(np.zeros(6), 2), "vector"),
        (lambda: hs.Evidence.unpack(np.full(7, np.nan), 2), "vector"),
        (lambda: hs.Evidence.unpack("seven", 2), "vector"),
        (lambda: hs.Evidence.unpack(np.zeros(7), 0), "dim"),
    ],
)
def test_bad_input_is_refused_by_name(call, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        call()
    assert issubclass(hs.InputError, ValueError)
