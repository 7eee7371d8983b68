"""Hostile values for every parameter of every public method and constructor.

A value is refused with a HeadstartError, and then nothing has changed, to the last bit; or it is
accepted, and then everything still works and is finite. What can never be meant as numbers (NaN,
masked entries, text, dates, …) must be refused wherever numbers are wanted.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import fractions
import functools
import inspect
import os
import pathlib
import signal
import socket
import stat

import numpy as np
import pandas as pd
import polars as pl
from common import DIM, Accepted, Case, Changed, finite, fresh, state, works

import headstart as hs

SHARE = 4.0
LIMIT = 2**30

ROW = np.arange(1.0, 1.0 + DIM)
TABLE = np.arange(3.0 * DIM).reshape(3, DIM) / 10
FRAME = {f"f{number}": [0.1, 0.2, 0.3] for number in range(DIM)}


def with_entry(value: object, dtype: object = None) -> np.ndarray:
    table = TABLE.astype(dtype or float)
    table[1, 1] = value
    return table


def recursive() -> list:
    several: list = [1.0]
    several.append(several)
    return several


class BytesPath(os.PathLike):
    def __fspath__(self):
        return b"a path in bytes"


class Whole(int):
    """An int of one's own kind."""


# What must be refused wherever numbers are wanted.
NEVER = {
    "text": lambda: "1.0",
    "empty text": lambda: "",
    "long text": lambda: "a" * 2000,
    "zero byte": lambda: "a\0b",
    "surrogate": lambda: "\ud800",
    "bytes": lambda: b"1.0",
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "-inf": lambda: -float("inf"),
    "complex": lambda: 1 + 1j,
    "decimal nan": lambda: decimal.Decimal("nan"),
    "decimal snan": lambda: decimal.Decimal("snan"),
    "masked": lambda: np.ma.masked,
    "NA": lambda: pd.NA,
    "NaT": lambda: pd.NaT,
    "date": lambda: datetime.date(2020, 1, 1),
    "datetime64": lambda: np.datetime64("2020-01-01"),
    "timedelta64": lambda: np.timedelta64(3, "s"),
    "object": object,
    "type": lambda: float,
    "function": lambda: len,
    "ellipsis": lambda: ...,
    "dict": lambda: {"a": 1.0},
    "set": lambda: {1.0},
    "generator": lambda: (number for number in [1.0, 2.0, 3.0]),
    "recursive list": recursive,
    "ragged": lambda: [[1.0, 2.0], [3.0]],
    "path": lambda: pathlib.Path("a path"),
    "bytes path": BytesPath,
    "huge int": lambda: 10**400,
    "enormous int": lambda: 10**5000,
    "huge fraction": lambda: fractions.Fraction(10**400),
    "huge long double": lambda: np.longdouble("1e400"),
    "nan entry": lambda: with_entry(np.nan),
    "inf entry": lambda: with_entry(np.inf),
    "huge entry": lambda: with_entry(10**400, object),
    "None entry": lambda: with_entry(None, object),
    "text entry": lambda: with_entry("x", object),
    "NA entry": lambda: with_entry(pd.NA, object),
    "decimal nan entry": lambda: with_entry(decimal.Decimal("nan"), object),
    "masked entry": lambda: np.ma.masked_array(TABLE, mask=TABLE[1, 1] == TABLE),
    "masked rows": lambda: np.ma.masked_array(ROW, mask=[False, True, False]),
    "list of masked rows": lambda: [np.ma.masked_array(ROW, mask=[False, True, False])] * 3,
    "list with masked": lambda: [1.0, np.ma.masked, 3.0],
    "complex table": lambda: TABLE.astype(complex),
    "text table": lambda: TABLE.astype(str),
    "bytes table": lambda: TABLE.astype("S8"),
    "date table": lambda: np.full((3, DIM), np.datetime64("2020-01-01")),
    "records": lambda: np.zeros(3, dtype=[("a", float), ("b", int)]),
    "frame of text": lambda: pd.DataFrame(FRAME | {"f1": ["a", "b", "c"]}),
    "frame with NaN": lambda: pd.DataFrame(FRAME | {"f1": [0.1, np.nan, 0.3]}),
    "frame with NA": lambda: pd.DataFrame(FRAME | {"f1": pd.array([1, None, 3], "Int64")}),
    "frame of dates": lambda: pd.DataFrame(FRAME | {"f1": pd.to_datetime(["2020-01-01"] * 3)}),
    "frame of kinds": lambda: pd.DataFrame(FRAME | {"f1": pd.Categorical(["a", "b", "a"])}),
    "frame of complex": lambda: pd.DataFrame(FRAME | {"f1": [1j, 2j, 3j]}),
    "frame of lists": lambda: pd.DataFrame(FRAME | {"f1": [[1], [2], [3]]}),
    "polars with null": lambda: pl.DataFrame(FRAME | {"f1": [0.1, None, 0.3]}),
    "polars of text": lambda: pl.DataFrame(FRAME | {"f1": ["a", "b", "c"]}),
    "polars of lists": lambda: pl.DataFrame(FRAME | {"f1": [[1.0], [2.0], [3.0]]}),
    "lazy frame": lambda: pl.LazyFrame(FRAME),
}
# What may be right in some places.
SOME = {
    "None": lambda: None,
    "True": lambda: True,
    "numpy False": lambda: np.False_,
    "0": lambda: 0,
    "-0.0": lambda: -0.0,
    "1": lambda: 1,
    "-1": lambda: -1,
    "7": lambda: Whole(7),
    "half": lambda: 0.5,
    "2**31": lambda: 2**31,
    "2**62": lambda: 2**62,
    "2**63": lambda: np.uint64(2**63),
    "2**70": lambda: 2**70,
    "-2**70": lambda: -(2**70),
    "1e308": lambda: 1e308,
    "-1e308": lambda: -1e308,
    "1e200": lambda: 1e200,
    "1e61": lambda: 1e61,
    "1e16": lambda: 1e16,
    "1e-200": lambda: 1e-200,
    "subnormal": lambda: 5e-324,
    "float16": lambda: np.float16(6e4),
    "float32": lambda: np.float32(3e38),
    "long double": lambda: np.longdouble("1e300"),
    "fraction": lambda: fractions.Fraction(1, 3),
    "decimal": lambda: decimal.Decimal("0.5"),
    "array of none": lambda: np.array(1.0),
    "array of one": lambda: np.array([1.0]),
    "row": lambda: ROW,
    "int row": lambda: np.array([0, 1, 2]),
    "bool row": lambda: np.array([True, False, True]),
    "table": lambda: TABLE,
    "nothing masked": lambda: np.ma.masked_array(TABLE),
    "matrix": lambda: np.asmatrix(TABLE),
    "fortran table": lambda: np.asfortranarray(TABLE)[::-1],
    "big-endian table": lambda: TABLE.astype(">f8"),
    "float16 table": lambda: TABLE.astype(np.float16),
    "fractions": lambda: with_entry(fractions.Fraction(1, 3), object),
    "square": lambda: np.eye(DIM),
    "not symmetric": lambda: np.triu(np.ones((DIM, DIM))),
    "negative square": lambda: -np.eye(DIM),
    "huge square": lambda: 1e300 * np.eye(DIM),
    "tiny square": lambda: 1e-300 * np.eye(DIM),
    "1e308 entry": lambda: with_entry(1e308),
    "1e59 entry": lambda: with_entry(1e59),
    "1e16 entry": lambda: with_entry(1e16),
    "subnormal entry": lambda: with_entry(5e-324),
    "long row": lambda: np.ones(DIM + 1),
    "wide table": lambda: np.ones((3, DIM + 1)),
    "three axes": lambda: np.ones((2, 3, DIM)),
    "no rows": lambda: np.empty((0, DIM)),
    "empty list": list,
    "empty tuple": tuple,
    "list of empty": lambda: [[]],
    "list": lambda: [1.0, 2.0, 3.0],
    "range": lambda: range(3),
    "all arms": lambda: [0, 1, 2],
    "arm outside": lambda: [99],
    "negative arm": lambda: [-1],
    "series": lambda: pd.Series([1.0, 2.0, 3.0]),
    "frame with one column twice": lambda: pd.DataFrame(TABLE, columns=["a", "a", "b"]),
    "frame without rows": lambda: pd.DataFrame(FRAME).iloc[:0],
    "polars with too few columns": lambda: pl.DataFrame(FRAME).drop("f1"),
    "frame": lambda: pd.DataFrame(FRAME),
    "frame of bools": lambda: pd.DataFrame(FRAME | {"f1": [True, False, True]}),
    "frame of numbers as names": lambda: pd.DataFrame(TABLE),
    "polars": lambda: pl.DataFrame(FRAME),
    "polars of decimals": lambda: pl.DataFrame(FRAME | {"f1": [decimal.Decimal("0.5")] * 3}),
    "auto": lambda: "auto",
    "theory": lambda: "theory",
    "paper": lambda: "paper",
    "plug-in": lambda: "plug-in",
    "task": lambda: "task 1",
    "escape codes": lambda: "\x1b[31mred\x1b[0m\n",
    "names": lambda: ["task 1", "task 2"],
    "one name twice": lambda: ["task 1", "task 1"],
    "rule": hs.UCB,
    "transfer": hs.EmpiricalBayes,
    "bandit": lambda: hs.Bandit(DIM),
    "evidence": lambda: hs.Evidence.of(TABLE, ROW),
    "other evidence": lambda: hs.Evidence.of(np.ones((2, DIM + 1)), [1.0, 2.0]),
    "items": lambda: [("a", hs.Evidence.of(TABLE, ROW)), ("b", hs.Evidence.zero(DIM))],
    "same item twice": lambda: [("a", hs.Evidence.of(TABLE, ROW))] * 2,
    "choice of another": lambda: hs.Bandit(DIM).task("task 1").choose(TABLE),
}
VALUES = NEVER | SOME


