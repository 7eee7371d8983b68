"""Functions of ours that XLA calls from compiled ones, here on the CPU: what is handed over."""

import ctypes

import jax
import numpy as np
import pytest

from headstart.lab.gpu import foreign_calls
from headstart.lab.gpu.engine import double_precision

CALLS = []


def run(key, stream, addresses):
    """Write b + k a and 2 a, for a key of k and the number of numbers."""
    CALLS.append((key, stream))
    factor, size = key.split()
    if factor == "none":
        raise ValueError("there is no kernel for it")
    a, b, total, twice = (
        np.ctypeslib.as_array(ctypes.cast(at, ctypes.POINTER(ctypes.c_double)), (int(size),))
        for at in addresses
    )
    total[...], twice[...] = b + float(factor) * a, 2.0 * a


@pytest.fixture(autouse=True)
def registered():
    foreign_calls.register("headstart_test", run, "cpu")
    CALLS.clear()


def test_arrays_go_in_and_out_of_a_compiled_loop():
    @jax.jit
    def three_times(a, b):
        def step(_, pair):
            return tuple(foreign_calls.call("headstart_test", "10 6", [(2, 3), (3, 2)], *pair))

        total, twice = jax.lax.fori_loop(0, 3, lambda at, p: (step(at, p)[0], p[1]), (a, b))
        return total, step(0, (total, b))[1] + twice.T.sum()

    a, b = np.arange(6.0).reshape(2, 3), np.ones((2, 3))
    with double_precision():
        total, rest = three_times(a, b)
    wanted = a
    for _ in range(3):
        wanted = b + 10.0 * wanted
    np.testing.assert_array_equal(total, wanted)
    np.testing.assert_array_equal(rest, (2.0 * wanted).reshape(3, 2) + 6.0)
    assert CALLS == [("10 6", 0)] * 4


def test_an_exception_is_one_of_the_compiled_function():
    def fails(a):
        return foreign_calls.call("headstart_test", "none 2", [(2,), (2,)], a, a)

    with (
        double_precision(),
        pytest.raises(Exception, match="ValueError: there is no kernel for it"),
    ):
        jax.block_until_ready(jax.jit(fails)(np.ones(2)))
