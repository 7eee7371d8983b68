"""Evidence of very many tasks: its size on disk, the speed of the stream, the cost of a fold.

    python benchmarks/evidence.py --tasks 1000000 --dim 30 --out /tmp/tasks.evidence

Writes synthetic tasks as a stream, reads them back, looks a few up by id, and folds them one after
another into transfers. A fold must cost as much for the last tasks as for the first, and memory
must not grow with the file.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import headstart as hs

MB = 1e6
MANY = 256  # tasks made at a time
TRANSFERS: list[hs.Transfer] = [hs.Subspace(), hs.EmpiricalBayes()]


class Watch:
    """Seconds spent in one part of the work."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> Watch:
        self.start = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.start


def peak() -> float:
    """The most memory this process has had, in MB."""
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MB


def population(
    tasks: int, dim: int, rounds: int, watch: Watch
) -> Iterator[tuple[list[str], hs.Evidence]]:
    """Tasks whose parameters lie near three directions, with standard normal contexts."""
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((dim, min(3, dim)))
    for start in range(0, tasks, MANY):
        with watch:
            count = min(MANY, tasks - start)
            thetas = rng.standard_normal((count, shared.shape[1])) @ shared.T
            contexts = rng.standard_normal((count, rounds, dim))
            means = (contexts @ thetas[:, :, None])[..., 0]
            evidence = hs.Evidence.of(contexts, means + 0.5 * rng.standard_normal(means.shape))
            ids = [f"user-{number:07}" for number in range(start, start + count)]
        yield ids, evidence


def measure_folds(path: Path, transfer: hs.Transfer, tasks: int) -> str:
    """Fold tasks one after another; the time of the first and of the last thousand folds."""
    ends = min(1000, tasks // 2)
    times = np.empty(tasks)
    with hs.EvidenceFile(path) as file:
        state = transfer.init(file.dim)
        for number, (_, evidence) in enumerate(itertools.islice(file.items(), tasks)):
            start = time.perf_counter()
            state = transfer.fold(state, evidence)
            times[number] = time.perf_counter() - start
    with Watch() as watch:
        transfer.prior(state)
    first, last = 1e6 * times[:ends], 1e6 * times[-ends:]
    return (
        f"{transfer!r}: {tasks:,} folds in {times.sum():.1f} s; a fold takes "
        f"{first.mean():.0f} µs among the first {ends:,} (median {np.median(first):.0f}) and "
        f"{last.mean():.0f} µs among the last (median {np.median(last):.0f}); "
        f"the prior then takes {1e3 * watch.seconds:.0f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=40, help="rewards of each task")
    parser.add_argument("--folds", type=int, default=100_000, help="tasks to fold")
    parser.add_argument("--precision", choices=["double", "single"], default="double")
    parser.add_argument("--out", type=Path, default=None, help="kept if given")
    given = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    path = given.out or Path(folder.name) / "tasks.evidence"

    print(f"{given.tasks:,} tasks at dim {given.dim}; {peak():.0f} MB in use before")
    making, writing = Watch(), Watch()
    with writing:
        items = population(given.tasks, given.dim, given.rounds, making)
        hs.write_evidence(path, items, given.dim, precision=given.precision)
    size, seconds = os.path.getsize(path), writing.seconds - making.seconds
    print(f"file: {size / 1e9:.3f} GB, {size / given.tasks:.0f} bytes a task")
    print(
        f"write: {seconds:.1f} s, {size / MB / seconds:.0f} MB/s "
        f"(and {making.seconds:.1f} s to make the tasks); peak memory {peak():.0f} MB"
    )

    with Watch() as watch:
        count = sum(len(ids) for ids, _ in hs.read_evidence(path))
    assert count == given.tasks
    rate = size / MB / watch.seconds
    print(f"read: {watch.seconds:.1f} s, {rate:.0f} MB/s; peak memory {peak():.0f} MB")

    numbers = np.random.default_rng(1).integers(given.tasks, size=1000)
    with hs.EvidenceFile(path) as file:
        with Watch() as first:
            file["user-0000000"]
        with Watch() as rest:
            for number in numbers:
                file[f"user-{number:07}"]
    print(
        f"by id: {1e3 * first.seconds:.0f} ms for the first, {1e3 * rest.seconds / 1000:.2f} ms "
        f"for each of 1,000 others; peak memory {peak():.0f} MB"
    )

    for transfer in TRANSFERS:
        print(measure_folds(path, transfer, min(given.folds, given.tasks)))
    print(f"peak memory {peak():.0f} MB")
    folder.cleanup()


if __name__ == "__main__":
    main()