@dataclasses.dataclass
class Given:
    """What a target may use, made before the state is noted."""

    bandit: hs.Bandit
    choice: hs.Choice
    other: hs.Choice
    folder: pathlib.Path

    @property
    def task(self) -> hs.Task:
        return self.bandit.task("task 1")

    def learn_with(self, **changes) -> None:
        fields = {
            field.name: getattr(self.choice, field.name) for field in dataclasses.fields(hs.Choice)
        }
        self.bandit.learn(hs.Choice(**(fields | changes)), 1.0)


TARGETS = {  # name: (what to call with the value, whether it wants numbers)
    "choose contexts": (lambda g, v: g.task.choose(v), True),
    "choose exclude": (lambda g, v: g.task.choose(TABLE, exclude=v), False),
    "predict contexts": (lambda g, v: finite("prediction", *g.task.predict(v)), True),
    "predict level": (lambda g, v: finite("prediction", *g.task.predict(TABLE, v)), True),
    "learn choice": (lambda g, v: g.task.learn(v, 1.0), False),
    "learn reward": (lambda g, v: g.task.learn(g.choice, v), True),
    "learn reward by token": (lambda g, v: g.bandit.learn(g.choice.token, v), True),
    "learn rewards": (lambda g, v: g.bandit.learn([g.choice, g.other], v), True),
    "learn one of rewards": (lambda g, v: g.bandit.learn([g.choice, g.other], [1.0, v]), True),
    "learn one of choices": (lambda g, v: g.bandit.learn([g.choice, v], [1.0, 1.0]), False),
    "hand-made context": (lambda g, v: g.learn_with(context=v), True),
    "hand-made number": (lambda g, v: g.learn_with(number=v), True),
    "hand-made task": (lambda g, v: g.learn_with(task=v), False),
    "hand-made forced": (lambda g, v: g.learn_with(forced=v), False),
    "hand-made origin": (lambda g, v: g.learn_with(origin=v), False),
    "task id": (lambda g, v: repr(g.bandit.task(v)), False),
    "contains": (lambda g, v: v in g.bandit, False),
    "delete id": (lambda g, v: g.bandit.delete(v), False),
    "choose_many ids": (lambda g, v: g.bandit.choose_many(v, [TABLE, TABLE]), False),
    "choose_many id": (lambda g, v: g.bandit.choose_many(["new", v], [TABLE, TABLE]), False),
    "choose_many contexts": (lambda g, v: g.bandit.choose_many(["new", "task 1"], v), True),
    "choose_many table": (lambda g, v: g.bandit.choose_many(["new", "x"], [TABLE, v]), True),
    "save path": (lambda g, v: g.bandit.save(v), False),
    "load path": (lambda g, v: hs.load(v), False),
    "load transfer": (lambda g, v: hs.load(g.folder / "fresh", transfer=v), False),
    "load rule": (lambda g, v: hs.load(g.folder / "fresh", rule=v), False),
    "write path": (lambda g, v: hs.write_evidence(v, [("a", hs.Evidence.zero(2))], 2), False),
    "write items": (lambda g, v: hs.write_evidence(g.folder / "e", v, DIM), True),
    "write id": (
        lambda g, v: hs.write_evidence(g.folder / "e", [(v, hs.Evidence.zero(2))], 2),
        False,
    ),
    "write evidence": (lambda g, v: hs.write_evidence(g.folder / "e", [("a", v)], DIM), True),
    "write precision": (lambda g, v: hs.write_evidence(g.folder / "e", [], 2, precision=v), True),
    "read path": (lambda g, v: hs.EvidenceFile(v), False),
    "read batch": (lambda g, v: list(hs.read_evidence(archived(g), v)), True),
    "archive id": (lambda g, v: hs.EvidenceFile(archived(g))[v], False),
    "archive contains": (lambda g, v: v in hs.EvidenceFile(archived(g)), False),
    "archive position": (lambda g, v: hs.EvidenceFile(archived(g)).at(v), True),
    "merge paths": (lambda g, v: hs.merge_evidence(v, g.folder / "e"), False),
    "evidence add": (lambda g, v: hs.Evidence.zero(DIM) + v, False),
    "evidence add context": (lambda g, v: hs.Evidence.zero(DIM).add(v, 1.0), True),
    "evidence add reward": (lambda g, v: hs.Evidence.zero(DIM).add(ROW, v), True),
    "evidence ridge": (lambda g, v: finite("ridge", hs.Evidence.of(TABLE, ROW).ridge(v)), True),
    "evidence unpack": (lambda g, v: hs.Evidence.unpack(v, DIM), True),
    "belief context": (lambda g, v: hs.Belief.start(hs.Prior.isotropic(DIM)).learn(v, 1.0), True),
    "belief reward": (lambda g, v: hs.Belief.start(hs.Prior.isotropic(DIM)).learn(ROW, v), True),
}
WORDS = (
    {  # what else these need, and what of theirs takes anything but numbers
        hs.Bandit: {"dim": DIM},
        hs.Forced: {"rounds": 3, "then": hs.UCB()},
        hs.Oracle: {"mean": np.ones(DIM), "covariance": np.eye(DIM)},
        hs.projection_oracle: {"dim": DIM, "mean": np.ones(DIM), "basis": np.eye(DIM)[:, :1]},
        hs.bayes_oracle: {"dim": DIM, "mean": np.ones(DIM), "covariance": np.eye(DIM)},
        hs.Prior: {"mean": np.ones(DIM), "root": np.eye(DIM)},
        hs.Prior.isotropic: {"dim": DIM},
        hs.Prior.gaussian: {"mean": np.ones(DIM), "covariance": np.eye(DIM)},
        hs.Evidence: {"gram": np.eye(DIM), "moment": np.ones(DIM), "rounds": 3.0, "squares": 9.0},
        hs.Evidence.of: {"contexts": TABLE, "rewards": ROW},
        hs.Evidence.zero: {"dim": DIM},
        hs.Belief.of: {"prior": hs.Prior.isotropic(DIM), "evidence": hs.Evidence.zero(DIM)},
    }
    | {
        named: {"dim": DIM}
        for named in (
            hs.linucb,
            hs.lints,
            hs.bias_oful,
            hs.projected_linucb,
            hs.projected_ts,
            hs.meta_ts,
        )
    }
)
MAKERS = [*WORDS, hs.UCB, hs.Thompson, hs.Greedy, hs.Uniform, hs.EmpiricalBayes, hs.Mixture]
MAKERS += [hs.Subspace, hs.Bias, hs.Gaussian, hs.Independent, hs.CCIPCA, hs.ExactPCA]
WORDY = {"method", "estimate", "pca", "shrink", "start", "deflate", "seed", "transfer", "rule"}
WORDY |= {"paper", "forced", "running", "intercept", "then", "rank", "evidence", "prior", "units"}


