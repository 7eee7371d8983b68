"""The results as pictures: ratios with their spread, and growth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog import BASELINES, OURS, PLAIN, SAME
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator
from measure import ratio_of, spread_of
from table import HEADLINE, present, setting

# Okabe and Ito's colours, which colour-blind readers can tell apart; markers differ too.
GROUPS = {
    "headstart": ("#0072B2", "D"),
    "peer, the same job": ("#D55E00", "o"),
    "peer, another job": ("#CC79A7", "s"),
    "plain NumPy, and the floor": ("#767676", "^"),
}
LINES = {
    "headstart, UCB": ("#0072B2", "-", "D"),
    "headstart, many tasks in one call": ("#0072B2", "--", "d"),
    "floor, UCB": ("#767676", ":", "^"),
    "square-root loop, UCB": ("#767676", "-", "v"),
    "inverse loop, UCB": ("#767676", "--", "P"),
    "contextualbandits regression, UCB": ("#009E73", "-", "o"),
    "Vowpal Wabbit, SquareCB": ("#D55E00", "--", "s"),
    "MABWiser, one model, UCB": ("#CC79A7", "-", "X"),
    "river regression, UCB": ("#56B4E9", "-.", "p"),
    "bayesianbandits, one learner, UCB": ("#E69F00", "-", ">"),
    "coba LinUCB": ("#A6761D", "--", "h"),
}
CURVES = (
    ("#0072B2", "-", "D"),
    ("#E69F00", "--", "P"),
    ("#D55E00", ":", "s"),
    ("#009E73", "-.", "o"),
)


def draw_all(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write every picture that the results are enough for."""
    pictures = {"ratios.png": ratios(results), "tasks-and-seeds.png": many(results)}
    if len(results["grid"]) > 1:
        pictures["growth.png"] = growth(results)
    paths = []
    for name, picture in pictures.items():
        paths.append(folder / name)
        picture.savefig(paths[-1], dpi=150)
    return paths


def group_of(contender: Any) -> str:
    """Whose it is and what it does."""
    if contender.kind == OURS:
        return "headstart"
    if contender.kind == PLAIN:
        return "plain NumPy, and the floor"
    return "peer, the same job" if contender.job == SAME else "peer, another job"


def ratios(results: dict[str, Any]) -> Figure:
    """Time as a multiple of headstart's, everyone in order."""
    timings = setting(results, *HEADLINE)
    points = []
    for contender in present(results):
        ratio = ratio_of(timings, contender.name, BASELINES[contender.rule])
        if ratio is not None and contender.name not in BASELINES.values():
            points.append((ratio, contender))
    points.sort(key=lambda point: -point[0].middle)
    picture = Figure(figsize=(8.0, 1.6 + 0.23 * len(points)), layout="constrained")
    axes = picture.subplots()
    for place, (ratio, contender) in enumerate(points):
        colour, marker = GROUPS[group_of(contender)]
        axes.plot([ratio.low, ratio.high], [place, place], color=colour, linewidth=1.6, alpha=0.55)
        axes.plot([ratio.middle], [place], marker, color=colour, markersize=5)
    axes.axvline(1.0, color="0.2", linewidth=0.9)
    axes.set_xscale("log")
    plain_numbers(axes, "x")
    axes.set_yticks(range(len(points)), [contender.name for _, contender in points], fontsize=8)
    axes.set_ylim(-0.8, len(points) - 0.2)
    axes.grid(axis="both", color="0.92")
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    dim, arms = HEADLINE
    axes.set_xlabel("time per round ÷ headstart's with the same rule (right of the line: slower)")
    axes.set_title(f"One round, choose and learn, d = {dim}, K = {arms}", loc="left", fontsize=10)
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", label=group)
        for group, (colour, marker) in GROUPS.items()
    ]
    picture.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return picture


def growth(results: dict[str, Any]) -> Figure:
    """Time against features and against arms, for those that come closest to the same job."""
    dim, arms = HEADLINE
    here = setting(results, dim, arms)
    names = [name for name in LINES if spread_of(here, name) is not None]
    picture = Figure(figsize=(9.0, 4.8), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    for axes, key, fixed, value, title in (
        (panels[0], "dim", "arms", arms, f"features d (K = {arms})"),
        (panels[1], "arms", "dim", dim, f"arms K (d = {dim})"),
    ):
        columns = sorted(
            (timings for timings in results["grid"] if timings[fixed] == value),
            key=lambda timings: timings[key],
        )
        for name in names:
            colour, line, marker = LINES[name]
            spreads = [(timings[key], spread_of(timings, name)) for timings in columns]
            known = [(x, spread) for x, spread in spreads if spread is not None]
            xs = [x for x, _ in known]
            axes.fill_between(
                xs,
                [spread.low for _, spread in known],
                [spread.high for _, spread in known],
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
            axes.plot(
                xs,
                [spread.middle for _, spread in known],
                line,
                color=colour,
                marker=marker,
                markersize=5,
                label=name,
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks([timings[key] for timings in columns])
        axes.xaxis.set_minor_locator(NullLocator())
        plain_numbers(axes, "both")
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(title)
    panels[0].set_ylabel("µs per round (choose and learn)")
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    return picture


def many(results: dict[str, Any]) -> Figure:
    """headstart's time against tasks at once, and against seeds in a batch."""
    picture = Figure(figsize=(9.0, 4.2), layout="constrained")
    panels = picture.subplots(1, 2)
    for axes, key, scale, x_title, y_title in (
        (panels[0], "tasks", "log", "tasks at once", "µs per decision (choose and learn)"),
        (panels[1], "seeds", "linear", "seeds in a batch", "µs per policy-round, all included"),
    ):
        curves: dict[str, list[tuple[int, Any]]] = {}
        for point in results[key]["points"]:
            spread = spread_of(results[key], point["name"])
            if spread is not None:
                curves.setdefault(point["curve"], []).append((point["at"], spread))
        places = sorted({point["at"] for point in results[key]["points"]})
        for (curve, points), (colour, line, marker) in zip(curves.items(), CURVES, strict=False):
            xs = [at for at, _ in points]
            axes.errorbar(
                xs,
                [spread.middle for _, spread in points],
                [
                    [spread.middle - spread.low for _, spread in points],
                    [spread.high - spread.middle for _, spread in points],
                ],
                linestyle=line,
                color=colour,
                marker=marker,
                markersize=5,
                label=curve,
            )
        axes.set_xscale("log")
        axes.set_xticks(places)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yscale(scale)
        plain_numbers(axes, "both")
        if scale == "linear":
            axes.set_ylim(bottom=0)
        axes.grid(color="0.92")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlabel(x_title)
        axes.set_ylabel(y_title)
        axes.legend(fontsize=8, frameon=False)
    return picture


def plain_numbers(axes: Axes, which: str) -> None:
    """Ticks as 0.1, 1, 1,000 rather than as powers."""
    formatter = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        if which in (name, "both"):
            axis.set_major_formatter(formatter)
