"""Figures: the numbers behind them, how policies look, and the files they become."""

import itertools
import math
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from scipy.stats import t

import headstart as hs
from headstart.lab import figures
from headstart.lab.figures.elements.intervals import paired_ratios
from headstart.lab.figures.elements.styles import KNOWN_STYLES as KNOWN
from headstart.worlds.synthetic import Synthetic

POLICIES = ("LinUCB", "P-LinUCB", "mine")
SEEDS, TASKS, ROUNDS = (7, 8, 9, 10), 12, (5, 10, 20)


def regret_array():
    """Regret of every policy, seed, task and checkpoint: growing along the last axis."""
    rng = np.random.default_rng(0)
    steps = rng.random((len(POLICIES), len(SEEDS), TASKS, len(ROUNDS))) + 0.1
    return np.cumsum(steps * np.array([1.0, 0.6, 2.0])[:, None, None, None], axis=-1)


def tidy(array, seeds=SEEDS):
    """The same as a table, in no particular order."""
    rows = [
        (seed, policy, task, mark, array[i, j, task, k])
        for (i, policy), (j, seed), task, (k, mark) in itertools.product(
            enumerate(POLICIES), enumerate(seeds), range(array.shape[2]), enumerate(ROUNDS)
        )
    ]
    names = ["seed", "policy", "task", "round", "regret"]
    return pl.DataFrame(rows, schema=names, orient="row").sample(fraction=1, shuffle=True, seed=1)


@pytest.fixture(scope="module")
def array():
    return regret_array()


@pytest.fixture(scope="module")
def regret(array):
    return tidy(array)


