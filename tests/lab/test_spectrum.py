"""The figure of what was learned: the report's numbers, its words, and its files."""

import numpy as np
import polars as pl
import pytest

import headstart as hs
from headstart.lab import figures
from headstart.lab.figures.elements.styles import KNOWN_STYLES as KNOWN
from headstart.worlds import Synthetic

DIM = 8


def played(tasks=30, transfer=None):
    """A bandit that has finished so many tasks near a plane of three dimensions."""
    population = Synthetic(dim=DIM, rank=3, arms=8).population(1)
    bandit = hs.Bandit(DIM, transfer, seed=0, intercept=False)
    for id in range(tasks):
        episode, task = population.episode(id, 30), bandit.task(id)
        for contexts, rewards in zip(episode.contexts, episode.rewards, strict=True):
            choice = task.choose(contexts)
            task.learn(choice, rewards[choice.arm])
        task.close()
    return bandit


@pytest.fixture(scope="module")
def report():
    return played().report()


@pytest.fixture(scope="module")
def subspace():
    return played(transfer=hs.Subspace()).report()


def texts(figure):
    """All that is written over the axes of the drawing, lines joined."""
    return [text.get_text().replace("\n", " ") for text in figure.draw().axes[0].texts]


def test_the_table_has_roots_of_the_eigenvalues_and_of_their_intervals(report):
    table = figures.spectrum(report).table
    assert table.columns == ["direction", "variance", "sd", "low", "high"]
    assert table["direction"].to_list() == list(range(1, DIM + 1))
    for name, values in (
        ("sd", report.eigenvalues),
        ("low", report.lower),
        ("high", report.upper),
    ):
        np.testing.assert_allclose(table[name].to_numpy() ** 2, values, rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(table["variance"].to_numpy(), report.eigenvalues)


def test_the_brief_table_writes_intervals_out(report):
    figure = figures.spectrum(report)
    brief = figure.summary
    assert brief["direction"].to_list() == list(range(1, DIM + 1))
    assert all(" [" in cell for cell in brief["standard deviation"])
    share = report.eigenvalues[0] / report.eigenvalues.sum()
    assert brief["share of the variance"][0] == f"{share:.1%}"
    many = np.linspace(2.0, 1.0, 40)
    wide = report.replace(dim=40, eigenvalues=many, lower=many / 2, upper=2 * many)
    assert len(figures.spectrum(wide).summary) == 10
    assert len(figures.spectrum(wide).table) == 40


def test_points_and_bars_are_where_the_numbers_say(report):
    figure = figures.spectrum(report)
    axes = figure.draw().axes[0]
    assert axes.get_yscale() == "log"
    (container,) = axes.containers
    points, _, (bars,) = container.lines
    np.testing.assert_allclose(points.get_ydata(), np.sqrt(report.eigenvalues))
    ends = np.array(bars.get_segments())[:, :, 1]
    np.testing.assert_allclose(ends, np.sqrt(np.stack([report.lower, report.upper], 1)))
    low, high = axes.get_ylim()
    assert low < ends.min()
    assert ends.max() < high
    (trace,) = figure.explore().data
    np.testing.assert_allclose(trace.y, np.sqrt(report.eigenvalues))
    np.testing.assert_allclose(np.array(trace.y) + trace.error_y.array, np.sqrt(report.upper))
    np.testing.assert_allclose(np.array(trace.y) - trace.error_y.arrayminus, np.sqrt(report.lower))
    np.testing.assert_allclose(10 ** np.array(figure.explore().layout.yaxis.range), (low, high))


def test_it_looks_like_empirical_bayes(report):
    figure = figures.spectrum(report)
    colour = KNOWN["headstart (default)"].colour
    assert figure.draw().axes[0].containers[0].lines[0].get_color() == colour
    assert figure.explore().data[0].marker.color == colour


def test_axes_have_names_and_units(report):
    figure = figures.spectrum(report)
    axes, layout = figure.draw().axes[0], figure.explore().layout
    for x, y in (
        (axes.get_xlabel(), axes.get_ylabel()),
        (layout.xaxis.title.text, layout.yaxis.title.text),
    ):
        assert "number of the principal direction" in x
        assert "standard deviation of tasks" in y
        assert "(reward per unit of feature)" in y


@pytest.mark.parametrize(("rank", "side"), [(1.0, "left"), (3.2, "left"), (7.9, "right")])
def test_the_effective_rank_is_marked(report, rank, side):
    """Its label stands where there is room: beside the line, away from the nearer edge."""
    figure = figures.spectrum(report.replace(effective_rank=rank))
    axes = figure.draw().axes[0]
    label = next(text for text in axes.texts if "effective rank" in text.get_text())
    assert label.get_text() == f"effective rank {rank:.1f}"
    assert label.get_horizontalalignment() == side
    assert any(list(line.get_xdata()) == [rank, rank] for line in axes.lines)
    (note,) = figure.explore().layout.annotations
    assert (note.text, note.x, note.xanchor) == (f"effective rank {rank:.1f}", rank, side)
    assert f"effective rank, {rank:.1f} of 8" in figure.caption


@pytest.mark.parametrize(
    ("saved", "support", "evidence"),
    [
        (0.146, 90.0, "for transfer is 3.00"),
        (0.012, -9.0, "against transfer is 0.300"),
        (-0.3, -63.0, "against transfer is 2.10"),
        (0.146, None, None),
    ],
)
def test_a_sentence_says_what_it_is_worth(report, saved, support, evidence):
    gain = report.gain.replace(saved=saved)
    figure = figures.spectrum(report.replace(gain=gain, support=support))
    rest = "." if evidence is None else f"; the evidence {evidence} nats a task."
    words = f"A new task is expected to save {gain}{rest}"
    drawn = texts(figure)
    assert words in drawn
    assert figure.title in drawn
    assert words in figure.caption
    heading = figure.explore().layout.title.text
    assert figure.title in heading
    assert words in heading.replace("<br>", " ")


def test_after_one_task_there_is_no_evidence_yet():
    figure = figures.spectrum(played(1).report())
    assert "evidence" not in figure.caption
    assert "1 finished task:" in figure.caption


def test_the_caption_counts_tasks_and_passes_notes_on(report):
    caption = figures.spectrum(report.replace(note="a remark")).caption
    assert "30 finished tasks" in caption
    assert "95 % intervals" in caption
    assert caption.endswith("Note: a remark.")


def test_without_intervals_there_are_points_alone(subspace):
    assert subspace.lower is None
    figure = figures.spectrum(subspace.replace(effective_rank=None))
    assert figure.table["low"].null_count() == figure.table["high"].null_count() == DIM
    assert figure.table["low"].dtype == pl.Float64
    assert "no intervals" in figure.caption
    points, _, bars = figure.draw().axes[0].containers[0].lines
    np.testing.assert_allclose(points.get_ydata(), np.sqrt(subspace.eigenvalues))
    assert bars == ()
    assert not any("effective rank" in text for text in texts(figure))
    explored = figure.explore()
    assert explored.data[0].error_y.array is None
    assert not explored.layout.annotations


def test_directions_without_variance_are_not_drawn(subspace):
    values = np.array([1.0, 0.5, 0.1, 0.01, 1e-17, 0.0, 0.0, -1e-18])
    figure = figures.spectrum(subspace.replace(eigenvalues=values))
    assert "4 directions without variance are not drawn" in figure.caption
    assert len(figure.table) == DIM
    assert figure.table["sd"].min() == 0.0
    axes = figure.draw().axes[0]
    assert axes.containers[0].lines[0].get_xdata().tolist() == [1, 2, 3, 4]
    assert axes.get_ylim()[0] > 0.05
    assert len(axes.get_xticks()) == DIM


@pytest.mark.parametrize("dim", [1, 2, 12, 13, 30, 100, 1000])
@pytest.mark.parametrize("reach", [1.0, 3.0, 1e5])
def test_any_number_of_directions_and_any_range(report, dim, reach):
    values = np.geomspace(1.0, 1.0 / reach**2, dim)
    wide = report.replace(
        dim=dim, eigenvalues=values, lower=values / 2, upper=2 * values, effective_rank=dim / 2
    )
    figure = figures.spectrum(wide)
    axes, layout = figure.draw().axes[0], figure.explore().layout
    assert axes.get_xticks()[0] == 1
    assert len(axes.get_xticks()) <= 12
    assert 3 <= len(axes.get_yticks()) <= 8
    assert list(layout.xaxis.tickvals) == axes.get_xticks().tolist()
    assert list(layout.yaxis.tickvals) == axes.get_yticks().tolist()


def test_very_wide_intervals_leave_the_axes_to_the_points(report):
    wide = report.replace(lower=report.eigenvalues * 1e-9, upper=report.eigenvalues * 1e9)
    low, high = figures.spectrum(wide).draw().axes[0].get_ylim()
    sd = np.sqrt(report.eigenvalues)
    assert 0.03 * sd.min() < low < 0.1 * sd.min()
    assert 10 * sd.max() < high < 100 * sd.max()


def test_nothing_is_cut_off_or_overlaps(report, subspace):
    """Everything written lies on the page, and nothing over anything else."""
    for case in (
        report,
        report.replace(effective_rank=1.0),
        report.replace(effective_rank=7.9, support=-1e5),
        subspace,
    ):
        drawing = figures.spectrum(case).draw()
        drawing.draw_without_rendering()
        axes, page = drawing.axes[0], drawing.bbox
        written = [
            *axes.texts,
            axes.xaxis.label,
            axes.yaxis.label,
            *axes.get_xticklabels(),
            *axes.get_yticklabels(),
            *drawing.legends,
        ]
        boxes = [text.get_window_extent() for text in written]
        for at, box in enumerate(boxes):
            assert page.x0 <= box.x0, written[at]
            assert box.x1 <= page.x1, written[at]
            assert page.y0 <= box.y0, written[at]
            assert box.y1 <= page.y1, written[at]
            assert not any(box.overlaps(other) for other in boxes[:at]), written[at]


def test_files_are_written_and_repeat(report, tmp_path):
    figure = figures.spectrum(report, name="learned")
    first, second = figure.save(tmp_path / "a"), figure.save(tmp_path / "b")
    assert [path.name for path in first] == ["learned.png", "learned.svg", "learned.csv"]
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes(), left.name
    assert pl.read_csv(first[2]).columns == figure.table.columns


def test_it_fits_a_paper_and_can_be_explored(report):
    figure = figures.spectrum(report)
    width, height = figure.draw().get_size_inches()
    assert width == 3.5
    assert height <= 4
    assert figure.explore().layout.modebar.remove == ("sendChartToCloud",)


def test_refusals_say_what_is_needed():
    with pytest.raises(hs.InputError, match=r"learns how tasks spread.*Independent"):
        figures.spectrum(hs.linucb(DIM, seed=0).report())
    with pytest.raises(hs.InputError, match=r"finished tasks.*no task has finished yet"):
        figures.spectrum(hs.Bandit(DIM, seed=0, intercept=False).report())
    with pytest.raises(hs.InputError, match=r"above 0 after 0 tasks"):
        figures.spectrum(hs.Bandit(DIM, hs.Subspace(), seed=0).report())
    with pytest.raises(hs.InputError, match=r"bandit\.report\(\) gives; got a Bandit"):
        figures.spectrum(hs.Bandit(DIM, seed=0, intercept=False))
