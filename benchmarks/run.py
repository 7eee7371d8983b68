"""Compare headstart with its peers: times, bytes and growth, as a table and pictures.

``make bench`` runs all of it, ``make bench-quick`` a small part; see README.md in this folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from catalog import CONTENDERS, Contender
from crew import Member, NoAnswer, worker_processes
from environments import HERE, install_all
from growth import measure_points, measure_processes, seed_points, task_points
from measure import Effort, Entry, race, spread_of
from table import HEADLINE, headline, whole

SEED = 0
BEFORE_WEIGHING = 50  # rounds


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is measured."""

    dims: tuple[int, ...]
    arms: tuple[int, ...]
    effort: Effort
    tasks: tuple[int, ...]
    seeds: tuple[int, ...]
    growth: Effort
    process_tasks: int
    process_repetitions: int


FULL = Scale(
    dims=(18, 30, 100, 200),
    arms=(10, 20, 100),
    effort=Effort(repetitions=15, block=0.15),
    tasks=(1, 100, 10_000),
    seeds=(1, 5, 10, 20),
    growth=Effort(repetitions=9, block=0.2),
    process_tasks=200,  # long enough that starting the processes hardly counts
    process_repetitions=2,
)
QUICK = Scale(
    dims=(30,),
    arms=(20,),
    effort=Effort(repetitions=11, block=0.1),
    tasks=(1, 100),
    seeds=(1, 5),
    growth=Effort(repetitions=3, block=0.1),
    process_tasks=4,
    process_repetitions=1,
)


class Clock:
    """Tells progress with the time since the start."""

    def __init__(self) -> None:
        self.begin = time.monotonic()

    def log(self, text: str) -> None:
        """Say what is going on."""
        minutes, seconds = divmod(int(time.monotonic() - self.begin), 60)
        print(f"[{minutes:2d}:{seconds:02d}] {text}", flush=True)


def measure(scale: Scale, contenders: list[Contender], clock: Clock) -> dict[str, Any]:
    """All numbers."""
    peers = sorted({contender.peer for contender in contenders if contender.peer})
    clock.log(f"installing {len(peers)} peers, each in an environment of its own")
    not_installed = install_all(peers, clock.log)
    able = [contender for contender in contenders if contender.peer not in not_installed]
    results: dict[str, Any] = {
        "asked": [contender.name for contender in contenders],
        "not_installed": not_installed,
    }
    with worker_processes(able) as (members, failures):
        for name, reason in failures.items():
            clock.log(f"{name}: {reason}")
        results["grid"] = []
        for dim in scale.dims:
            for arms in scale.arms:
                clock.log(f"d = {dim}, K = {arms}: {len(members)} contenders in turn")
                timings = play(members, dim, arms, scale.effort, clock)
                timings["failures"].update(failures)
                results["grid"].append(timings)
        clock.log("bytes per task")
        results["sizes"] = {str(dim): sizes(members, dim) for dim in scale.dims}
    clock.log(f"growth with tasks: {', '.join(map(str, scale.tasks))}")
    points = task_points(scale.tasks)
    results["tasks"] = measure_points(points, scale.growth, SEED, clock.log)
    clock.log(f"growth with seeds: {', '.join(map(str, scale.seeds))}")
    points = seed_points(scale.seeds)
    results["seeds"] = measure_points(points, scale.growth, SEED, clock.log)
    clock.log("growth with processes: 1 and 2")
    results["processes"] = measure_processes(scale.process_tasks, scale.process_repetitions)
    results["about"] = about(scale, results, peers)
    return results


def play(
    members: dict[str, Member], dim: int, arms: int, effort: Effort, clock: Clock
) -> dict[str, Any]:
    """Everyone at one size, interleaved."""
    question = {"dim": dim, "arms": arms, "seed": SEED}
    entries = [Entry(name, member, question) for name, member in members.items()]
    timings = race(entries, effort, SEED + dim * arms, clock.log)
    return {"dim": dim, "arms": arms, **dataclasses.asdict(timings)}


def sizes(members: dict[str, Member], dim: int) -> dict[str, dict[str, int]]:
    """Bytes by contender, after a few rounds each."""
    question = {"dim": dim, "arms": HEADLINE[1], "seed": SEED}
    sizes_by_name = {}
    for name, member in members.items():
        if not member.contender.weigh:
            continue
        try:
            member.ask(**question, rounds=BEFORE_WEIGHING)
            answer = member.ask(**question, sizes=True)["sizes"]
        except NoAnswer:
            continue  # the tables of times say why
        if answer:
            sizes_by_name[name] = answer
    return sizes_by_name


def about(scale: Scale, results: dict[str, Any], peers: list[str]) -> dict[str, Any]:
    """How it was measured."""
    dim, arms = HEADLINE
    at = [(timings["dim"], timings["arms"]) for timings in results["grid"]].index(HEADLINE)
    floor = spread_of(results["grid"][at], "floor, UCB")
    operations = 2 * arms * dim**2 + 4 * arms * dim + 6 * dim**2
    known = {name: version(name) for name in ("headstart", "numpy", "scipy")}
    return {
        "repetitions": scale.effort.repetitions,
        "block_seconds": scale.effort.block,
        "rounds_before_weighing": BEFORE_WEIGHING,
        "seed": SEED,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "gigaflops": operations / floor.middle / 1e3 if floor else math.nan,
        "versions": {**known, **{peer: pinned_version(peer) for peer in peers}},
    }


def pinned_version(peer: str) -> str:
    """The version of a peer that its requirements state."""
    for line in (HERE / "peers" / f"{peer}.txt").read_text("utf-8").splitlines():
        name, _, number = line.partition("==")
        if name.lower() == peer:
            return number
    raise LookupError(f"peers/{peer}.txt does not say which version of {peer}")


def report(results: dict[str, Any], folder: Path) -> None:
    """Write the table and the pictures, print the one and name the others."""
    from plots import draw_all  # here, because it loads Matplotlib

    (folder / "table.md").write_text(whole(results), "utf-8")
    paths = draw_all(results, folder)
    print(f"\n{headline(results)}\n")
    for path in (folder / "table.md", folder / "results.json", *paths):
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        print(shown)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one size and a few peers")
    parser.add_argument("--redraw", action="store_true", help="measure nothing, write tables anew")
    parser.add_argument("--only", metavar="TEXT", help="only contenders whose name has this text")
    parser.add_argument("--dims", type=numbers, metavar="D,D", help="other numbers of features")
    parser.add_argument("--arms", type=numbers, metavar="K,K", help="other numbers of arms")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where results go")
    options = parser.parse_args()
    folder = options.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "results.json"
    if not options.redraw:
        contenders = [
            contender
            for contender in CONTENDERS
            if (contender.quick or not options.quick) and is_requested(contender, options.only)
        ]
        scale = QUICK if options.quick else FULL
        scale = dataclasses.replace(
            scale, dims=options.dims or scale.dims, arms=options.arms or scale.arms
        )
        results = measure(scale, contenders, Clock())
        path.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    # Read back even when just written, so that tables never depend on what a file cannot hold.
    report(json.loads(path.read_text("utf-8")), folder)


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between them."""
    return tuple(int(part) for part in text.split(","))


def is_requested(contender: Contender, text: str | None) -> bool:
    """Whether it is asked for; those that others are compared with always are."""
    if text is None or contender.peer is None:
        return True
    return text.lower() in contender.name.lower()


if __name__ == "__main__":
    main()