def interval(values):
    """Mean and 95 % interval over the first axis."""
    mean = values.mean(0)
    half = t.ppf(0.975, len(values) - 1) * values.std(0, ddof=1) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def check(table, policy, x, places, expected):
    """One policy's rows of a table are these."""
    rows = table.filter(pl.col("policy") == policy).sort(x)
    assert rows[x].to_list() == list(places)
    for name, values in zip(("mean", "low", "high"), expected, strict=True):
        np.testing.assert_allclose(rows[name].to_numpy(), values, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(("at", "policy"), list(enumerate(POLICIES)))
class TestRegret:
    def test_transfer_regret_is_the_mean_over_tasks_then_seeds(self, array, regret, at, policy):
        figure = figures.transfer_regret(regret)
        check(figure.table, policy, "round", ROUNDS, interval(array[at].mean(1)))

    def test_cumulative_regret_sums_whole_tasks(self, array, regret, at, policy):
        figure = figures.cumulative_regret(regret)
        expected = interval(np.cumsum(array[at, :, :, -1], axis=1))
        check(figure.table, policy, "task", range(1, TASKS + 1), expected)

    @pytest.mark.parametrize("window", [1, 4, 10])
    def test_per_task_regret_is_a_mean_of_the_last_tasks(self, array, regret, at, policy, window):
        figure = figures.per_task_regret(regret, window=window)
        whole = array[at, :, :, -1]
        smooth = [whole[:, max(0, k - window + 1) : k + 1].mean(1) for k in range(TASKS)]
        check(figure.table, policy, "task", range(1, TASKS + 1), interval(np.stack(smooth, 1)))

    def test_totals_are_paired_ratios(self, array, regret, at, policy):
        row = figures.totals(regret).table.row(by_predicate=pl.col("policy") == policy, named=True)
        a, b = array[at, :, :, -1].sum(1), array[0, :, :, -1].sum(1)
        ratio, n = a.mean() / b.mean(), len(SEEDS)
        # The delta method written out: var(ā/b̄) ≈ (var a − 2r cov + r² var b)/(n b̄²).
        spread = np.cov(a, b)
        variance = (spread[0, 0] - 2 * ratio * spread[0, 1] + ratio**2 * spread[1, 1]) / n
        half = t.ppf(0.975, n - 1) * math.sqrt(max(0.0, variance)) / b.mean()
        assert row["ratio"] == pytest.approx(ratio)
        assert row["low"] == pytest.approx(ratio - half, abs=1e-7)
        assert row["high"] == pytest.approx(ratio + half, abs=1e-7)
        assert row["worst"] == pytest.approx((a / b).max())
        if policy != "LinUCB":
            assert row["worst_seed"] == SEEDS[(a / b).argmax()]
        assert row["mean_total"] == pytest.approx(a.mean())


def test_the_paired_interval_covers():
    """Seeds that are hard for both: pairing gives a narrow interval that is still honest."""
    rng = np.random.default_rng(3)
    covered, runs, n = 0, 400, 12
    for _ in range(runs):
        hard = rng.gamma(8.0, 1.0, n)
        own = 0.7 * hard * (1 + 0.1 * rng.standard_normal(n))
        totals = pl.DataFrame(
            {
                "policy": ["a"] * n + ["b"] * n,
                "seed": [*range(n)] * 2,
                "total": [*hard, *own],
            }
        )
        row = paired_ratios(totals, "a").row(by_predicate=pl.col("policy") == "b", named=True)
        covered += row["low"] <= 0.7 <= row["high"]
        assert row["high"] - row["low"] < 0.25  # unpaired it would be about 0.5
    assert 0.91 <= covered / runs <= 0.985


def test_the_caption_counts_seeds_and_names_intervals(regret):
    for figure in (
        figures.transfer_regret(regret),
        figures.cumulative_regret(regret),
        figures.per_task_regret(regret),
        figures.totals(regret),
    ):
        assert "4 seeds" in figure.caption
        assert "95 % intervals" in figure.caption


def test_one_seed_has_no_interval(array):
    alone = tidy(array[:, :1], SEEDS[:1])
    for figure in (figures.transfer_regret(alone), figures.totals(alone)):
        assert figure.table["low"].null_count() == len(figure.table)
        assert "1 seed" in figure.caption
        assert "no intervals" in figure.caption
        figure.draw()
        figure.explore()


def test_a_brief_table_has_a_row_for_each_policy(regret):
    brief = figures.cumulative_regret(regret).summary
    assert brief["policy"].to_list() == ["LinUCB", "P-LinUCB", "mine"]
    assert brief.columns[1] == "task 1"
    assert brief.columns[-1] == "task 12"
    assert " ± " in brief["task 12"][0]


def sweep(policies=("P-LinUCB",)):
    """Totals with the least at q = 3, seed by seed a little different."""
    rng = np.random.default_rng(5)
    rows = [
        (policy, q, seed, 100 + 4.0 * (q - 3) ** 2 + rng.normal())
        for policy in policies
        for q in range(7)
        for seed in range(5)
    ]
    return pl.DataFrame(rows, schema=["policy", "q", "seed", "total"], orient="row")


def test_the_rank_sweep_marks_its_minimum():
    totals = sweep()
    figure = figures.rank_sweep(totals, true=3)
    values = totals.sort("q", "seed")["total"].to_numpy().reshape(7, 5).T
    check(figure.table, "P-LinUCB", "q", range(7), interval(values))
    assert "least at q = 3" in figure.caption
    assert "5 of 5 seeds" in figure.caption
    texts = [text.get_text() for text in figure.draw().axes[0].texts]
    assert {"least: q = 3", "LinUCB (q = 0)", "true q"} <= set(texts)


def test_the_rank_sweep_takes_several_policies():
    figure = figures.rank_sweep(sweep(("P-LinUCB", "P-TS")))
    texts = [text.get_text() for text in figure.draw().axes[0].texts]
    assert {"LinUCB (q = 0)", "LinTS (q = 0)"} <= set(texts)


def probe_table(values):
    """W and W² of shape (seeds, tasks), as a table."""
    rows = [
        (seed, "P-LinUCB", task, name, values[seed, task] ** power)
        for seed in range(values.shape[0])
        for task in range(values.shape[1])
        for name, power in (("W", 1), ("W2", 2))
    ]
    names = ["seed", "policy", "task", "name", "value"]
    return pl.DataFrame(rows, schema=names, orient="row")


class TestSubspaceError:
    values = np.abs(np.random.default_rng(2).normal(1.5, 0.3, (6, 30)))

    @pytest.mark.parametrize("window", [5, 30])
    def test_numbers(self, window):
        """Expectations over the window and over seeds first, then the formula."""
        spread = np.full(6, 0.8)
        figure = figures.subspace_error(probe_table(self.values), 0.8, window=window)
        for quantity, scaled, bend in (
            ("E[W]²", self.values / np.sqrt(spread)[:, None], np.square),
            ("E[W²]", self.values**2 / spread[:, None], lambda value: value),
        ):
            last = scaled[:, -window:]
            mean, low, high = (bend(value) - 1 for value in interval(last.mean(1)))
            row = figure.table.filter(pl.col("quantity") == quantity, pl.col("task") == 30)
            assert row["mean"].item() == pytest.approx(abs(mean))
            assert row["high"].item() == pytest.approx(max(abs(low), abs(high)))
            reach = 0.0 if low * high <= 0 else min(abs(low), abs(high))
            assert row["low"].item() == pytest.approx(reach)

    def test_an_interval_around_one_reaches_zero(self):
        values = np.sqrt(np.array([[0.9], [1.1], [1.0], [1.0]]))
        table = figures.subspace_error(probe_table(values), 1.0).table
        row = table.row(by_predicate=pl.col("quantity") == "E[W²]", named=True)
        assert row["mean"] == pytest.approx(0.0, abs=1e-12)
        assert row["low"] == 0.0
        assert row["high"] == pytest.approx(interval(values**2)[2].item() - 1)

    def test_tasks_without_a_subspace_are_left_out(self):
        values = self.values.copy()
        values[:, :10] = np.nan
        values[:, 10] = 1e-16  # a projection onto everything, up to rounding
        figure = figures.subspace_error(probe_table(values), 0.8, window=5)
        assert figure.table["task"].min() == 12
        where = (pl.col("quantity") == "E[W²]") & (pl.col("task") == 12)
        first = figure.table.row(by_predicate=where, named=True)
        assert first["mean"] == pytest.approx(abs((values[:, 11] ** 2 / 0.8).mean() - 1))

    def test_it_needs_both_probes(self):
        only = probe_table(self.values).filter(pl.col("name") == "W")
        with pytest.raises(hs.InputError, match="W2"):
            figures.subspace_error(only, 0.8)


class TestTuning:
    grid = pl.DataFrame(
        {
            "policy": ["LinUCB"] * 6 + ["P-TS"] * 3,
            "lam": [0.1, 0.1, 1.0, 1.0, 10.0, 10.0, None, None, None],
            "radius": [0.5, 1.0] * 3 + [None] * 3,
            "lam1": [None] * 6 + ["1.0", "10.0", "plug-in"],
            "total": [30.0, 20.0, 12.0, 10.0, 15.0, 40.0, 8.0, 16.0, 9.0],
            "seed": [7] * 9,
        }
    )

    def test_ratios_and_choice(self):
        table = figures.tuning(self.grid).table
        assert table["ratio"].to_list() == [3, 2, 1.2, 1, 1.5, 4, 1, 2, 1.125]
        assert table.filter(pl.col("chosen"))["total"].to_list() == [10.0, 8.0]

    def test_a_choice_at_the_edge_is_told(self):
        figure = figures.tuning(self.grid)
        assert "LinUCB (radius highest)" in figure.caption
        assert "P-TS (lam1 lowest)" in figure.caption
        assert "1 tuning seed," in figure.caption
        assert figure.summary["chosen"].to_list() == ["lam 1, radius 1", "lam1 1"]
        assert figure.summary["worst ÷ best"].to_list() == ["4.00", "2.00"]

    def test_seeds_are_averaged(self):
        by_seed = pl.concat(
            self.grid.with_columns(pl.col("total") + shift, seed=pl.lit(seed))
            for seed, shift in ((1, -1.0), (2, 1.0))
        )
        figure = figures.tuning(by_seed)
        assert figure.table["ratio"].to_list() == figures.tuning(self.grid).table["ratio"].to_list()
        assert "2 tuning seeds" in figure.caption


def test_the_bound_says_how_loose_it_is(regret):
    curve = figures.transfer_regret(regret).table.filter(pl.col("policy") == "P-LinUCB")
    last = curve.sort("round")["mean"].item(-1)
    figure = figures.with_bound(curve, {"theorem": [10.0, 20.0, 50.0 * last]})
    assert "theorem 50.0" in figure.caption
    assert "4 seeds" in figure.caption
    lines = figure.table.filter(pl.col("line") == "theorem")
    assert lines["mean"].to_list() == [10.0, 20.0, 50.0 * last]
    assert figure.draw().axes[0].get_yscale() == "log"
    with pytest.raises(hs.InputError, match="3 numbers"):
        figures.with_bound(curve, {"theorem": [1.0]})


class TestScatter:
    def test_it_shows_the_tasks_of_a_population(self):
        world = Synthetic(dim=3, rank=2)
        figure = figures.scatter(world, seed=4, tasks=50)
        expected = np.stack([world.population(4).episode(k, 1).theta for k in range(50)])
        np.testing.assert_array_equal(figure.table.drop("task").to_numpy(), expected)
        assert "50 tasks" in figure.caption

    def test_the_angle_is_that_between_normals(self):
        world = Synthetic(dim=3, rank=2, outside=0.15)
        figure = figures.scatter(world, seed=4, tasks=60)
        thetas = figure.table.drop("task").to_numpy()
        basis = world.population(4).truth.basis
        normal = np.cross(basis[:, 0], basis[:, 1])
        least = np.linalg.svd(thetas - thetas.mean(0))[2][-1]
        angle = math.degrees(math.acos(abs(normal @ least)))
        assert f"{angle:.1f}°" in figure.caption

    @pytest.mark.parametrize("world", [Synthetic(), Synthetic(dim=3, rank=1)])
    def test_it_needs_a_plane_in_space(self, world):
        with pytest.raises(hs.InputError, match="3 dimensions"):
            figures.scatter(world)


class TestLooks:
    def test_every_known_policy_is_its_own(self):
        assert len(set(KNOWN.values())) == len(KNOWN)
        assert len({(look.line, look.marker) for look in KNOWN.values()}) == len(KNOWN)

    def test_pairs_share_a_colour_and_differ_in_line(self):
        for ucb, ts in (("LinUCB", "LinTS"), ("P-LinUCB", "P-TS"), ("M-TS", "M-TS, unforced")):
            assert KNOWN[ucb].colour == KNOWN[ts].colour
            assert KNOWN[ucb].line != KNOWN[ts].line

    def test_looks_do_not_depend_on_company(self):
        names = [*KNOWN, "mine"]
        together = figures.assign_styles(names)
        for name in names:
            assert figures.assign_styles([name])[name] == together[name]

    def test_unknown_names_never_look_like_known_ones(self):
        many = figures.assign_styles(f"policy {k}" for k in range(12))
        assert len(set(many.values())) == 12
        assert not {style.colour for style in many.values()} & {k.colour for k in KNOWN.values()}

    def test_the_same_in_every_figure(self, regret):
        for figure in (figures.transfer_regret(regret), figures.per_task_regret(regret)):
            lines = {line.get_color() for line in figure.draw().axes[0].lines}
            assert lines == {style.colour for style in figures.assign_styles(POLICIES).values()}
            explored = {
                trace.name: trace.line.color
                for trace in figure.explore().data
                if trace.mode == "lines"
            }
            assert explored == {
                name: style.colour for name, style in figures.assign_styles(POLICIES).items()
            }


def every_figure(regret):
    """One of each."""
    curve = figures.transfer_regret(regret).table.filter(pl.col("policy") == "P-LinUCB")
    return [
        figures.scatter(Synthetic(dim=3, rank=2), 1, 30),
        figures.transfer_regret(regret),
        figures.cumulative_regret(regret),
        figures.per_task_regret(regret),
        figures.totals(regret),
        figures.rank_sweep(sweep(), true=3),
        figures.subspace_error(probe_table(TestSubspaceError.values), 0.8, codimension=5),
        figures.tuning(TestTuning.grid),
        figures.with_bound(curve, {"theorem": [10.0, 20.0, 30.0]}),
    ]


def test_files_are_written_and_repeat(regret, tmp_path):
    for place, figure in enumerate(every_figure(regret)):
        first = figure.save(tmp_path / "a")
        assert [path.name for path in first] == [
            f"{figure.name}.{k}" for k in ("png", "svg", "csv")
        ]
        if place in (0, 4, 6):  # in perspective, rows, and lines in two panels
            second = figure.save(tmp_path / "b" / "deep")
            for left, right in zip(first, second, strict=True):
                assert left.read_bytes() == right.read_bytes(), left.name
        assert b"<dc:date>" not in first[1].read_bytes()
        back = pl.read_csv(first[2])
        assert back.columns == figure.table.columns
        assert len(back) == len(figure.table)


def test_the_default_is_listed_first_wherever_there_is_one():
    listed = list(figures.assign_styles(["LinUCB", "headstart (default)", "mine"]))
    assert listed == ["headstart (default)", "LinUCB", "mine"]
    totals = pl.DataFrame(
        {"policy": ["LinUCB", "headstart (default)", "mine"], "seed": 0, "total": [1.0, 2.0, 0.5]}
    )
    table = paired_ratios(totals, "LinUCB")
    assert table["policy"].to_list() == ["headstart (default)", "mine", "LinUCB"]


def test_legends_fit_the_width_of_the_drawing(regret):
    """With every known policy, and with names that are long."""
    part = regret.filter(pl.col("policy") == POLICIES[0])
    long = [f"policy {number}, whose name takes more room than a column has" for number in (1, 2)]
    for names in (list(KNOWN), long):
        parts = [part.with_columns(policy=pl.lit(name)) for name in names]
        drawing = figures.transfer_regret(pl.concat(parts)).draw()
        assert drawing.legends[0].get_window_extent().width <= drawing.bbox.width


def test_drawings_fit_a_paper_and_can_be_explored(regret):
    for figure in every_figure(regret):
        width, height = figure.draw().get_size_inches()
        assert width in (3.5, 7.0)
        assert height <= 4
        explored = figure.explore()
        assert explored.data
        assert explored.layout.modebar.remove == ("sendChartToCloud",)


def test_the_users_settings_do_not_leak_in(regret, tmp_path):
    import matplotlib

    figure = figures.totals(regret)
    before = figure.save(tmp_path / "a")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red", "svg.hashsalt": "x"}):
        assert figure.save(tmp_path / "b")[0].read_bytes() == before
        assert matplotlib.rcParams["font.size"] == 30


def test_names_are_drawn_as_they_are(array):
    odd = {"mine": "_a $x$ <b>"}
    regret = tidy(array).with_columns(pl.col("policy").replace(odd))
    figure = figures.transfer_regret(regret)
    labels = [text.get_text() for text in figure.draw().legends[0].get_texts()]
    assert any(r"\$x\$" in label for label in labels)
    assert len(labels) == 3
    assert "&lt;b&gt;" in figure.explore().to_json()


def test_refusals_name_what_is_missing(regret, tmp_path):
    with pytest.raises(hs.InputError, match="lacks round"):
        figures.transfer_regret(regret.drop("round"))
    with pytest.raises(hs.InputError, match="no rows"):
        figures.cumulative_regret(regret.clear())
    with pytest.raises(hs.InputError, match="one row for each"):
        figures.totals(pl.concat([regret, regret]))
    with pytest.raises(hs.InputError, match="P-LinUCB"):
        figures.totals(regret, baseline="nobody")
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(hs.HeadstartError, match="cannot be written"):
        figures.totals(regret).save(tmp_path / "file")


def test_nothing_heavy_is_imported_early():
    code = (
        "import sys, headstart.lab.figures, headstart.lab.report;"
        "print([m for m in ('matplotlib', 'plotly', 'markdown_it') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
