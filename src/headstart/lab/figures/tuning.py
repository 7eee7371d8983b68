"""How much tuning mattered: every setting tried, as a multiple of the policy's best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.errors import InputError
from headstart.lab.figures.base import DOUBLE, Figure, axis_title, plotly_layout
from headstart.lab.figures.intervals import need
from headstart.lab.figures.looks import looks
from headstart.lab.figures.ratios import log_ticks
from headstart.lab.figures.text import count, for_matplotlib, for_plotly, listing, number

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["tuning"]


def tuning(
    table: pl.DataFrame, value: str = "total", seeds: int | None = None, name: str = "tuning"
) -> Figure:
    """Every setting tried in tuning, as a multiple of the policy's best; the chosen one marked.

    Parameters
    ----------
    table
        Columns policy and ``value`` (mean total regret), one column per option (null where a policy
        does not have it), and optionally ``chosen`` (true for one setting of each policy; the best
        unless given) and ``seed`` (then ``value`` is averaged over seeds).
    value
        The column with the total.
    seeds
        How many tuning seeds ``value`` is a mean over, where there is no column of seeds.
    name
        The stem of its files.
    """
    import polars as pl

    aside = {"policy", value, "chosen", "seed"}
    options = [column for column in table.columns if column not in aside]
    key = [column for column in table.columns if column not in {value, "chosen"}]
    need(table, "table", ("policy", value), key)
    if "chosen" not in table.columns:
        table = table.with_columns(chosen=pl.lit(None, dtype=pl.Boolean))
    if "seed" in table.columns:
        seeds = table["seed"].n_unique()
        table = table.group_by("policy", *options, maintain_order=True).agg(
            pl.col(value).mean(), pl.col("chosen").first()
        )
    best = pl.col(value).min().over("policy")
    first = pl.int_range(pl.len()).over("policy") == pl.col(value).arg_min().over("policy")
    chosen = pl.col("chosen").fill_null(False)
    told = chosen.any().over("policy")
    table = table.with_columns(
        ratio=pl.col(value) / best, chosen=pl.when(told).then(chosen).otherwise(first)
    )
    if (table.group_by("policy").agg(pl.col("chosen").sum())["chosen"] != 1).any():
        raise InputError("table must have one chosen setting for each policy")
    order = list(looks(table["policy"].to_list()))
    table = table.with_columns(
        setting=pl.Series([setting(row, options) for row in table.iter_rows(named=True)])
    )
    rows = [summary(table.filter(pl.col("policy") == policy), options) for policy in order]
    edges = [f"{row['policy']} ({row['at the edge']})" for row in rows if row["at the edge"] != "–"]
    warning = f" At the edge of its grid: {listing(edges)}." if edges else ""
    over = "" if seeds is None else f" over {count(seeds, 'tuning seed')}, which are not reported"
    caption = (
        "Mean total regret of every setting tried ÷ that of the policy's best setting: means"
        f"{over}, without intervals. Diamonds are the settings chosen.{warning}"
    )
    final = table.select("policy", *options, value, "ratio", "chosen", "setting")
    return Figure(
        name,
        "How much tuning mattered",
        caption,
        final.drop("setting"),
        pl.DataFrame(rows),
        lambda: draw(final, order),
        lambda: explore(final, order, value),
    )


def setting(row: dict[str, Any], options: Sequence[str]) -> str:
    """A setting in words: the options that the policy has.

    >>> setting({"lam": "1.0", "radius": None, "rank": "log-gap"}, ["lam", "radius", "rank"])
    'lam 1, rank log-gap'
    """
    parts = []
    for option in options:
        if row[option] is not None:
            value = number_in(row[option])
            parts.append(f"{option} {row[option] if value is None else format(value, 'g')}")
    return ", ".join(parts)


def number_in(value: Any) -> float | None:
    """The number that a setting is or spells; a name such as "plug-in" is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def summary(part: pl.DataFrame, options: Sequence[str]) -> dict[str, Any]:
    """One policy's tuning in a line."""
    import polars as pl

    chosen = part.filter(pl.col("chosen")).row(0, named=True)
    median: Any = part["ratio"].median()
    return {
        "policy": chosen["policy"],
        "settings tried": len(part),
        "chosen": chosen["setting"],
        "median ÷ best": number(float(median)),
        "worst ÷ best": number(worst(part)),
        "at the edge": ", ".join(edges_of(part, chosen, options)) or "–",
    }


