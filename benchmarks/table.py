"""The results as Markdown: one headline table, the whole grid, bytes, and growth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from catalog import BASELINES, CONTENDERS, LOOPS, SAME, Contender
from measure import Spread, ratio_of, spread_of

HEADLINE = (30, 20)


def headline(results: dict[str, Any]) -> str:
    """The table at d = 30 and K = 20."""
    timings = setting(results, *HEADLINE)
    rows = []
    for contender in present(results):
        time, ratio, why = cells(results, timings, contender)
        to_loop = ratio_of(timings, contender.name, LOOPS[contender.rule])
        rows.append([contender.name, time or why, ratio, to_loop and show(to_loop), contender.job])
    title = ["contender", "µs per round", "× headstart", "× loop", "job"]
    return table(title, [[cell or "" for cell in row] for row in rows], right=(1, 2, 3))


def whole(results: dict[str, Any]) -> str:
    """Everything."""
    dim, arms = HEADLINE
    about = results["about"]
    parts = [
        "# Benchmarks",
        f"Choose and learn, one round, at d = {dim} and K = {arms}, float64, one thread on one "
        f"core. Medians of {about['repetitions']} interleaved repetitions, with the range from the "
        "10th to the 90th percentile. The ratio is to headstart with the same rule (UCB or "
        "Thompson) in the same repetition: above 1 is slower than headstart. The last column of "
        "numbers is the ratio to the bare square-root loop in NumPy.",
        headline(results),
        f"“{SAME.capitalize()}” is one linear model shared by all arms, exact mean and covariance, "
        "K arms with d features each, and a reward learned before the next round. "
        f"Python {about['python']}, {about['cores']} cores; this core multiplies large matrices "
        f"at {about['gigaflops']:.1f} Gflop/s.",
        *missing(results),
    ]
    if len(results["grid"]) > 1:
        parts += ["## Every size: µs per round", grid(results, ratios=False)]
        parts += ["## Every size: × headstart", grid(results, ratios=True)]
    parts += ["## Bytes per task", sizes_intro(about), sizes(results)]
    parts += ["## Growth with tasks", growth_intro("tasks"), growth(results["tasks"], "tasks")]
    parts += ["## Growth with seeds", growth_intro("seeds"), growth(results["seeds"], "seeds")]
    parts += ["## Growth with processes", processes(results["processes"])]
    parts += ["## Versions", versions(about["versions"])]
    return "\n\n".join(parts) + "\n"


def setting(results: dict[str, Any], dim: int, arms: int) -> dict[str, Any]:
    """What was measured at one size."""
    for timings in results["grid"]:
        if (timings["dim"], timings["arms"]) == (dim, arms):
            chosen: dict[str, Any] = timings
            return chosen
    raise LookupError(f"nothing was measured at d = {dim}, K = {arms}")


def present(results: dict[str, Any]) -> list[Contender]:
    """Everyone that was asked to take part, in the catalog's order."""
    return [contender for contender in CONTENDERS if contender.name in results["asked"]]


def cells(
    results: dict[str, Any], timings: dict[str, Any], contender: Contender
) -> tuple[str, str, str]:
    """Time, ratio, and why there is none."""
    reason = timings["failures"].get(contender.name, "")
    if contender.peer in results["not_installed"]:
        return "", "", "did not install"
    time = spread_of(timings, contender.name)
    if time is None:
        return "", "", "not available" if reason else ""
    ratio = ratio_of(timings, contender.name, BASELINES[contender.rule])
    return show(time), "" if ratio is None else show(ratio), ""


def missing(results: dict[str, Any]) -> list[str]:
    """Why some are not in the table."""
    lines = [
        f"- {peer} did not install: `{reason}`" for peer, reason in results["not_installed"].items()
    ]
    for name, reason in setting(results, *HEADLINE)["failures"].items():
        lines.append(f"- {name} is not available: {reason}")
    return ["\n".join(lines)] if lines else []


def grid(results: dict[str, Any], *, ratios: bool) -> str:
    """Everyone at every size."""
    columns = results["grid"]
    title = ["contender", *(f"d {timings['dim']}, K {timings['arms']}" for timings in columns)]
    rows = []
    for contender in present(results):
        row = [contender.name]
        for timings in columns:
            time, ratio, why = cells(results, timings, contender)
            row.append((ratio if ratios else time) or ("–" if why else ""))
        rows.append(row)
    return table(title, rows, right=range(1, len(title)))


