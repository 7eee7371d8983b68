"""Malformed logs: `headstart check`, `fit` and `evaluate` on what people's files may hold.

Every run ends with 0, 1 or 2 and says something; no exception comes out, no escape code reaches the
terminal, the log is untouched. Where `fit` refuses, what was at its target is still there; where it
accepts, it has counted every row, and its bandit works.
"""

from __future__ import annotations

import contextlib
import csv
import decimal
import io
import json
import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from common import Accepted, Case, Changed, works
from damage import damaged
from resealed import change_header

import headstart as hs

SHARE = 4.0
RED = "\x1b[31mred\x1b[0m"
# Cells of text, values of JSON, types of Arrow, and names of columns.
CELLS = [
    "nan",
    "inf",
    "-inf",
    "NaN",
    "1e400",
    "1e308",
    "-1e308",
    "1.2e29",
    "1e61",
    "1e16",
    "1e-320",
    "abc",
    "NULL",
    "None",
    "1,5",
    "0x10",
    "1_000",
]
CELLS += ["١٢", "=1+1", "-0", "+1", "true", "1.5.2", "1e", "−1", "2020-01-01", "2020-13-45T99:00"]
CELLS += ["", " ", " 1 ", "\t", RED, "9" * 400, "a" * 5000]
PLAIN = json.loads(
    '[null, true, false, [], {}, [1.0], {"a": 1}, "", "1.0", "x", 0, -1, 1e308, 1.2e29]'
)
PLAIN += [RED, 10**20, 10**400, np.nan, np.inf, -np.inf, 1e16, "é" * 9, [[1, 2], [3]], "\x00"]
WORDS = [
    "int8",
    "uint64",
    "bool",
    "string",
    "large_string",
    "binary",
    "null",
    "float16",
    "float32",
    "date32",
    "timestamp[ns]",
]
TYPES = [pa.type_for_alias(word) for word in WORDS]
TYPES += [pa.decimal128(20, 3), pa.list_(pa.float64()), pa.struct([("a", pa.int64())])]
TYPES += [pa.dictionary(pa.int8(), pa.string())]
NUMBERS = [1e8, 1e16, 1.2e29, -1.2e29, 1e45, -1e59, 1e-12, 1e-300, 0.0, -5.0, 1e61]
NAMES = [RED, "", "task", "x0", "x[0]", "[bold]", "*", "x,1", 'quo"ted', "a\nb", "é", "x" * 3000]


def attack(case: Case) -> None:
    kind = case.pick(["csv", "jsonl", "parquet", "arrow"])
    name = case.pick(["log"] * 8 + ["l o g", f"l{RED}g"])
    path = case.folder / f"{name}.{kind}"
    plain = case.rng.random() < 0.4  # a sound file, whose numbers alone are odd
    columns, rows = table(case, plain)
    if kind in ("csv", "jsonl"):
        content, whole = (as_csv if kind == "csv" else as_jsonl)(case, columns, rows, plain)
    else:
        content, whole = as_arrow(case, columns, rows, plain, kind), True
    # Whole: its structure is sound, so that no row may be lost.
    if not plain and case.rng.random() < 0.4:
        content, whole = damaged(content, case.rng), False
    path.write_bytes(content)
    command = case.pick(["check"] * 6 + ["fit"] * 10 + ["evaluate"])  # which draws, and is slow
    words = [command, str(path), "--task", columns[0], "--reward", columns[1]]
    odd = ["x*", ",".join(columns[2:4]), "x0", "nothing*", ""]
    if case.rng.random() < 0.3:
        schema = case.folder / "schema.json"
        schema.write_bytes(schema_of(case, plain))
        words += ["--schema", str(schema)]
    else:
        words += ["--features", "x*" if plain else case.pick(odd)]
    words += ["--on-bad-rows", case.pick(["error", "skip"])] if case.rng.random() < 0.5 else []
    for option, column in [("--weight", "w"), ("--timestamp", "t"), ("--chosen", "c")]:
        words += [option, column] if case.rng.random() < 0.15 else []
    words += ["--json"] if case.rng.random() < 0.7 else []
    target = case.folder / "prior"
    before = b""
    if command == "fit":
        words += ["--out", str(target), "--workers", "1"]
        words += case.pick(
            [
                [],
                [],
                ["--no-standardize"],
                ["--no-intercept"],
                ["--transfer", "subspace"],
                ["--keep-tasks"],
            ]
        )
        if case.rng.random() < 0.3:
            hs.Bandit(1).save(target)
            before = target.read_bytes()
    elif command == "evaluate":
        words += ["--out", str(case.folder / "page")]
    code, said = run(words)
    shown = f"{command} {kind}"
    if code not in (0, 1, 2):
        raise RuntimeError(f"{shown} ends with {code}: {said[-200:]}")
    if code and not said.strip():
        raise RuntimeError(f"{shown} ends with {code} and says nothing")
    if "Traceback" in said:
        shortly = said.partition("Traceback")[2][:400]
        raise RuntimeError(f"{shown} prints a traceback: {shortly}")
    if "\x1b" in said:
        around = said[max(0, said.index("\x1b") - 40) :][:60]
        raise Accepted(f"{shown}: escape codes reach the terminal; {around!r}")
    if path.read_bytes() != content:
        raise Changed(f"{shown} has changed the log")
    if command == "fit" and code and (target.read_bytes() if target.exists() else b"") != before:
        raise Changed(f"{shown} was refused, and has changed its target")
    if command == "fit" and not code:
        try:
            works(hs.load(target), case.folder)
        except Accepted as error:
            # Whoever was told that a row drowns the others may find tasks that have to be deleted.
            if "counts for more than all others" not in said or "so far apart" not in str(error):
                raise
            return
        found = json.loads(said[said.index("{") :]) if "--json" in words else {}
        if whole and "--chosen" not in words and found.get("rows", len(rows)) != len(rows):
            left_out = re.search(r"rows_left_out|bad|skipped", json.dumps(found))
            if "skip" not in words and not left_out:
                raise Accepted(f"{shown}: {found['rows']} rows of {len(rows)} were counted")


