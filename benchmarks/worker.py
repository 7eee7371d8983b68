"""One contender at work, in an environment of its own, asked by JSON lines on standard input.

Called with a file of ``contenders/`` and the name of one of its ``VARIANTS``. Each of these is a
class that is made from a problem (converting contexts to what the library reads happens there and
is not timed) and has

- ``choose(t)``: the arm for round ``t`` of the problem,
- ``learn(t, arm, reward)``: learn from it,

or, where that is not how it works, ``seconds_per_round(rounds)``. It may have ``sizes()``: bytes by
what they hold; and ``multiple``: rounds are played in multiples of it. It raises ``NotAvailable``
(any exception of that name) where it cannot do the work.

A question is ``{"dim": 30, "arms": 20, "rounds": 500, "seed": 0}``, perhaps with ``"options"`` for
the class, and is answered with ``{"seconds_per_round": …, "mean_reward": …}``. With
``"sizes": true`` the answer is ``{"sizes": {…}}``. The player is kept from one question to the
next, so that blocks of different contenders can be interleaved.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from problem import Problem


def load(path: str, variant: str) -> Any:
    """The class that plays."""
    # Under a name that no library has: contenders/river.py must not hide river.
    spec = importlib.util.spec_from_file_location("contender", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["contender"] = module  # so that what it defines can be pickled
    spec.loader.exec_module(module)
    return module.VARIANTS[variant]


def time_rounds(player: Any, problem: Problem, rounds: int, start: int) -> dict[str, float]:
    """Choose and learn for so many rounds."""
    if hasattr(player, "seconds_per_round"):
        return {"seconds_per_round": player.seconds_per_round(rounds)}
    choose, learn, rewards = player.choose, player.learn, problem.rewards
    order = [t % problem.rounds for t in range(start, start + rounds)]
    total = 0.0
    begin = time.perf_counter()
    for t in order:
        arm = choose(t)
        reward = rewards[t][arm]
        learn(t, arm, reward)
        total += reward
    seconds = time.perf_counter() - begin
    return {"seconds_per_round": seconds / rounds, "mean_reward": total / rounds}


class Worker:
    """Answers questions, and keeps the player of the last one."""

    def __init__(self, variant: Any) -> None:
        self.variant = variant
        self.key: str | None = None
        self.player: Any = None
        self.problem: Any = None
        self.played = 0

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer, or why there is none."""
        options = question.get("options", {})
        shape = {name: question[name] for name in ("dim", "arms", "seed")}
        key = json.dumps([shape, options], sort_keys=True)
        try:
            if key != self.key:
                self.key = self.player = None  # let go of the old one first
                self.problem = Problem(**shape)
                self.player = self.variant(self.problem, **options)
                self.key, self.played = key, 0
            if question.get("sizes"):
                sizes = getattr(self.player, "sizes", dict)
                return {"sizes": sizes()}
            multiple = getattr(self.player, "multiple", 1)
            rounds = multiple * math.ceil(question["rounds"] / multiple)
            answer = time_rounds(self.player, self.problem, rounds, self.played)
            self.played += rounds
            return answer
        except Exception as error:
            if type(error).__name__ == "NotAvailable":
                return {"unavailable": str(error)}
            return {"error": f"{type(error).__name__}: {error}"}


def pin() -> None:
    """Stay on one core: the last one, the same for all, since only one works at a time."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def main() -> None:
    """Answer until the questions end."""
    path, variant = sys.argv[1:]
    # What a library prints must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    pin()
    warnings.simplefilter("ignore")
    try:
        worker = Worker(load(str(Path(path)), variant))
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers)
        return
    print(json.dumps({"ready": True}), file=answers)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
