"""Who takes part: every contender, where it lives, and whether it does the same job.

The job: one linear model that all arms share, of exact mean and covariance; a round scores K arms
by their own d features, picks one, and learns its reward before the next.
"""

from __future__ import annotations

import dataclasses

SAME = "the same job"

OURS, PLAIN, PEER = "headstart", "plain NumPy", "peer"


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
    peer
        The environment it runs in, by the name of its file in ``peers/``; ours unless given.
    quick
        Whether the quick run has it.
    kind
        Whose it is.
    weigh
        Whether its bytes are worth a line of their own.
    """

    name: str
    file: str
    variant: str
    rule: str = "UCB"
    job: str = SAME
    peer: str | None = None
    quick: bool = True
    kind: str = PEER
    weigh: bool = True


#: Those that ratios are to, by rule.
BASELINES = {"UCB": "headstart, UCB", "Thompson": "headstart, Thompson"}

#: The plain loops that other ratios are to, by rule.
LOOPS = {"UCB": "square-root loop, UCB", "Thompson": "square-root loop, Thompson"}

FOR_EACH_ARM = "a model for each arm, all see one context"

CONTENDERS = (
    Contender("headstart, UCB", "headstart", "ucb", kind=OURS),
    Contender("headstart, Thompson", "headstart", "thompson", "Thompson", kind=OURS, weigh=False),
    Contender("headstart, compiled, UCB", "headstart", "compiled ucb", kind=OURS, weigh=False),
    Contender(
        "headstart, compiled, Thompson",
        "headstart",
        "compiled thompson",
        "Thompson",
        kind=OURS,
        weigh=False,
    ),
    Contender(
        "headstart, default",
        "headstart",
        "default",
        job="more: an intercept, units of features and the noise (one task, so no prior yet)",
        kind=OURS,
    ),
    Contender(
        "headstart, default, compiled",
        "headstart",
        "compiled default",
        job="more: as above",
        kind=OURS,
        weigh=False,
    ),
    Contender(
        "headstart, default, tasks of 250",
        "headstart",
        "closing",
        job="more: tasks are closed, and what they share is learned",
        kind=OURS,
        weigh=False,
    ),
    Contender(
        "headstart, many tasks in one call",
        "headstart_batch",
        "batch",
        job="the same job for many tasks at once; time per decision",
        kind=OURS,
    ),
    Contender(
        "headstart, many tasks in one call, choosing",
        "headstart_batch",
        "choosing",
        job="less: nothing is learned; time per decision",
        kind=OURS,
        weigh=False,
    ),
    Contender(
        "headstart, experiment engine",
        "headstart_engine",
        "engine",
        job="eight policies, 5 seeds, tasks drawn meanwhile; time per policy-round",
        kind=OURS,
    ),
    Contender("floor, UCB", "floor", "ucb", job="arithmetic only, at the GEMM rate", kind=PLAIN),
    Contender(
        "floor, Thompson",
        "floor",
        "thompson",
        "Thompson",
        job="arithmetic only, at the GEMM rate",
        kind=PLAIN,
    ),
    Contender("square-root loop, UCB", "square_root_loop", "ucb", kind=PLAIN),
    Contender(
        "square-root loop, Thompson",
        "square_root_loop",
        "thompson",
        "Thompson",
        kind=PLAIN,
        weigh=False,
    ),
    Contender("inverse loop, UCB", "inverse_loop", "ucb", kind=PLAIN),
    Contender(
        "inverse loop, Thompson", "inverse_loop", "thompson", "Thompson", kind=PLAIN, weigh=False
    ),
    Contender(
        "contextualbandits regression, UCB",
        "contextualbandits",
        "regression ucb",
        peer="contextualbandits",
        quick=False,
    ),
    Contender(
        "contextualbandits regression, Thompson",
        "contextualbandits",
        "regression thompson",
        "Thompson",
        job="draws with covariance ∝ B in place of B⁻¹ (as measured)",
        peer="contextualbandits",
        quick=False,
    ),
    Contender(
        "contextualbandits LinUCB",
        "contextualbandits",
        "ucb",
        job=f"{FOR_EACH_ARM}; single precision",
        peer="contextualbandits",
        quick=False,
    ),
    Contender(
        "contextualbandits LinTS",
        "contextualbandits",
        "thompson",
        "Thompson",
        job=f"{FOR_EACH_ARM}; draws as above",
        peer="contextualbandits",
        quick=False,
    ),
    Contender(
        "Vowpal Wabbit, SquareCB",
        "vowpalwabbit",
        "squarecb",
        job="gradient steps on hashed features, no covariance; reads text",
        peer="vowpalwabbit",
    ),
    Contender(
        "Vowpal Wabbit, RegCB, optimistic",
        "vowpalwabbit",
        "regcb",
        job="gradient steps on hashed features, optimism by sensitivity; reads text",
        peer="vowpalwabbit",
    ),
    Contender(
        "Vowpal Wabbit, ε-greedy",
        "vowpalwabbit",
        "epsilon",
        job="gradient steps on hashed features, random exploration; reads text",
        peer="vowpalwabbit",
    ),
    Contender("MABWiser, one model, UCB", "mabwiser", "shared ucb", peer="mabwiser", quick=False),
    Contender(
        "MABWiser, one model, Thompson",
        "mabwiser",
        "shared thompson",
        "Thompson",
        job="a new draw for every arm",
        peer="mabwiser",
        quick=False,
    ),
    Contender("MABWiser LinUCB", "mabwiser", "ucb", job=FOR_EACH_ARM, peer="mabwiser", quick=False),
    Contender(
        "MABWiser LinTS",
        "mabwiser",
        "thompson",
        "Thompson",
        job=FOR_EACH_ARM,
        peer="mabwiser",
        quick=False,
    ),
    Contender("river regression, UCB", "river", "regression", peer="river"),
    Contender("river LinUCB", "river", "ucb", job=FOR_EACH_ARM, peer="river"),
    Contender(
        "bayesianbandits, one learner, UCB",
        "bayesianbandits",
        "shared ucb",
        job="quantiles of 1000 draws in place of the bound",
        peer="bayesianbandits",
        quick=False,
    ),
    Contender(
        "bayesianbandits, one learner, Thompson",
        "bayesianbandits",
        "shared thompson",
        "Thompson",
        peer="bayesianbandits",
        quick=False,
    ),
    Contender(
        "bayesianbandits, UCB",
        "bayesianbandits",
        "ucb",
        job=f"{FOR_EACH_ARM}; quantiles of 1000 draws",
        peer="bayesianbandits",
        quick=False,
    ),
    Contender(
        "bayesianbandits, Thompson",
        "bayesianbandits",
        "thompson",
        "Thompson",
        job=FOR_EACH_ARM,
        peer="bayesianbandits",
        quick=False,
    ),
    Contender("coba LinUCB", "coba", "ucb", peer="coba"),
    Contender("coba LinTS", "coba", "thompson", "Thompson", peer="coba"),
    Contender("obp LinUCB", "obp", "ucb", job=FOR_EACH_ARM, peer="obp", quick=False),
    Contender(
        "obp LinTS", "obp", "thompson", "Thompson", job=FOR_EACH_ARM, peer="obp", quick=False
    ),
)