def archived(given: Given) -> pathlib.Path:
    path = given.folder / "archive"
    hs.write_evidence(path, [("1", hs.Evidence.zero(DIM)), ("a", hs.Evidence.zero(DIM))], DIM)
    return path


def make(maker, name: str, folder: pathlib.Path, value: object) -> None:
    """Construct something with the value; what comes of it must work."""
    words = WORDS.get(maker, {}) | {name: value}
    if maker is hs.Oracle and name == "basis":
        del words["covariance"]
    made = maker(**words)
    if isinstance(made, hs.CCIPCA | hs.ExactPCA):
        made = hs.Subspace(pca=made)
    if isinstance(made, hs.Rule):
        made = hs.Bandit(DIM, rule=made)
    elif isinstance(made, hs.Transfer):
        forced = isinstance(made, hs.Gaussian) and made.forced
        made = hs.Bandit(DIM, made, hs.Forced(2, hs.UCB()) if forced else hs.UCB())
    elif isinstance(made, hs.Prior):
        made = hs.Belief.start(made)
    if isinstance(made, hs.Belief) and not made.batch:
        offers = np.ones((1, made.dim))
        made = made.learn(offers[0], 1.0)
        finite("a belief", made.mean, made.root, made.predict(offers), made.width(offers))
    elif isinstance(made, hs.Evidence):
        finite("evidence", made.pack(), made.ridge(1.0))
    elif isinstance(made, hs.Bandit):
        works(made, folder)


