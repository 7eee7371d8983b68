"""Schemas on logs: rows are encoded as the bandit encodes them, and what was fitted is served."""

import html
import itertools
import json
import pickle

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.fleet import Columns, Logs, check, evaluate, fit

SCHEMA = hs.Schema(
    context={"hour": hs.number(missing=False), "member": hs.boolean()},
    action={
        "price": hs.number(),
        "brand": hs.category(buckets=4),
        "colour": hs.category("red", "blue"),
        "size": hs.category(1, 2, 3),
        "offer": hs.boolean(missing=False),
    },
    crosses=[("hour", "price"), ("member", "colour")],
)
VECTORS = hs.Schema(action={"image": hs.vector(3, missing=True), "price": hs.number()})
SMALL = hs.Schema(
    context={"hour": hs.number(missing=False)},
    action={"price": hs.number(), "offer": hs.boolean(missing=False)},
    crosses=[("hour", "price")],
)
WORDS = ("--task", "user", "--reward", "spent")
FLOATS = st.floats(-1e9, 1e9)


@pytest.fixture(scope="module")
def frame():
    """Six hundred rows of forty users, with gaps in most columns and sizes that are not listed."""
    rng = np.random.default_rng(0)
    count = 600
    users = rng.integers(0, 40, count)
    price = rng.gamma(3.0, 5.0, count)
    colour = rng.choice(["red", "blue", "green"], count)
    columns = {
        "user": [f"user {user}" for user in users],
        "spent": price * rng.normal(0.1, 0.02, 40)[users]
        + (colour == "red")
        + rng.normal(size=count),
        "hour": rng.integers(0, 24, count).astype(float),
        "member": rng.random(count) < 0.4,
        "price": price,
        "brand": [f"brand {number}" for number in rng.integers(0, 90, count)],
        "colour": colour,
        "size": rng.integers(1, 6, count),
        "offer": rng.random(count) < 0.2,
    }
    frame = pl.DataFrame(columns)
    gaps = {
        name: rng.random(count) < 0.1 for name in ("member", "price", "brand", "colour", "size")
    }
    return frame.with_columns(
        pl.when(pl.Series(gap)).then(None).otherwise(pl.col(name)).alias(name)
        for name, gap in gaps.items()
    )


def write_files(frame, folder, suffix, edges=(0, 600)):
    folder.mkdir()
    write = {"parquet": "write_parquet", "csv": "write_csv", "jsonl": "write_ndjson"}[suffix]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        getattr(frame[start:stop], write)(folder / f"{number}.{suffix}")
    return folder


def rows_of(logs):
    return np.concatenate([rows.features for part in logs.parts() for rows in logs.read(part)])


def fields_of(frame):
    return {name: frame[name].to_list() for name in frame.columns if name not in ("user", "spent")}


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_rows_are_those_that_a_bandit_encodes(frame, tmp_path, suffix):
    logs = Logs(
        write_files(frame, tmp_path / "log", suffix), Columns("user", "spent", schema=SCHEMA)
    )
    want = hs.Bandit(SCHEMA).task("new").encode(actions=fields_of(frame)).table
    np.testing.assert_array_equal(rows_of(logs), want)
    assert logs.feature_names == SCHEMA.feature_names


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_vectors_are_columns_of_lists(tmp_path, suffix):
    image = [[1.0, 2.0, 3.0], None, [0.0, -1.0, 1e-3], [4.0, 5.0, 6.0]]
    frame = pl.DataFrame({"user": [1, 1, 2, 2], "spent": [0.0, 1.0, 0.5, 2.0], "image": image})
    frame = frame.with_columns(price=pl.Series([1.0, 2.0, None, 4.0]))
    logs = Logs(
        write_files(frame, tmp_path / "log", suffix), Columns("user", "spent", schema=VECTORS)
    )
    want = hs.Bandit(VECTORS).task("new").encode(actions=fields_of(frame)).table
    np.testing.assert_array_equal(rows_of(logs), want)


