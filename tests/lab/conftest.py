"""What tests of the laboratory share: a GPU that is not there."""

import pytest

from headstart.lab.engine import simulate


@pytest.fixture
def pretend_gpu(monkeypatch):
    """As if there were a GPU, whose every regret is larger by 1; gives the seeds that it played."""
    from headstart.lab import gpu
    from headstart.lab.gpu import engine

    played = []

    def play(world, policies, seeds, tasks, rounds, marks, progress=None):
        played.append(tuple(seeds))
        found = simulate(world, policies, seeds, tasks, rounds, marks, None, progress)
        return {name: trace.regret + 1.0 for name, trace in found.items()}

    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(engine, "simulate", play)
    return played


@pytest.fixture
def no_gpu(monkeypatch):
    """``no_gpu()``: from here on there is none, on this machine or any other."""
    from headstart.lab import gpu

    def take_away():
        monkeypatch.setattr(gpu, "missing", lambda: "there is no GPU")

    take_away()
    return take_away
