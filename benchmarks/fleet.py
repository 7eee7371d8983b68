"""How long `fit` takes, next to merely reading the same columns with PyArrow.

    python benchmarks/fleet.py /tmp/fleet --rows 2e6 --tasks 80000 --workers 2

It writes Parquet files into the folder once, and then measures, each in a process of its own:
PyArrow reading the columns, the fit on one core and on several, and the fit on a local Ray cluster.
Times of the fit are of everything, from opening the files to the bandit on disk; the fastest of
several runs counts. Ray's own start is told apart.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def make(folder: Path, rows: int, tasks: int, dim: int, files: int, ids: str) -> None:
    """Logs of tasks that differ in three directions, rows in random order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(3, dim)) / np.sqrt(dim)
    theta = 0.2 * rng.normal(size=dim) + rng.normal(size=(tasks, 3)) @ plane
    names = pa.array(range(tasks))
    if ids == "text":
        names = pa.array([f"user-{n:06d}" for n in range(tasks)])
    edges = np.linspace(0, rows, files + 1).astype(int)
    for number in range(files):
        count = int(edges[number + 1] - edges[number])
        owner = rng.integers(0, tasks, count)
        x = rng.standard_normal((count, dim), dtype=np.float32)
        reward = np.einsum("ij,ij->i", x, theta[owner]) + 0.5 * rng.standard_normal(count)
        columns = {f"x{j}": x[:, j] for j in range(dim)}
        table = pa.table({"task": names.take(pa.array(owner)), "reward": reward, **columns})
        pq.write_table(table, folder / f"{number:03d}.parquet", row_group_size=500_000)


def read(folder: Path, workers: int) -> dict[str, float]:
    """PyArrow, reading every column of every file and nothing else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(workers)
    start = time.perf_counter()
    for path in sorted(folder.glob("*.parquet")):
        pq.read_table(path)
    return {"seconds": time.perf_counter() - start}


def learn(folder: Path, workers: int, cluster: str | None) -> dict[str, float]:
    """The whole fit, with a bandit on disk."""
    import contextlib

    if workers == 1 and hasattr(os, "sched_setaffinity"):  # or what runs beside it takes another
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    from headstart.fleet import Columns, Logs, fit

    out = folder / f"prior-{os.getpid()}.headstart"
    with contextlib.ExitStack() as stack:
        begun = time.perf_counter()
        if cluster:
            from headstart.fleet.engines.cluster import connect

            stack.enter_context(connect(cluster, workers))
        start = time.perf_counter()
        logs = Logs(str(folder / "*.parquet"), Columns("task", "reward", "x*"))
        stages: dict[str, float] = {}
        fitted = fit(
            logs,
            out=out,
            cluster=cluster,
            workers=workers,
            progress=lambda stage, *_: stages.update({stage: time.perf_counter() - start}),
        )
        seconds = time.perf_counter() - start
    out.unlink()
    return {
        "seconds": seconds,
        "started": start - begun,
        "read": stages["reading"],
        "noise": float(fitted.prior.noise),
        "spread": float(np.trace(fitted.prior.covariance)),
    }


def measured(folder: Path, what: str, workers: int) -> dict[str, float]:
    """One run in a new process, with the most memory that it has taken."""
    words = [sys.executable, __file__, str(folder), "--only", what, "--workers", str(workers)]
    found: dict[str, float] = json.loads(subprocess.check_output(words, text=True).splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--tasks", type=int, default=80_000)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--ids", choices=["number", "text"], default="number")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], help="of: fit, ray")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        if given.only == "read":
            found = read(given.folder, given.workers)
        else:
            cluster = "ray" if given.only == "ray" else None
            found = learn(given.folder, given.workers, cluster)
        found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps(found))
        return
    folder = given.folder / f"{given.rows:.0f}-{given.tasks}-{given.dim}-{given.ids}"
    if not folder.exists():
        print("writing logs …", flush=True)
        make(folder, int(given.rows), given.tasks, given.dim, given.files, given.ids)
    plans = [("PyArrow reads", "read", given.workers), ("fit, 1 core", "fit", 1)]
    plans += [(f"fit, {given.workers} cores", "fit", given.workers)]
    plans += [(f"fit on Ray, {given.workers} workers", "ray", given.workers)]
    print(f"{given.rows:,.0f} rows × {given.dim} float32, {given.tasks:,} tasks, ids: {given.ids}")
    print(
        f"{'':<24}{'seconds':>9}{'reading':>9}{'× read':>8}{'Mrows/s':>9}{'GiB':>7}{'start':>7}"
        f"   all runs"
    )
    plans = [plan for plan in plans if plan[1] not in given.skip]
    # In turn, so that a busy minute of the machine falls on all of them; the fastest runs count.
    runs = [[measured(folder, *plan[1:]) for plan in plans] for _ in range(given.repeats)]
    bare = min((run[0]["seconds"] for run in runs), default=float("nan"))
    for (label, *_), found in zip(plans, zip(*runs, strict=True), strict=True):
        best = min(found, key=lambda run: run["seconds"])
        seconds, memory = best["seconds"], max(run["memory"] for run in found)
        every = " ".join(f"{run['seconds']:.2f}" for run in found)
        print(
            f"{label:<24}{seconds:>9.2f}{best.get('read', seconds):>9.2f}{seconds / bare:>8.2f}"
            f"{given.rows / seconds / 1e6:>9.2f}{memory:>7.2f}{best.get('started', 0.0):>7.2f}"
            f"   {every}",
            flush=True,
        )


if __name__ == "__main__":
    main()
