"""Output on the terminal: progress bars, tables and text."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headstart.errors import visible

if TYPE_CHECKING:
    from headstart.lab.studies.outcome import Outcome

PROGRESS_SECONDS = 10.0  # between lines of progress


#: What stands for characters that a stream cannot encode; a question mark for others.
SUBSTITUTES = {"−": "-", "–": "-", "█": "#", "±": "+/-", "…": "...", "✗": "x"}


def replace_unencodable() -> None:
    """Write substitutes where standard output or error cannot encode a character."""

    def substitute(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        characters = error.object[error.start : error.end]
        return "".join(SUBSTITUTES.get(character, "?") for character in characters), error.end

    codecs.register_error("headstart", substitute)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="headstart")


class Interrupted(Exception):
    """Ctrl-C, with a message on what was stored."""


def amount(count: float, unit: str) -> str:
    """Rows or bytes, in few digits.

    >>> amount(1234567, "rows"), amount(980, "rows"), amount(5e7, "bytes")
    ('1.2 million rows', '980 rows', '50.0 MB')
    """
    if unit == "bytes":
        return f"{count / 1e6:,.1f} MB"
    return f"{count / 1e6:,.1f} million {unit}" if count >= 1e6 else f"{count:,.0f} {unit}"


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(7), duration(190), duration(7300)
    ('7 s', '3 min 10 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


@contextlib.contextmanager
def progress_bars(quiet: bool) -> Iterator[Any]:
    """Make progress bars with the time left; lines of text where there is no terminal."""
    if quiet:
        yield lambda label, unit=None: contextlib.nullcontext(None)
        return
    from rich import progress as rich

    console = Console(stderr=True)
    columns = (
        rich.TextColumn("{task.description:<28}"),
        rich.BarColumn(bar_width=30),
        rich.TextColumn("{task.percentage:>3.0f} %"),
        rich.TimeElapsedColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[speed]}"),
    )
    progress = rich.Progress(
        *columns,
        console=console,
        disable=not console.is_terminal,
        get_time=time.monotonic,
        speed_estimate_period=3600.0,
    )
    # Rich up to 13.8 ends with an empty line even where nothing is shown.
    with contextlib.nullcontext() if progress.disable else progress:

        @contextlib.contextmanager
        def bar(label: str, unit: str | None = None) -> Iterator[Callable[[float, float], None]]:
            place = progress.add_task(label, total=None, speed="")
            task = progress.tasks[place]
            printed_at = time.monotonic()

            def show(done: float, total: float) -> None:
                nonlocal printed_at
                if task.total is None:  # what was done before does not count for the speed
                    progress.reset(task.id, completed=int(done), total=total)
                progress.update(task.id, completed=done, total=total)
                if unit is not None and task.speed:
                    progress.update(task.id, speed=f"{amount(task.speed, unit)}/s")
                now = time.monotonic()
                if progress.disable and now - printed_at >= PROGRESS_SECONDS and done < total:
                    printed_at = now
                    print(f"{label}: {progress_text(task, unit)}", file=sys.stderr, flush=True)

            yield show
            progress.update(task.id, completed=1, total=1)

        yield bar


def progress_text(task: Any, unit: str | None) -> str:
    """How much of a task of Rich is done, how fast, and the time left."""
    words = [f"{task.percentage:.0f} %" + (f" of {amount(task.total, unit)}" if unit else "")]
    if task.speed:
        words += [task.fields["speed"], f"{duration(task.time_remaining)} left"]
    return ", ".join(filter(None, words))


def print_outcome(outcome: Outcome, as_json: bool) -> None:
    """Print a study's table and where its report is, or JSON."""
    if as_json:
        print_json(outcome.summary())
        return
    print_table(outcome.totals, outcome.title)
    print_text(f"The report is in {outcome.path}, with its figures in the same folder.", bold=True)


def print_table(table: Any, title: str) -> None:
    """Print a Polars table."""
    rich_table = Table(title=visible(title, line=True), title_justify="left")
    for column in table.columns:
        rich_table.add_column(
            escape(visible(column, line=True)),
            justify="left" if str(table[column].dtype) == "String" else "right",
            overflow="fold",  # a number that is cut off would be another one
        )
    for row in table.iter_rows():
        cells = (f"{cell:.3f}" if isinstance(cell, float) else str(cell) for cell in row)
        rich_table.add_row(*(escape(visible(cell)) for cell in cells))
    Console().print(rich_table)


def print_facts(facts: dict[str, Any]) -> None:
    """Print names and values, one per row; unknown values are left out."""
    rich_table = Table(show_header=False)
    for name, value in facts.items():
        if value is not None and value != "":
            text = f"{value:,}" if isinstance(value, int) else str(value)
            text = f"{value:,.4g}" if isinstance(value, float) else text
            text = ("no", "yes")[value] if isinstance(value, bool) else text
            rich_table.add_row(name.replace("_", " "), escape(visible(text)))
    Console().print(rich_table)


def print_entries(rows: list[dict[str, Any]], kind: str, as_json: bool) -> None:
    """Print names with a line on each, their options and references."""
    if as_json:
        print_json(rows)
        return
    table = Table(kind, "what it is", "options", show_lines=True)
    for row in rows:
        options = ", ".join(f"{name}={value}" for name, value in row["options"].items())
        about = "\n".join(filter(None, (row["about"], row.get("reference"))))
        table.add_row(row["name"], about, options)
    Console().print(table)


def print_text(text: str, bold: bool = False) -> None:
    """Print text."""
    style = "bold" if bold else None
    Console().print(visible(text), style=style, soft_wrap=True, highlight=False, markup=False)


def warn(text: str) -> None:
    """Print text to standard error."""
    print(visible(text), file=sys.stderr, flush=True)


def print_json(content: Any) -> None:
    """Print JSON; control characters are escaped, and what the stream cannot encode."""
    is_unicode = (sys.stdout.encoding or "utf").lower().startswith("utf")
    print(visible(json.dumps(content, indent=2, ensure_ascii=not is_unicode)))
