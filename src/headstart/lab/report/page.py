"""The page of a report: one HTML file without external resources.

Everything that comes from outside is escaped.
"""

from __future__ import annotations

import base64
import functools
import gzip
import os
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from headstart.lab.experiments.store import writing
from headstart.lab.figures import Figure
from headstart.lab.report.sections import VERDICTS, Claim, Section
from headstart.lab.text import count, join_words, number
from headstart.storage import atomic

MAX_ROWS = 200
NUMERIC = re.compile(r"[−+-]?[\d.,]+([eE][−+-]?\d+)?( %| ± .*| \[.*| \(.*)?|–|∞")


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
    with writing(target, "report"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic.atomic_write(target) as draft:
            draft.write(page.encode())
    return target


def compose(
    title: str, sections: Sequence[Section], manifest: Mapping[str, Any], summary: str
) -> str:
    """The whole page, which follows from its arguments: no dates, no random names."""
    anchors: set[str] = {"contents"}
    entries: list[tuple[int, str, str]] = []
    bodies: list[str] = []
    scripts: list[str] = []
    last = Section("How this was made")
    for section in (*sections, last):
        anchor = slug(section.title, anchors)
        entries.append((section.level, anchor, section.title))
        body = section_block(section, scripts)
        if section is last:
            body += settings_table(manifest)
        bodies.append(f'<section id="{anchor}">\n{body}</section>\n')
    if scripts:
        from plotly.offline import get_plotlyjs

        library = get_plotlyjs().replace("</script", "<\\/script")
        scripts.append(f'<script id="plotly">\n{library}\n</script>\n')
    return string.Template(asset("page.html")).substitute(
        title=escape(title),
        style=asset("page.css"),
        summary=markdown().render(summary),
        contents=contents(entries),
        sections="".join(bodies),
        scripts="".join(scripts),
        script=asset("page.js"),
    )


def section_block(section: Section, scripts: list[str]) -> str:
    """A section; its figures' data are added to ``scripts``, whose length numbers figures."""
    tag = f"h{section.level + 1}"
    parts = [f"<{tag}>{escape(section.title)}</{tag}>\n", markdown().render(section.text)]
    if section.claims is not None:
        parts.append(claims_table(section.claims))
    for figure in section.figures:
        html, script = figure_block(figure, len(scripts) + 1)
        parts.append(html)
        scripts.append(script)
    if section.table is not None:
        parts.append(table_block(section.table))
    return "".join(parts)


def contents(entries: Sequence[tuple[int, str, str]]) -> str:
    """The table of contents: parts of a section are listed under it."""
    lines, depth = ["<ol>"], 1
    for place, (level, anchor, title) in enumerate(entries):
        level = level if place else 1  # a part without a section before it stands alone
        if level != depth:
            lines.append("<ol>" if level > depth else "</ol>")
            depth = level
        lines.append(f'<li><a href="#{anchor}">{escape(title)}</a></li>')
    items = "\n".join([*lines, "</ol>" * depth])
    return f'<nav id="contents" aria-label="Contents">\n<h2>Contents</h2>\n{items}\n</nav>\n'


def asset(name: str) -> str:
    """The text of a file in the folder of this module."""
    return files("headstart.lab.report").joinpath(name).read_text(encoding="utf-8")


@functools.cache
def markdown() -> Any:
    r"""What turns Markdown into HTML. Raw HTML is escaped; only links within the page are links.

    >>> markdown().render("*so* <b> [here](#there) [out](http://x)")
    '<p><em>so</em> &lt;b&gt; <a href="#there">here</a> [out](http://x)</p>\n'
    """
    from markdown_it import MarkdownIt

    class Reader(MarkdownIt):
        def validateLink(self, url: str) -> bool:  # markdown-it's name
            return url.startswith("#")

    reader = Reader("commonmark", {"html": False})
    return reader.enable("table").disable(["image", "autolink"])


def slug(title: str, anchors: set[str]) -> str:
    """A short unique name for an anchor.

    >>> taken = set()
    >>> slug("What holds?", taken), slug("What holds!", taken)
    ('what-holds', 'what-holds-2')
    """
    stem = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "section"
    anchor, at = stem, 1
    while anchor in anchors:
        at += 1
        anchor = f"{stem}-{at}"
    anchors.add(anchor)
    return anchor


def cell(value: Any) -> str:
    """A value in a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, (int, float)):
        return number(value, 4)
    return escape(str(value))


def table_block(frame: pl.DataFrame) -> str:
    """A table; a very long one is cut, and says so."""
    first_rows = frame.head(MAX_ROWS)
    columns = [[cell(value) for value in first_rows[name].to_list()] for name in first_rows.columns]
    kinds = [
        ' class="number"' if values and all(NUMERIC.fullmatch(value) for value in values) else ""
        for values in columns
    ]
    head = [
        f"<th{kind}>{escape(name)}</th>" for name, kind in zip(frame.columns, kinds, strict=True)
    ]
    rows = (
        [f"<td{kind}>{value}</td>" for value, kind in zip(row, kinds, strict=True)]
        for row in zip(*columns, strict=True)
    )
    rest = len(frame) - len(first_rows)
    more = f'<p class="note">… and {count(rest, "more row")}.</p>' if rest else ""
    return f'<div class="wide">{html_table(head, rows)}</div>{more}\n'


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table from the cells of its head and of its rows."""
    body = "".join(f"<tr>{''.join(row)}</tr>\n" for row in rows)
    top = f"<thead><tr>{''.join(head)}</tr></thead>"
    css_class = f' class="{kind}"' if kind else ""
    return f"<table{css_class}>{top}<tbody>\n{body}</tbody></table>"


def figure_block(figure: Figure, place: int) -> tuple[str, str]:
    """A figure with its caption and numbers; and its data, which go to the end of the page."""
    drawing = figure.explore()
    height = int(drawing.layout.height or 450)
    # "<" cannot occur in the JSON, or a name could close the script element it sits in.
    data = drawing.to_json().replace("<", "\\u003c")
    label = f"Figure {place}"
    html = (
        f'<figure id="figure-{place}">\n'
        f'<div class="plot" data-place="{place}" data-name="{escape(figure.name)}" role="img" '
        f'aria-label="{escape(figure.title)}" style="height:{height}px"></div>\n'
        f"<figcaption><b>{label}. {escape(figure.title)}.</b> {escape(figure.caption)}"
        f"</figcaption>\n</figure>\n"
        f"<details><summary>The numbers behind {label}</summary>\n{table_block(figure.summary)}"
        f"<p>{download(figure)}</p></details>\n"
    )
    script = f'<script type="application/json" id="plot-{place}">{data}</script>\n'
    return html, script


def download(figure: Figure) -> str:
    """A link that saves a figure's whole table, which the link itself holds."""
    floats = pl.selectors.float()
    text = figure.table.with_columns(floats.round_sig_figs(5)).write_csv().encode()
    kind, ending = "text/csv", "csv"
    if len(text) > 40_000:  # a page must stay small enough to send
        text, kind, ending = gzip.compress(text, mtime=0), "application/gzip", "csv.gz"
    content = base64.b64encode(text).decode()
    name = escape(f"{figure.name}.{ending}")
    rows = count(len(figure.table), "row")
    return f'<a download="{name}" href="data:{kind};base64,{content}">All {rows} ({name})</a>'


def claims_table(claims: Sequence[Claim]) -> str:
    """Claims with their verdicts, by colour and symbol, and how many there are of each."""
    parts = []
    for name, verdict in VERDICTS.items():
        many = sum(claim.verdict == name for claim in claims)
        if many:
            parts.append(f"{many} {verdict.singular if many == 1 else verdict.plural}")
    summary = f"{count(len(claims), 'claim')}: {join_words(parts)}." if parts else "No claims."
    titles = ("Claim", "Where", "What we measured", "Verdict", "Remark")
    rows = []
    for claim in claims:
        verdict = VERDICTS[claim.verdict]
        badge = (
            f'<span class="verdict {verdict.kind}">'
            f'<span aria-hidden="true">{verdict.symbol}</span> {escape(claim.verdict)}</span>'
        )
        inline = markdown().renderInline
        texts = [inline(text) for text in (claim.claim, claim.where, claim.measured)]
        cells = zip(titles, (*texts, badge, inline(claim.remark)), strict=True)
        rows.append([f'<td data-title="{title}">{text}</td>' for title, text in cells])
    head = [f"<th>{title}</th>" for title in titles]
    return f"<p>{summary}</p>\n{html_table(head, rows, 'claims')}\n"


def settings_table(settings: Mapping[str, Any]) -> str:
    """Settings by name."""
    rows = "".join(
        f"<tr><th>{escape(str(name).replace('_', ' '))}</th><td>{setting(value)}</td></tr>\n"
        for name, value in settings.items()
    )
    return f'<table class="settings"><tbody>\n{rows}</tbody></table>\n'


def setting(value: Any) -> str:
    """One setting: a list, code, text or a number."""
    if isinstance(value, (list, tuple)):
        return "<ul>" + "".join(f"<li>{setting(item)}</li>" for item in value) + "</ul>"
    if isinstance(value, str) and re.search(r"[(=\n$/]| -", value):
        return f"<code>{escape(value)}</code>"
    return cell(value)
