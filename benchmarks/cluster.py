"""What a fit on a Ray cluster takes: each step measured here at a small size, then multiplied.

    python benchmarks/cluster.py --rows 1e10 --tasks 1e8 --machines 50 --cores 16

It measures the processor time of what the tasks of ``headstart.fleet.engines.ray`` do (reading,
merging, a pass), and of the driver for an object, with a cluster started here. From these and the
sizes given it computes bytes moved, memory, objects and time. The network's speed is given.
``benchmarks/fleet.py`` measures whole fits.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from headstart.fleet import Columns, Logs
from headstart.fleet.engines import ray as engine
from headstart.fleet.engines.cluster import connect
from headstart.fleet.summing.tasks import Call
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.population import start_low_rank
from headstart.transfer.empirical_bayes.refits.partition_fit import compiled_totals

PARTITIONS = 16
GIB = 2**30


def write_log(folder: Path, rows: int, tasks: int, dim: int) -> Logs:
    """A Parquet file of float32 features, rows in random order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, dim), dtype=np.float32)
    columns = {"task": rng.integers(0, tasks, rows), "reward": rng.standard_normal(rows)}
    table = pa.table({**columns, **{f"x{j}": x[:, j] for j in range(dim)}})
    pq.write_table(table, folder / f"{tasks}.parquet", row_group_size=500_000)
    logs = Logs(str(folder / f"{tasks}.parquet"), Columns("task", "reward", "x*"))
    return logs.for_fit(intercept=True)


def timed(function: Any) -> tuple[Any, float]:
    """A result, and the processor's seconds of the faster of two runs: the first may compile."""
    times = []
    for _ in range(2):
        start = time.process_time()
        result = function()
        times.append(time.process_time() - start)
    return result, min(times)


def measure_tasks(logs: Logs, memory: int) -> dict[str, float]:
    """Seconds and bytes of reading, merging and one pass, for each row or task."""
    parts, dim = logs.parts(), logs.width
    rows = sum(part.rows or 0 for part in parts)
    found, reading = timed(lambda: list(engine.read_parts(parts, PARTITIONS, memory, logs)))
    shards = found[:PARTITIONS]
    size = sum(shard.nbytes for each in shards for shard in each)
    merged, merging = timed(
        lambda: [
            next(engine.merge_shards(dim, number, PARTITIONS, 1, each))
            for number, each in enumerate(shards)
        ]
    )
    tasks = sum(len(each.rows) for each in merged)
    fit = Fit.unchecked(np.zeros(dim), np.eye(dim), np.eye(dim), 1.0, 100.0)
    call = Call(compiled_totals, (fit, start_low_rank(fit, 100.0)), None)
    _, passing = timed(lambda: [engine.apply(call, dim, each, len(each.rows)) for each in merged])
    return {
        "read s/row": reading / rows,
        "shard bytes/row": size / rows,
        "merge s/row": merging / rows,
        "pass s/task": passing / tasks,
        "bytes/task": sum(each.rows.nbytes + each.ids.nbytes for each in merged) / tasks,
    }


def produce(job: int, count: int, size: int) -> Any:
    """Several objects."""
    for _ in range(count):
        yield np.full(size, job, np.uint8)


def consume(*objects: Any) -> int:
    """Their number."""
    return len(objects)


def resident() -> int:
    """Bytes of memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def measure_objects(tasks: int = 64, count: int = 128, size: int = 1 << 17) -> dict[str, float]:
    """What an object that goes from one task to another takes in the driver's process."""
    with connect("ray", 2) as cluster:
        task, use = cluster.task(produce, returns=count), cluster.task(consume)
        cluster.fetch_all(task(0, count, size)[-1:])
        memory, start = resident(), time.process_time()
        made = [task(job, count, size) for job in range(tasks)]
        cluster.ray.wait([each[-1] for each in made], num_returns=tasks, fetch_local=False)
        grown = resident() - memory
        cluster.fetch_all([use(*each) for each in zip(*made, strict=True)])
        seconds = time.process_time() - start
    total = tasks * count
    return {"driver s/object": seconds / total, "driver bytes/object": grown / total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e10)
    parser.add_argument("--tasks", type=float, default=1e8)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--machines", type=int, default=50)
    parser.add_argument("--cores", type=int, default=16, help="of a machine")
    parser.add_argument("--memory", type=float, default=4.0, help="GiB of a worker")
    parser.add_argument("--network", type=float, default=1.25, help="GB/s of a machine")
    parser.add_argument("--sample", type=float, default=1e6, help="rows to measure with")
    given = parser.parse_args()
    sample, memory = int(given.sample), int(given.memory * GIB)
    slots, dim = given.machines * given.cores, given.dim + 1
    decoded = int(8 * (dim + 4) * given.rows)
    partitions = engine.count_partitions(decoded, memory, slots)
    groups = engine.count_groups(decoded, slots, engine.CHECKPOINTS)
    with tempfile.TemporaryDirectory() as name:
        # A reader meets few rows of a task, because they are spread over all readers.
        tasks = sample * given.tasks * groups / given.rows
        met = write_log(Path(name), sample, max(int(min(tasks, given.tasks)), 1), given.dim)
        found = measure_tasks(met, memory)
    size = int(given.rows * found["shard bytes/row"])
    objects = groups * partitions
    found |= measure_objects()
    evidence = given.tasks * found["bytes/task"]
    print("measured here, seconds of one core")
    for term, value in found.items():
        print(f"  {term:<22}{value:>12.3g}")
    seconds = {
        "reading": given.rows * found["read s/row"] / slots,
        "moving": 2 * size / (given.machines * given.network * 1e9),
        "objects (driver)": objects * found["driver s/object"],
        "merging": given.rows * found["merge s/row"] / slots,
        "the pass": given.tasks * found["pass s/task"] / slots,
    }
    one = f"{size / given.machines / 1e9:,.1f}", f"{evidence / given.machines / 1e9:,.1f}"
    rows, sums = size / partitions / GIB, evidence / partitions / GIB
    driver = objects * found["driver bytes/object"] / GIB
    print(f"{given.rows:.0e} rows, {given.tasks:.0e} tasks, {given.machines} × {given.cores} cores")
    print(f"  read tasks × partitions {groups:,} × {partitions:,} = {objects:,} objects")
    print(f"  bytes of an object      {size / objects / 2**20:,.2f} MiB")
    print(f"  bytes moved             {size / 1e12:,.2f} TB, {one[0]} GB a machine")
    print(f"  sums of all tasks       {evidence / 1e12:,.2f} TB, {one[1]} GB a machine")
    print(f"  memory of a worker      rows of a partition {rows:.2f} GiB, its sums {sums:.2f} GiB")
    print(f"  memory of the driver    {driver:.2f} GiB for references")
    for step, value in seconds.items():
        print(f"  {step:<24}{value:>10.0f} s")
    print(f"  {'in all':<24}{sum(seconds.values()):>10.0f} s")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