def parameters(maker) -> list[str]:
    kinds = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    found = inspect.signature(maker).parameters.values()
    return [found.name for found in found if found.kind not in kinds and found.name != "batch"]


MADE = {  # the same for what is constructed
    f"{maker.__qualname__}({name}=)": (functools.partial(make, maker, name), name not in WORDY)
    for maker in MAKERS
    for name in parameters(maker)
}


def special(case: Case, kind: str) -> None:
    """Files that are no files: they are refused and stay what they are, and nobody waits."""
    path = case.folder / "special"
    bandit = fresh(case)
    listening = socket.socket(socket.AF_UNIX)
    if "fifo" in kind:
        os.mkfifo(path)
    elif "socket" in kind:
        before = os.getcwd()
        os.chdir(case.folder)  # the names of sockets are short
        listening.bind("special")
        os.chdir(before)
    elif "folder" in kind:
        path.mkdir()
    else:
        path.symlink_to(path)
    before = stat.S_IFMT(path.lstat().st_mode)
    calls = {
        "save": lambda: bandit.save(path),
        "load": lambda: hs.load(path),
        "write": lambda: hs.write_evidence(path, [("a", hs.Evidence.zero(2))], 2),
        "open": lambda: hs.EvidenceFile(path),
    }

    def late(*_):
        raise RuntimeError(f"{kind} waits forever")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        calls[kind.partition(" ")[0]]()
        raise Accepted(f"{kind} was accepted")
    except hs.FileError:
        pass
    finally:
        signal.alarm(0)
        listening.close()
        if stat.S_IFMT(path.lstat().st_mode) != before:
            raise Changed(f"{kind} replaced it")


