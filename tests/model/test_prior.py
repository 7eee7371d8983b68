"""A prior is N(mean, R² F Fᵀ): three ways to make one, and what each says."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs

seeds = st.integers(0, 2**32 - 1)
on_random_instances = settings(max_examples=40, deadline=None, derandomize=True)


def random_covariance(rng, dim):
    half = rng.standard_normal((dim, dim))
    return half @ half.T + 0.1 * np.eye(dim)


def test_isotropic_is_ridge_regressions_prior():
    prior = hs.Prior.isotropic(2, lam=4.0, noise=3.0, mean=[1.0, 2.0], bias=0.7)
    assert prior.mean.tolist() == [1.0, 2.0]
    assert prior.root.tolist() == [[0.5, 0.0], [0.0, 0.5]]
    np.testing.assert_allclose(prior.covariance, (9.0 / 4.0) * np.eye(2))
    assert prior.log_det == pytest.approx(np.log(16.0))
    assert (prior.noise, prior.bias, prior.printed_bias) == (3.0, 0.7, 0.7)


@on_random_instances
@given(seeds, st.integers(1, 6), st.floats(0.01, 100.0))
def test_gaussian_has_the_covariance_it_was_given_whatever_the_noise(seed, dim, noise):
    rng = np.random.default_rng(seed)
    sigma, mean = random_covariance(rng, dim), rng.standard_normal(dim)
    prior = hs.Prior.gaussian(mean, sigma, noise=noise)
    np.testing.assert_allclose(prior.covariance, sigma, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(prior.root, prior.root.T, atol=1e-10 / noise)
    log_det = -np.linalg.slogdet(sigma / noise**2)[1]
    assert prior.log_det == pytest.approx(log_det, abs=1e-8)


def test_gaussian_by_hand():
    prior = hs.Prior.gaussian([1.0, 0.0], [[4.0, 0.0], [0.0, 9.0]], noise=2.0)
    np.testing.assert_allclose(prior.root, [[1.0, 0.0], [0.0, 1.5]], atol=1e-15)


def test_gaussian_may_be_certain_of_a_direction():
    prior = hs.Prior.gaussian([0.0, 1.0], [[1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(prior.covariance, [[1.0, 0.0], [0.0, 0.0]], atol=1e-15)
    assert prior.log_det == np.inf


def test_batch_axes_are_a_loop():
    rng = np.random.default_rng(0)
    sigma = np.stack([random_covariance(rng, 3) for _ in range(4)])
    mean = rng.standard_normal((4, 3))
    noise = rng.uniform(0.5, 2.0, 4)
    together = hs.Prior(mean, np.linalg.cholesky(sigma), noise=noise, bias=noise)
    assert (together.dim, together.batch) == (3, (4,))
    for at in range(4):
        alone = hs.Prior(mean[at], np.linalg.cholesky(sigma[at]), noise=noise[at])
        np.testing.assert_allclose(together.covariance[at], alone.covariance, rtol=1e-13)
        assert together.log_det[at] == pytest.approx(alone.log_det, rel=1e-12)


def test_arrays_cannot_be_written_to():
    prior = hs.Prior(np.zeros((2, 3)), np.stack([np.eye(3)] * 2), noise=np.ones(2), bias=np.ones(2))
    for array in (prior.mean, prior.root, prior.noise, prior.bias, prior.printed_bias):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
    with pytest.raises(AttributeError):
        prior.noise = 1.0


def test_the_callers_arrays_are_left_alone_and_later_writes_do_not_leak_in():
    mean, root, noise = np.zeros((2, 2)), np.stack([np.eye(2)] * 2), np.ones(2)
    prior = hs.Prior(mean, root, noise=noise)
    for array in (mean, root, noise):
        array[...] = 5.0
    assert prior.mean.tolist() == [[0, 0], [0, 0]]
    assert prior.root.tolist() == [np.eye(2).tolist()] * 2
    assert prior.noise.tolist() == [1, 1]


def test_writes_through_an_older_view_do_not_leak_in():
    mean = np.zeros(2)
    view = mean[:]
    mean.flags.writeable = False
    prior = hs.Prior(mean, np.eye(2))
    view[0] = 9.0
    assert prior.mean.tolist() == [0.0, 0.0]


def test_copies_and_pickles_are_equal():
    prior = hs.Prior.gaussian([1.0, 2.0], [[2.0, 1.0], [1.0, 3.0]], noise=0.3, bias=1.5)
    assert copy.copy(prior) == copy.deepcopy(prior) == prior
    assert pickle.loads(pickle.dumps(prior)) == prior
    assert prior != prior.replace(noise=0.4)


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: hs.Prior(0.0, np.eye(2)), "mean"),
        (lambda: hs.Prior([0.0, np.nan], np.eye(2)), "mean"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(3)), "root"),
        (lambda: hs.Prior([0.0, 0.0], [[np.inf, 0.0], [0.0, 1.0]]), "root"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), noise=0.0), "noise"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), noise=-1.0), "noise"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), noise=np.nan), "noise"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), noise=[1.0, 1.0]), "noise"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), bias=-0.1), "bias"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), printed_bias=np.nan), "printed_bias"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), bias=-np.inf), "bias"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), bias="none"), "bias"),
        (lambda: hs.Prior([0.0, 0.0], np.eye(2), noise=np.inf), "noise"),
        (lambda: hs.Prior.isotropic(0), "dim"),
        (lambda: hs.Prior.isotropic(2, lam=0.0), "lam"),
        (lambda: hs.Prior.isotropic(2, lam=-1.0), "lam"),
        (lambda: hs.Prior.isotropic(2, lam="auto"), "lam"),
        (lambda: hs.Prior.isotropic(2, mean=[0.0, np.inf]), "mean"),
        (lambda: hs.Prior.isotropic(2, mean=[0.0, 0.0, 0.0]), "mean"),
        (lambda: hs.Prior.isotropic(2, mean=[[0.0], [0.0, 0.0]]), "mean"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], np.ones(2)), "covariance"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], [[np.nan, 0.0], [0.0, 1.0]]), "covariance"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], np.eye(3)), "covariance"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], [[1.0, 0.9], [0.0, 1.0]]), "covariance"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], [[1.0, 0.0], [0.0, -1.0]]), "covariance"),
        (lambda: hs.Prior.gaussian([0.0, 0.0], np.eye(2), noise=0.0), "noise"),
    ],
)
def test_bad_input_is_refused_by_name(call, argument):
    with pytest.raises(hs.InputError, match=rf"\b{argument}\b"):
        call()
