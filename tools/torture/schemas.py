"""Schemas and items: hostile schemas, rows, frames, and rewards of tasks that are gone.

What is refused is refused with a HeadstartError and changes nothing, to the last bit. What is
accepted works: a schema is the same after it was written and read, a bandit decides and is saved.
"""

from __future__ import annotations

import contextlib
import json

import hostile
import numpy as np
import pandas as pd
import polars as pl
from common import (
    ITEMS,
    SHOP,
    Accepted,
    Case,
    Changed,
    finite,
    offer,
    reloaded,
    reward_of,
    saved_with_items,
    state,
    works,
)
from damage import damaged
from resealed import change_header

import headstart as hs

SHARE = 3.0
LIMIT = 2**30
MAX_TRIED = 60  # columns of a schema that a bandit is made of


def nested(kind=list, depth: int = 100_000):
    """Something within something, and so on."""
    value: object = kind()
    for _ in range(depth):
        value = {"a": value} if kind is dict else kind([value])
    return value


MORE = [
    "nested()",
    "nested(dict)",
    "nested(tuple)",
    "[nested()] * 3",
    "['x' * 10**6] * 3",
    "list(range(10**5))",
    "[f'item {n}' for n in range(10**5)]",
    "{1: 2, None: 3}",
    "[{1: 2}] * 3",
    "[{}] * 3",
    "[{'id': 1}, {'id': 1}]",
    "[{'id': [1]}]",
    "[1, '1']",
    "[True]",
    "iter([1, 2])",
    "{1, 2}",
    "pd.DataFrame([[1, 2]], columns=['id', 'id'])",
    "pd.DataFrame({'id': [1, None]})",
    "pd.DataFrame({'price': [1.0]}, index=[[1]])",
    "pl.DataFrame({'id': [1, 2], 'price': ['a', 'b']})",
]
VALUES = [*hostile.VALUES, *MORE]
NAMES = {**vars(hostile), "nested": nested, "pd": pd, "pl": pl, "hs": hs}


def attack(case: Case) -> None:
    kinds = ["written", "items", "frame", "frame", "inferred", "made", "transformed"]
    kind = case.pick([*kinds, "rows", "rows", "rows"])
    try:
        globals()[kind](case)
    except Exception as error:
        error.args = (f"{kind}: {str(error)[:400]}",)
        raise


def value_of(case: Case) -> tuple[str, object]:
    text = case.pick(VALUES)
    return text, eval(text, NAMES)


def check_schema(schema: hs.Schema) -> None:
    """A schema can be written and read, and a bandit can be made of it."""
    text = schema.to_json()
    if hs.Schema.from_json(text.encode()) != schema:
        raise Accepted("it is another one after it was written and read")
    repr(schema), schema.feature_names
    if schema.width <= MAX_TRIED:
        hs.Bandit(schema, hs.Independent(), seed=0).report()


def written(case: Case) -> None:
    """A schema's JSON, changed or damaged."""
    value = json.loads(case.pick([ITEMS, SHOP]).to_json())
    for _ in range(int(case.rng.integers(1, 4))):
        change_header(value, case)
        if not value:
            break
    content = json.dumps(value).encode()
    if case.rng.random() < 0.2:
        content = damaged(content, case.rng)
    (case.folder / "schema").write_bytes(content)
    for read in (
        lambda: hs.Schema.from_json(content),
        lambda: hs.Schema.from_file(case.folder / "schema"),
    ):
        with contextlib.suppress(hs.HeadstartError):
            check_schema(read())


def serving(case: Case) -> hs.Bandit:
    """A bandit with a schema that has run; mostly one that fits no prior, which is fast."""
    schema, alone = case.pick([ITEMS, SHOP]), bool(case.rng.random() < 0.8)
    reward = case.pick(["number", "number", "binary"])
    (case.folder / "fresh").write_bytes(saved_with_items(case.seed, schema, alone, reward))
    return hs.load(case.folder / "fresh")


