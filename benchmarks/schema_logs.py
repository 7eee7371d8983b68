"""Logs read and fitted by a schema, next to the same columns stored as numbers.

    python benchmarks/schema_logs.py [--rows 1000000] [--item-rows 40000]

The schema has two categories, a boolean and two numbers, one with gaps: 30 columns with a cross.
Figures are microseconds of processor time a row, the least of three runs on one core; the transfer
is ``Bias``, whose fit costs little beside the sums. The last line is a schema with ``identity``.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

import headstart as hs
from headstart.fleet import Columns, Logs, fit

SCHEMA = hs.Schema(
    context={"hour": hs.number(missing=False), "device": hs.category("phone", "desktop")},
    action={
        "price": hs.number(),
        "brand": hs.category(buckets=16),
        "new": hs.boolean(missing=False),
    },
    crosses=[("device", "price")],
)
ITEMS = hs.Schema(action={"price": hs.number(), "new": hs.boolean()}, identity=True)


def table_of(rows):
    """Rows of one task for every two hundred, in random order."""
    rng = np.random.default_rng(0)
    price = pl.Series(rng.gamma(3.0, 5.0, rows))
    return pl.DataFrame(
        {
            "user": rng.integers(0, max(2, rows // 200), rows),
            "spent": rng.normal(size=rows),
            "when": np.arange(rows),
            "id": rng.integers(0, max(2, rows // 20), rows),
            "hour": rng.integers(0, 24, rows).astype(float),
            "device": rng.choice(["phone", "desktop", "tv"], rows),
            "price": pl.select(pl.when(pl.Series(rng.random(rows) < 0.9)).then(price)).to_series(),
            "brand": [f"brand-{number}" for number in rng.integers(0, 300, rows)],
            "new": rng.random(rows) < 0.3,
        }
    )


def read(logs):
    """Read all rows, and keep none."""
    for part in logs.parts():
        for _ in logs.read(part, transposed=False):
            pass


def seconds(work, logs):
    """The least processor time of three runs."""
    times = []
    for _ in range(3):
        start = time.process_time()
        work(logs)
        times.append(time.process_time() - start)
    return min(times)


def measure(name, logs, rows):
    """Print the cost of reading and of fitting a log."""

    def fit_once(logs):
        fit(logs, hs.Bias(), workers=1)

    reading, fitting = (1e6 * seconds(work, logs) / rows for work in (read, fit_once))
    print(f"{name:24} read {reading:6.2f} µs a row, read and fit {fitting:6.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--item-rows", type=int, default=40_000)
    options = parser.parse_args()
    named = {"task": "user", "reward": "spent"}
    with tempfile.TemporaryDirectory() as folder:
        place, table = Path(folder), table_of(options.rows)
        table.write_parquet(place / "named.parquet")
        by_schema = Columns(**named, schema=SCHEMA)
        logs = Logs(place / "named.parquet", by_schema)
        encoded = np.concatenate([r.features for part in logs.parts() for r in logs.read(part)])
        numbers = {f"x{at}": encoded[:, at] for at in range(SCHEMA.width)}
        dense = table.select("user", "spent").with_columns(**numbers)
        dense.write_parquet(place / "dense.parquet")
        table.write_csv(place / "named.csv")
        dense.write_csv(place / "dense.csv")
        for suffix in ("parquet", "csv"):
            measure(f"{suffix}, schema", Logs(place / f"named.{suffix}", by_schema), options.rows)
            plain = Columns(**named, features="x*")
            measure(f"{suffix}, numbers", Logs(place / f"dense.{suffix}", plain), options.rows)
        table_of(options.item_rows).write_parquet(place / "items.parquet")
        with_items = Columns(**named, timestamp="when", schema=ITEMS)
        measure("identity", Logs(place / "items.parquet", with_items), options.item_rows)


if __name__ == "__main__":
    main()
