"""Logs for the tests: rows written in any format, and read back."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq

from headstart.fleet import Columns, Logs

PLAIN = Columns("task", "reward", "x*")


def table(rows=12, dim=3, tasks=4, seed=0, kind=np.float64):
    """A small log of round-ish numbers, so that every format can hold them exactly."""
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "task": [f"t{number}" for number in rng.integers(0, tasks, rows)],
            "reward": rng.integers(-8, 9, rows) / 8,
            **{f"x{j}": (rng.integers(-64, 65, rows) / 64).astype(kind) for j in range(dim)},
        }
    )


def write(path, content, group=None):
    """Write a table in the format that the path's name says."""
    name = str(path)
    if name.endswith(".parquet"):
        pq.write_table(content, path, row_group_size=group)
    elif name.endswith(".csv"):
        pa.csv.write_csv(content, path)
    elif name.endswith(".csv.gz"):
        with pa.CompressedOutputStream(name, "gzip") as stream:
            pa.csv.write_csv(content, stream)
    elif name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        text = "".join(json.dumps(row, default=str) + "\n" for row in content.to_pylist())
        with pa.output_stream(name, compression="detect") as stream:
            stream.write(text.encode())
    elif name.endswith(".arrow"):
        with pa.ipc.new_file(name, content.schema) as writer:
            writer.write_table(content, max_chunksize=group)
    elif name.endswith(".arrows"):
        with pa.ipc.new_stream(name, content.schema) as writer:
            writer.write_table(content, max_chunksize=group)
    else:
        pa.feather.write_feather(content, name)
    return name


def read(logs):
    """All rows of a log as sorted tuples: task, reward, features."""
    found = []
    for part in logs.parts():
        for rows in logs.read(part):
            assert rows.features.flags.c_contiguous
            assert rows.features.shape == (
                rows.count,
                logs.dim,
            )
            assert sorted(set(rows.codes.tolist())) == list(range(len(rows.names)))
            assert len(set(rows.names)) == len(rows.names)
            found += [
                (rows.names[code], reward, *features)
                for code, reward, features in zip(
                    rows.codes.tolist(), rows.rewards.tolist(), rows.features.tolist(), strict=True
                )
            ]
    return sorted(found)


def one_block(path, columns=PLAIN, **options):
    """The only block of a small log."""
    logs = Logs(str(path), columns, **options)
    (block,) = [rows for part in logs.parts() for rows in logs.read(part)]
    return block


def wanted(content):
    """What :func:`read` must give for a table."""
    names = [name for name in content.column_names if name.startswith("x")]
    return sorted(
        (str(row["task"]), row["reward"], *(row[name] for name in names))
        for row in content.to_pylist()
    )