def rows(case: Case) -> None:
    """A hostile value as the actions, an action, one of its fields, or the context."""
    bandit, (text, value) = serving(case), value_of(case)
    task = bandit.task("task 1")
    actions, context = offer(bandit, case.rng), None
    choice = task.choose(actions)
    where = case.pick(["actions", "action", "field", "field", "field", "id", "context", "exclude"])
    exclude = value if where == "exclude" else None
    if where == "actions":
        actions = value
    elif where == "action":
        actions[1] = value
    elif where in ("field", "id"):
        name = "id" if where == "id" else case.pick(sorted(actions[0]))
        actions[1] = actions[1] | {name: value}
    elif where == "context":
        context = case.pick([value, {"hour": value, "age": 1.0}, {"hour": "am", "age": value}])
        actions = [
            {name: part for name, part in row.items() if name not in ("hour", "age")}
            for row in actions
        ]
    calls = {
        "choose": lambda: task.choose(actions, exclude, context=context),
        "rank": lambda: task.choose(actions, exclude, context=context, k=2),
        "many": lambda: bandit.choose_many(["new", "task 1"], [actions] * 2, context=context),
        "predict": lambda: finite("it", *task.predict(actions, context=context)[:3]),
        "encode": lambda: finite("it", task.encode(actions, context=context).table),
        "observe": lambda: task.observe(actions, np.ones(3)),
        "rewards": lambda: task.observe(offer(bandit, case.rng), value),
        "learn": lambda: bandit.learn(choice, value),
    }
    how = case.pick(sorted(calls))
    before = state(bandit, case.folder)
    try:
        calls[how]()
    except hs.HeadstartError:
        if state(bandit, case.folder) != before:
            raise Changed(f"{how}({where} = {text}) was refused; the state is another") from None
        return
    except Exception as error:
        error.args = (f"{how}({where} = {text}): {str(error)[:300]}",)
        raise
    works(bandit, case.folder)


class Prices:
    """A transformer of one's own, which raises whatever it likes."""

    width = 1

    def transform(self, actions):
        return [[float(action["price"])] for action in actions]


def transformed(case: Case) -> None:
    """A hostile value as the actions, an action, its field, or the context, for a transformer."""
    bandit, (text, value) = hs.Bandit(Prices(), hs.Independent(), seed=0), value_of(case)
    task, context = bandit.task("it"), None
    actions = [{"id": number, "price": float(number)} for number in range(3)]
    where = case.pick(["actions", "action", "price", "id", "context"])
    if where == "actions":
        actions = value
    elif where == "action":
        actions[1] = value
    elif where == "context":
        context = value
    else:
        actions[1][where] = value
    how = case.pick([task.choose, task.predict, task.encode])
    before = state(bandit, case.folder)
    try:
        how(actions, context=context)
    except hs.HeadstartError:
        if state(bandit, case.folder) != before:
            raise Changed(f"{where} = {text} was refused; the state is another") from None
    except Exception as error:
        error.args = (f"{how.__name__}({where} = {text}): {str(error)[:300]}",)
        raise


def items(case: Case) -> None:
    """Rewards that are late or come twice, of tasks that are closed, deleted and made again."""
    bandit, tokens, used = serving(case), [], set()
    for _ in range(25):
        name = f"task {case.rng.integers(6)}"
        how = case.pick(["choose"] * 3 + ["learn"] * 3 + ["close", "delete", "observe", "load"])
        if how == "choose":
            choice = bandit.task(name).choose(offer(bandit, case.rng))
            tokens.append(choice.token)
        elif how == "learn" and tokens:
            token = case.pick(tokens)
            before = state(bandit, case.folder)
            try:
                bandit.learn(token, reward_of(bandit, case.rng))
            except (hs.ChoiceError, hs.TaskError):
                if state(bandit, case.folder) != before:
                    raise Changed("a late reward was refused; the state is another") from None
            else:
                if token in used:
                    raise Accepted("a reward was learned from twice")
                used.add(token)
        elif how == "close" and name in bandit:
            bandit.task(name).close()
        elif how == "delete" and name in bandit:
            bandit.delete(name)
        elif how == "observe":
            rewards = [reward_of(bandit, case.rng) for _ in range(3)]
            bandit.task(name).observe(offer(bandit, case.rng), rewards)
        elif how == "load":
            bandit = reloaded(bandit, case.folder)
    again = reloaded(bandit, case.folder)
    actions = offer(bandit, case.rng)
    for name in bandit:
        tables = [each.task(name).encode(actions).table for each in (bandit, again)]
        finite("a row", *tables)
        if not np.array_equal(*tables):
            raise Accepted("items are others after the bandit was saved and loaded")
    works(bandit, case.folder)


