"""Few tasks, or short ones: the default against another version of itself and the Bayes oracle.

The worlds are *wide* and *short* of ``headstart reproduce beyond`` and its six main worlds. All
policies see the same tasks, contexts and noise. For every world two tables are printed: the regret
per task by stages of the run, and ratios of regrets with 95 % intervals over seeds::

    python benchmarks/few_tasks.py --worlds wide short --seeds 8

``--against DIR`` adds the default of another source tree (a folder that contains the package
``headstart``; its ``Synthetic`` must have the options of the worlds asked for). ``--units given``
plays both defaults in the units given and without an intercept.

Seeds are played in blocks, each by a process of its own, ``--processes`` at a time. With ``--out
FILE`` every finished seed is added to a file of JSON lines, and seeds that the file already has
from the same sources are not played again. ``--limit SECONDS`` stops in time and prints the tables
of what is finished::

    python benchmarks/few_tasks.py --worlds all --seeds 48 --first 9000 --processes 16 \
        --against ../before/src --out few_tasks.jsonl --limit 540
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

STAGES = (0, 10, 25, 50, 100, 200, 400)
#: Policies by the names of the tables: an algorithm of the registry and its options.
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("empirical_bayes", {}),
    "full covariance alone": ("empirical_bayes", {"low_rank": False}),
    "other tree": ("empirical_bayes", {}),
    "LinUCB": ("linucb", {}),
    "Bayes oracle": ("bayes_oracle", {}),
}
UNITS = {"free": {}, "given": {"units": "given", "intercept": False}}
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclasses.dataclass(frozen=True)
class Job:
    """A policy in a world, and which seeds to play. ``world`` has the options of ``Synthetic``."""

    name: str
    world: dict[str, Any]
    tasks: int
    rounds: int
    policy: str
    algorithm: str
    options: dict[str, Any]
    source: str  # the folder of the package
    version: str  # a digest of its code
    seeds: tuple[int, ...]

    @property
    def key(self) -> str:
        """What decides the result of a seed."""
        parts = (self.world, self.tasks, self.rounds, self.algorithm, self.options, self.version)
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]

    def records(self, regret: Sequence[Sequence[float]]) -> Iterator[dict[str, Any]]:
        """One record per seed, with the regret of every task."""
        for seed, each in zip(self.seeds, regret, strict=True):
            yield {
                "key": self.key,
                "world": self.name,
                "policy": self.policy,
                "version": self.version,
                "seed": seed,
                "regret": each,
            }


def main() -> int:
    """Play what is missing and print the tables."""
    chosen = parse_arguments()
    jobs = list(make_jobs(chosen))
    records = read_records(chosen.out)
    done = {(record["key"], record["seed"]) for record in records}
    todo = [without(job, done) for job in jobs]
    failures = play_all([job for job in todo if job.seeds], chosen, records)
    results = {(record["key"], record["seed"]): np.array(record["regret"]) for record in records}
    for name in chosen.worlds:
        print_world(name, [job for job in jobs if job.name == name], results, chosen.units)
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    worlds = all_worlds()
    parser.add_argument("--worlds", nargs="+", choices=[*worlds, "all"], default=["wide", "short"])
    parser.add_argument("--policies", nargs="+", choices=POLICIES)
    parser.add_argument("--units", choices=UNITS, default="free")
    parser.add_argument("--against", type=Path, metavar="DIR", help="the sources to compare with")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--block", type=int, default=4, help="seeds that one process plays at once")
    parser.add_argument("--tasks", type=int, help="fewer tasks than the worlds have")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a file of JSON lines to add results to")
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds to stop after")
    chosen = parser.parse_args()
    for option in ("seeds", "block", "processes"):
        if getattr(chosen, option) < 1:
            parser.error(f"--{option} must be at least 1")
    if chosen.against is not None and not (chosen.against / "headstart").is_dir():
        parser.error(f"--against must be a folder that contains headstart, not {chosen.against}")
    if "all" in chosen.worlds:
        chosen.worlds = list(worlds)
    if chosen.policies is None:
        chosen.policies = [name for name in POLICIES if name != "other tree"]
    if chosen.against is not None and "other tree" not in chosen.policies:
        chosen.policies.append("other tree")
    if chosen.against is None and "other tree" in chosen.policies:
        parser.error("the policy 'other tree' needs --against")
    return chosen


def all_worlds() -> dict[str, tuple[Any, int, int]]:
    """The worlds by name, with their numbers of tasks and rounds."""
    from headstart.lab.studies.few_tasks import SPARSE_WORLDS
    from headstart.lab.studies.main_worlds import WORLDS

    sparse = {name: (each.world, each.tasks, each.rounds) for name, each in SPARSE_WORLDS.items()}
    return sparse | {name: (world, 400, 250) for name, world in WORLDS.items()}


def make_jobs(chosen: argparse.Namespace) -> Iterator[Job]:
    """What is to be played; the policies of a block of seeds follow each other."""
    import headstart

    worlds = all_worlds()
    ours = Path(headstart.__file__).parents[1]
    sources = {name: chosen.against if name == "other tree" else ours for name in chosen.policies}
    versions = {source: code_digest(source) for source in set(sources.values())}
    last = chosen.first + chosen.seeds
    for begin in range(chosen.first, last, chosen.block):
        seeds = tuple(range(begin, min(begin + chosen.block, last)))
        for name, policy in itertools.product(chosen.worlds, chosen.policies):
            world, tasks, rounds = worlds[name]
            algorithm, options = POLICIES[policy]
            if algorithm == "empirical_bayes":
                options = options | UNITS[chosen.units]
            yield Job(
                name=name,
                world=changed_options(world),
                tasks=min(chosen.tasks or tasks, tasks),
                rounds=rounds,
                policy=policy,
                algorithm=algorithm,
                options=options,
                source=str(sources[policy].resolve()),
                version=versions[sources[policy]],
                seeds=seeds,
            )


def changed_options(world: Any) -> dict[str, Any]:
    """The options of a world that are not the defaults."""
    fields = dataclasses.fields(world)
    options = {field.name: getattr(world, field.name) for field in fields}
    return {
        field.name: options[field.name] for field in fields if options[field.name] != field.default
    }


def code_digest(source: Path) -> str:
    """A digest of the code of a source tree."""
    digest = hashlib.sha256()
    for path in sorted((source / "headstart").rglob("*.py")):
        digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def read_records(path: Path | None) -> list[dict[str, Any]]:
    """The results in a file; a last line that was cut off does not count."""
    if path is None or not path.exists():
        return []
    records = []
    for line in path.read_text().splitlines():
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            print(f"{path}: a line that is not JSON is ignored", file=sys.stderr)
    return records


def without(job: Job, done: set[tuple[str, int]]) -> Job:
    """A job without the seeds that are done."""
    seeds = tuple(seed for seed in job.seeds if (job.key, seed) not in done)
    return dataclasses.replace(job, seeds=seeds)


def play_all(
    jobs: Iterable[Job], chosen: argparse.Namespace, records: list[dict[str, Any]]
) -> list[str]:
    """Play jobs in processes and add their records; returns what went wrong."""
    jobs, begin, lock = list(jobs), time.monotonic(), threading.Lock()
    failures: list[str] = []
    late: list[Job] = []

    def play(job: Job) -> None:
        left = chosen.limit - (time.monotonic() - begin)
        if left <= 0 or failures:
            late.append(job)
            return
        environment = os.environ | ONE_THREAD | {"PYTHONPATH": job.source}
        command = [sys.executable, __file__, "--job", json.dumps(dataclasses.asdict(job))]
        timeout = None if left == float("inf") else left
        try:
            ended = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired:
            late.append(job)
            return
        label = f"{job.name}, {job.policy}, seeds {job.seeds[0]}–{job.seeds[-1]}"
        if ended.returncode:
            failures.append(f"{label}: {ended.stderr.strip() or ended.returncode}")
            return
        answer = json.loads(ended.stdout)
        new = list(job.records(answer["regret"]))
        with lock:
            records.extend(new)
            if chosen.out is not None:
                with chosen.out.open("a") as file:
                    file.writelines(json.dumps(record) + "\n" for record in new)
            print(f"{label}: {answer['seconds']:.1f} s", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(chosen.processes) as pool:
        list(pool.map(play, jobs))
    if late:
        why = "a job failed" if failures else f"the limit of {chosen.limit:g} s"
        print(f"{len(late)} of {len(jobs)} jobs were left out: {why}", file=sys.stderr)
    return failures


def play_job(job: dict[str, Any]) -> None:
    """Play one job in this process and print the regret of its seeds and tasks."""
    from headstart.lab import simulate
    from headstart.lab.policies import policy
    from headstart.worlds.synthetic import Synthetic

    begin = time.process_time()
    each = policy(job["algorithm"], job["policy"], **job["options"])
    trace = simulate(Synthetic(**job["world"]), [each], job["seeds"], job["tasks"], job["rounds"])
    regret = trace[each.name].regret[:, :, -1].round(5).tolist()
    print(json.dumps({"regret": regret, "seconds": time.process_time() - begin}))


def print_world(
    name: str, jobs: Sequence[Job], results: dict[tuple[str, int], Any], units: str
) -> None:
    """The tables of a world, over the seeds that all its policies have finished."""
    keys = {job.policy: job.key for job in jobs}
    seeds = sorted({seed for job in jobs for seed in job.seeds})
    seeds = [seed for seed in seeds if all((key, seed) in results for key in keys.values())]
    print(f"\n{name}, units {units}: {len(seeds)} seeds", end="")
    if not seeds:
        print(" have been played by all policies")
        return
    regret = {each: np.array([results[key, seed] for seed in seeds]) for each, key in keys.items()}
    tasks = next(iter(regret.values())).shape[1]
    print(f" ({seeds[0]} to {seeds[-1]}), {tasks} tasks\n")
    print_stages(regret, tasks)
    if "default" in regret and len(regret) > 1:
        print()
        print_ratios(regret, tasks)


def print_stages(regret: dict[str, Any], tasks: int) -> None:
    """The regret per task of every policy, by stages of the run."""
    edges = [edge for edge in STAGES if edge < tasks] + [tasks]
    stages = list(itertools.pairwise(edges))
    print(f"| regret per task | {' | '.join(f'{a + 1}–{b}' for a, b in stages)} | all |")
    print(f"|---|{'---:|' * (len(stages) + 1)}")
    for key, each in regret.items():
        cells = [each[:, a:b].mean() for a, b in [*stages, (0, tasks)]]
        print(f"| {key} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)


def print_ratios(regret: dict[str, Any], tasks: int) -> None:
    """The default against the others: in total, in the first ten tasks and in the last quarter."""
    parts = {
        "total": slice(None),
        "first ten": slice(10),
        "last quarter": slice(tasks - tasks // 4, None),
    }
    print(f"| default ÷ | {' | '.join(parts)} | worst seed, total |")
    print("|---|---:|---:|---:|---:|")
    for key, other in regret.items():
        if key == "default":
            continue
        ratios = [(regret["default"][:, at].sum(1), other[:, at].sum(1)) for at in parts.values()]
        cells = [interval(*each) for each in ratios]
        worst = (ratios[0][0] / ratios[0][1]).max()
        print(f"| {key} | {' | '.join(cells)} | {worst:.3f} |", flush=True)


def interval(ours: Any, theirs: Any) -> str:
    """The ratio of two means of paired numbers, with its 95 % interval (Student's)."""
    from scipy.stats import t

    ratio = ours.sum() / theirs.sum()
    if len(ours) < 2:
        return f"{ratio:.3f}"
    error = (ours - ratio * theirs).std(ddof=1) / np.sqrt(len(ours)) / theirs.mean()
    return f"{ratio:.3f} ± {t.ppf(0.975, len(ours) - 1) * error:.3f}"


if __name__ == "__main__":
    if sys.argv[1:2] == ["--job"]:
        play_job(json.loads(sys.argv[2]))
    else:
        sys.exit(main())