def sizes(results: dict[str, Any]) -> str:
    """Bytes by contender and number of features."""
    dims = list(results["sizes"])
    rows: dict[tuple[str, str], list[str]] = {}
    for place, dim in enumerate(dims):
        for name, timings in results["sizes"][dim].items():
            for what, count in timings.items():
                row = rows.setdefault((name, what), [""] * len(dims))
                row[place] = f"{count:,}"
    title = ["contender", "what", *(f"d {dim}" for dim in dims)]
    return table(title, [[*key, *row] for key, row in rows.items()], right=range(2, len(title)))


def sizes_intro(about: dict[str, Any]) -> str:
    """What the bytes are."""
    return (
        f"With K = {HEADLINE[1]}, after {about['rounds_before_weighing']} rounds; some "
        "libraries make an arm's model when the arm is first played, so theirs may still grow. "
        "For headstart, what a further task adds, with all that Python holds for it; a live task "
        "has its belief at hand."
    )


def growth_intro(what: str) -> str:
    """What a growth table shows."""
    if what == "tasks":
        return (
            "µs per decision (choose and learn) at d = 30 and K = 20, all tasks in turn, and as a "
            "multiple of the same with the fewest tasks. A task whose belief is not at hand is "
            "rebuilt from its evidence."
        )
    return (
        "µs per round of each policy and seed at d = 30 and K = 20, eight policies, and as a "
        "multiple of the same with the fewest seeds in a batch."
    )


def growth(timings: dict[str, Any], what: str) -> str:
    """A curve in each row."""
    curves: dict[str, dict[int, str]] = {}
    for point in timings["points"]:
        curves.setdefault(point["curve"], {})[point["at"]] = point["name"]
    places = sorted({point["at"] for point in timings["points"]})
    rows = []
    for curve, names in curves.items():
        row = [curve]
        first = names[min(names)]
        for place in places:
            name = names.get(place, "")
            time, ratio = spread_of(timings, name), ratio_of(timings, name, first)
            failed = "not available" if name in timings["failures"] else ""
            text = failed if time is None else show(time)
            row.append(text if ratio is None or name == first else f"{text}; × {show(ratio)}")
        rows.append(row)
    return table(["", *(f"{what}: {place:,}" for place in places)], rows, right=())


def processes(timings: dict[str, Any]) -> str:
    """How much faster an experiment is on two processes."""
    if "failure" in timings:
        return f"Not measured: {timings['failure']}"
    one, two = timings["seconds"]["1"], timings["seconds"]["2"]
    gain = Spread.of([a / b for a, b in zip(one, two, strict=True)])
    return (
        f"An experiment of {timings['policy_rounds']:,} policy-rounds takes "
        f"{show(Spread.of([1e6 * each for each in one]))} µs per policy-round on one process and "
        f"{show(Spread.of([1e6 * each for each in two]))} µs on two, starting them included: "
        f"{show(gain)} times as fast."
    )


def versions(timings: dict[str, str]) -> str:
    """What was compared with what."""
    return ", ".join(f"{name} {version}" for name, version in sorted(timings.items()))


def show(spread: Spread) -> str:
    """A median and its range."""
    return f"{number(spread.middle)} ({number(spread.low)}–{number(spread.high)})"


def number(value: float) -> str:
    """Three digits, or all of a large number.

    >>> number(0.01234), number(4.2), number(123456.7)
    ('0.0123', '4.20', '123,457')
    """
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.995 else f"{value:#.3g}"


def table(title: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    """A Markdown table that also reads well as plain text."""
    widths = [max(len(row[at]) for row in [title, *rows]) for at in range(len(title))]

    def line(row: Sequence[str]) -> str:
        padded = [
            text.rjust(width) if at in right else text.ljust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "| " + " | ".join(padded) + " |"

    rule = [
        "-" * (width - 1) + ":" if at in right else "-" * width for at, width in enumerate(widths)
    ]
    return "\n".join([line(title), "| " + " | ".join(rule) + " |", *map(line, rows)])
