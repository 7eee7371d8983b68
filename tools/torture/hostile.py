"""Hostile values for every parameter of every public method and constructor.

A value is refused with a HeadstartError, and then nothing has changed, to the last bit; or it is
accepted, and then everything still works and is finite. What can never be meant as numbers (NaN,
masked entries, text, dates, …) must be refused wherever numbers are wanted.
"""

from __future__ import annotations

import dataclasses
import datetime  # noqa: F401
import decimal  # noqa: F401
import fractions  # noqa: F401
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
# Polars and Arrow reserve addresses at their first use, which are not to count.
pl.DataFrame({"id": ["a", "b"]}).group_by("id").len()
pd.Series(["a", "b"])

ROW = np.arange(1.0, 1.0 + DIM)
TABLE = np.arange(3.0 * DIM).reshape(3, DIM) / 10
NAN, INF = float("nan"), float("inf")


def entry(value: object, dtype: object = object) -> np.ndarray:
    """A table with one odd entry."""
    table = TABLE.astype(dtype)
    table[1, 1] = value
    return table


def masked(array: np.ndarray) -> np.ma.MaskedArray:
    """One entry is missing."""
    return np.ma.masked_array(array, mask=np.arange(array.size).reshape(array.shape) == 1)


def frame(column: object = (1, 2, 3), kind=pd.DataFrame):
    """A frame of which one column is given."""
    return kind({f"f{number}": [0.1, 0.2, 0.3] for number in range(DIM)} | {"f1": column})


def recursive() -> list:
    several: list = [1.0]
    several.append(several)
    return several


class BytesPath(os.PathLike):
    def __fspath__(self):
        return b"a path in bytes"


class Whole(int):
    """An int of one's own kind."""


