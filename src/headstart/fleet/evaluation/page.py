"""An evaluation as one HTML page without external resources."""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headstart
from headstart.errors import FileError, visible
from headstart.fleet.evaluation import plots
from headstart.fleet.evaluation.measures import ALONE, AVERAGE, LEARNED, OFFSET, POOLED
from headstart.fleet.evaluation.offpolicy import ESTIMATOR_NOTE
from headstart.fleet.evaluation.result import LEGEND
from headstart.fleet.evaluation.verdict import (
    MAX_MISSED_GAIN,
    MAX_POOLED_REGRET,
    MAX_RIVAL_SAVING,
    MIN_GAIN,
    MIN_RELEVANT_SHARE,
)
from headstart.fleet.reading.stores import is_url
from headstart.lab.report import Section, write_report
from headstart.lab.text import count
from headstart.storage.atomic import check_replaceable, checked_path

if TYPE_CHECKING:
    import polars as pl

    from headstart.fleet.evaluation.result import Evaluation

MIN_DISK_BYTES = 16 * 2**20  # bytes that a page and its figures need at most

ANSWERS = {"yes": "✓\xa0yes", "no": "✗\xa0no", "open": "?\xa0open"}

TITLES = {
    "transfer": "✓ Learn a prior",
    "pooling": "= Use one pooled model",
    "offset": "= Use one pooled model, with an offset for each task",
    "independence": "✗ Let each task learn alone",
    "misfit": "✗ The fit has failed",
    "unknown": "? No verdict",
}

MODEL_DESCRIPTIONS = {
    LEARNED: "each task starts from what past tasks share, and learns",
    POOLED: "all tasks are taken for one and the same",
    OFFSET: "one pooled model, and an offset of its own for each task (a mixed model)",
    AVERAGE: "each task learns alone, and knows the average reward of past tasks",
    ALONE: "each task learns alone and from nothing",
}


def write_page(evaluation: Evaluation, folder: str | os.PathLike[str]) -> Path:
    """Write ``report.html`` into a folder, and the figures beside it: all of them, or nothing.

    Parameters
    ----------
    evaluation
        What :func:`~headstart.fleet.evaluation.evaluate` gave.
    folder
        Where to write; made if need be.
    """
    target = checked_path(folder)
    check_place(target)
    parts = sections(evaluation)
    with draft_folder(target) as draft:
        for part in parts:
            for figure in part.figures:
                figure.save(draft / "figures")
        write_report(
            draft / "report.html",
            "Does a learned prior help?",
            parts,
            manifest(evaluation),
            f"> **{TITLES[evaluation.verdict.kind]}**\n>\n> {evaluation.verdict.sentence}\n\n"
            f"{evaluation.basis}",
        )
    return target / "report.html"