def edges_of(part: pl.DataFrame, chosen: dict[str, Any], options: Sequence[str]) -> list[str]:
    """Options whose chosen value is the least or the greatest tried: the best may lie beyond."""
    found = []
    for option in options:
        tried = [number_in(value) for value in part[option].drop_nulls().unique().to_list()]
        numbers = [value for value in tried if value is not None]
        own = number_in(chosen[option])
        if own is not None and len(numbers) > 1 and own in (min(numbers), max(numbers)):
            found.append(f"{option} {'lowest' if own == min(numbers) else 'highest'}")
    return found


def draw(table: pl.DataFrame, order: Sequence[str]) -> Drawing:
    """A row of ticks for each policy, and the chosen setting in words beside it."""
    import polars as pl
    from matplotlib.figure import Figure as Drawing

    style = looks(order)
    drawing = Drawing(figsize=(DOUBLE, 0.65 + 0.26 * len(order)), layout="constrained")
    axes = drawing.subplots()
    axes.set_xscale("log")
    for place, policy in enumerate(order):
        part = table.filter(pl.col("policy") == policy)
        look, others = style[policy], part.filter(~pl.col("chosen"))
        ratios = others["ratio"].to_numpy()
        axes.vlines(ratios, place - 0.3, place + 0.3, color=look.colour, linewidth=1.0, alpha=0.75)
        chosen = part.filter(pl.col("chosen")).row(0, named=True)
        axes.plot(chosen["ratio"], place, "D", color=look.colour, markersize=5, clip_on=False)
        axes.annotate(
            for_matplotlib(chosen["setting"]),
            (1.01, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=7,
            annotation_clip=False,
        )
    axes.set_yticks(range(len(order)), [for_matplotlib(policy) for policy in order])
    axes.set_ylim(len(order) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    places = log_ticks(1.0, worst(table))
    axes.set_xticks(places, [f"{place:g}" for place in places])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("mean total regret ÷ that of the policy's best setting (log scale)")
    axes.set_title("chosen setting", loc="right", x=1.01, ha="left", fontsize=7.5)
    return drawing


def worst(table: pl.DataFrame) -> float:
    """The largest ratio."""
    most: Any = table["ratio"].max()
    return float(most)


def explore(table: pl.DataFrame, order: Sequence[str], value: str) -> Any:
    """The same with every setting under the pointer."""
    import plotly.graph_objects as go  # type: ignore[import-untyped]
    import polars as pl

    figure = go.Figure()
    for policy, look in looks(order).items():
        part = table.filter(pl.col("policy") == policy)
        picked = part["chosen"].to_list()
        figure.add_trace(
            go.Scatter(
                x=part["ratio"].to_list(),
                y=[for_plotly(policy)] * len(part),
                mode="markers",
                name=for_plotly(policy),
                marker={
                    "color": look.colour,
                    "symbol": ["diamond" if own else "line-ns" for own in picked],
                    "size": [12 if own else 14 for own in picked],
                    "line": {"color": look.colour, "width": 2},
                },
                text=[
                    f"{for_plotly(row['setting'])}<br>total {number(row[value])}, "
                    f"{number(row['ratio'])} × the best" + (" (chosen)" if row["chosen"] else "")
                    for row in part.iter_rows(named=True)
                ],
                hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            )
        )
    places = log_ticks(1.0, worst(table))
    figure.update_xaxes(
        type="log",
        title=axis_title("mean total regret ÷ the best setting's (log scale)"),
        tickvals=places,
        ticktext=[f"{place:g}" for place in places],
        zeroline=False,
    )
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, automargin=True)
    figure.update_layout(**plotly_layout(height=170 + 40 * len(order)), showlegend=False)
    return figure
