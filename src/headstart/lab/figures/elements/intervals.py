"""The statistics behind the figures: means and 95 % intervals over seeds.

Seeds are the independent repetitions, so an interval is always over seeds, never over tasks or
rounds of one seed, which share a population.
"""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from headstart.algorithms import DEFAULT
from headstart.errors import InputError
from headstart.lab.text import count

LEVEL = 0.95


def t_quantile(seeds: int) -> float:
    """The factor that turns a standard error over seeds into a 95 % interval's half-width.

    >>> round(t_quantile(20), 3)
    2.093
    """
    from scipy.stats import t

    return float(t.ppf(0.5 + LEVEL / 2, seeds - 1))


def check_table(frame: pl.DataFrame, name: str, columns: Sequence[str], key: Sequence[str]) -> None:
    """Refuse a table without these columns, without rows, or with duplicate keys."""
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(
            f"{name} must have the columns {', '.join(columns)}; it lacks {', '.join(missing)}"
        )
    if frame.is_empty():
        raise InputError(f"{name} has no rows")
    if frame.select(key).is_duplicated().any():
        raise InputError(f"{name} must have one row for each {', '.join(key)}; some have several")


def mean_over_seeds(frame: pl.DataFrame, by: Sequence[str], value: str) -> pl.DataFrame:
    """Mean over seeds with its 95 % interval (Student's t), one row per group.

    ``frame`` has one row per group and seed. One seed alone has no interval: ``low`` and ``high``
    are null.
    """
    moments = (
        frame.sort(*by, "seed")
        .group_by(by, maintain_order=True)
        .agg(mean=pl.col(value).mean(), sd=pl.col(value).std(), seeds=pl.len().cast(pl.Int64))
    )
    factors = {n: t_quantile(n) if n > 1 else None for n in moments["seeds"].unique().to_list()}
    factor = pl.col("seeds").replace_strict(factors, return_dtype=pl.Float64)
    half = factor * pl.col("sd") / pl.col("seeds").sqrt()
    return (
        moments.with_columns(low=pl.col("mean") - half, high=pl.col("mean") + half)
        .select(*by, "mean", "low", "high", "seeds")
        .sort(by)
    )


def paired_ratios(totals: pl.DataFrame, baseline: str) -> pl.DataFrame:
    """Each policy's mean total ÷ the baseline's on the same seeds, with a paired 95 % interval.

    The ratio r = ā/b̄ is of means; its standard error comes from the delta method on pairs,
    sd(aᵢ − r bᵢ)/(√n b̄), so that what makes a seed hard for both cancels. The smallest ratio comes
    first, after headstart's default.

    Parameters
    ----------
    totals
        Columns policy, seed and total.
    baseline
        The policy to divide by. Seeds that it did not play are left out.
    """
    below = totals.filter(pl.col("policy") == baseline).select("seed", below="total")
    if below.is_empty():
        policies = ", ".join(sorted(totals["policy"].unique().to_list()))
        raise InputError(
            f"baseline must be one of the policies played ({policies}); got {baseline!r}"
        )
    pairs = totals.join(below, on="seed").with_columns(own=pl.col("total") / pl.col("below"))
    rows = []
    for (policy,), part in pairs.sort("policy", "seed").group_by("policy", maintain_order=True):
        a, b = part["total"].to_numpy(), part["below"].to_numpy()
        ratio, n = float(a.mean() / b.mean()), len(a)
        half = None
        if n > 1:
            half = t_quantile(n) * float((a - ratio * b).std(ddof=1)) / (n**0.5 * float(b.mean()))
        worst = part.row(int(part["own"].arg_max() or 0), named=True)
        rows.append(
            {
                "policy": policy,
                "ratio": ratio,
                "low": None if half is None else ratio - half,
                "high": None if half is None else ratio + half,
                "worst": worst["own"],
                "worst_seed": worst["seed"],
                "mean_total": float(a.mean()),
                "seeds": n,
            }
        )
    numbers = dict.fromkeys(("ratio", "low", "high", "worst", "mean_total"), pl.Float64)
    table = pl.DataFrame(rows, schema_overrides=numbers)
    return table.sort(pl.col("policy") != DEFAULT, "ratio", "policy")


def describe_seeds(
    table: pl.DataFrame,
    intervals: str = "bands are 95 % intervals over seeds",
    without: str = "no intervals",
) -> str:
    """The number of seeds behind a table, and its ``intervals`` or that it is ``without``."""
    counts = sorted(table["seeds"])
    least, most = counts[0], counts[-1]
    seeds = count(most, "seed") if least == most else f"{least} to {most} seeds"
    return f"{seeds}, {intervals if most > 1 else without}"
