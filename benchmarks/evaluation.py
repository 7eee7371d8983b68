"""How long `check` and `evaluate` take, and how much memory, beside merely reading with PyArrow.

    python benchmarks/evaluation.py /tmp/fleet --rows 2e6 --tasks 80000 --workers 2

It writes logs (`benchmarks/fleet_logs.py`) into the folder once, with a column of times, and then
measures, each in a process of its own: PyArrow reading the columns, check, evaluate with tasks
split at random, and evaluate with tasks split by time. Besides seconds it prints those that the
processors worked, which a busy machine changes less, and the most memory that was taken, with and
without what the process had after its imports.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from fleet_logs import arguments, peak_memory, prepare_logs, read_columns, run_apart

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


def run(folder: Path, plan: str, workers: int) -> dict[str, float]:
    """One of the plans, in this process."""
    from headstart.fleet import Columns, Logs, check, evaluate

    timestamp = "time" if plan == "timed" else None
    before = peak_memory()
    start = time.perf_counter()
    if plan == "read":
        read_columns(folder, workers)
    else:
        columns = Columns("task", "reward", "x*", timestamp=timestamp)
        logs = Logs(str(folder / "*.parquet"), columns)
        (check if plan == "check" else evaluate)(logs, workers=workers)
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time(),
        "memory": peak_memory(),
        "imports": before,
    }


def main() -> None:
    parser = arguments(__doc__, rows=2e6, tasks=80_000, ids="text")
    parser.add_argument("--skip", nargs="*", default=[], help=f"of: {', '.join(PLANS.values())}")
    given = parser.parse_args()
    if given.only:
        print(json.dumps(run(given.folder, given.only, given.workers)))
        return
    folder = prepare_logs(given, "timed-", add_times)
    print(f"{'':<26}{'seconds':>9}{'processor':>11}{'GiB':>7}{'without imports':>17}")
    for label, plan in PLANS.items():
        if plan in given.skip:
            continue
        found = run_apart(__file__, folder, plan, given.workers)
        print(
            f"{label:<26}{found['seconds']:>9.1f}{found['processor']:>11.1f}"
            f"{found['memory']:>7.2f}{found['memory'] - found['imports']:>17.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
