"""What the benchmarks of the fleet share: arguments, logs, and runs in processes of their own."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def arguments(
    description: str | None, rows: float, tasks: int, ids: str
) -> argparse.ArgumentParser:
    """A parser of the arguments that all have, with these defaults."""
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=rows)
    parser.add_argument("--tasks", type=int, default=tasks)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--ids", choices=["number", "text"], default=ids)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--only", help=argparse.SUPPRESS)
    return parser


def prepare_logs(
    given: argparse.Namespace, prefix: str = "", change: Callable[[Path], None] | None = None
) -> Path:
    """The folder of the logs that were asked for, written if they are not there yet."""
    name = f"{prefix}{given.rows:.0f}-{given.tasks}-{given.dim}-{given.ids}"
    folder: Path = given.folder / name
    if not folder.exists():
        print("writing logs …", flush=True)
        write_logs(folder, int(given.rows), given.tasks, given.dim, given.files, given.ids)
        if change is not None:
            change(folder)
    print(f"{given.rows:,.0f} rows × {given.dim} float32, {given.tasks:,} tasks, ids: {given.ids}")
    return folder


def write_logs(folder: Path, rows: int, tasks: int, dim: int, files: int, ids: str) -> None:
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


def read_columns(folder: Path, workers: int) -> None:
    """PyArrow, reading every column of every file and nothing else."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pa.set_cpu_count(workers)
    for path in sorted(folder.glob("*.parquet")):
        pq.read_table(path)


def peak_memory() -> float:
    """The most memory that this process has taken, in GiB; not what its parent took."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**20


def run_apart(script: str, folder: Path, plan: str, workers: int) -> dict[str, Any]:
    """What a script prints as JSON in a new process, called with ``--only`` and a plan."""
    words = [sys.executable, script, str(folder), "--only", plan, "--workers", str(workers)]
    output = subprocess.check_output(words, text=True)
    result: dict[str, Any] = json.loads(output.splitlines()[-1])
    return result
