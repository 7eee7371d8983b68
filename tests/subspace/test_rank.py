"""How many components to keep: gaps by hand, and a gate that noise passes once in a hundred."""

import numpy as np
import pytest

from headstart.subspace import gated_log_gap, log_gap, raw_gap
from headstart.subspace.rank import white_log_gap


def eigenvalues(vectors):
    """Eigenvalues, largest first, of the covariance of (..., N, d) vectors."""
    centred = vectors - vectors.mean(-2, keepdims=True)
    covariance = centred.swapaxes(-1, -2) @ centred / vectors.shape[-2]
    return np.maximum(np.linalg.eigvalsh(covariance)[..., ::-1], 0.0)


def white(dim, count, draws, seed=0):
    return eigenvalues(np.random.default_rng(seed).standard_normal((draws, count, dim)))


def structured(dim, rank, count, draws, inside=0.25, outside=0.02):
    scales = np.where(np.arange(dim) < rank, inside, outside)
    return eigenvalues(np.random.default_rng(1).standard_normal((draws, count, dim)) * scales)


def test_raw_gap_by_hand():
    assert raw_gap(np.array([9.0, 4.0, 3.9, 0.1])) == 1  # gaps 5, 0.1, 3.8
    assert raw_gap(np.array([9.0, 8.0, 3.9, 0.1])) == 2  # gaps 1, 4.1, 3.8
    assert raw_gap(np.array([9.0, 8.0, 7.0, 0.1])) == 3
    assert raw_gap(np.array([5.0])) == 1


def test_log_gap_by_hand():
    values = np.array([9.0, 4.0, 3.9, 0.1])
    assert log_gap(values, 100) == 3  # ratios 2.25, 1.03, 39
    assert log_gap(values, 4) == 1  # p ≤ 0.8·3 = 2.4: the third may not be looked at
    assert log_gap(np.array([9.0, 3.0, 0.9]), 100) == 2  # ratios 3, 3.33; p ≤ 2.4


def test_log_gap_looks_at_no_more_than_four_fifths():
    values = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1e-9])
    values = values - 1e-3 * np.arange(10) * (values == 1.0)
    assert log_gap(values, 1000) != 9
    assert log_gap(values, 1000) == 8


def test_zero_eigenvalues_are_floored():
    assert log_gap(np.array([1.0, 1e-3, 0.0, 0.0, 0.0]), 50) == 2
    assert log_gap(np.zeros(5), 50) == 5
    assert gated_log_gap(np.zeros(5), 50) == 5


@pytest.mark.parametrize("rule", [log_gap, gated_log_gap])
def test_too_few_tasks_say_nothing(rule):
    for count in (0, 1, 2):
        assert rule(np.array([9.0, 1.0, 0.0]), count) == 3
    assert rule(np.array([2.0]), 50) == 1  # one dimension: no projection


def test_the_unit_does_not_matter():
    values = structured(6, 2, 40, 20)
    for rule in (log_gap, gated_log_gap):
        assert (rule(values, 40) == rule(1e-8 * values, 40)).all()
    assert (raw_gap(values) == raw_gap(1e-8 * values)).all()


def test_batch_axes_are_a_loop():
    values = np.concatenate([structured(6, 2, 30, 5), white(6, 30, 5)]).reshape(2, 5, 6)
    counts = np.arange(1, 11).reshape(2, 5) * 4
    for at in np.ndindex(2, 5):
        assert raw_gap(values)[at] == raw_gap(values[at])
        assert log_gap(values, counts)[at] == log_gap(values[at], counts[at])
        assert gated_log_gap(values, counts)[at] == gated_log_gap(values[at], counts[at])
    assert gated_log_gap(values, 30).shape == (2, 5)
    assert gated_log_gap(values[0, 0], counts).shape == (2, 5)


def passes_for(dim, count, draws):
    return float((gated_log_gap(white(dim, count, draws), count) < dim).mean())


@pytest.mark.parametrize(
    ("dim", "count", "draws"),
    [
        (2, 5, 4000),
        (5, 33, 4000),
        (10, 100, 3000),
        (13, 33, 4000),
        (13, 100, 3000),
        (13, 300, 2000),
        (27, 33, 3000),
        (27, 100, 2000),
        (27, 300, 2000),
        (30, 400, 1000),
        (60, 90, 1000),
        (4, 10_000, 200),
    ],
)
def test_noise_passes_the_gate_about_once_in_a_hundred(dim, count, draws):
    """Also between the table's rows and columns, and beyond its last count."""
    rate = passes_for(dim, count, draws)
    fewest = 0.002 if draws >= 1000 else 0.0
    assert fewest <= rate <= 0.03


@pytest.mark.parametrize("beyond", [0, 1, 3])
@pytest.mark.parametrize("dim", [3, 7, 12, 13, 17, 25, 30, 80])
def test_noise_passes_no_more_often_where_tasks_are_as_many_as_dimensions(dim, beyond):
    """Where the initial phase ends, and where the largest gap of noise peaks."""
    draws = 8000 if dim < 20 else 3000 if dim < 50 else 500
    assert passes_for(dim, dim + beyond, draws) <= 0.03


@pytest.mark.parametrize(
    ("dim", "rank", "count"), [(4, 1, 20), (30, 15, 60), (30, 3, 40), (8, 6, 60)]
)
def test_clear_structure_passes_the_gate(dim, rank, count):
    ranks = gated_log_gap(structured(dim, rank, count, 100), count)
    assert (ranks == rank).mean() > 0.95


def test_the_raw_gap_answers_too_little_with_few_tasks():
    """Why it is not the default: the largest difference sits at the top."""
    values = structured(30, 15, 60, 100)
    assert np.median(raw_gap(values)) < 8
    assert np.median(log_gap(values, 60)) == 15


def test_the_gate_falls_with_the_number_of_tasks():
    for dim in (4, 13, 40):
        gates = white_log_gap(dim, np.array([100, 200, 1000, 4096, 10_000, 100_000]))
        assert (np.diff(gates) < 0).all()
        assert gates[-1] > 0
