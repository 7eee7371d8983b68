"""The page of a report: one HTML file without external resources."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from headstart.errors import FileError
from headstart.lab.report.blocks import (
    claims_table,
    figure_block,
    prose,
    settings_table,
    slug,
    table_block,
)
from headstart.lab.report.sections import Section
from headstart.storage import atomic

__all__ = ["write_report"]

# The browser refuses every resource that is not in the file.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


def write_report(
    path: str | os.PathLike[str],
    title: str,
    sections: Sequence[Section],
    manifest: Mapping[str, Any],
    summary: str = "",
) -> Path:
    """Write a report as one HTML file that can be read offline.

    Parameters
    ----------
    path
        The file to write; its folder is created if it does not exist.
    title
        The report's title.
    sections
        Its parts, in order.
    manifest
        How it was made: configuration, seeds, versions, commands. Shown at the end.
    summary
        Prose (Markdown) before the table of contents.
    """
    target = Path(path)
    page = compose(title, sections, manifest, summary)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_write(target) as draft:
            draft.write(page.encode())
    except OSError as error:
        raise FileError(f"report {str(target)!r} cannot be written ({error})") from error
    return target


def compose(
    title: str, sections: Sequence[Section], manifest: Mapping[str, Any], summary: str
) -> str:
    """The whole page."""
    # Written so that it follows from the sections alone: no dates, no random names.
    taken: set[str] = {"contents"}
    entries: list[tuple[int, str, str]] = []
    bodies: list[str] = []
    scripts: list[str] = []
    for section in sections:
        anchor = slug(section.title, taken)
        entries.append((section.level, anchor, section.title))
        bodies.append(section_block(section, anchor, scripts))
    anchor = slug("How this was made", taken)
    entries.append((1, anchor, "How this was made"))
    settings = f"<h2>How this was made</h2>\n{settings_table(manifest)}"
    bodies.append(f'<section id="{anchor}">\n{settings}</section>\n')
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{asset('page.css')}</style>\n</head>\n<body>\n"
        f"<main>\n<header>\n<h1>{escape(title)}</h1>\n{prose(summary)}</header>\n"
        f"{contents(entries)}{''.join(bodies)}</main>\n"
        f"{''.join(scripts)}{library() if scripts else ''}"
        f"<script>\n{asset('page.js')}</script>\n</body>\n</html>\n"
    )


def section_block(section: Section, anchor: str, scripts: list[str]) -> str:
    """A section; its figures' data are added to ``scripts``, whose length numbers figures."""
    tag = f"h{section.level + 1}"
    parts = [f"<{tag}>{escape(section.title)}</{tag}>\n", prose(section.text)]
    if section.claims is not None:
        parts.append(claims_table(section.claims))
    for figure in section.figures:
        html, script = figure_block(figure, len(scripts) + 1)
        parts.append(html)
        scripts.append(script)
    if section.table is not None:
        parts.append(table_block(section.table))
    return f'<section id="{anchor}">\n{"".join(parts)}</section>\n'


def contents(entries: Sequence[tuple[int, str, str]]) -> str:
    """The table of contents: parts of a section are listed under it."""
    lines: list[str] = []
    depth = 0
    for level, anchor, title in entries:
        level = min(level, depth + 1)  # a part without a section before it stands alone
        while depth < level:
            lines.append("<ol>")
            depth += 1
        while depth > level:
            lines.append("</ol>")
            depth -= 1
        lines.append(f'<li><a href="#{anchor}">{escape(title)}</a></li>')
    lines.append("</ol>" * depth)
    listed = "\n".join(lines)
    return f'<nav id="contents" aria-label="Contents">\n<h2>Contents</h2>\n{listed}\n</nav>\n'


def library() -> str:
    """Plotly's script, whole."""
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs().replace("</script", "<\\/script")
    return f'<script id="plotly">\n{source}\n</script>\n'


def asset(name: str) -> str:
    """A file that lies beside this one."""
    return files("headstart.lab.report").joinpath(name).read_text(encoding="utf-8")
