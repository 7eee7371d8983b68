"""Contexts in every form they come in, and the rows that may not be picked."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import headstart as hs

ROWS = [[1, 0, 2], [0, 3, 1], [2, 2, 0]]
NAMES = ["age", "price", "score"]


def learned_from(contexts, dim=3, arm=1, **options):
    """The evidence of one round with that row, and the bandit."""
    bandit = hs.Bandit(dim=dim, seed=0, **{"intercept": False} | options)
    task = bandit.task("a")
    arms = len(contexts)
    choice = task.choose(contexts, exclude=[row for row in range(arms) if row != arm])
    task.learn(choice, 2.0)
    return bandit, task.evidence


class TestArrays:
    @pytest.mark.parametrize(
        "dtype",
        [
            *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
            *(np.float16, np.float32, np.float64, np.longdouble, ">f8", ">f4", ">i4"),
        ],
    )
    def test_whole_and_floating_numbers_of_any_size(self, dtype):
        _, evidence = learned_from(np.array(ROWS, dtype=dtype))
        assert evidence == learned_from(np.array(ROWS, dtype=float))[1]
        assert evidence.gram.dtype == np.float64

    def test_flags(self):
        _, evidence = learned_from(np.array(ROWS) > 0)
        np.testing.assert_array_equal(evidence.moment, [0, 2, 2])

    @pytest.mark.parametrize(
        "contexts",
        [
            ROWS,
            tuple(map(tuple, ROWS)),
            [np.array(row) for row in ROWS],
            [[np.float32(value) for value in row] for row in ROWS],
            np.array(ROWS, dtype=object),
        ],
        ids=["lists", "tuples", "list of arrays", "numpy numbers", "objects that are numbers"],
    )
    def test_nested_sequences(self, contexts):
        np.testing.assert_array_equal(learned_from(contexts)[1].moment, [0, 6, 2])

    @pytest.mark.parametrize(
        "view",
        [
            lambda a: np.asfortranarray(a),
            lambda a: np.repeat(np.repeat(a, 2, axis=0), 3, axis=1)[::2, ::3],
            lambda a: np.array(a.T).T,
            lambda a: np.array(a[::-1])[::-1],
            lambda a: np.broadcast_to(a, (2, 3, 3))[1],
        ],
        ids=["fortran", "strided", "transposed", "reversed", "broadcast"],
    )
    def test_any_memory_layout(self, view):
        array = np.array(ROWS, dtype=float)
        assert learned_from(view(array))[1] == learned_from(array)[1]

    def test_read_only_arrays(self):
        array = np.array(ROWS, dtype=float)
        array.flags.writeable = False
        np.testing.assert_array_equal(learned_from(array)[1].moment, [0, 6, 2])

    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
    def test_the_callers_array_is_neither_changed_nor_kept(self, dtype, intercept):
        array = np.array(ROWS, dtype=dtype)
        original = array.copy()
        bandit = hs.Bandit(dim=3, seed=0, rule=hs.Thompson(), intercept=intercept)
        task = bandit.task("a")
        choice = task.choose(array)
        task.predict(array)
        np.testing.assert_array_equal(array, original)
        array[:] = 9
        stated = choice.propensities
        task.learn(choice, 2.0)
        expected = 2.0 * original[choice.arm].astype(float)
        np.testing.assert_array_equal(task.evidence.moment[:3], expected)
        again = hs.Bandit(dim=3, seed=0, rule=hs.Thompson(), intercept=intercept)
        np.testing.assert_array_equal(stated, again.task("a").choose(original).propensities)

    def test_matrices_and_masked_arrays_are_read_as_arrays_or_refused(self, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        masked = np.ma.array(np.array(ROWS, dtype=float), mask=np.eye(3, dtype=bool))
        with refused(bandit, "contexts"):
            task.choose(masked)
        whole = np.ma.array(np.array(ROWS, dtype=float))
        assert learned_from(whole)[1] == learned_from(np.array(ROWS, dtype=float))[1]

    @pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
    def test_the_old_matrix_class_is_read_as_an_array(self):
        array = np.array(ROWS, dtype=float)
        assert learned_from(np.asmatrix(array))[1] == learned_from(array)[1]


LAYOUTS = {
    "plain": lambda a: a,
    "a view": lambda a: np.pad(a, ((1, 2), (3, 1)), constant_values=np.nan)[1:-2, 3:-1],
    "fortran": lambda a: np.asfortranarray(a),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), offset=1).reshape(a.shape),
    "big-endian": lambda a: a.astype(">f8"),
    "a subclass": lambda a: a.view(type("Mine", (np.ndarray,), {})),
    "a list": lambda a: a.tolist(),
}


class TestTheUsualCase:
    """An array of double precision takes a short way: nobody may notice by anything but speed."""

    @pytest.mark.parametrize("form", LAYOUTS.values(), ids=LAYOUTS)
    @pytest.mark.parametrize("rule", [hs.UCB(), hs.Thompson(draws=20)], ids=repr)
    def test_any_array_is_read_alike(self, form, rule):
        def told(table):
            task = hs.Bandit(dim=3, seed=0, rule=rule, noise=0.3).task("a")
            choices = []
            for _ in range(3):
                choices.append(task.choose(table))
                task.learn(choices[-1], 1.0)
            return [
                (c.arm, c.token[:40], c.context.tolist(), c.propensities.tolist()) for c in choices
            ], task.predict(table).mean.tolist()

        array = np.array(ROWS, dtype=float)
        assert told(form(array)) == told(array)

    @pytest.mark.parametrize("name", ["plain", "a view", "fortran", "reversed"])
    @pytest.mark.parametrize("exclude", [None, [0]])
    def test_what_is_done_to_the_array_afterwards_changes_nothing(self, name, exclude):
        def fresh():
            rule = hs.Thompson(draws=20)
            return hs.Bandit(dim=3, seed=0, rule=rule, noise=0.3, intercept=False)

        original = np.array(ROWS, dtype=float)
        table = LAYOUTS[name](original.copy())
        bandit = fresh()
        choice = bandit.task("a").choose(table, exclude)
        assert table.flags.writeable
        assert not np.shares_memory(choice.context, table)
        table[:] = np.nan
        twin = fresh().task("a").choose(original, exclude)
        np.testing.assert_array_equal(choice.context, twin.context)
        np.testing.assert_array_equal(choice.propensities, twin.propensities)
        bandit.learn(choice, 2.0)
        expected = 2.0 * original[choice.arm]
        np.testing.assert_array_equal(bandit.task("a").evidence.moment, expected)
        assert np.isfinite(bandit.task("a").belief.root).all()

    def test_one_array_may_be_filled_anew_for_every_round(self):
        """As a program that saves on memory does, with rewards that come late."""
        rng = np.random.default_rng(0)
        offers, buffer = rng.standard_normal((40, 4, 3)), np.empty((4, 3))
        games = []
        for reuse in (False, True):
            task = hs.Bandit(dim=3, seed=0, rule=hs.Thompson(draws=20), noise=0.3).task("a")
            choices = []
            for offer in offers:
                buffer[:] = offer
                choices.append(task.choose(buffer if reuse else offer))
                if len(choices) > 5:
                    task.learn(choices[-5], 1.0)
            told = [(c.arm, c.context.tolist(), c.propensities.tolist()) for c in choices]
            games.append((told, task.evidence))
        assert games[0] == games[1]

    def test_a_choice_keeps_its_own_offer_alone(self):
        """Its propensities are those of the arms as they were, whatever becomes of the table."""
        table, untouched = np.array(ROWS, dtype=float), np.array(ROWS, dtype=float)
        bandits = [hs.Bandit(dim=3, seed=0, rule=hs.Thompson(draws=20)) for _ in range(2)]
        changed, same = (
            bandit.task("a").choose(rows)
            for bandit, rows in zip(bandits, (table, untouched), strict=True)
        )
        table[:] = 0.0
        np.testing.assert_array_equal(changed.propensities, same.propensities)

    @pytest.mark.parametrize("size", [1e60, -1e60, 9e59, 1e-300, 5e-324, 0.0, -0.0])
    def test_numbers_up_to_the_largest_are_accepted(self, size):
        task = hs.Bandit(dim=2, seed=0, noise=1.0).task("a")
        choice = task.choose(np.full((30, 2), size))
        assert task.learn(choice, 1.0)
        assert np.isfinite(task.belief.mean).all()
        assert np.isfinite(task.choose(np.full((3, 2), size)).score)

    @pytest.mark.parametrize("intercept", [False, True])
    @pytest.mark.parametrize("call", ["choose", "predict"])
    def test_others_are_refused_with_their_place(self, intercept, call, content):
        bandit = hs.Bandit(dim=3, seed=0, intercept=intercept)
        task, before = bandit.task("a"), content(bandit)
        beyond = np.nextafter(1e60, np.inf)
        for bad in (beyond, -2e60, 1e100, 1e154, 1e155, 1e308, np.inf, -np.inf, np.nan):
            for table in (np.ones((4, 3)), np.ones((3, 4)).T, np.full((4, 3), 1e-300)):
                table[2, 1] = bad
                with pytest.raises(hs.InputError) as caught:
                    getattr(task, call)(table)
                assert str(caught.value) == (
                    "contexts must be finite everywhere and below 1e+60 in size; "
                    f"got {bad} at row 2, column 1"
                )
        assert content(bandit) == before

    def test_the_place_has_a_name_where_frames_told_it(self, refused):
        bandit, _ = learned_from(pandas_frame())
        table = np.array([[1.0, np.nan, 2.0]])
        with refused(bandit, "row 0, column 1 ('price')"):
            bandit.task("a").choose(table)

    @pytest.mark.parametrize(
        ("shape", "told"),
        [
            ((), "got shape ()"),
            ((3,), "got one vector of shape (3,): for a single arm pass [x]"),
            ((2,), "got shape (2,)"),
            ((0, 3), "at least one arm; got none"),
            ((3, 0), "got shape (3, 0)"),
            ((0, 0), "got shape (0, 0)"),
            ((4, 2), "got shape (4, 2)"),
            ((3, 4), "got shape (3, 4)"),
            ((1, 4, 3), "got shape (1, 4, 3)"),
            ((0,), "got shape (0,)"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_wrong_shapes_are_told_as_they_are(self, shape, told, dtype, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts must", told):
            task.choose(np.ones(shape, dtype))

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_a_lone_number_is_no_vector_even_with_one_feature(self, dtype, refused):
        bandit = hs.Bandit(dim=1, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts must", "got shape ()"):
            task.choose(np.array(1.0, dtype))


def pandas_frame(rows=ROWS, names=NAMES, **options):
    return pd.DataFrame(rows, columns=names, **options)


def polars_frame(rows=ROWS, names=NAMES, **options):
    return pl.DataFrame(rows, schema=list(names), orient="row", **options)


each_frame = pytest.mark.parametrize("frame", [pandas_frame, polars_frame])


class TestFrames:
    @each_frame
    def test_a_frame_is_its_columns(self, frame):
        bandit, evidence = learned_from(frame())
        assert evidence == learned_from(ROWS)[1]
        assert bandit.feature_names == tuple(NAMES)

    @each_frame
    def test_columns_in_another_order_are_put_right(self, frame):
        bandit, _ = learned_from(frame())
        task = bandit.task("b")
        other = frame()[["score", "age", "price"]]
        choice = task.choose(other, exclude=[0, 2])
        np.testing.assert_array_equal(choice.context, ROWS[1])
        np.testing.assert_array_equal(task.predict(other).mean, task.predict(ROWS).mean)

    def test_pandas_and_polars_can_be_mixed(self):
        bandit, _ = learned_from(pandas_frame())
        choice = bandit.task("b").choose(polars_frame()[["price", "score", "age"]], exclude=[0, 1])
        np.testing.assert_array_equal(choice.context, ROWS[2])

    @each_frame
    def test_missing_and_unknown_features_are_refused_by_name(self, frame, refused):
        bandit, _ = learned_from(frame())
        task = bandit.task("a")
        with refused(bandit, "contexts", "missing ['score']", "not known ['colour']"):
            task.choose(frame(names=["age", "price", "colour"]))
        with refused(bandit, "contexts", "missing ['score']"):
            task.choose(frame()[["age", "price"]])
        with refused(bandit, "contexts", "not known ['more']"):
            task.choose(frame([[*row, 1] for row in ROWS], [*NAMES, "more"]))
        with refused(bandit, "contexts", "missing ['score']"):
            task.predict(frame()[["age", "price"]])

    @each_frame
    def test_the_first_frame_must_have_as_many_columns_as_the_bandit(self, frame, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts", "3", "2 columns"):
            task.choose(frame()[["age", "price"]])
        assert bandit.feature_names is None

    @each_frame
    def test_a_refused_frame_teaches_no_names(self, frame, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts"):
            task.choose(frame([[1.0, float("nan"), 2.0]]))
        with refused(bandit, "exclude"):
            task.choose(frame(), exclude=[5])
        assert bandit.feature_names is None

    @each_frame
    def test_arrays_are_accepted_before_and_after(self, frame):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        task.choose(ROWS)
        assert bandit.feature_names is None
        task.choose(frame())
        task.choose(np.array(ROWS))
        assert bandit.feature_names == tuple(NAMES)

    @each_frame
    def test_names_are_remembered_in_a_file(self, frame, tmp_path, refused):
        bandit, _ = learned_from(frame())
        bandit.save(tmp_path / "b")
        loaded = hs.load(tmp_path / "b")
        assert loaded.feature_names == tuple(NAMES)
        with refused(loaded, "contexts"):
            loaded.task("a").choose(frame(names=["x", "y", "z"]))
        choice = loaded.task("a").choose(frame()[["score", "price", "age"]], exclude=[0, 2])
        np.testing.assert_array_equal(choice.context, ROWS[1])

    @each_frame
    def test_an_intercept_is_added_and_has_no_name(self, frame):
        bandit, evidence = learned_from(frame(), intercept=True)
        np.testing.assert_array_equal(evidence.moment, [0, 6, 2, 2])
        assert bandit.feature_names == tuple(NAMES)

    def test_pandas_rows_are_taken_by_position_whatever_the_index(self):
        frame = pandas_frame(index=[7, 7, 3])
        np.testing.assert_array_equal(learned_from(frame)[1].moment, [0, 6, 2])

    def test_column_names_need_not_be_text(self):
        bandit, _ = learned_from(pd.DataFrame(ROWS))
        assert bandit.feature_names == ("0", "1", "2")

    def test_two_columns_of_one_name_are_refused(self, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        with_task = bandit.task("a")
        with refused(bandit, "contexts", "distinct"):
            with_task.choose(pandas_frame(names=["a", "b", "a"]))

    @pytest.mark.parametrize("dtype", ["int8", "Int64", "float32", "Float64", "boolean", "uint16"])
    def test_pandas_number_types(self, dtype):
        rows = [[1, 0, 1], [0, 1, 1], [1, 1, 0]]
        _, evidence = learned_from(pandas_frame(rows).astype(dtype))
        np.testing.assert_array_equal(evidence.moment, [0, 2, 2])

    @pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Float32, pl.Boolean])
    def test_polars_number_types(self, dtype):
        rows = [[1, 0, 1], [0, 1, 1], [1, 1, 0]]
        _, evidence = learned_from(polars_frame(rows).cast(dtype))
        np.testing.assert_array_equal(evidence.moment, [0, 2, 2])

    def test_columns_of_different_types(self):
        frame = pd.DataFrame({"age": [1, 2], "new": [True, False], "score": [0.5, 1.5]})
        np.testing.assert_array_equal(learned_from(frame)[1].moment, [4, 0, 3])

    def test_pandas_categories_of_numbers_are_numbers_and_of_text_are_not(self, refused):
        frame = pandas_frame()
        frame["price"] = pd.Categorical(["low", "high", "low"])
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts", "'price'"):
            task.choose(frame)

    @pytest.mark.parametrize(
        "column",
        [
            ["a", "b", "c"],
            ["1", "2", "3"],
            pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-03"]),
            pd.to_timedelta([1, 2, 3], unit="s"),
            [1j, 2j, 3j],
            [[1], [2], [3]],
        ],
        ids=["text", "digits as text", "dates", "durations", "complex", "lists"],
    )
    def test_pandas_columns_that_are_no_numbers_are_refused_by_name(self, column, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        frame = pandas_frame()
        frame["price"] = column
        with refused(bandit, "contexts must be", "'price'"):
            task.choose(frame)

    @pytest.mark.parametrize(
        "column",
        [
            pl.Series(["a", "b", "c"]),
            pl.Series(["1", "2", "3"]),
            pl.Series(["2020-01-01", "2020-01-02", "2020-01-03"]).str.to_date(),
            pl.Series([1, 2, 3]).cast(pl.Duration("ms")),
            pl.Series([[1], [2], [3]]),
        ],
        ids=["text", "digits as text", "dates", "durations", "lists"],
    )
    def test_polars_columns_that_are_no_numbers_are_refused_by_name(self, column, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts must be", "'price'"):
            task.choose(polars_frame().with_columns(column.alias("price")))

    @pytest.mark.parametrize(
        "frame",
        [
            pandas_frame([[1.0, None, 2.0], [1.0, 2.0, 3.0]]),
            pandas_frame([[1, None, 2], [1, 2, 3]]).astype("Int64"),
            pandas_frame([[1, None, 2], [1, 2, 3]]).astype(object),
            polars_frame([[1.0, None, 2.0], [1.0, 2.0, 3.0]]),
            polars_frame([[1, None, 2], [1, 2, 3]]),
            polars_frame([[True, None, True], [True, True, True]]),
            polars_frame([[1, None, 2], [1, None, 3]]),
        ],
        ids=["pandas", "pandas Int64", "objects", "polars", "polars ints", "flags", "all null"],
    )
    def test_missing_values_are_refused_by_column(self, frame, refused):
        bandit, _ = learned_from(pandas_frame())
        with refused(bandit, "contexts must be", "'price'"):
            bandit.task("a").choose(frame)

    @each_frame
    def test_a_frame_without_rows_is_refused(self, frame, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "contexts", "at least one arm"):
            task.choose(frame()[:0])

    def test_the_callers_frame_is_not_changed(self):
        frame = pandas_frame()
        before = frame.copy()
        learned_from(frame)
        pd.testing.assert_frame_equal(frame, before)

    def test_changing_a_frame_later_changes_nothing(self):
        frame = pandas_frame([[1.0, 2.0, 3.0]])
        bandit = hs.Bandit(dim=3, seed=0)
        choice = bandit.task("a").choose(frame)
        frame.loc[:, :] = 0.0
        bandit.learn(choice, 1.0)
        np.testing.assert_array_equal(bandit.task("a").evidence.moment, [1, 2, 3, 1])

    def test_a_single_column_is_a_frame_too(self):
        frame = pd.DataFrame({"x": [1.0, 2.0]})
        np.testing.assert_array_equal(learned_from(frame, dim=1)[1].moment, [4.0])


class TestIntercept:
    def test_it_learns_a_reward_level_that_no_feature_explains(self):
        bandit = hs.Bandit(dim=2, intercept=True, seed=0, noise=0.1)
        task = bandit.task("a")
        for row in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.5]) * 50:
            task.learn(task.choose([row]), 5.0 + row[0])
        assert bandit.dim == 2
        assert task.belief.dim == 3
        assert task.predict([[0.0, 0.0]]).mean[0] == pytest.approx(5.0, abs=0.3)

    def test_giving_it_oneself_is_pointed_out(self, refused):
        bandit = hs.Bandit(dim=2, intercept=True)
        task = bandit.task("a")
        with refused(bandit, "contexts", "leave it out"):
            task.choose([[1.0, 2.0, 1.0]])


class TestExclude:
    @pytest.mark.parametrize(
        "exclude",
        [
            [0, 2],
            (0, 2),
            {0, 2},
            np.array([2, 0]),
            np.array([0, 2], dtype=np.uint8),
            [0, 2, 2, 0],
            range(0, 3, 2),
            (row for row in (0, 2)),
            [True, False, True],
            np.array([True, False, True]),
            pd.Series([True, False, True]),
            pl.Series([True, False, True]),
            [np.int64(0), np.int64(2)],
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_rows_or_a_mask(self, exclude):
        assert hs.Bandit(dim=3, seed=0).task("a").choose(ROWS, exclude=exclude).arm == 1

    @pytest.mark.parametrize("exclude", [None, [], (), set(), np.array([]), [False] * 3])
    def test_nothing(self, exclude):
        arms = {
            hs.Bandit(dim=3, seed=seed, rule=hs.Uniform()).task("a").choose(ROWS, exclude).arm
            for seed in range(40)
        }
        assert arms == {0, 1, 2}

    @pytest.mark.parametrize(
        "exclude",
        [
            [3],
            [-1],
            [0, 99],
            [True],
            [True] * 4,
            [0.0],
            1,
            "0",
            b"0",
            [[0]],
            [None],
            ["a"],
            [2**70],
        ],
        ids=repr,
    )
    def test_other_things_are_refused(self, exclude, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "exclude must", "from 0 to 2", "got"):
            task.choose(ROWS, exclude=exclude)

    def test_ragged_lists_are_refused(self, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "exclude must"):
            task.choose(ROWS, exclude=[[0], [1, 2]])

    @pytest.mark.parametrize("exclude", [[0, 1, 2], [True] * 3, range(3)], ids=repr)
    def test_excluding_every_arm_is_refused(self, exclude, refused):
        bandit = hs.Bandit(dim=3, seed=0)
        task = bandit.task("a")
        with refused(bandit, "exclude must leave at least one arm"):
            task.choose(ROWS, exclude=exclude)

    @pytest.mark.parametrize(
        "rule",
        [hs.UCB(), hs.Thompson(), hs.Greedy(explore=0.9), hs.Uniform(), hs.Forced(9, hs.UCB())],
        ids=repr,
    )
    def test_an_excluded_arm_is_never_picked(self, rule):
        rng = np.random.default_rng(0)
        task = hs.Bandit(dim=3, rule=rule, seed=0).task("a")
        for _ in range(60):
            offer = rng.standard_normal((5, 3))
            out = rng.choice(5, size=rng.integers(1, 5), replace=False)
            choice = task.choose(offer, exclude=out)
            assert choice.arm not in out
            np.testing.assert_array_equal(choice.propensities[out], 0.0)
            assert choice.propensities.sum() == pytest.approx(1.0)
            task.learn(choice, rng.standard_normal())
