"""How much tuning mattered: every setting tried, as a multiple of the policy's best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headstart.lab.figures.elements.axes import log_rows, log_ticks, plotly_log_axis, write_beside
from headstart.lab.figures.elements.base import DOUBLE, Figure, plotly_layout
from headstart.lab.figures.elements.intervals import check_table
from headstart.lab.figures.elements.styles import assign_styles
from headstart.lab.figures.elements.text import (
    count,
    escape_matplotlib,
    escape_plotly,
    join_words,
    number,
)

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure as Drawing

__all__ = ["tuning"]


def tuning(table: pl.DataFrame, name: str = "tuning") -> Figure:
    """Every setting tried in tuning, as a multiple of the policy's best, which is marked.

    Parameters
    ----------
    table
        Columns policy, seed and total, and one column per option (null where a policy does not
        have it).
    name
        The stem of its files.
    """
    import polars as pl

    options = [column for column in table.columns if column not in ("policy", "total", "seed")]
    check_table(table, "table", ("policy", "seed", "total"), ("policy", "seed", *options))
    seeds, total = table["seed"].n_unique(), pl.col("total")
    table = table.group_by("policy", *options, maintain_order=True).agg(total.mean())
    table = table.with_columns(
        ratio=total / total.min().over("policy"),
        chosen=pl.int_range(pl.len()).over("policy") == total.arg_min().over("policy"),
    )
    order = list(assign_styles(table["policy"].to_list()))
    table = table.with_columns(
        setting=pl.Series([setting(row, options) for row in table.iter_rows(named=True)])
    )
    rows = [summary(table.filter(pl.col("policy") == policy), options) for policy in order]
    edges = [f"{row['policy']} ({row['at the edge']})" for row in rows if row["at the edge"] != "–"]
    warning = f" At the edge of its grid: {join_words(edges)}." if edges else ""
    caption = (
        "Mean total regret of every setting tried ÷ that of the policy's best setting: means over "
        f"{count(seeds, 'tuning seed')}, which are not reported, without intervals. Diamonds are "
        f"the settings chosen.{warning}"
    )
    final = table.select("policy", *options, "total", "ratio", "chosen", "setting")
    return Figure(
        name,
        "How much tuning mattered",
        caption,
        final.drop("setting"),
        pl.DataFrame(rows),
        lambda: draw(final, order),
        lambda: explore(final, order),
    )


def setting(row: dict[str, Any], options: Sequence[str]) -> str:
    """A setting in words: the options that the policy has.

    >>> setting({"lam": "1.0", "radius": None, "rank": "log-gap"}, ["lam", "radius", "rank"])
    'lam 1, rank log-gap'
    """
    parts = []
    for option in options:
        if row[option] is not None:
            value = parse_number(row[option])
            parts.append(f"{option} {row[option] if value is None else format(value, 'g')}")
    return ", ".join(parts)


def parse_number(value: Any) -> float | None:
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
        "at the edge": ", ".join(options_at_edge(part, chosen, options)) or "–",
    }


def options_at_edge(
    part: pl.DataFrame, chosen: dict[str, Any], options: Sequence[str]
) -> list[str]:
    """Options whose chosen value is the least or the greatest tried: the best may lie beyond."""
    edges = []
    for option in options:
        tried = [parse_number(value) for value in part[option].drop_nulls().unique().to_list()]
        numbers = [value for value in tried if value is not None]
        own = parse_number(chosen[option])
        if own is not None and len(numbers) > 1 and own in (min(numbers), max(numbers)):
            edges.append(f"{option} {'lowest' if own == min(numbers) else 'highest'}")
    return edges


def draw(table: pl.DataFrame, order: Sequence[str]) -> Drawing:
    """The drawing: a row of ticks per policy, with the chosen setting beside it."""
    import polars as pl
    from matplotlib.figure import Figure as Drawing

    styles = assign_styles(order)
    drawing = Drawing(figsize=(DOUBLE, 0.65 + 0.26 * len(order)), layout="constrained")
    axes = drawing.subplots()
    for place, policy in enumerate(order):
        part = table.filter(pl.col("policy") == policy)
        colour, others = styles[policy].colour, part.filter(~pl.col("chosen"))
        ratios = others["ratio"].to_numpy()
        axes.vlines(ratios, place - 0.3, place + 0.3, color=colour, linewidth=1.0, alpha=0.75)
        chosen = part.filter(pl.col("chosen")).row(0, named=True)
        axes.plot(chosen["ratio"], place, "D", color=colour, markersize=5, clip_on=False)
        write_beside(axes, escape_matplotlib(chosen["setting"]), place)
    title = "mean total regret ÷ that of the policy's best setting (log scale)"
    log_rows(axes, order, log_ticks(1.0, worst(table)), title)
    axes.set_ylim(len(order) - 0.45, -0.55)
    axes.set_title("chosen setting", loc="right", x=1.01, ha="left", fontsize=7.5)
    return drawing


def worst(table: pl.DataFrame) -> float:
    """The largest ratio."""
    most: Any = table["ratio"].max()
    return float(most)


def explore(table: pl.DataFrame, order: Sequence[str]) -> Any:
    """The interactive plot, with every setting as hover text."""
    import plotly.graph_objects as go
    import polars as pl

    figure = go.Figure()
    for policy, style in assign_styles(order).items():
        part = table.filter(pl.col("policy") == policy)
        picked = part["chosen"].to_list()
        figure.add_trace(
            go.Scatter(
                x=part["ratio"].to_list(),
                y=[escape_plotly(policy)] * len(part),
                mode="markers",
                name=escape_plotly(policy),
                marker={
                    "color": style.colour,
                    "symbol": ["diamond" if own else "line-ns" for own in picked],
                    "size": [12 if own else 14 for own in picked],
                    "line": {"color": style.colour, "width": 2},
                },
                text=[
                    f"{escape_plotly(row['setting'])}<br>total {number(row['total'])}, "
                    f"{number(row['ratio'])} × the best" + (" (chosen)" if row["chosen"] else "")
                    for row in part.iter_rows(named=True)
                ],
                hovertemplate="%{text}<extra>%{fullData.name}</extra>",
            )
        )
    title = "mean total regret ÷ the best setting's (log scale)"
    figure.update_xaxes(**plotly_log_axis(title, log_ticks(1.0, worst(table))))
    figure.update_yaxes(autorange="reversed", showgrid=False, zeroline=False, automargin=True)
    figure.update_layout(**plotly_layout(height=170 + 40 * len(order)), showlegend=False)
    return figure