def schema_of(case: Case, plain: bool) -> bytes:
    """The file of a schema for the columns of numbers; changed or damaged unless it is plain."""
    kinds = [hs.number(), hs.number(missing=False), hs.category(buckets=3), hs.category("1", "2")]
    ignored = [name for name in ("w", "t", "c") if case.rng.random() < 0.9]
    fields = {name: case.pick(kinds) for name in ("x1", "x2")}
    schema = hs.Schema({"x0": case.pick(kinds)}, fields, crosses="all", ignore=ignored)
    value = json.loads(schema.to_json())
    if not plain:
        for _ in range(int(case.rng.integers(0, 3))):
            change_header(value, case)
            if not value:
                break
    content = json.dumps(value).encode()
    return content if plain or case.rng.random() < 0.8 else damaged(content, case.rng)


def run(words: list[str]) -> tuple[object, str]:
    """The command in this process, as its script runs it: how it ends, and what it says."""
    from headstart.cli import main

    said, before = io.StringIO(), sys.argv
    sys.argv = ["headstart", *words]
    os.environ["COLUMNS"] = "200"
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as leave:
        if isinstance(leave.code, str):
            return 1, said.getvalue() + leave.code
        return leave.code or 0, said.getvalue()
    finally:
        sys.argv = before
    return 0, said.getvalue()


def table(case: Case, plain: bool) -> tuple[list[str], list[list]]:
    """The names of columns and rows of numbers; task and reward come first."""
    rng = case.rng
    columns = ["task", "reward", "x0", "x1", "x2", "w", "t", "c"]
    rows = []
    counts = [30, 100, 300, 300] if plain else [0, 1, 2, 30, 100]
    theta, count = rng.normal(size=3), int(rng.choice(counts))
    scale = 10.0 ** rng.uniform(-3, 3)
    for _ in range(count):
        x = rng.normal(size=3) * scale
        reward = float(x @ theta + rng.normal())
        rows.append(
            [int(rng.integers(12)), reward, *map(float, x), 1.0, 1.6e9 + rng.integers(999), 1]
        )
    if not plain and case.rng.random() < 0.2:
        place = int(case.rng.integers(len(columns)))
        columns[place] = case.pick(NAMES)
    return columns, rows


def spoil(case: Case, rows: list[list], values: list) -> None:
    """Hostile values in a few cells, or in a whole column."""
    if not rows or case.rng.random() < 0.2:
        return
    column = case.pick([0, 1, 1, 1, 2, 2, 3, 4, 5, 6, 7])  # mostly rewards and features
    whole = case.rng.random() < 0.2
    for row in rows if whole else [case.pick(rows) for _ in range(int(case.rng.integers(1, 4)))]:
        row[column] = case.pick(values)


def as_csv(case: Case, columns: list[str], rows: list[list], plain: bool) -> tuple[bytes, bool]:
    spoil(case, rows, NUMBERS if plain else CELLS)
    odd = "bom crlf utf-16 latin-1 headless twice ragged blank empty semicolons nul endless"
    how = "plain" if plain else case.pick(["plain"] * 6 + odd.split())
    ends = "\r\n" if how == "crlf" else "\n"
    if not plain and case.rng.random() < 0.2:
        ends = "\r"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator=ends, delimiter=";" if how == "semicolons" else ",")
    header = [*columns, columns[2]] if how == "twice" else columns
    for number, row in enumerate([header, *rows] if how != "headless" else rows):
        writer.writerow([*row, 1] if how == "ragged" and number % 7 == 3 else row)
        if how == "blank" and number % 5 == 2:
            text.write(ends)
    content = text.getvalue()
    if how == "empty":
        return case.pick([b"", b"\n", b"\xef\xbb\xbf", ",".join(columns).encode()]), False
    quoted = not plain and case.rng.random() < 0.2
    if quoted:
        content = content.replace(",", ',"', 1 + int(case.rng.integers(9)))
    encoding = {"utf-16": "utf-16", "latin-1": "latin-1", "bom": "utf-8-sig"}.get(how, "utf-8")
    raw = content.encode(encoding, errors="replace")
    if how == "nul":
        raw = raw.replace(b"1", b"1\0", 3)
    if how == "endless":
        raw = raw.rstrip(b"\n")
    return raw, how in ("plain", "crlf", "bom", "endless") and not quoted


