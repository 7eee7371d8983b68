"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Cluster", "Json", "Out", "Workers"]

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for results, figures and report.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Cores to use; all unless given.")]
Cluster = Annotated[
    str | None, typer.Option(help="Where to run: ray (started here), or ray://host:port.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
