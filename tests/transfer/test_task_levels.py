"""Features whose size differs by orders of magnitude between tasks are found, others are not."""

import numpy as np
import pytest

from headstart.model.evidence import Evidence
from headstart.transfer.task_levels import features_in_proportion, proportion_notes

RNG = np.random.default_rng(0)


def tasks(*columns):
    """The Gram matrices of tasks with these features, ``(tasks, rows)`` each, and an intercept."""
    table = np.stack([*columns, np.ones_like(columns[0])], -1)
    return np.array([Evidence.of(rows, np.zeros(len(rows))).gram for rows in table])


SIZE = np.geomspace(20.0, 5000.0, 30)[:, None]
SPREAD = RNG.lognormal(0.0, 0.3, (30, 12))


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (SIZE * SPREAD, True),
        (-1e6 * SIZE * SPREAD, True),
        (SIZE + 100.0 * SPREAD, False),  # a unit is the same everywhere
        (np.log(SIZE * SPREAD), False),
        (np.broadcast_to(SIZE, (30, 12)), False),  # the same in all rows of a task
        (RNG.normal(size=(30, 12)), False),
        (RNG.normal(size=(30, 12)) * SIZE, False),  # around 0
        ((RNG.random((30, 12)) < np.linspace(0.02, 0.9, 30)[:, None]) * 1.0, False),
        (RNG.lognormal(0.0, 1.0, (30, 12)), False),
        (1.7e9 + RNG.random((30, 12)), False),
    ],
)
def test_amounts_that_follow_the_size_of_the_task(column, found):
    gram = tasks(RNG.normal(size=(30, 12)), column)
    assert features_in_proportion(gram).tolist() == [False, found]


def test_in_other_units_the_same():
    shift, scale = 900.0, 1500.0
    gram = tasks((SIZE * SPREAD - shift) / scale, (SIZE + 100.0 * SPREAD - shift) / scale)
    both = np.full(2, shift), np.full(2, scale)
    assert features_in_proportion(gram, *both).tolist() == [True, False]


def test_the_rounding_of_a_constant_is_no_small_size():
    """Most tasks have no row of a value: in units of their own, sums leave 1e-17 and not 0."""
    flags = [(RNG.random((100, 8)) < 0.5) & (RNG.random((100, 1)) < 0.3) for _ in range(40)]
    shift, scale = (np.array([part(flag) for flag in flags]) for part in (np.mean, np.std))
    units = zip(flags, shift, scale, strict=True)
    gram = tasks(*((flag - centre) / unit for flag, centre, unit in units))
    assert not features_in_proportion(gram, shift, scale).any()


def test_of_few_or_short_tasks_nothing_is_said():
    assert not features_in_proportion(tasks((SIZE * SPREAD)[::4])).any()
    assert not features_in_proportion(tasks((SIZE * SPREAD)[:, :4])).any()
    assert not features_in_proportion(np.zeros((0, 2, 2))).any()


def test_names_are_told():
    (one,) = proportion_notes(["sales"])
    assert one.startswith("sales differs tenfold")
    assert "its logarithm (log1p)" in one
    (many,) = proportion_notes([f"x{at}" for at in range(7)])
    assert many.startswith("x0, x1, x2, x3, x4 and 2 more differ tenfold")
    (odd,) = proportion_notes(["a\n", "b"])
    assert odd.startswith("a\\u000a and b differ")