FIELDS = {
    "number": (hs.number(), st.none() | st.floats(-1e9, 1e9) | st.just(float("nan"))),
    "whole": (hs.number(missing=False), st.integers(-(2**40), 2**40)),
    "flag": (hs.boolean(), st.none() | st.booleans()),
    "bit": (hs.boolean(missing=False), st.sampled_from([0, 1])),
    "listed": (hs.category("a", "", "é"), st.none() | st.sampled_from(["a", "", "é", "b"])),
    "counted": (hs.category(1, -2), st.none() | st.integers(-3, 3)),
    "hashed": (hs.category(buckets=5), st.none() | st.text(max_size=3)),
    "numbered": (hs.category(buckets=5), st.none() | st.integers(-9, 9)),
    "vector": (hs.vector(2, missing=True), st.none() | st.lists(FLOATS, min_size=2, max_size=2)),
}


@given(st.data(), st.lists(st.sampled_from(list(FIELDS)), min_size=1, unique=True))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_of_any_schema_are_those_that_a_bandit_encodes(tmp_path, data, names):
    split = data.draw(st.integers(0, len(names) - 1))
    parts = {"context": names[:split], "action": names[split:]}
    schema = hs.Schema(
        **{part: {name: FIELDS[name][0] for name in chosen} for part, chosen in parts.items()},
        crosses="all",
    )
    count = data.draw(st.integers(1, 6))
    rows = {
        name: data.draw(st.lists(FIELDS[name][1], min_size=count, max_size=count)) for name in names
    }
    arrays = {name: pa.array(values) for name, values in rows.items()}
    table = pa.table({"user": pa.array(range(count)), "spent": pa.array([0.0] * count), **arrays})
    pq.write_table(table, tmp_path / "log.parquet")
    logs = Logs(tmp_path / "log.parquet", Columns("user", "spent", schema=schema))
    want = hs.Bandit(schema).task("new").encode(actions=rows).table
    np.testing.assert_array_equal(rows_of(pickle.loads(pickle.dumps(logs))), want)


def test_a_fit_gives_the_prior_of_the_same_rows_in_memory_in_any_order(frame, tmp_path):
    frame = frame.select("user", "spent", "hour", "price", "offer")
    bandit = hs.Bandit(SMALL, seed=0).fit(frame, task="user", reward="spent")
    want, offer = bandit.prior, fields_of(frame[:5])
    same = write_files(frame, tmp_path / "same", "parquet")
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    other = write_files(shuffled, tmp_path / "other", "jsonl", (0, 7, 350, 600))
    # The last digits of sums depend on their order, and on whether loops are compiled, which they
    # are where another test has loaded them; the fit takes many steps from them.
    close = 1e-7
    for folder, workers in ((same, 1), (other, 2)):
        logs = Logs(folder, Columns("user", "spent", schema=SMALL))
        served = fit(logs, workers=workers, keep_tasks=True).bandit(seed=0)
        size = np.abs(want.covariance).max()
        np.testing.assert_allclose(served.prior.mean, want.mean, rtol=0, atol=close)
        np.testing.assert_allclose(
            served.prior.covariance, want.covariance, rtol=0, atol=close * size
        )
        for name in ("new", "user 3"):
            np.testing.assert_allclose(
                served.task(name).predict(actions=offer).mean,
                bandit.task(name).predict(actions=offer).mean,
                rtol=close,
            )


def test_what_was_fitted_by_the_command_is_served(headstart, frame, tmp_path):
    folder = write_files(frame, tmp_path / "log", "csv", (0, 200, 600))
    path, out = tmp_path / "schema.json", tmp_path / "prior.headstart"
    path.write_text(SMALL.to_json())
    shown = headstart("fit", folder, *WORDS, "--schema", path, "--out", out, "--json")
    assert shown.code == 0, shown.err
    assert json.loads(shown.out)["features"] == SMALL.width
    bandit = hs.load(out)
    context = {"hour": 20}
    offer = [
        {"id": "a", "price": 3.0, "offer": True},
        {"id": "b", "price": None, "offer": False},
    ]
    choice = bandit.task("new").choose(context=context, actions=offer)
    assert choice.action in ("a", "b")
    bandit.learn(choice, 1.0)


def test_check_and_evaluate_take_the_schema(headstart, frame, tmp_path):
    folder = write_files(frame, tmp_path / "log", "parquet")
    path = tmp_path / "schema.json"
    path.write_text(SMALL.to_json())
    profile = check(Logs(folder, Columns("user", "spent", schema=SMALL)))
    assert profile.usable
    assert profile.features == SMALL.feature_names
    out = tmp_path / "page"
    words = ("--schema", path, "--transfer", "bias", "--splits", 1, "--out", out, "--workers", 1)
    shown = headstart("evaluate", folder, *WORDS, *words)
    assert shown.code == 0, shown.err
    assert "--schema SCHEMA --transfer bias --splits 1  # SCHEMA: {" in html.unescape(
        (out / "report.html").read_text()
    )