def check_place(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that a page cannot be written into, before the work of making one.

    Nothing is left behind, and the folder is not made.
    """
    target = checked_path(folder)
    url = str(target).replace(":/", "://", 1)  # a path has lost one of them
    if is_url(url):
        raise FileError(f"out must be a path on this machine; got {url!r}: copy it there")
    there = target
    while not os.path.lexists(there) and there != there.parent:
        there = there.parent
    with explain_errors(target):
        if there == target and target.is_dir():
            check_replaceable(target / "report.html")
        if not there.is_dir():
            what = "it is a file" if there == target else f"{str(there)!r} is a file"
            raise FileError(f"out {str(target)!r} must be a folder; {what}")
        with tempfile.TemporaryDirectory(prefix=".headstart-", dir=there):
            room = shutil.disk_usage(there).free
        if room < MIN_DISK_BYTES:
            raise FileError(
                f"out {str(target)!r} has room for {room / 2**20:.1f} MiB; a page needs "
                f"{MIN_DISK_BYTES // 2**20} MiB"
            )


@contextlib.contextmanager
def draft_folder(target: Path) -> Iterator[Path]:
    """A folder inside the target whose files go where they belong when all is written.

    Inside, because what lies beside it may be on another disk, or not be ours to write to.
    """
    new = [folder for folder in (target, *target.parents) if not folder.exists()]
    try:
        with explain_errors(target):
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".headstart-", dir=target) as draft:
                yield Path(draft)
                figures = target / "figures"
                figures.mkdir(exist_ok=True)
                for old in figures.glob("values.*"):  # the one figure that is not always there
                    old.unlink()
                for path in sorted(Path(draft).glob("figures/*")):
                    path.replace(figures / path.name)
                Path(draft, "report.html").replace(target / "report.html")
    except BaseException:
        for folder in new:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


@contextlib.contextmanager
def explain_errors(target: Path) -> Iterator[None]:
    """Say of a folder why it could not be written."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error, FileError) else error
        if not isinstance(cause, OSError):
            raise
        reason = cause.strerror or str(cause)
        raise FileError(f"out {str(target)!r} could not be written ({reason})") from cause


def sections(evaluation: Evaluation) -> list[Section]:
    """The page's parts."""
    parts = [
        Section(
            "Possible answers",
            "Models are compared by the squared error of rewards that they predicted before they "
            "saw them, and by the regret that is expected of them. An answer is given where the "
            "intervals of both support it. The table has the share of the other model's squared "
            "error that is saved; + speaks for the answer, − against it.",
            table=answer_table(evaluation),
        ),
        Section("Models", describe_models(evaluation), table=evaluation.frame),
        Section("Error by position", "", plots.errors(evaluation)),
        Section("Differences", "", plots.gains(evaluation)),
        Section("Expected gain", describe_gain(evaluation), plots.regret(evaluation)),
        Section("Calibration", "", plots.calibration(evaluation)),
        Section("Tasks", describe_left_out(evaluation), plots.rounds_per_task(evaluation.rounds)),
    ]
    text, figure, table = evaluation.advice, None, None
    if evaluation.values:
        text, figure, table = ESTIMATOR_NOTE, plots.values(evaluation), evaluation.value_frame
    return [
        *parts,
        Section("Off-policy values", text, figure, table),
        Section("What was done", describe_method()),
    ]


def describe_gain(evaluation: Evaluation) -> str:
    """What the learned prior is expected to save."""
    gain = evaluation.gain
    return (
        f"A learned prior is expected to save **{gain}**. It is the share of regret saved "
        f"compared with the better of one pooled model and a task that learns alone; an offset for "
        f"each task changes none of a pooled model's choices. `headstart fit` and "
        f"`bandit.report()` give the same figure. It is simulated from the prior learned from all "
        f"{count(int(gain.tasks), 'task')} and holds as far as that prior does; its interval "
        f"shows how uncertain the prior is."
    )


def describe_method() -> str:
    """What was done, from a file beside this one."""
    text = files("headstart.fleet.evaluation").joinpath("method.md").read_text(encoding="utf-8")
    limits = {
        "worth": MIN_GAIN,
        "relevant": MIN_RELEVANT_SHARE,
        "tolerated": MAX_RIVAL_SAVING,
        "alike": MAX_POOLED_REGRET,
    }
    limits |= {
        "missed": MAX_MISSED_GAIN["pooling"],
        "missed_alone": MAX_MISSED_GAIN["independence"],
    }
    return text.format(**{name: f"{100.0 * share:g} %" for name, share in limits.items()})


def describe_models(evaluation: Evaluation) -> str:
    """What each model is."""
    lines = [f"- **{name}**: {MODEL_DESCRIPTIONS[name]}" for name in evaluation.priors]
    which = "All models have" if evaluation.settings["intercept"] else "No model has"
    lines.append(f"\n{which} an intercept. {LEGEND}")
    return "\n".join(lines)


def describe_left_out(evaluation: Evaluation) -> str:
    """What was left out."""
    notes = "".join(f"\n\nNote: {visible(note, line=True)}." for note in evaluation.notes)
    if not evaluation.bad:
        return f"Every row could be used.{notes}"
    counts = evaluation.bad.reasons.items()
    reasons = ", ".join(f"{visible(reason, line=True)} ({rows:,})" for reason, rows in counts)
    return f"{count(evaluation.bad.count, 'row')} could not be used: {reasons}.{notes}"


def answer_table(evaluation: Evaluation) -> pl.DataFrame:
    """The possible answers with what is for and against them."""
    import polars as pl

    return pl.DataFrame(
        {
            "answer": finding.statement,
            "holds": ANSWERS[finding.holds],
            "its model against the others": finding.evidence,
        }
        for finding in evaluation.verdict.findings
    )


def manifest(evaluation: Evaluation) -> dict[str, Any]:
    """How it was made."""
    now = datetime.datetime.now(datetime.UTC)
    return {
        "logs": [visible(file, line=True) for file in evaluation.provenance.files],
        "command": visible(evaluation.provenance.command),
        "headstart": f"{headstart.__version__}, Python {platform.python_version()}",
        "written": f"{now:%Y-%m-%d %H:%M} UTC",
        "order within a task": visible(evaluation.provenance.order),
        "past tasks": evaluation.past,
        "future tasks": evaluation.future,
        **{name: visible(str(value)) for name, value in evaluation.settings.items()},
    }