def as_jsonl(case: Case, columns: list[str], rows: list[list], plain: bool) -> tuple[bytes, bool]:
    spoil(case, rows, NUMBERS if plain else [*PLAIN, "\ud800"])
    ways = ["missing", "no objects", "blank lines", "array", "twice", "empty", "cut"]
    how = "plain" if plain else case.pick(["plain"] * 6 + ways)
    lines = []
    for number, row in enumerate(rows):
        known = dict(zip(columns, row, strict=True))
        if how == "missing" and number % 7 == 3:
            del known[case.pick(sorted(known))]
        line = json.dumps(known, ensure_ascii=case.rng.random() < 0.5)
        if how == "twice" and number % 7 == 3:
            line = line[:-1] + ', "x0": "other"}'
        if how == "no objects" and number % 7 == 3:
            line = case.pick(
                ["[]", "1", '"x"', "null", "{", "}", "{}", "nonsense", "[" * 50, "[" * 100_000]
            )
        lines += [line, ""] if how == "blank lines" else [line]
    text = "\n".join(lines) + "\n"
    if how == "array":
        text = "[" + ",".join(lines) + "]"
    elif how == "empty":
        text = case.pick(["", "\n", "{}", "null"])
    elif how == "cut":
        text = text[: len(text) * 2 // 3]
    return text.encode(errors="surrogatepass"), how in ("plain", "blank lines")


def as_arrow(case: Case, columns: list[str], rows: list[list], plain: bool, kind: str) -> bytes:
    numbers = [None, float("nan"), float("inf"), 1e308, -1e308, 1.2e29, 1e61, 1e16, 1e-320, -5.0]
    spoil(case, rows, NUMBERS if plain else numbers)
    arrays = [
        pa.array(np.array(column, dtype=object).tolist(), from_pandas=False, type=pa.float64())
        for column in zip(*rows, strict=True)
    ] or [pa.array([], pa.float64())] * len(columns)
    arrays[0] = arrays[0].cast(pa.int64(), safe=False)
    for place in case.rng.permutation(len(arrays))[: 0 if plain else int(case.rng.integers(0, 3))]:
        arrays[place] = converted(arrays[place], case.pick(TYPES))
    if kind == "parquet":
        sink = io.BytesIO()
        pa.parquet.write_table(
            pa.Table.from_arrays(arrays, columns), sink, row_group_size=case.pick([7, 1000])
        )
        return sink.getvalue()
    made = pa.Table.from_arrays(arrays, columns)
    sink = pa.BufferOutputStream()
    opened = pa.ipc.new_file if case.rng.random() < 0.7 else pa.ipc.new_stream
    with opened(sink, made.schema) as writer:
        writer.write_table(made, max_chunksize=case.pick([7, 1000]))
    return sink.getvalue().to_pybytes()


def converted(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """The numbers as another type, whatever becomes of them."""
    values = array.to_pylist()
    plain = [
        0.0 if v is None or not np.isfinite(v) else float(np.clip(v, -100, 100)) for v in values
    ]
    if pa.types.is_null(wanted):
        return pa.nulls(len(values))
    if pa.types.is_struct(wanted):
        return pa.array([{"a": int(v)} for v in plain], wanted)
    if pa.types.is_list(wanted):
        return pa.array([[v] * (number % 3) for number, v in enumerate(plain)], wanted)
    if pa.types.is_dictionary(wanted):
        return pa.array([f"kind {int(v) % 5}" for v in plain]).dictionary_encode()
    if pa.types.is_decimal(wanted):
        return pa.array([decimal.Decimal(f"{v:.2f}") for v in plain], wanted)
    if pa.types.is_binary(wanted):
        return pa.array([str(v).encode() + b"\xff" for v in plain], wanted)
    if wanted in (pa.string(), pa.large_string()):
        return pa.array([None if v is None else f"{v}" for v in values], wanted)
    if pa.types.is_float16(wanted):
        return pa.array(np.array(plain, dtype=np.float16))
    if pa.types.is_boolean(wanted):
        return pa.array([v > 0 for v in plain])
    small = pa.int64() if pa.types.is_timestamp(wanted) else pa.int32()
    return pa.array([abs(int(v)) for v in plain], small).cast(wanted, safe=False)
