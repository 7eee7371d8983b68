"""A transfer of one's own, written for one task at a time, works in experiments too."""

import dataclasses

import numpy as np

import headstart as hs
from headstart.lab import Policy, simulate
from headstart.worlds import Synthetic

WORLD = Synthetic(dim=4, rank=1, arms=3, noise=0.2)


@dataclasses.dataclass(frozen=True, repr=False)
class Plain(hs.Transfer):
    """B-OFUL's average, for one task at a time."""

    def init(self, dim, noise=None, batch=()):
        return {"sum": np.zeros(dim), "count": 0, "noise": noise}

    def fold(self, state, evidence, weight=1.0):
        assert evidence.batch == ()
        return {
            "sum": state["sum"] + evidence.ridge(0.5),
            "count": state["count"] + 1,
            "noise": state["noise"],
        }

    def prior(self, state):
        mean = state["sum"] / max(state["count"], 1)
        return hs.Prior.isotropic(4, 2.0, mean=mean, noise=state["noise"])


def test_it_decides_as_the_batched_one_does():
    policies = [
        Policy("batched", hs.Bias(lam=2.0, ridge=0.5), hs.UCB()),
        Policy("plain", Plain(), hs.UCB()),
    ]
    traces = simulate(WORLD, policies, seeds=[1, 2, 3], tasks=6, rounds=15)
    np.testing.assert_allclose(
        traces["plain"].regret, traces["batched"].regret, rtol=1e-9, atol=1e-12
    )


def test_forced_rounds_are_kept_apart_for_it_too():
    @dataclasses.dataclass(frozen=True, repr=False)
    class Single(hs.Gaussian):
        @property
        def batched(self):
            return False

    rule = hs.Forced(8, hs.UCB())
    # Under one name both draw the same forced arms.
    batched, single = (
        simulate(WORLD, [Policy("M-TS", transfer, rule)], seeds=[1, 2], tasks=5, rounds=12)
        for transfer in (hs.Gaussian(warmup=2), Single(warmup=2))
    )
    np.testing.assert_allclose(single["M-TS"].regret, batched["M-TS"].regret, atol=1e-12)
