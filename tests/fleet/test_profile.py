"""What is in a log and what to fix, in the library and on the command line."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headstart as hs
from headstart.errors import InputError
from headstart.fleet import Columns, Logs, check
from headstart.fleet.check.scan import Scan, dependences
from headstart.fleet.reading import hashing
from headstart.fleet.reading.rows import Rows

PLAIN = Columns("task", "reward", "x*")


def profile_of(logbook, tmp_path, columns=PLAIN, on_bad_rows="error", group=7, **arrays):
    path = logbook.write(tmp_path / "log.parquet", pa.table(arrays), group=group)
    return check(Logs(path, columns, on_bad_rows=on_bad_rows))


def plain(rows=200, tasks=9, seed=0, **more):
    rng = np.random.default_rng(seed)
    return {
        "task": rng.integers(0, tasks, rows),
        "reward": rng.normal(size=rows),
        "x1": rng.normal(size=rows),
        "x2": rng.normal(2.0, 1.0, size=rows),
        **more,
    }


def texts(profile, level=None):
    return [one.text for one in profile.findings if level in (None, one.level)]


def test_a_good_log_has_nothing_to_fix(logbook, tmp_path):
    arrays = plain()
    found = profile_of(logbook, tmp_path, **arrays)
    assert found.usable
    assert not found.findings
    assert (found.files, found.rows, found.tasks, found.shown) == (1, 200, 9, 200)
    expected = arrays["reward"]
    np.testing.assert_allclose(
        found.rewards, [expected.min(), expected.max(), expected.mean(), expected.std()]
    )
    features = np.column_stack([arrays["x1"], arrays["x2"]])
    np.testing.assert_allclose(found.means, features.mean(0))
    np.testing.assert_allclose(found.deviations, features.std(0))
    np.testing.assert_array_equal(found.lowest, features.min(0))
    np.testing.assert_array_equal(found.highest, features.max(0))
    assert found.rank == 2
    assert not found.binary
    assert sum(tasks for _, _, tasks in found.histogram) == 9
    text = str(found)
    assert text.startswith("200 rows of 9 tasks in 1 file, 2 features\n")
    assert text.endswith("nothing to fix")
    assert "█" in text


def test_bad_rows_stop_unless_they_are_skipped(logbook, tmp_path):
    arrays = plain()
    arrays["reward"][:3] = np.nan
    arrays["x1"] = pa.array([None, *arrays["x1"][1:]], pa.float64())
    found = profile_of(logbook, tmp_path, **arrays)
    assert not found.usable
    assert found.rows == 197
    assert found.missing == {"feature x1": 1}
    assert found.non_finite == {"reward": 3}
    assert texts(found, "stop") == [
        "3 of 200 rows cannot be used (see above): repair them, or leave them out with "
        "--on-bad-rows skip"
    ]
    assert "reward is not finite: 3 rows, such as row 0 of" in str(found)
    assert profile_of(logbook, tmp_path, on_bad_rows="skip", **arrays).usable


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": ["a"] * 200}, "there is one task only"),
        ({"reward": [3.0] * 200}, "every reward is 3: there is nothing to learn"),
        ({"x1": [0.0] * 200, "x2": [0.0] * 200}, "every feature is 0 everywhere"),
    ],
)
def test_logs_from_which_nothing_can_be_learned_are_refused(changes, message, logbook, tmp_path):
    found = profile_of(logbook, tmp_path, **{**plain(), **changes})
    assert not found.usable
    assert message in texts(found, "stop")[0]


def test_an_empty_log_is_refused(logbook, tmp_path):
    found = profile_of(logbook, tmp_path, **{k: pa.array(v)[:0] for k, v in plain().items()})
    assert not found.usable
    assert "there is no row that can be used" in str(found)
    json.dumps(found.summary(), allow_nan=False)


def test_constant_and_collinear_features_are_named(logbook, tmp_path):
    arrays = plain()
    x1, x2 = arrays["x1"], arrays["x2"]
    arrays |= {
        "x3": 2 * x1 - 0.5 * x2,
        "x4": np.zeros(200),
        "x5": np.ones(200),
        "x6": np.full(200, 2.0),
        "x7": x1 + 1e-4 * np.random.default_rng(1).normal(size=200),
        "x8": 1e8 * np.random.default_rng(2).normal(size=200),
        "x9": x2 + 5,
    }
    found = profile_of(logbook, tmp_path, **arrays)
    assert found.usable
    assert not found.findings  # predictions are the same without: there is nothing to fix
    assert found.constant == ("x4", "x5", "x6")
    assert [found.features[one.feature] for one in found.dependences] == ["x3", "x7", "x9"]
    assert found.rank == 3
    said = found.notes
    assert "x4 is 0 everywhere, and changes nothing" in said
    assert any(text.startswith("x5 and x6 are constant, as is the intercept that") for text in said)
    assert any(text.startswith("x3 is 2·x1 − 0.5·x2. Predictions do not suffer") for text in said)
    assert any(text.startswith("x7 is nearly x1.") for text in said)
    assert any(text.startswith("x9 is 5 + x2.") for text in said)
    assert any(note.startswith("x8 varies 1e+08 times as much as") for note in said)
    assert not any("no feature is constant" in note for note in said)
    assert not any("leave it out" in text for text in said)


def test_only_constant_features_leave_nothing_to_learn(logbook, tmp_path):
    found = profile_of(logbook, tmp_path, **plain(x1=np.ones(200), x2=np.full(200, 3.0)))
    assert texts(found, "stop") == ["every feature is constant: there is nothing to learn from"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x, flag: 1 - flag, "x2 and x3 are a full set of groups: they add up to 1"),
        (lambda x, flag: 1 - x, "x3 is 1 − x1."),
        (lambda x, flag: -x, "x3 is − x1."),
        (lambda x, flag: -3 - 0.25 * x, "x3 is − 3 − 0.25·x1."),
        (lambda x, flag: 1000 * x, "x3 is 1000·x1."),
        (lambda x, flag: x + 1e-4 * flag, "x3 is x1 + 0.0001·x2."),
        (lambda x, flag: 1e6 + x, "x3 is 1e+06 + x1."),
        (lambda x, flag: x + flag + 2, "x3 is 2 + x1 + x2."),
    ],
)
def test_relations_are_told_as_they_are(make, words, logbook, tmp_path):
    rng = np.random.default_rng(0)
    x, flag = rng.normal(3.0, 1.0, 200), (rng.uniform(size=200) < 0.4) * 1.0
    found = profile_of(logbook, tmp_path, **plain(x1=x, x2=flag, x3=make(x, flag)))
    (said,) = [note for note in found.notes if "divided between" in note]
    assert said.startswith(words)
    (one,) = found.dependences
    assert one.exact
    (told,) = found.summary()["collinear"]
    assert told["constant"] == pytest.approx(one.constant)


def test_many_collinear_features_are_told_briefly(logbook, tmp_path):
    arrays = plain()
    arrays |= {f"x{j}": j * arrays["x1"] for j in range(3, 12)}
    said = [note for note in profile_of(logbook, tmp_path, **arrays).notes if "x1" in note]
    assert len(said) == 6
    assert said[-1] == "x8, x9, x10 and x11 are linear combinations of others, too"


def test_a_whole_set_of_groups_is_told_beside_the_intercept_that_is_added(logbook, tmp_path):
    which = np.arange(200) % 3
    groups = {f"x{j}": (which == j).astype(float) for j in range(3)}
    alone = {"task": plain()["task"], "reward": plain()["reward"], **groups}
    for more in ({}, {"x9": np.ones(200)}):
        found = profile_of(logbook, tmp_path, **alone, **more)
        (one,) = found.dependences
        assert (one.feature, one.constant) == (2, pytest.approx(1.0))
        assert any(
            note.startswith("x0, x1 and x2 are a full set of groups") for note in found.notes
        )
    part = {name: values for name, values in groups.items() if name != "x2"}
    short = {"task": plain()["task"], "reward": plain()["reward"], **part}
    assert not profile_of(logbook, tmp_path, **short).dependences


@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_every_dependence_is_found_and_right(seed, free, bound):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(100, free)) * rng.uniform(0.1, 100, free) + rng.normal(size=free)
    factors = rng.uniform(0.5, 2, size=(free, bound))
    level = 10.0 * rng.normal(size=bound)
    x = np.hstack([x, x @ factors + level])
    means = x.mean(0)
    found = dependences((x - means).T @ (x - means), means, 100)
    assert [one.feature for one in found] == list(range(free, free + bound))
    for one in found:
        rebuilt = one.constant + sum(factor * x[:, place] for place, factor in one.terms)
        scale = x[:, one.feature].std()
        np.testing.assert_allclose(rebuilt, x[:, one.feature], atol=1e-3 * scale * free)
        assert one.exact


def test_numbers_whose_squares_overflow_are_told(logbook, tmp_path):
    arrays = plain()
    arrays["x1"][3] = 1e200
    arrays["reward"][5] = -1e70
    found = profile_of(logbook, tmp_path, **arrays)
    assert not found.usable
    assert found.too_large == {"feature x1": 1, "reward": 1}
    assert "feature x1 is too large: 1 row, such as row 3 of" in str(found)
    assert "squares of feature x1 and reward are beyond what a sum can hold" in texts(found)[0]
    kept = profile_of(logbook, tmp_path, on_bad_rows="skip", **arrays)
    assert kept.usable
    assert np.isfinite(kept.deviations).all()


@pytest.mark.parametrize(("far", "level"), [(1e16, "stop"), (-1e10, "stop"), (1e5, "fix")])
@pytest.mark.parametrize("column", ["x1", "reward"])
@pytest.mark.parametrize("row", [0, 77])
def test_values_far_out_of_range_are_told_with_their_task(
    far, level, column, row, logbook, tmp_path
):
    arrays = plain()
    arrays[column][row] = far
    found = profile_of(logbook, tmp_path, **arrays)
    (said,) = texts(found, level)
    assert said.startswith(f"{column}" if column == "reward" else f"feature {column}")
    assert f"has values of about {abs(far):.1e}" in said
    assert f"(task {arrays['task'][row]})" in said
    assert found.usable == (level == "fix")
    assert not found.dependences
    (told,) = found.summary()["far_out"]
    assert told["value"] == pytest.approx(abs(far), rel=0.1)


def test_what_is_rare_or_wide_is_not_far_out(logbook, tmp_path):
    rng = np.random.default_rng(0)
    rare = (np.arange(200) == 50) * 1.0
    arrays = plain(
        x3=rare, x4=np.exp(2.0 * rng.normal(size=200)), x5=1e9 + rng.normal(size=200) * 1e5
    )
    arrays["reward"] = (rng.uniform(size=200) < 0.05) * 1.0
    assert not profile_of(logbook, tmp_path, **arrays).findings


def test_a_feature_that_varies_little_beside_its_mean_is_told(logbook, tmp_path):
    times = 1.7e9 + np.random.default_rng(0).uniform(0.0, 60.0, 200)
    found = profile_of(logbook, tmp_path, **plain(x3=times))
    (said,) = texts(found)
    assert said.startswith("x3 varies by less than a millionth of its mean (1.7e+09 ± 1")
    assert "fit takes it for constant" in said


def test_rewards_that_vary_little_beside_their_mean_are_told(logbook, tmp_path):
    """The noise is not estimated below a thousandth of their size."""
    rewards = np.random.default_rng(0).normal(size=200)
    (said,) = texts(profile_of(logbook, tmp_path, **(plain() | {"reward": 1e4 + rewards})))
    assert said.startswith("rewards vary by less than a thousandth of their mean (10000")
    assert not profile_of(logbook, tmp_path, **(plain() | {"reward": 1e2 + rewards})).findings


def test_names_that_would_drive_a_terminal_are_printed_as_escapes(headstart, logbook, tmp_path):
    """Escape codes, C1 codes, ends of lines and marks of direction, in names, ids and cells."""
    x1 = plain()["x1"]
    arrays = plain(
        **{"x\x1b[31m": x1, "x\x9b2J": 0 * x1, "x\nnothing to fix": 2 * x1, "x\u202e": x1}
    )
    arrays["task"] = [f"\x1b]0;t{task}\x07" for task in arrays["task"]]
    arrays["x2"][3] = 1e16
    path = logbook.write(tmp_path / "log\x1b[1m.parquet", pa.table(arrays))
    for words in ([], ["--json"]):
        code, out, err = headstart("check", path, *WORDS, *words)
        assert code == 2
        for text in (out, err):
            assert not set(text) & set("\x1b\x07\x9b\u202e")
    assert "x\\u001b[31m" in out
    assert "\nnothing to fix" not in headstart("check", path, *WORDS)[1]
    code, _, err = headstart(
        "fit", path, *WORDS, "--out", str(tmp_path / "prior"), "--workers", "1"
    )
    assert code == 2
    assert "feature x2 has values of about" in err
    arrays["reward"] = pa.array(arrays["reward"], mask=np.arange(200) == 9)
    arrays["x2"][3] = 0.0
    path = logbook.write(tmp_path / "log\x1b[1m.parquet", pa.table(arrays))
    code, _, err = headstart(
        "fit", path, *WORDS, "--out", str(tmp_path / "prior"), "--workers", "1"
    )
    assert code == 2
    assert "reward is missing" in err
    assert "\x1b" not in err


def cities(tasks=24, rows=12):
    """Tasks of very different size, whose rewards follow from the logarithm of an amount."""
    rng = np.random.default_rng(0)
    amount = np.geomspace(20.0, 5000.0, tasks)[:, None] * rng.lognormal(0.0, 0.3, (tasks, rows))
    return {
        "task": np.repeat(np.arange(tasks), rows),
        "reward": np.log(amount).ravel() + 0.1 * rng.normal(size=tasks * rows),
        "x1": rng.normal(size=tasks * rows),
        "x2": amount.ravel(),
    }


@pytest.mark.parametrize("group", [7, 1000])
def test_amounts_that_follow_the_size_of_the_task_are_told(logbook, tmp_path, group):
    arrays = cities()
    found = profile_of(logbook, tmp_path, group=group, **arrays)
    assert found.usable
    assert found.proportional == ("x2",)
    assert found.summary()["proportional"] == ["x2"]
    assert any(note.startswith("x2 differs tenfold or more between tasks") for note in found.notes)
    schema = hs.Schema(action={"x2": hs.number()})
    encoded = profile_of(logbook, tmp_path, Columns("task", "reward", schema=schema), **arrays)
    assert any(note.startswith("x2 differs tenfold") for note in encoded.notes)
    arrays["x2"] = np.log(arrays["x2"])
    assert not profile_of(logbook, tmp_path, **arrays).proportional


def test_what_is_done_by_default_is_told(logbook, tmp_path):
    arrays = plain(tasks=40)
    arrays["x2"] *= 5000
    intercept, scales = profile_of(logbook, tmp_path, **arrays).notes
    assert intercept.startswith("no feature is constant: fit and evaluate add an intercept")
    assert scales.startswith("x2 varies ")
    assert "standardize" in scales


def test_few_tasks_and_rewards_of_0_and_1_are_told(logbook, tmp_path):
    arrays = plain(tasks=9)
    arrays["reward"] = (arrays["reward"] > 0) * 1.0
    few, model, _ = profile_of(logbook, tmp_path, **arrays).notes
    assert few.startswith("9 tasks are few: evaluate needs ten past and ten future tasks")
    assert "--reward-model binary" in model


def test_arms_without_a_reward_hint_at_chosen(logbook, tmp_path):
    arrays = plain(shown=np.arange(200) % 4 == 0)
    found = profile_of(logbook, tmp_path, **arrays)
    assert found.usable
    assert "(--chosen shown)" in found.notes[0]
    arrays["reward"] = pa.array(arrays["reward"], mask=~arrays["shown"])
    found = profile_of(logbook, tmp_path, **arrays)
    assert "(--chosen shown)" in texts(found, "stop")[0]
    del arrays["shown"]
    assert "(--chosen COLUMN)" in texts(profile_of(logbook, tmp_path, **arrays), "stop")[0]


def test_rewards_of_zero_and_one_are_told(logbook, tmp_path):
    found = profile_of(logbook, tmp_path, **{**plain(), "reward": np.arange(200) % 2})
    assert found.binary
    assert "all 0 or 1" in str(found)


def test_tasks_with_one_row_are_told(logbook, tmp_path):
    found = profile_of(logbook, tmp_path, **{**plain(), "task": np.arange(200)})
    assert found.single == 200
    assert texts(found)[0].startswith("200 of 200 tasks have one row only")


def test_the_histogram_doubles():
    assert hashing.count_by_doubling(np.zeros(0, int)) == []
    assert hashing.count_by_doubling(np.array([8, 8, 8])) == [(8, 8, 3)]
    assert hashing.count_by_doubling(np.array([0, 1, 9])) == [
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 0),
        (4, 7, 0),
        (8, 9, 1),
    ]


def test_rounds_that_appear_twice_are_told(logbook, tmp_path):
    columns = Columns("task", "reward", "x*", round="turn")
    arrays = plain(task=np.arange(200) % 5, turn=np.arange(200) // 5)
    once = profile_of(logbook, tmp_path, columns, **arrays)
    assert not once.findings
    assert "200 rounds; rows per round: 1" in str(once)
    arrays["turn"][10] = arrays["turn"][5]
    found = profile_of(logbook, tmp_path, columns, **arrays)
    (text,) = texts(found)
    assert text.startswith("1 round with more than one row: are rows logged twice?")
    assert "200 rows of 5 tasks in 1 file" in str(found)
    assert "199 rounds; rows per round: 1.01" in str(found)


def offers(**changes):
    """50 rounds of 4 arms."""
    arrays = plain(
        task=np.arange(200) // 40,
        turn=np.arange(200) // 4,
        shown=np.arange(200) % 4 == 2,
        chance=np.tile([0.1, 0.2, 0.3, 0.4], 50),
    )
    return {**arrays, **changes}


OFFERS = Columns("task", "reward", "x*", round="turn", chosen="shown", propensity="chance")


def test_all_arms_with_their_propensities_are_fine(logbook, tmp_path):
    found = profile_of(logbook, tmp_path, OFFERS, **offers())
    assert not found.findings
    assert (found.rows, found.shown, found.rounds.rounds, found.rounds.arms) == (200, 50, 50, 4)
    assert found.rounds.summed == 50
    assert "rows that were chosen and count as evidence: 50" in str(found)
    assert sum(tasks for _, _, tasks in found.histogram) == 5


def test_arms_and_propensities_that_do_not_fit_are_told(logbook, tmp_path):
    changed = offers()
    changed["shown"][2] = False
    changed["shown"][4] = True
    changed["chance"][100:108] = 0.5
    assert texts(profile_of(logbook, tmp_path, OFFERS, **changed)) == [
        "1 round without a chosen arm",
        "1 round with more than one chosen arm",
        "the propensities of 2 of 50 rounds do not add up to 1: is an arm not logged, or are they "
        "scores?",
    ]
    never = profile_of(logbook, tmp_path, OFFERS, **offers(shown=np.zeros(200, dtype=bool)))
    assert not never.usable
    assert "no row was chosen" in texts(never, "stop")[0]
    lone = {name: np.asarray(values)[2::4] for name, values in offers().items()}
    said = texts(profile_of(logbook, tmp_path, OFFERS, **lone))
    assert any(text.startswith("every round has one arm") for text in said)
    nameless = Columns("task", "reward", "x*", chosen="shown")
    said = texts(profile_of(logbook, tmp_path, nameless, **offers()))
    assert said[0].startswith("there is a chosen column and no round column")


def test_of_very_many_tasks_and_rounds_a_sample_is_counted(logbook, tmp_path, monkeypatch):
    monkeypatch.setattr(hashing, "MAX_KEYS", 1000)
    rng = np.random.default_rng(0)
    arrays = {"task": np.arange(40_000) % 10_000, "round": np.arange(40_000) // 20_000}
    arrays |= {"reward": rng.normal(size=40_000), "x1": rng.normal(size=40_000)}
    columns = Columns("task", "reward", "x1", round="round")
    found = profile_of(logbook, tmp_path, columns, group=1000, **arrays)
    assert found.task_share <= 1 / 8
    assert found.tasks == pytest.approx(10_000, rel=0.15)
    assert [(low, tasks) for low, _, tasks in found.histogram] == [(4, found.tasks)]
    assert str(found).startswith("40,000 rows of about")
    assert "tasks are counted by 1 in" in str(found)
    counts = found.rounds  # two rounds of each task, of two rows each
    assert counts.rounds <= 1000
    assert counts.rounds / counts.share == pytest.approx(20_000, rel=0.15)
    assert counts.repeated == counts.rounds
    assert counts.arms == 2.0


@settings(max_examples=20)
@given(st.lists(st.integers(0, 1000), max_size=4), st.floats(0.0, 8.0), st.integers(0, 10**6))
def test_scans_of_parts_add_up(cuts, digits, seed):
    """However rows are divided, and however far from 0 they are: the moments of all of them."""
    rng = np.random.default_rng(seed)
    features = 10.0**digits + rng.normal(size=(1000, 2))
    rewards = -(10.0**digits) + rng.normal(size=1000)
    codes = rng.integers(0, 5, 1000).astype(np.int32)
    whole, edges = Scan(2), [0, *sorted(cuts), 1000]
    for start, stop in itertools.pairwise(edges):
        part = Scan(2)
        if start < stop:
            here = slice(start, stop)
            ids = pa.array(["a", "b", "c", "d", "e"])
            part.add(Rows(codes[here], ids, rewards[here], features[here]))
        whole.merge(part)
    columns = np.column_stack([features, rewards])
    rounding = 1e-12 + 1e-15 * 10.0**digits
    np.testing.assert_allclose(whole.columns.mean, columns.mean(0), rtol=1e-12)
    wanted = np.cov(columns.T, ddof=0)
    np.testing.assert_allclose(whole.columns.scatter / 1000, wanted, rtol=1e-9, atol=rounding)
    np.testing.assert_array_equal(whole.columns.lowest, columns.min(0))
    assert whole.tasks.columns[0].sum() == 1000
    assert sorted(whole.tasks.columns[0]) == sorted(np.bincount(codes))


def test_notes_and_progress(logbook, tmp_path):
    logbook.write(tmp_path / "a.parquet", pa.table({**plain(), "task": [7] * 200}))
    logbook.write(tmp_path / "b.parquet", pa.table({**plain(seed=1), "task": ["7", "8"] * 100}))
    seen = []
    found = check(
        Logs(str(tmp_path), PLAIN), progress=lambda done, whole: seen.append(done / whole)
    )
    assert found.tasks == 2
    assert "compared as text" in str(found)
    assert seen[-1] == 1.0
    with pytest.raises(InputError, match=r"logs must be headstart\.fleet\.Logs"):
        check("log.parquet")


@pytest.fixture
def headstart(headstart):
    """``headstart("check", …)``: its code, output and errors."""
    return lambda *words: tuple(vars(headstart(*words)).values())


WORDS = ["--task", "task", "--reward", "reward", "--features", "x*"]


def test_the_command_tells_and_exits(headstart, logbook, tmp_path):
    path = logbook.write(tmp_path / "log.parquet", pa.table(plain()))
    code, out, _ = headstart("check", path, *WORDS)
    assert code == 0
    assert "200 rows of 9 tasks" in out
    assert "nothing to fix" in out
    code, out, _ = headstart("check", path, *WORDS, "--json", "--workers", "1")
    assert code == 0
    assert json.loads(out)["tasks"] == 9
    logbook.write(tmp_path / "log.parquet", pa.table({**plain(), "reward": [None] * 200}))
    code, out, _ = headstart("check", path, *WORDS, "--on-bad-rows", "skip", "--json")
    assert code == 2
    assert json.loads(out)["bad_rows"]["reasons"] == {"reward is missing": 200}


def test_the_command_takes_all_columns_and_options(headstart, logbook, tmp_path):
    content = pa.table({**offers(), "w": np.ones(200), "when": np.arange(200)})
    path = logbook.write(tmp_path / "log.csv", content)
    words = ["--round", "turn", "--chosen", "shown", "--propensity", "chance", "--weight", "w"]
    words += ["--timestamp", "when", "--format", "csv", "--storage", "anon=true"]
    code, out, _ = headstart("check", path, *WORDS, *words)
    assert code == 0
    assert "50 rounds; rows per round: 4" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing.parquet", *WORDS], "headstart: paths must be a path, a glob"),
        (["LOG", *WORDS, "--weight", "rewrd"], "did you mean 'reward'?"),
        (["LOG", *WORDS, "--on-bad-rows", "drop"], "on_bad_rows must be one of 'error', 'skip'"),
        (["LOG", *WORDS, "--storage", "anon"], "KEY=VALUE"),
        (["LOG", "--task", "task"], "Missing option"),
    ],
)
def test_the_command_refuses_in_one_line(words, message, headstart, logbook, tmp_path):
    path = logbook.write(tmp_path / "log.parquet", pa.table(plain()))
    code, _, err = headstart("check", *[path if word == "LOG" else word for word in words])
    assert code == 2
    assert message in err


def test_relations_of_numbers_are_told_with_a_schema_too(logbook, tmp_path):
    rng = np.random.default_rng(0)
    year, month = rng.integers(2000, 2010, 200), rng.integers(1, 13, 200)
    arrays = plain(year=year, month=month, date=year + (month - 1) / 12)
    arrays["kind"] = rng.choice(["a", "b"], 200)
    numbers = {name: hs.number(missing=False) for name in ("year", "month", "date")}
    for fields in (numbers, numbers | {"kind": hs.category("a", "b")}):
        schema = hs.Schema(action=fields)
        columns = Columns("task", "reward", schema=schema)
        notes = profile_of(logbook, tmp_path, columns, **arrays).notes
        assert any(note.startswith("year is ") and "date" in note for note in notes)
        # A category is one column too many, and that of other values is 0.
        told = [note for note in notes if "as it should be with categories" in note]
        assert len(told) == ("kind" in fields)
        assert all("5 of the 6" not in note for note in told)
