"""The fit of many small tasks within little memory and few open files, next to one with more.

    python benchmarks/fleet_memory.py /tmp/fleet --rows 2e7 --tasks 2000000 --memory 256 4096

It writes Parquet files into the folder once, and fits them with every amount of memory (in MiB),
each in a process of its own that may open 256 files. It prints the time, the most memory that the
process has taken, what it took after its imports (Numba and its compiled loops among them), and by
how much the prior differs from the last one.
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
from fleet import make

FILES = 256  # that a process may open


def peak() -> float:
    """The most memory that this process has taken, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def learn(folder: Path, memory: int, workers: int) -> dict[str, object]:
    """One fit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    from headstart.fleet import Columns, Logs, fit
    from headstart.kernels import tables

    tables.prepare()
    imported, start = peak(), time.perf_counter()
    logs = Logs(str(folder / "*.parquet"), Columns("task", "reward", "x*"))
    fitted = fit(logs, memory=memory << 20, workers=workers)
    prior = fitted.prior
    return {
        "seconds": time.perf_counter() - start,
        "imported": imported,
        "peak": peak(),
        "prior": [*prior.mean.tolist(), *prior.covariance.ravel().tolist(), float(prior.noise)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=2e7)
    parser.add_argument("--tasks", type=int, default=2_000_000)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--memory", type=int, nargs="+", default=[256, 4096], help="MiB")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(json.dumps(learn(given.folder, given.only, given.workers)))
        return
    folder = given.folder / f"{given.rows:.0f}-{given.tasks}-{given.dim}-number"
    if not folder.exists():
        print("writing logs …", flush=True)
        make(folder, int(given.rows), given.tasks, given.dim, 8, "number")
    found = []
    for memory in given.memory:
        words = [str(folder), "--only", str(memory), "--workers", str(given.workers)]
        shown = subprocess.check_output([sys.executable, __file__, *words], text=True)
        found.append(json.loads(shown.splitlines()[-1]))
    last = np.array(found[-1]["prior"])
    print(f"{given.rows:,.0f} rows × {given.dim} float32, {given.tasks:,} tasks")
    names = ["memory MiB", "seconds", "peak MiB", "imports", "beyond", "differs"]
    print("".join(f"{name:>11}" for name in names))
    for memory, run in zip(given.memory, found, strict=True):
        differs = np.abs(np.array(run["prior"]) - last).max() / np.abs(last).max()
        beyond = run["peak"] - run["imported"]
        print(
            f"{memory:>11}{run['seconds']:>11.1f}{run['peak']:>11.0f}{run['imported']:>11.0f}"
            f"{beyond:>11.0f}{differs:>11.0e}"
        )


if __name__ == "__main__":
    main()