def frame(case: Case) -> None:
    """Rows in memory with a hostile column."""
    count = 30
    columns = {
        "task": case.rng.integers(0, 4, count),
        "reward": case.rng.normal(size=count),
        "weight": np.ones(count),
        "price": case.rng.normal(size=count),
        "id": case.rng.integers(0, 6, count),
    }
    text, value = value_of(case)
    several = case.rng.random() < 0.5
    name = case.pick(sorted(columns))
    columns[name] = [value] * count if several else value
    with_items = case.rng.random() < 0.5
    if not with_items:
        del columns["id"]
    wrap = case.pick([dict, dict, pd.DataFrame])
    try:
        table = wrap(columns)
    except Exception:
        return  # pandas does not take it
    transfer = None if case.rng.random() < 0.2 else hs.Independent()
    bandit = hs.Bandit(ITEMS if with_items else 1, transfer, seed=0)
    before = state(bandit, case.folder)
    options = {"weight": "weight"} if case.rng.random() < 0.5 else {}
    if not options:
        table.pop("weight")
    try:
        bandit.fit(table, task="task", reward="reward", **options)
    except hs.HeadstartError:
        if state(bandit, case.folder) != before:
            raise Changed(f"{name} = {text} was refused; the state is another") from None
        return
    except Exception as error:
        error.args = (f"{name} = {text}: {str(error)[:300]}",)
        raise
    works(bandit, case.folder)


def inferred(case: Case) -> None:
    """A schema that is proposed for hostile columns."""
    text, value = value_of(case)
    other = [1.0, None, 3.0]
    table = case.pick([value, [value] * 3, {"a": value, "b": other}, {"a": [value] * 3}])
    try:
        schema = hs.Schema.infer(table, task=case.pick([None, "a"]))
        str(schema.review)
        check_schema(schema)
    except hs.HeadstartError:
        return
    except Exception as error:
        error.args = (f"{text}: {str(error)[:300]}",)
        raise


MAKERS = {
    "number(missing=v)": lambda v: hs.number(missing=v),
    "boolean(missing=v)": lambda v: hs.boolean(missing=v),
    "vector(v)": hs.vector,
    "category(v)": hs.category,
    "category('a', v)": lambda v: hs.category("a", v),
    "category(*v)": lambda v: hs.category(*v) if isinstance(v, (list, tuple, str)) else None,
    "category(buckets=v)": lambda v: hs.category(buckets=v),
    "Schema(v)": lambda v: hs.Schema(v, {"a": hs.number()}),
    "Schema(action=v)": lambda v: hs.Schema(action=v),
    "Schema(action={v})": lambda v: hs.Schema(action={"a": v}),
    "Schema(crosses=v)": lambda v: hs.Schema({"a": hs.number()}, {"b": hs.number()}, crosses=v),
    "Schema(crosses=[v])": lambda v: hs.Schema(
        {"a": hs.number()}, {"b": hs.number()}, crosses=[v, ("a", v)]
    ),
    "Schema(identity=v)": lambda v: hs.Schema(identity=v),
    "Schema(id=v)": lambda v: hs.Schema(identity=True, id=v),
    "Schema(ignore=v)": lambda v: hs.Schema(identity=True, ignore=v),
    "Schema(ignore=[v])": lambda v: hs.Schema(identity=True, ignore=[v]),
    "Bandit(v)": lambda v: hs.Bandit(v) if isinstance(v, hs.Schema) else None,
}


def made(case: Case) -> None:
    """Fields and schemas made with hostile settings."""
    maker, (text, value) = case.pick(sorted(MAKERS)), value_of(case)
    try:
        result = MAKERS[maker](value)
        if isinstance(result, hs.Schema):
            check_schema(result)
        elif result is not None and not isinstance(result, hs.Bandit):
            check_schema(hs.Schema(action={"a": result}))
    except hs.HeadstartError:
        return
    except Exception as error:
        error.args = (f"{maker} <- {text}: {str(error)[:300]}",)
        raise