# Expressions of values, in the names of this file; these must be refused where numbers are wanted.
NEVER = r"""
'1.0' | '' | 'a' * 2000 | 'a\0b' | '\ud800' | b'1.0' | object() | float | len | ... | {'a': 1.0}
{1.0} | NAN | INF | -INF | 1 + 1j | decimal.Decimal('nan') | decimal.Decimal('snan')
np.float32(INF) | fractions.Fraction(10**400) | np.longdouble('1e400') | np.ma.masked | pd.NA
pd.NaT | datetime.date(2020, 1, 1) | np.datetime64('2020-01-01') | np.timedelta64(3, 's')
(number for number in [1.0, 2.0, 3.0]) | recursive() | [[1.0, 2.0], [3.0]] | pathlib.Path('a')
BytesPath() | entry(NAN, float) | entry(INF, float) | entry(10**400) | entry(None) | entry('x')
entry(pd.NA) | entry(decimal.Decimal('nan')) | masked(TABLE) | masked(ROW) | [masked(ROW)] * 3
[1.0, np.ma.masked, 3.0] | TABLE.astype(complex) | TABLE.astype(str) | TABLE.astype('S8')
np.zeros(3, 'f8,i8') | np.full((3, DIM), np.datetime64('2020-01-01')) | frame(['a', 'b', 'c'])
frame([0.1, NAN, 0.3]) | frame(pd.array([1, None, 3], 'Int64'))
frame(pd.to_datetime(['2020-01-01'] * 3)) | frame(pd.Categorical(['a', 'b', 'a']))
frame([1j, 2j, 3j]) | frame([[1], [2], [3]]) | frame([1.0, None, 3.0], pl.DataFrame)
frame(['a', 'b', 'c'], pl.DataFrame) | frame([[1.0], [2.0], [3.0]], pl.DataFrame)
frame((1, 2, 3), pl.LazyFrame)
"""
# Those that may be right in some places.
SOME = r"""
None | 10**400 | 10**5000 | True | np.False_ | 0 | 1 | -1 | -0.0 | Whole(7) | 0.5 | 2**31 | 2**62
np.uint64(2**63) | 2**70 | -2**70 | 1e308 | -1e308 | 1e200 | 1e61 | 1e16 | 1e-200 | 5e-324
np.float16(6e4) | np.float32(3e38) | np.longdouble('1e300') | fractions.Fraction(1, 3)
decimal.Decimal('0.5') | np.array(1.0) | np.array([1.0]) | ROW | np.array([0, 1, 2])
np.array([True, False, True]) | TABLE | np.ma.masked_array(TABLE) | np.asmatrix(TABLE)
np.asfortranarray(TABLE)[::-1] | TABLE.astype('>f8') | TABLE.astype(np.float16)
entry(fractions.Fraction(1, 3)) | entry(1e308, float) | entry(1e59, float) | entry(1e16, float)
entry(5e-324, float) | np.eye(DIM) | np.triu(np.ones((DIM, DIM))) | -np.eye(DIM)
1e300 * np.eye(DIM) | 1e-300 * np.eye(DIM) | np.ones(DIM + 1) | np.ones((3, DIM + 1))
np.ones((2, 3, DIM)) | np.empty((0, DIM)) | [] | () | [[]] | [1.0, 2.0, 3.0] | range(3) | [0, 1, 2]
[99] | [-1] | pd.Series([1.0, 2.0, 3.0]) | frame() | frame([True, False, True])
pd.DataFrame(TABLE) | pd.DataFrame(TABLE, columns=['a', 'a', 'b']) | frame().iloc[:0]
frame(kind=pl.DataFrame) | frame(kind=pl.DataFrame).drop('f1')
frame([decimal.Decimal('0.5')] * 3, pl.DataFrame) | 'auto' | 'theory' | 'paper' | 'plug-in'
'task 1' | '\x1b[31mred\x1b[0m\n' | ['task 1', 'task 2'] | ['task 1', 'task 1'] | hs.UCB()
hs.EmpiricalBayes() | hs.Bandit(DIM) | hs.Evidence.of(TABLE, ROW)
hs.Evidence.of(np.ones((2, DIM + 1)), [1.0, 2.0])
[('a', hs.Evidence.of(TABLE, ROW)), ('b', hs.Evidence.zero(DIM))]
[('a', hs.Evidence.zero(DIM))] * 2 | hs.Bandit(DIM).task('task 1').choose(TABLE)
"""
# What is called with a value v: where numbers are wanted, and elsewhere.
NUMERIC = """
task.choose(v) | finite('it', *task.predict(v)) | finite('it', *task.predict(TABLE, v))
task.learn(choice, v) | bandit.learn(choice.token, v) | bandit.learn([choice, other], v)
bandit.learn([choice, other], [1.0, v]) | bandit.learn(remade(context=v), 1.0)
bandit.learn(remade(number=v), 1.0) | bandit.choose_many(['new', 'task 1'], v)
bandit.choose_many(['new', 'newer'], [TABLE, v]) | hs.write_evidence('e', [('a', v)], DIM)
hs.write_evidence('e', [], 2, precision=v) | list(hs.read_evidence('archive', v))
hs.EvidenceFile('archive').at(v) | hs.Evidence.zero(DIM).add(v, 1.0)
hs.Evidence.zero(DIM).add(ROW, v) | hs.Evidence.unpack(v, DIM)
finite('it', hs.Evidence.of(TABLE, ROW).ridge(v)) | hs.Belief.start(PRIOR).learn(v, 1.0)
hs.Belief.start(PRIOR).learn(ROW, v) | journal.append(choice, v)
list(hs.EvidenceFile('archive').batches(v)) | task.choose(TABLE, k=v)
bandit.choose_many(['new', 'task 1'], [TABLE, TABLE], k=v) | task.observe(v, ROW)
task.observe(TABLE, v) | task.observe(TABLE, ROW % 2, v) | task.observe(TABLE, v, journal=journal)
bandit.add_evidence('new', v) | task.explain(choice, level=v)
task.observe(TABLE, ROW % 2, mean_of=v)
task.choose(TABLE, exclude=[0], k=v) | task.observe(TABLE, ROW % 2, [1.0, v, 0.0])
bandit.choose_many(['new', 'task 1'], [TABLE[:2], v], k=2) | hs.Thompson(probability=(v, 1.0))
bandit.choose_many(['new', 'task 1'], [TABLE[:2], TABLE], [[0], None], k=v)
"""
OTHER = """
task.choose(TABLE, exclude=v) | task.predict(TABLE, of_reward=v) | task.learn(v, 1.0)
bandit.learn([choice, v], [1.0, 1.0]) | bandit.learn(remade(task=v), 1.0)
bandit.learn(remade(forced=v), 1.0) | bandit.learn(remade(origin=v), 1.0) | repr(bandit.task(v))
hs.write_evidence('e', v, DIM) | v in bandit | bandit.delete(v)
bandit.choose_many(v, [TABLE, TABLE]) | bandit.choose_many(['new', v], [TABLE, TABLE])
bandit.save(v) | hs.load(v) | hs.load('fresh', transfer=v) | hs.load('fresh', rule=v)
hs.write_evidence('e', [(v, EVIDENCE)], DIM) | hs.write_evidence(v, [('a', EVIDENCE)], DIM)
hs.EvidenceFile(v) | hs.EvidenceFile('archive')[v] | v in hs.EvidenceFile('archive')
hs.merge_evidence(v, 'e') | hs.merge_evidence(['archive'], v) | EVIDENCE.__add__(v)
hs.Journal(v) | hs.Journal('j', sync=v) | journal.append(v, 1.0) | bandit.replay(v)
journal.append(remade(context=v), 1.0) | journal.append(remade(task=v), 1.0)
task.observe(TABLE, ROW % 2, journal=v) | bandit.add_evidence(v, EVIDENCE) | task.explain(v)
task.explain(choice, against=v) | bandit.fit(v, task='a', reward='b') | task.encode(v)
hs.Schema.from_json(v) | hs.Schema.from_dict(v) | hs.Schema.from_file(v) | hs.Schema.infer(v)
bandit.choose_many(['new', 'task 1'], [TABLE[:2], TABLE], v)
bandit.choose_many(['new', 'task 1'], [TABLE[:2], TABLE], [None, v])
journal.append(remade(epoch=v), 1.0) | bandit.learn(remade(epoch=v), 1.0) | bandit.learn(v, v)
"""
PRIOR, EVIDENCE = hs.Prior.isotropic(DIM), hs.Evidence.of(TABLE, ROW)
# What else constructors need.
NEEDS = {
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
    hs.Belief.of: {"prior": PRIOR, "evidence": EVIDENCE},
}
NAMED = [hs.linucb, hs.lints, hs.bias_oful, hs.projected_linucb, hs.projected_ts, hs.meta_ts]
NEEDS |= {named: {"dim": DIM} for named in NAMED}
MAKERS = [*NEEDS, hs.UCB, hs.Thompson, hs.Greedy, hs.Uniform, hs.EmpiricalBayes, hs.Mixture]
MAKERS += [hs.Subspace, hs.Bias, hs.Gaussian, hs.Independent, hs.CCIPCA, hs.ExactPCA]
# Their parameters that take words, or other things than numbers.
WORDY = {"method", "estimate", "pca", "shrink", "start", "deflate", "seed", "transfer", "rule"}
WORDY |= {"paper", "forced", "running", "intercept", "then", "rank", "evidence", "prior", "units"}