FILES = [
    f"{do} {what}"
    for do in ("save", "load", "write", "open")
    for what in ("fifo", "socket", "folder", "loop")
]
PAIRS = [(target, value) for target in TARGETS | MADE for value in VALUES]


def attack(case: Case) -> None:
    """Pairs of a target and a value in an order that the seed gives, each once, then again."""
    order = np.random.default_rng([case.seed, 4]).permutation(len(PAIRS) + len(FILES))
    number = int(order[case.number % len(order)])
    if number >= len(PAIRS):
        return special(case, FILES[number - len(PAIRS)])
    target, value = PAIRS[number]
    try:
        one(case, target, value)
    except Exception as error:
        error.args = (f"{target} <- {value}: {error}",)
        raise


def one(case: Case, target: str, value: str) -> None:
    os.chdir(case.folder)
    call, numeric = (TARGETS | MADE)[target]
    given, before = case.folder, b""
    if target in TARGETS:
        bandit = fresh(case)
        task = bandit.task("task 1")
        given = Given(bandit, task.choose(TABLE), task.choose(TABLE), case.folder)
        before = state(bandit, case.folder)
    listed = {*os.listdir(), "archive", "again"}
    try:
        call(given, VALUES[value]())
    except hs.HeadstartError:
        if set(os.listdir()) - listed:
            raise Changed(f"left behind {set(os.listdir()) - listed}") from None
        if before and state(bandit, case.folder) != before:
            raise Changed("the state is another one") from None
        return
    except MemoryError:
        if "dim" in target:  # as many numbers as were asked for
            return
        raise
    except TypeError:
        if target == "evidence add":  # as Python does for a sum of what cannot be added
            return
        raise
    finally:
        os.chdir("/")
    if numeric and value in NEVER:
        raise Accepted("it was accepted")
    if before:
        works(bandit, case.folder)
