"""An experiment on one process and on two, in turn: prints seconds per policy-round as JSON.

Called with the number of tasks and of repetitions. Starting the processes is included.
"""

from __future__ import annotations

import json
import sys
import time

from headstart.lab import Execution, Plan, run
from headstart.lab.policies import PAPER, policy
from headstart.worlds import Synthetic

SEEDS = 20  # four batches of five


def main() -> None:
    """Measure and print."""
    tasks, repetitions = (int(word) for word in sys.argv[1:])
    policies = tuple(policy(kind) for kind in PAPER)
    plan = Plan(Synthetic(), policies, tuple(range(SEEDS)), tasks)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repetitions):
        for workers, values in seconds.items():
            begin = time.perf_counter()
            run(plan, execution=Execution(workers=workers))
            values.append((time.perf_counter() - begin) / plan.work)
    print(json.dumps({"policy_rounds": plan.work, "seconds": seconds}))


if __name__ == "__main__":
    main()
