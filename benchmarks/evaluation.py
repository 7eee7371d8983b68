"""How long `check` and `evaluate` take, and how much memory, beside merely reading with PyArrow.

    python benchmarks/evaluation.py /tmp/fleet --rows 2e6 --tasks 80000 --workers 2

It writes the logs of `benchmarks/fleet.py` into the folder once, with a column of times, and then
measures, each in a process of its own: PyArrow reading the columns, check, evaluate with tasks
split at random, and evaluate with tasks split by time. Besides seconds it prints those that the
processors worked, which a busy machine changes less, and the most memory that was taken, with and
without what the process had after its imports.
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

import fleet
import numpy as np

PLANS = {
    "PyArrow reads": "read",
    "check": "check",
    "evaluate": "evaluate",
    "evaluate, split by time": "timed",
}


def add_times(folder: Path) -> None:
    """Give the rows times, by which tasks begin one after the other."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        ids = table["task"].combine_chunks().dictionary_encode()
        begin = np.asarray(ids.dictionary.cast(pa.string()).to_numpy(zero_copy_only=False))
        order = np.array([int(name.rpartition("-")[2]) for name in begin])
        when = order[ids.indices.to_numpy()] * 1000 + rng.integers(0, 10**6, len(table))
        pq.write_table(table.append_column("time", pa.array(when)), path, row_group_size=500_000)


def peak() -> float:
    """The most memory that this process has taken, in GiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20  # what the process before it took is not in it


def run(folder: Path, plan: str, workers: int) -> dict[str, float]:
    """One of the plans, in this process."""
    from headstart.fleet import Columns, Logs, check, evaluate

    timestamp = "time" if plan == "timed" else None
    before = peak()
    start = time.perf_counter()
    if plan == "read":
        fleet.read(folder, workers)
    else:
        columns = Columns("task", "reward", "x*", timestamp=timestamp)
        logs = Logs(str(folder / "*.parquet"), columns)
        (check if plan == "check" else evaluate)(logs, workers=workers)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time(),
        "memory": peak(),
        "imports": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=2e6)
    parser.add_argument("--tasks", type=int, default=80_000)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--ids", choices=["number", "text"], default="text")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--skip", nargs="*", default=[], help=f"of: {', '.join(PLANS.values())}")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(run(given.folder, given.only, given.workers)))
        return
    folder = given.folder / f"timed-{given.rows:.0f}-{given.tasks}-{given.dim}-{given.ids}"
    if not folder.exists():
        print("writing logs …", flush=True)
        fleet.make(folder, int(given.rows), given.tasks, given.dim, given.files, given.ids)
        add_times(folder)
    print(f"{given.rows:,.0f} rows × {given.dim} float32, {given.tasks:,} tasks, ids: {given.ids}")
    print(f"{'':<26}{'seconds':>9}{'processor':>11}{'GiB':>7}{'without imports':>17}")
    for label, plan in PLANS.items():
        if plan in given.skip:
            continue
        words = [sys.executable, __file__, str(folder), "--only", plan]
        words += ["--workers", str(given.workers)]
        output = subprocess.check_output(words, text=True)
        found = json.loads(output.splitlines()[-1])
        print(
            f"{label:<26}{found['seconds']:>9.1f}{found['processor']:>11.1f}"
            f"{found['memory']:>7.2f}{found['memory'] - found['imports']:>17.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
