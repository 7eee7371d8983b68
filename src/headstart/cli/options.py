"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["Cluster", "Json", "Out", "Workers"]

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for results, figures and report.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Number of processes; default all cores.")]
Cluster = Annotated[
    str | None, typer.Option(help="Ray cluster: ray (started here), or ray://host:port.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
