"""The report: one file, whole, safe to open, and true to what it was given."""

import base64
import gzip
import io
import json
import re
from html.parser import HTMLParser

import polars as pl
import pytest

import headstart as hs
from headstart.lab import figures
from headstart.lab.report import VERDICTS, Claim, Section, write_report

NASTY = "<script>alert('x')</script> & \"quoted\" <img src=http://example.org/x.png>"


def regret(tasks=4, name="P-LinUCB"):
    rows = [
        (seed, policy, task, mark, (1 + seed / 10) * mark * factor)
        for seed in range(3)
        for policy, factor in (("LinUCB", 1.0), (name, 0.5))
        for task in range(tasks)
        for mark in (5, 10)
    ]
    names = ["seed", "policy", "task", "round", "regret"]
    return pl.DataFrame(rows, schema=names, orient="row")


CLAIMS = [
    Claim("It helps", "Figure 2", "0.63 ± 0.02", "holds", "With *tuned* λ."),
    Claim("The eigengap finds p", "§3", "p = 1 in 12 of 20 seeds", "fails"),
    Claim("The radius", "Algorithm 2", "too wide", "holds with changes", "Lemma 3's root."),
    Claim("Real data", "§6", "not run", "not settled"),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A report with everything in it, as text."""
    sections = [
        Section("Claims", "Of the paper.", claims=CLAIMS),
        Section("Runs", "Some **bold** words and `code`.\n\n- one\n- two"),
        Section("Regret", "See [claims](#claims).", figures.transfer_regret(regret()), level=2),
        Section("Totals", "", [figures.totals(regret()), figures.cumulative_regret(regret())]),
        Section("Table", "", table=pl.DataFrame({"name": ["a", "b"], "size": [0.123456, None]})),
    ]
    manifest = {
        "seeds": "100–119",
        "past_tasks": 35,
        "python": "3.11",
        "commands": ["headstart reproduce synthetic --seeds 20"],
    }
    path = tmp_path_factory.mktemp("report") / "new" / "report.html"
    written = write_report(path, "A report", sections, manifest, "What *this* is.")
    assert written == path
    assert [entry.name for entry in path.parent.iterdir()] == ["report.html"]
    return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Collects tags with their attributes, anchors, and the text of chosen elements."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words = [], [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "img", "link", "hr", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)


@pytest.fixture(scope="module")
def read(page):
    return Reader(page)


def test_it_is_well_formed(read):
    assert read.open == []
    assert read.words["title"] == ["A report"]


def test_nothing_comes_from_outside(read):
    for tag, attributes in read.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            address = attributes.get(name)
            assert address is None or address.startswith(("#", "data:")), (tag, address)
        assert not any(name.startswith("on") for name in attributes)
    styles = "".join(read.words["style"])
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_browser_is_told_to_load_nothing(read):
    policies = [a["content"] for tag, a in read.tags if tag == "meta" and "http-equiv" in a]
    assert len(policies) == 1
    assert policies[0].startswith("default-src 'none'")
    assert "http" not in policies[0]


def test_plotly_is_there_once_and_uploads_nothing(page, read):
    assert sum(attributes.get("id") == "plotly" for _, attributes in read.tags) == 1
    assert page.count("plotly.js v") == 1
    assert "showSendToCloud: false" in page
    assert len(page.encode()) < 8_000_000


def test_every_figure_has_its_data_caption_and_numbers(page, read):
    plots = [a for _, a in read.tags if a.get("class") == "plot"]
    assert [plot["data-place"] for plot in plots] == ["1", "2", "3"]
    for place in (1, 2, 3):
        held = re.search(rf'id="plot-{place}">(.*?)</script>', page, re.S)
        found = json.loads(held.group(1))
        assert found["data"]
        assert f"<b>Figure {place}. " in page
        assert f"The numbers behind Figure {place}" in page
    assert "over 3 seeds" in page
    assert page.count("<details>") == 3


def test_the_whole_table_can_be_saved(page):
    links = re.findall(r'<a download="([^"]+)" href="data:([^;]+);base64,([^"]+)">', page)
    assert [name for name, _, _ in links] == [
        "transfer_regret.csv",
        "totals.csv",
        "cumulative_regret.csv",
    ]
    table = pl.read_csv(io.BytesIO(base64.b64decode(links[0][2])))
    expected = figures.transfer_regret(regret()).table
    assert table.columns == expected.columns
    assert table["mean"].to_list() == pytest.approx(expected["mean"].to_list(), rel=1e-5)


def test_a_long_table_is_packed(tmp_path):
    long = figures.cumulative_regret(regret(tasks=800))
    text = write_report(tmp_path / "r.html", "Long", [Section("A", "", long)], {}).read_text()
    kind, held = re.search(r'csv\.gz" href="data:([^;]+);base64,([^"]+)"', text).groups()
    assert kind == "application/gzip"
    table = pl.read_csv(io.BytesIO(gzip.decompress(base64.b64decode(held))))
    assert len(table) == 1600
    plot = json.loads(re.search(r'id="plot-1">(.*?)</script>', text, re.S).group(1))
    assert len(json.dumps(plot)) < 40_000


def test_contents_lead_to_sections(page, read):
    anchors = {attributes["id"] for _, attributes in read.tags if "id" in attributes}
    links = [a["href"][1:] for tag, a in read.tags if tag == "a" and a["href"].startswith("#")]
    assert set(links) <= anchors
    order = ["claims", "runs", "regret", "totals", "table", "how-this-was-made"]
    assert [link for link in links if link in order][: len(order)] == order
    assert "<h3>Regret</h3>" in page
    assert "<h2>Totals</h2>" in page


def test_claims_show_verdicts_by_colour_and_symbol(page):
    assert "4 claims: 1 holds, 1 holds with changes, 1 fails and 1 is not settled." in page
    for name, verdict in VERDICTS.items():
        badge = f'<span class="verdict {verdict.kind}"><span aria-hidden="true">{verdict.symbol}'
        assert f"{badge}</span> {name}</span>" in page
    assert len({verdict.symbol for verdict in VERDICTS.values()}) == len(VERDICTS)
    assert "With <em>tuned</em> λ." in page


def test_prose_tables_and_settings_are_readable(page):
    assert "<strong>bold</strong>" in page
    assert "<li>one</li>" in page
    assert '<td class="number">0.1235</td>' in page
    assert "<td>100–119</td>" in page
    assert "<th>past tasks</th><td>35</td>" in page
    assert "<code>headstart reproduce synthetic --seeds 20</code>" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_everything_is_escaped(tmp_path):
    figure = figures.transfer_regret(regret(name=NASTY), name='x" onload="y')
    sections = [
        Section(
            NASTY,
            NASTY + " [out](http://example.org) ![pic](http://example.org/p.png)"
            " <http://example.org> [js](javascript:alert(1))",
            figure,
            pl.DataFrame({NASTY: [NASTY]}),
            [Claim(NASTY, NASTY, NASTY, "holds", NASTY)],
        )
    ]
    manifest = {NASTY: [NASTY, 1], "list": (NASTY,)}
    text = write_report(tmp_path / "r.html", NASTY, sections, manifest, NASTY).read_text("utf-8")
    read = Reader(text)
    assert read.open == []
    test_nothing_comes_from_outside(read)
    # Only our own scripts: the figure's data, Plotly and the page's.
    assert [tag for tag, _ in read.tags].count("script") == 3
    assert "alert('x')</script>" not in text
    assert read.words["title"] == [NASTY]
    assert NASTY in read.words["h1"][0]


def test_the_same_report_is_the_same_file(tmp_path):
    def write(name):
        sections = [Section("A", "b", figures.totals(regret()), claims=CLAIMS)]
        return write_report(tmp_path / name, "T", sections, {"seeds": [1, 2]}).read_bytes()

    assert write("a.html") == write("b.html")


def test_sections_may_share_titles_and_lack_everything(tmp_path):
    sections = [Section("Part", level=2), Section("Part"), Section("Part", claims=[])]
    text = write_report(tmp_path / "r.html", "T", sections, {}).read_text()
    assert 'id="part-2"' in text
    assert 'id="part-3"' in text
    assert "plotly.js" not in text  # no figures: no need for it
    assert Reader(text).open == []


def test_refusals(tmp_path):
    with pytest.raises(hs.InputError, match="verdict"):
        Claim("a", "b", "c", "perhaps")
    with pytest.raises(hs.InputError, match="level"):
        Section("a", level=3)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(hs.HeadstartError, match="cannot be written"):
        write_report(tmp_path / "file" / "r.html", "T", [], {})
