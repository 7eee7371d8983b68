"""Who takes part: every contender, where it lives, and whether it does the same job.

The job: one linear model that all arms share, of exact mean and covariance; a round scores K arms
by their own d features, picks one, and learns its reward before the next.
"""

from __future__ import annotations

import dataclasses

SAME = "the same job"

OURS, PLAIN, PEER = "headstart", "plain NumPy", "peer"
PLAIN_FILES = ("floor", "square_root_loop", "inverse_loop")
QUICK_PEERS = ("vowpalwabbit", "river", "coba")


@dataclasses.dataclass(frozen=True)
class Contender:
    """Someone to be timed.

    Parameters
    ----------
    name
        What tables call it.
    file, variant
        Its file in ``contenders/`` and the key of its ``VARIANTS``.
    rule
        ``"UCB"`` or ``"Thompson"``: ratios are to headstart with this rule.
    job
        ``SAME``, or what it does differently.
    weigh
        Whether its bytes are worth a line of their own.
    """

    name: str
    file: str
    variant: str
    rule: str = "UCB"
    job: str = SAME
    weigh: bool = True

    @property
    def kind(self) -> str:
        """Whose it is."""
        if self.file.startswith("headstart"):
            return OURS
        return PLAIN if self.file in PLAIN_FILES else PEER

    @property
    def peer(self) -> str | None:
        """The environment it runs in, by the name of its file in ``peers/``; ours if ``None``."""
        return self.file if self.kind == PEER else None

    @property
    def quick(self) -> bool:
        """Whether the quick run has it."""
        return self.kind != PEER or self.file in QUICK_PEERS


#: Those that ratios are to, by rule.
BASELINES = {"UCB": "headstart, UCB", "Thompson": "headstart, Thompson"}

#: The plain loops that other ratios are to, by rule.
LOOPS = {"UCB": "square-root loop, UCB", "Thompson": "square-root loop, Thompson"}

FOR_EACH_ARM = "a model for each arm, all see one context"

CONTENDERS = (
    Contender("headstart, UCB", "headstart", "ucb"),
    Contender("headstart, Thompson", "headstart", "thompson", "Thompson", weigh=False),
    Contender("headstart, compiled, UCB", "headstart", "compiled ucb", weigh=False),
    Contender(
        "headstart, compiled, Thompson", "headstart", "compiled thompson", "Thompson", weigh=False
    ),
    Contender(
        "headstart, default",
        "headstart",
        "default",
        job="more: an intercept, units of features and the noise (one task, so no prior yet)",
    ),
    Contender(
        "headstart, default, compiled",
        "headstart",
        "compiled default",
        job="more: as above",
        weigh=False,
    ),
    Contender(
        "headstart, default, tasks of 250",
        "headstart",
        "closing",
        job="more: tasks are closed, and what they share is learned",
        weigh=False,
    ),
    Contender(
        "headstart, many tasks in one call",
        "headstart_batch",
        "batch",
        job="the same job for many tasks at once; time per decision",
    ),
    Contender(
        "headstart, many tasks in one call, choosing",
        "headstart_batch",
        "choosing",
        job="less: nothing is learned; time per decision",
        weigh=False,
    ),
    Contender(
        "headstart, experiment engine",
        "headstart_engine",
        "engine",
        job="eight policies, 5 seeds, tasks drawn meanwhile; time per policy-round",
    ),
    Contender("floor, UCB", "floor", "ucb", job="arithmetic only, at the GEMM rate"),
    Contender(
        "floor, Thompson", "floor", "thompson", "Thompson", job="arithmetic only, at the GEMM rate"
    ),
    Contender("square-root loop, UCB", "square_root_loop", "ucb"),
    Contender(
        "square-root loop, Thompson", "square_root_loop", "thompson", "Thompson", weigh=False
    ),
    Contender("inverse loop, UCB", "inverse_loop", "ucb"),
    Contender("inverse loop, Thompson", "inverse_loop", "thompson", "Thompson", weigh=False),
    Contender("contextualbandits regression, UCB", "contextualbandits", "regression ucb"),
    Contender(
        "contextualbandits regression, Thompson",
        "contextualbandits",
        "regression thompson",
        "Thompson",
        job="draws with covariance ∝ B in place of B⁻¹ (as measured)",
    ),
    Contender(
        "contextualbandits LinUCB",
        "contextualbandits",
        "ucb",
        job=f"{FOR_EACH_ARM}; single precision",
    ),
    Contender(
        "contextualbandits LinTS",
        "contextualbandits",
        "thompson",
        "Thompson",
        job=f"{FOR_EACH_ARM}; draws as above",
    ),
    Contender(
        "Vowpal Wabbit, SquareCB",
        "vowpalwabbit",
        "squarecb",
        job="gradient steps on hashed features, no covariance; reads text",
    ),
    Contender(
        "Vowpal Wabbit, RegCB, optimistic",
        "vowpalwabbit",
        "regcb",
        job="gradient steps on hashed features, optimism by sensitivity; reads text",
    ),
    Contender(
        "Vowpal Wabbit, ε-greedy",
        "vowpalwabbit",
        "epsilon",
        job="gradient steps on hashed features, random exploration; reads text",
    ),
    Contender("MABWiser, one model, UCB", "mabwiser", "shared ucb"),
    Contender(
        "MABWiser, one model, Thompson",
        "mabwiser",
        "shared thompson",
        "Thompson",
        job="a new draw for every arm",
    ),
    Contender("MABWiser LinUCB", "mabwiser", "ucb", job=FOR_EACH_ARM),
    Contender("MABWiser LinTS", "mabwiser", "thompson", "Thompson", job=FOR_EACH_ARM),
    Contender("river regression, UCB", "river", "regression"),
    Contender("river LinUCB", "river", "ucb", job=FOR_EACH_ARM),
    Contender(
        "bayesianbandits, one learner, UCB",
        "bayesianbandits",
        "shared ucb",
        job="quantiles of 1000 draws in place of the bound",
    ),
    Contender(
        "bayesianbandits, one learner, Thompson", "bayesianbandits", "shared thompson", "Thompson"
    ),
    Contender(
        "bayesianbandits, UCB",
        "bayesianbandits",
        "ucb",
        job=f"{FOR_EACH_ARM}; quantiles of 1000 draws",
    ),
    Contender(
        "bayesianbandits, Thompson", "bayesianbandits", "thompson", "Thompson", job=FOR_EACH_ARM
    ),
    Contender("coba LinUCB", "coba", "ucb"),
    Contender("coba LinTS", "coba", "thompson", "Thompson"),
    Contender("obp LinUCB", "obp", "ucb", job=FOR_EACH_ARM),
    Contender("obp LinTS", "obp", "thompson", "Thompson", job=FOR_EACH_ARM),
)
