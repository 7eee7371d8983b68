"""The fit of many small tasks within little memory and few open files, next to one with more.

    python benchmarks/fleet_memory.py /tmp/fleet --rows 2e7 --tasks 2000000 --memory 256 4096

It writes Parquet files into the folder once, and fits them with every amount of memory (in MiB),
each in a process of its own that may open 256 files. It prints the time, the most memory that the
process has taken, what it took after its imports (Numba and its compiled loops among them), and by
how much the prior differs from the last one.
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import numpy as np
from fleet_logs import arguments, peak_memory, prepare_logs, run_apart

FILES = 256  # that a process may open


def learn(folder: Path, memory: int, workers: int) -> dict[str, object]:
    """One fit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    from headstart.fleet import Columns, Logs, fit
    from headstart.kernels import tables, task_totals

    tables.prepare()
    task_totals.prepare()
    imported, start = peak_memory() * 1024, time.perf_counter()
    logs = Logs(str(folder / "*.parquet"), Columns("task", "reward", "x*"))
    fitted = fit(logs, memory=memory << 20, workers=workers)
    prior = fitted.prior
    return {
        "seconds": time.perf_counter() - start,
        "imported": imported,
        "peak": peak_memory() * 1024,
        "prior": [*prior.mean.tolist(), *prior.covariance.ravel().tolist(), float(prior.noise)],
    }


def main() -> None:
    parser = arguments(__doc__, rows=2e7, tasks=2_000_000, ids="number")
    parser.add_argument("--memory", type=int, nargs="+", default=[256, 4096], help="MiB")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(learn(given.folder, int(given.only), given.workers)))
        return
    folder = prepare_logs(given)
    found = [run_apart(__file__, folder, str(memory), given.workers) for memory in given.memory]
    last = np.array(found[-1]["prior"])
    names = ["memory MiB", "seconds", "peak MiB", "imports", "beyond", "differs"]
    print("".join(f"{name:>11}" for name in names))
    for memory, run in zip(given.memory, found, strict=True):
        differs = np.abs(np.array(run["prior"]) - last).max() / np.abs(last).max()
        beyond = run["peak"] - run["imported"]
        print(
            f"{memory:>10}{run['seconds']:>9.1f}{run['peak']:>10.0f}{run['imported']:>9.0f}"
            f"{beyond:>8.0f}{differs:>10.0e}"
        )


if __name__ == "__main__":
    main()
