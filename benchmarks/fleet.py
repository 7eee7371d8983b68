"""How long `fit` takes, next to merely reading the same columns with PyArrow.

    python benchmarks/fleet.py /tmp/fleet --rows 2e6 --tasks 80000 --workers 2

It writes Parquet files into the folder once, and then measures, each in a process of its own:
PyArrow reading the columns, the fit on one core and on several, and the fit on a local Ray cluster.
Times of the fit are of everything, from opening the files to the bandit on disk; the fastest of
several runs counts. Ray's own start is told apart.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import numpy as np
from fleet_logs import arguments, peak_memory, prepare_logs, read_columns, run_apart


def learn(folder: Path, workers: int, cluster: str | None) -> dict[str, float]:
    """The whole fit, with a bandit on disk."""
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


def main() -> None:
    parser = arguments(__doc__, rows=2e6, tasks=80_000, ids="number")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--skip", nargs="*", default=[], help="of: fit, ray")
    given = parser.parse_args()
    if given.only:
        if given.only == "read":
            start = time.perf_counter()
            read_columns(given.folder, given.workers)
            found = {"seconds": time.perf_counter() - start}
        else:
            cluster = "ray" if given.only == "ray" else None
            found = learn(given.folder, given.workers, cluster)
        found["memory"] = peak_memory()
        print(json.dumps(found))
        return
    folder = prepare_logs(given)
    plans = [("PyArrow reads", "read", given.workers), ("fit, 1 core", "fit", 1)]
    plans += [(f"fit, {given.workers} cores", "fit", given.workers)]
    plans += [(f"fit on Ray, {given.workers} workers", "ray", given.workers)]
    print(
        f"{'':<24}{'seconds':>9}{'reading':>9}{'× read':>8}{'Mrows/s':>9}{'GiB':>7}{'start':>7}"
        f"   all runs"
    )
    plans = [plan for plan in plans if plan[1] not in given.skip]
    # In turn, so that a busy minute of the machine falls on all of them; the fastest runs count.
    runs = [
        [run_apart(__file__, folder, *plan[1:]) for plan in plans] for _ in range(given.repeats)
    ]
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