def expressions(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in line.split(" | ")]


def parameters(maker) -> list[str]:
    several = inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL
    found = inspect.signature(maker).parameters.values()
    return [one.name for one in found if one.kind not in several and one.name != "batch"]


CALLS = dict.fromkeys(expressions(NUMERIC), True) | dict.fromkeys(expressions(OTHER), False)
MADE = {
    f"{maker.__qualname__}({name}=v)": (maker, name)
    for maker in MAKERS
    for name in parameters(maker)
}
VALUES = [*expressions(NEVER), *expressions(SOME)]
PAIRS = [(target, value) for target in (*CALLS, *MADE) for value in VALUES]
READS = ["hs.load(v)", "hs.EvidenceFile(v)"]
WRITES = ["bandit.save(v)", "hs.write_evidence(v, [], 2)"]
PLACES = [(call, kind) for call in READS + WRITES for kind in ("fifo", "socket", "folder")]
PLACES += [(call, "link to itself") for call in READS]


def attack(case: Case) -> None:
    """Pairs of a call and a value in an order that the seed gives, each once, then again."""
    order = np.random.default_rng([case.seed, 4]).permutation(len(PAIRS) + len(PLACES))
    number = int(order[case.number % len(order)])
    target, value = [*PAIRS, *PLACES][number]
    try:
        (one if number < len(PAIRS) else special)(case, target, value)
    except Exception as error:
        error.args = (f"{target} <- {value}: {error}",)
        raise


def one(case: Case, target: str, value: str) -> None:
    """One value for one parameter."""
    os.chdir(case.folder)
    names, before = globals(), b""
    if target in CALLS:
        bandit = fresh(case)
        task = bandit.task("task 1")
        choice, other = task.choose(TABLE), task.choose(TABLE)
        remade = functools.partial(again, choice)
        journal = hs.Journal("journal")
        names = names | locals()
        hs.write_evidence("archive", [("1", EVIDENCE), ("a", EVIDENCE)], DIM)
        before = state(bandit, case.folder)
    listed = {*os.listdir(), "again"}
    try:
        v = eval(value, globals())
        if before:
            eval(target, names | {"v": v})
        else:
            make(*MADE[target], case.folder, v)
    except hs.HeadstartError:
        if set(os.listdir()) - listed:
            raise Changed(f"left behind {set(os.listdir()) - listed}") from None
        if before and state(bandit, case.folder) != before:
            raise Changed("the state is another one") from None
        return
    except MemoryError:
        if "dim=" in target:  # as many numbers as were asked for
            return
        raise
    finally:
        os.chdir("/")
    wants = CALLS[target] if before else MADE[target][1] not in WORDY
    unbounded = "bias=" in target and value in ("INF", "np.float32(INF)")  # where no bound is known
    if wants and value in expressions(NEVER) and not unbounded:
        raise Accepted("it was accepted")
    if before:
        works(bandit, case.folder)


def again(choice: hs.Choice, **changes) -> hs.Choice:
    """A choice made by hand."""
    fields = {field.name: getattr(choice, field.name) for field in dataclasses.fields(choice)}
    return hs.Choice(**(fields | changes))


def make(maker, name: str, folder: pathlib.Path, value: object) -> None:
    """Construct something with the value; what comes of it must work."""
    words = NEEDS.get(maker, {}) | {name: value}
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


def special(case: Case, target: str, kind: str) -> None:
    """Files that are no files: they are refused and stay what they are, and nobody waits."""
    path, bandit = case.folder / "special", fresh(case)
    listening = socket.socket(socket.AF_UNIX)
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        os.chdir(case.folder)  # the names of sockets are short
        listening.bind("special")
        os.chdir("/")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    before = stat.S_IFMT(path.lstat().st_mode)

    def late(*_):
        raise RuntimeError("it waits forever")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(5)
    try:
        eval(target, globals() | {"bandit": bandit, "v": path})
        raise Accepted("it was accepted")
    except hs.FileError:
        pass
    finally:
        signal.alarm(0)
        listening.close()
        if stat.S_IFMT(path.lstat().st_mode) != before:
            raise Changed("it was replaced")