def schema_of(**action):
    return hs.Schema(action=action)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (schema_of(prize=hs.number()), "schema: number must name a column of {}; got 'prize' (did"),
        (schema_of(brand=hs.number()), "number 'brand' must be numbers; column 'brand' of {} has"),
        (schema_of(size=hs.category("1", "2")), "'size' must be text, as the listed values are; c"),
        (schema_of(colour=hs.category(1, 2)), "'colour' must be whole numbers, as the listed valu"),
        (
            schema_of(price=hs.vector(3)),
            "vector 'price' must be lists of 3 numbers; column 'price",
        ),
        (schema_of(brand=hs.boolean()), "boolean 'brand' must be true and false, or 1 and 0; colu"),
        (schema_of(spent=hs.number()), "schema must not have the reward as a field; got 'spent'"),
        (hs.Schema(identity=True), "the schema's id (identity=True) must name a column of {}; got"),
        (
            hs.Schema(identity=True, id="price"),
            "the id must be text or whole numbers (identity=True); column 'price' of {} has type d",
        ),
    ],
)
def test_columns_that_do_not_fit_the_schema_are_refused(
    headstart, frame, tmp_path, schema, message
):
    folder, path = write_files(frame, tmp_path / "log", "parquet"), tmp_path / "schema.json"
    path.write_text(schema.to_json())
    for command in ("check", "fit", "evaluate"):
        shown = headstart(command, folder, *WORDS, "--schema", path)
        assert shown.code == 2
        assert message.format(repr(str(folder / "0.parquet"))) in shown.err
        assert "Traceback" not in shown.err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "must be a schema; nothing is there"),
        ("{", "schema must be JSON text"),
        ("{}", 'schema must be a JSON object with "headstart_schema"'),
        (SCHEMA.to_json().replace('"number"', '"figure"'), "field 'hour' must be an object whose"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(headstart, frame, tmp_path, text, message):
    folder, path = write_files(frame, tmp_path / "log", "parquet"), tmp_path / "schema.json"
    if text is not None:
        path.write_text(text)
    shown = headstart("fit", folder, *WORDS, "--schema", path)
    assert shown.code == 2
    assert repr(str(path)) in shown.err
    assert message in shown.err


def test_either_features_or_a_schema_is_given(headstart, frame, tmp_path):
    folder, path = write_files(frame, tmp_path / "log", "parquet"), tmp_path / "schema.json"
    path.write_text(SCHEMA.to_json())
    for words in ((), ("--schema", path, "--features", "price")):
        shown = headstart("fit", folder, *WORDS, *words)
        assert shown.code == 2
        assert "either --features or --schema must be given" in shown.err
        assert "check --write-schema FILE proposes a schema" in shown.err.replace("\n", " ")
    text = tmp_path / "text.csv"
    text.write_text("user,spent,kids\na,1,0\na,2,3+\nb,1,1\nb,3,3+\n")
    for command in ("fit", "check"):
        shown = headstart(command, text, *WORDS, "--features", "kids")
        assert shown.code == 2
        assert "olumns of text are features by a schema" in (shown.err + shown.out).replace(
            "\n", " "
        )
    with pytest.raises(hs.InputError, match="features must not be given together with a schema"):
        Columns("user", "spent", "price", schema=SCHEMA)


def test_values_that_a_field_refuses_are_bad_rows(tmp_path):
    schema = hs.Schema(
        context={"hour": hs.number(missing=False)},
        action={"size": hs.category(1, 2), "offer": hs.boolean(), "price": hs.number()},
        crosses=(),
    )
    lines = [
        "user,spent,hour,size,offer,price",
        "ann,1,7,1,true,2",
        "ann,2,,2,false,3",
        "bob,3,8,1.5,1,4",
        "bob,4,9,2,maybe,5",
        "cid,5,10,2,,inf",
        "cid,6,11,3,0,",
    ]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    columns = Columns("user", "spent", schema=schema)
    skipping = Logs(tmp_path / "log.csv", columns, on_bad_rows="skip")
    (rows,) = skipping.read(skipping.parts()[0])
    assert rows.names == ["ann", "cid"]
    assert rows.bad.reasons == {
        "field hour is missing": 1,
        "field offer is not true or false": 1,
        "field price is not a number below 1e+60 in size": 1,
        "field size is not a category, which is a whole number here": 1,
    }
    named = [(example.row, example.text) for example in rows.bad.examples]
    assert sorted(named) == [(1, "None"), (2, "1.5"), (3, "'maybe'"), (4, "inf")]
    with pytest.raises(hs.InputError, match=r"4 of the 6 rows looked at in .*log\.csv"):
        list(Logs(tmp_path / "log.csv", columns).read(skipping.parts()[0]))


def test_whole_numbers_that_a_frame_wrote_with_gaps_are_the_same_category(tmp_path):
    schema = hs.Schema(action={"brand": hs.category(buckets=64)})
    for name, cells in {"gaps": ["7.0", "", "8.0"], "plain": ["7", "", "8"]}.items():
        rows = [f"u{at},1,{cell}" for at, cell in enumerate(cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["user,spent,brand", *rows]) + "\n")
        logs = Logs(tmp_path / f"{name}.csv", Columns("user", "spent", schema=schema))
        want = hs.Bandit(schema).task("new").encode(actions={"brand": [7, None, 8]}).table
        np.testing.assert_array_equal(rows_of(logs), want)


def test_folders_give_fields(tmp_path):
    for day, brand in enumerate(("tea", "7")):
        folder = tmp_path / "log" / f"day={day}" / f"brand={brand}"
        folder.mkdir(parents=True)
        pl.DataFrame({"user": [1, 2], "spent": [0.0, 1.0]}).write_parquet(folder / "a.parquet")
    schema = hs.Schema(
        context={"day": hs.number()}, action={"brand": hs.category(buckets=8)}, crosses=()
    )
    logs = Logs(tmp_path / "log", Columns("user", "spent", schema=schema))
    offer = {"day": [0, 0, 1, 1], "brand": ["tea", "tea", 7, 7]}
    want = hs.Bandit(schema).task("new").encode(actions=offer).table
    np.testing.assert_array_equal(rows_of(logs), want)


ITEMS = hs.Schema(
    context={"hour": hs.number(missing=False)},
    action={"price": hs.number(missing=False)},
    crosses=(),
    identity=True,
    id="item",
)


@pytest.fixture(scope="module")
def visits():
    """Rows of thirty users with forty items, some met again, in the order of time."""
    rng = np.random.default_rng(1)
    users, items = rng.integers(0, 30, 500), rng.integers(0, 40, 500)
    worth = rng.normal(size=40)[items]
    return pl.DataFrame(
        {
            "user": users,
            "spent": worth + 0.3 * rng.normal(size=500),
            "bought": (worth + rng.logistic(size=500) > 0).astype(float),
            "time": np.arange(500),
            "hour": rng.integers(0, 24, 500).astype(float),
            "price": rng.gamma(3.0, 5.0, 500),
            "item": [f"item {item}" for item in items],
        }
    )


@pytest.mark.parametrize(("reward", "model"), [("spent", "number"), ("bought", "binary")])
def test_items_are_learned_from_logs_as_from_rows_in_memory(visits, tmp_path, reward, model):
    used = visits.select("user", reward, "hour", "price", "item")
    bandit = hs.Bandit(ITEMS, hs.Bias(), seed=0, intercept=True, reward=model)
    bandit.fit(used, task="user", reward=reward)
    offer = [{"item": f"item {number}", "price": 10.0} for number in (0, 1, 2, 77)]
    shuffled = visits.sample(fraction=1.0, shuffle=True, seed=1)
    folders = (
        write_files(visits, tmp_path / "same", "parquet", (0, 500)),
        write_files(shuffled, tmp_path / "other", "csv", (0, 100, 500)),
    )
    for folder, time in zip(folders, (None, "time"), strict=True):
        logs = Logs(folder, Columns("user", reward, timestamp=time, schema=ITEMS))
        fitted = fit(logs, hs.Bias(), reward=model, keep_tasks=True, out=tmp_path / "prior")
        assert any("order of files and rows" in note for note in fitted.notes) == (time is None)
        served = hs.load(tmp_path / "prior")
        np.testing.assert_allclose(served.prior.mean, bandit.prior.mean, rtol=0, atol=1e-9)
        for name in ("new", 3):
            found, want = (
                each.task(name).predict(context={"hour": 9}, actions=offer)
                for each in (served, bandit)
            )
            np.testing.assert_allclose(found.mean, want.mean, rtol=1e-9)
            np.testing.assert_allclose(found.upper, want.upper, rtol=1e-8)


def test_what_is_known_of_items_stays_where_tasks_are_not_kept(visits, tmp_path):
    logs = Logs(
        write_files(visits, tmp_path / "log", "parquet", (0, 500)),
        Columns("user", "spent", timestamp="time", schema=ITEMS),
    )
    fitted = fit(logs, out=tmp_path / "prior")
    offer = [{"item": f"item {number}", "price": 10.0} for number in range(40)]
    bandit = hs.load(tmp_path / "prior")
    assert len(bandit) == 0
    found, want = (
        each.task("new").predict(context={"hour": 9}, actions=offer).mean
        for each in (bandit, fitted._replace(evidence=None).bandit(seed=0))
    )
    np.testing.assert_array_equal(found, want)
    means = visits.group_by("item").agg(pl.col("spent").mean())
    known = dict(zip(means["item"], means["spent"], strict=True))
    liked = [known[f"item {number}"] for number in range(40)]
    assert np.corrcoef(found, liked)[0, 1] > 0.9
    # A task that comes and is deleted again leaves everything as it was.
    choice = bandit.task("ann").choose(context={"hour": 9}, actions=offer)
    bandit.learn(choice, 5.0)
    bandit.task("ann").close()
    bandit.delete("ann")
    again = bandit.task("new").predict(context={"hour": 9}, actions=offer).mean
    np.testing.assert_allclose(again, found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("time", "model"), [(None, "number"), ("time", "number"), ("time", "binary")]
)
def test_an_evaluation_knows_items_from_past_tasks_alone(tmp_path, time, model):
    """Known items help; where rewards are noise, no reward of the future leaks into them."""
    rng = np.random.default_rng(2)
    items, worth = rng.integers(0, 40, 1200), 2.0 * rng.normal(size=40)
    columns = {
        "user": np.repeat(np.arange(120), 10),
        "time": np.arange(1200),
        "hour": rng.integers(0, 24, 1200).astype(float),
        "price": rng.gamma(3.0, 5.0, 1200),
        "item": [f"item {item}" for item in items],
    }
    plain = hs.Schema(ITEMS.context, ITEMS.action, crosses=())
    scores = {}
    for kind, mean in (("worth", worth[items]), ("noise", np.zeros(1200))):
        rewards = mean + rng.logistic(size=1200)
        rewards = rewards if model == "number" else (rewards > 0).astype(float)
        frame = pl.DataFrame(columns | {"spent": rewards})
        folder = write_files(frame, tmp_path / kind, "parquet", (0, 200, 1200))
        for schema in (ITEMS, plain):
            logs = Logs(folder, Columns("user", "spent", timestamp=time, schema=schema))
            transfer = hs.Gaussian(forced=False)
            found = evaluate(logs, transfer=transfer, reward=model, splits=1, workers=1)
            scores[kind, schema.identity] = found.measures.scores["pooled model"].value
            assert ("--reward-model binary" in found.advice) == (model == "binary")
            assert ("identity in the schema" in found.advice) == schema.identity
            assert "(--propensity)" in found.advice
    assert scores["worth", True] > scores["worth", False] + 0.1
    assert scores["noise", True] < scores["noise", False] + 0.02


def test_rows_with_items_that_do_not_fit_into_memory_are_refused(visits, tmp_path, monkeypatch):
    folder = write_files(visits, tmp_path / "log", "parquet", (0, 500))
    logs = Logs(folder, Columns("user", "spent", schema=ITEMS))
    monkeypatch.setitem(fit.__globals__, "MIN_MEMORY", 1)
    with pytest.raises(hs.InputError, match="rows are kept in memory where the schema has identi"):
        fit(logs, memory=100_000)
    with pytest.raises(hs.InputError, match="cluster must be left out with a schema with identity"):
        fit(logs, cluster="ray")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_log_without_rows_is_no_fault_of_the_schema(headstart, frame, tmp_path, suffix):
    folder, path = tmp_path / "log", tmp_path / "schema.json"
    write_files(frame[:0], folder, suffix)
    path.write_text(SCHEMA.to_json())
    for command in ("check", "fit", "evaluate"):
        shown = headstart(command, folder, *WORDS, "--schema", path)
        assert shown.code == 2
        assert "Traceback" not in shown.err
