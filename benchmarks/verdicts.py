"""How much the verdict of `evaluate` depends on its seed, on a log that is hard to judge.

    python benchmarks/verdicts.py --seeds 24

The log is like exam results of pupils (rows) in schools (tasks): few and noisy rows, mostly dummy
features, schools that differ by level more than in anything else. It prints the verdict of every
seed, the expected gain (which does not depend on it), and how often each verdict was given.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa


def schools(seed: int = 0, tasks: int = 139, dim: int = 28) -> pa.Table:
    """139 tasks of 20 to 250 rows, 28 features of which 25 are 0 or 1.

    The residuals' standard deviation is 10, pooled slopes explain half of the variance, the random
    intercept has a standard deviation of 2.7 and each slope one of .5.
    """
    rng = np.random.default_rng(seed)
    shares = rng.uniform(0.1, 0.5, dim)
    sizes = rng.integers(20, 251, tasks)
    x = (rng.uniform(size=(sizes.sum(), dim)) < shares).astype(float)
    x[:, :3] = rng.normal(size=(len(x), 3))
    owner = np.repeat(np.arange(tasks), sizes)
    slopes = rng.normal(size=dim)
    slopes *= 10.0 / np.std(x @ slopes)
    own = slopes + 0.5 * rng.normal(size=(tasks, dim))
    level = 30.0 + 2.7 * rng.normal(size=tasks)
    reward = level[owner] + (x * own[owner]).sum(1) + 10.0 * rng.normal(size=len(x))
    return pa.table({"task": owner, "reward": reward, **{f"x{j}": x[:, j] for j in range(dim)}})


def main() -> None:
    import pyarrow.parquet as pq

    from headstart.fleet import Columns, Logs, evaluate

    words = argparse.ArgumentParser()
    words.add_argument("--seeds", type=int, default=24)
    words.add_argument("--log", type=int, default=0, help="the seed of the log itself")
    given = words.parse_args()
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schools.parquet"
        pq.write_table(schools(given.log), path)
        logs = Logs(path, Columns("task", "reward", "x*"))
        for seed in range(given.seeds):
            start = time.perf_counter()
            made = evaluate(logs, seed=seed)
            found[made.verdict.kind] += 1
            saved = made.measures.savings["learned prior", "random intercept"]
            print(
                f"seed {seed:2d}  {made.verdict.kind:12s} error saved beside a random intercept "
                f"{saved}  {time.perf_counter() - start:.1f} s",
                flush=True,
            )
        print(f"expected gain: {made.gain}")
    print(", ".join(f"{kind} {times} of {given.seeds}" for kind, times in found.most_common()))


if __name__ == "__main__":
    main()
