"""Files of logs that are damaged or odd: read, or refused by name, without tracebacks."""

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.fleet import Columns, Logs
from headstart.fleet.reading.formats import lines

HEADER = b"task,reward,x0,x1\n"
ROWS = b"".join(b"%d,1.5,%d,2.0\n" % (number % 5, number) for number in range(20))
LINE = b'{"task": "a", "reward": 1.0, "x0": 2.0}\n'
PLAIN = Columns("task", "reward", "x*")
SMALL = pa.table({"task": [1, 2], "reward": [1.0, 2.0], "x_feature": [1.0, 2.0]})


def opened(path, content, **options):
    path.write_bytes(content)
    return Logs(str(path), PLAIN, **options)


def blocks(logs):
    return [rows for part in logs.parts() for rows in logs.read(part)]


@pytest.mark.parametrize("ends", [b"\n", b"\r\n"])
@pytest.mark.parametrize("lead", [b"\n", b"\n\n", b"\xef\xbb\xbf\n\n\n"])
@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_empty_lines_before_a_csv_header(name, lead, ends, logbook, tmp_path):
    content = (lead + HEADER + ROWS).replace(b"\n", ends)
    content = gzip.compress(content) if name.endswith("gz") else content
    found = logbook.read(opened(tmp_path / name, content))
    assert found == logbook.read(opened(tmp_path / "plain.csv", HEADER + ROWS))
    assert len(found) == 20


@pytest.mark.parametrize("text", [b",\n", b";\n", b",\n,\n", b"\n,\n"], ids=repr)
def test_a_csv_header_without_names(text, tmp_path):
    with pytest.raises(hs.InputError, match="task must name a column"):
        opened(tmp_path / "log.csv", text)


def test_lines_that_end_in_cr_alone(tmp_path):
    with pytest.raises(hs.FileError, match=r"log\.csv.*end in CR alone"):
        opened(tmp_path / "log.csv", (HEADER + ROWS).replace(b"\n", b"\r"))


def test_rows_of_csv_with_too_many_cells_that_are_not_utf8(tmp_path, capfd):
    logs = opened(tmp_path / "log.csv", HEADER + ROWS + b"1,2,3,4,5\xff,6\n" + ROWS)
    with pytest.raises(hs.InputError, match=r"log\.csv' is not UTF-8 text .*xff"):
        blocks(logs)
    assert capfd.readouterr() == ("", "")  # nor a traceback of pyarrow's


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_csv_of_two_bytes_for_each_character(encoding, tmp_path):
    with pytest.raises(hs.InputError, match=r"log\.csv' is not UTF-8 text .* save it as UTF-8"):
        opened(tmp_path / "log.csv", (HEADER + ROWS).decode().encode(encoding))


def test_other_encodings_do_not_matter_in_columns_that_are_not_used(logbook, tmp_path):
    content = HEADER.replace(b"\n", b",note\n") + ROWS.replace(b"\n", b",gr\xfcn\n")
    assert len(logbook.read(opened(tmp_path / "log.csv", content))) == 20


def test_names_of_columns_that_are_no_text(tmp_path):
    sink = io.BytesIO()
    pq.write_table(SMALL, sink)
    arrow = pa.BufferOutputStream()
    with pa.ipc.new_file(arrow, SMALL.schema) as writer:
        writer.write_table(SMALL)
    for name, content in {
        "log.parquet": sink.getvalue(),
        "log.arrow": arrow.getvalue().to_pybytes(),
        "log.jsonl": LINE.replace(b"x0", b"x_feature"),
    }.items():
        other = b"x\\ud800" if name.endswith("jsonl") else b"x_f\xff\xfeure"
        with pytest.raises(hs.FileError, match=name):
            opened(tmp_path / name, content.replace(b"x_feature", other))


def test_json_nested_deeply_is_a_bad_row(tmp_path):
    for content in (b"[" * 100_000 + b"\n" + LINE, LINE + b"[" * 100_000 + b"\n"):
        (rows,) = blocks(opened(tmp_path / "log.jsonl", content, on_bad_rows="skip"))
        assert (rows.count, rows.bad.count) == (1, 1)


def test_half_characters_in_json_are_bad_rows(tmp_path):
    content = LINE + LINE.replace(b'"a"', b'"\\ud800"')
    (rows,) = blocks(opened(tmp_path / "log.jsonl", content, on_bad_rows="skip"))
    assert (rows.names, rows.bad.count) == (["a"], 1)


def numbered(line, at, rows=1000, header=HEADER):
    """A CSV file of so many rows, of which some are replaced."""
    lines = [b"t%d,1.5,%d,2.0\n" % (number % 5, number) for number in range(rows)]
    for number in at:
        lines[number] = line
    return header + b"".join(lines)


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
@pytest.mark.parametrize(
    ("line", "at", "bad"),
    [
        (b't9,1.5,"7,2.0\n', [499], 1),
        (b'"t9,1.5,7,2.0\n', [499], 1),
        (b't9,1.5,"7,2.0\n', [999], 1),
        (b't9,1.5,"7,2.0\n', [100, 900], 2),
        (b't9,1.5,"7,2.0\n', [100, 101], 2),
        (b't9,1.5,7,"2.0\n', [0], 1),
    ],
)
def test_a_stray_quote_costs_its_own_row_only(name, line, at, bad, tmp_path):
    content = numbered(line, at)
    content = gzip.compress(content) if name.endswith("gz") else content
    found = blocks(opened(tmp_path / name, content, on_bad_rows="skip"))
    assert sum(rows.count for rows in found) == 1000 - bad
    assert sum(rows.bad.count for rows in found) == bad
    if at != [999]:
        with pytest.raises(
            hs.InputError, match=rf"(?s){bad} of the 1,000 rows.*quote.*row {at[0]}"
        ):
            blocks(opened(tmp_path / name, content))


def test_a_stray_quote_where_all_text_is_quoted(tmp_path):
    content = b"".join(b'"t%d",1.5,%d,2.0\n' % (number % 5, number) for number in range(300))
    content = HEADER + content.replace(b'"t2",1.5,102,', b'"t2,1.5,102,')
    (rows,) = blocks(opened(tmp_path / "log.csv", content, on_bad_rows="skip"))
    assert (rows.count, rows.bad.count) == (299, 1)
    assert sorted(rows.names) == ["t0", "t1", "t2", "t3", "t4"]


@pytest.mark.parametrize("quoted", ['"a, b"', '"say ""hi"""', '"ends" here'])
@pytest.mark.parametrize("stray", ['"t1,none,1.5,1.0', 't1,"none,1.5,1.0', ',"t1,1.5,1.0'])
def test_a_stray_quote_before_a_row_with_quotes(stray, quoted, tmp_path):
    rows = [f"t0,{quoted},{number}.5,1.0" for number in range(5)]
    text = "\n".join(["task,note,reward,x0", *rows, stray, *rows]) + "\n"
    found = blocks(opened(tmp_path / "log.csv", text.encode(), on_bad_rows="skip"))
    assert {name for rows in found for name in rows.names} == {"t0"}
    assert sum(rows.count for rows in found) == 10
    assert sum(rows.bad.count for rows in found) == 1


@pytest.mark.parametrize("column", [0, 2, 4])
def test_cells_of_several_lines_are_read(column, tmp_path):
    cells = [b"t1", b"1.5", b"7", b"2.0"]
    cells.insert(column, b'"two, or\n\nthree\nlines"')
    names = HEADER.strip().split(b",")
    names.insert(column, b"note")
    content = b",".join(names) + b"\n" + (b",".join(cells) + b"\n") * 50
    (rows,) = blocks(opened(tmp_path / "log.csv", content))
    assert (rows.count, rows.bad.count) == (50, 0)


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz"])
def test_cells_of_several_lines_lie_in_one_piece(name, tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "PIECE", 700)
    monkeypatch.setattr(lines, "RANGE", 2000)
    content = HEADER.strip() + b",note\n" + b't1,1.5,7,2.0,"two\nor\nthree, lines"\n' * 200
    content = gzip.compress(content) if name.endswith("gz") else content
    found = blocks(opened(tmp_path / name, content))
    assert len(found) > 5
    assert sum(rows.count for rows in found) == 200
    stray = numbered(b't9,1.5,"7,2.0\n', [100, 900])
    found = blocks(opened(tmp_path / "stray.csv", stray, on_bad_rows="skip"))
    assert sum(rows.count for rows in found) == 998
    assert sum(rows.bad.count for rows in found) == 2


def test_only_plain_digits_are_numbers(tmp_path):
    cells = ["1_0", "٣", "0x1", "+4", ".5", "5.", " 7.5 ", "1e3"]
    content = HEADER + "".join(f"a,{cell},1,2\n" for cell in cells).encode()
    (rows,) = blocks(opened(tmp_path / "log.csv", content, on_bad_rows="skip"))
    assert rows.rewards.tolist() == [4.0, 0.5, 5.0, 7.5, 1000.0]
    assert rows.bad.reasons == {"reward is not a number": 3}


@pytest.mark.parametrize("quoted", [False, True])
def test_cr_alone_is_named_whatever_is_quoted(quoted, tmp_path):
    content = (HEADER.replace(b"task", b'"task"') if quoted else HEADER) + ROWS
    with pytest.raises(hs.FileError, match="its lines end in CR alone"):
        opened(tmp_path / "log.csv", content.replace(b"\n", b"\r"), on_bad_rows="skip")


def test_lines_of_json_that_end_in_cr_alone_are_counted_one_by_one(tmp_path):
    content = (LINE * 5 + LINE.replace(b"1.0", b'"high"') + LINE * 5).replace(b"\n", b"\r")
    (rows,) = blocks(opened(tmp_path / "log.jsonl", content, on_bad_rows="skip"))
    assert (rows.count, rows.bad.count) == (10, 1)


DEEP = 100_000
ODD_LINES = [
    b"[" * DEEP,
    b'{"task": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    LINE.replace(b"2.0", b'2.0, "more": ' + b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    LINE.replace(b'"a"', b'"\\ud800"'),
    LINE.replace(b'"a"', b'"\xed\xa0\x80"'),
    LINE.replace(b"1.0", b'"\\ud800"'),
    b"\x00\x00",
    b'{"task": ' + b"1" * 5000 + b', "reward": 1, "x0": 2}',
]


@pytest.mark.parametrize("line", ODD_LINES, ids=lambda line: repr(line[:40]))
@pytest.mark.parametrize("command", ["check", "fit"])
def test_the_commands_survive_odd_json(command, line, headstart, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = b"".join(
        b'{"task": "t%d", "reward": %d, "x0": %d}\n' % (number % 3, number % 5, number)
        for number in range(30)
    )
    (tmp_path / "log.jsonl").write_bytes(good + line.strip() + b"\n" + good)
    words = ["log.jsonl", "--task", "task", "--reward", "reward", "--features", "x0"]
    shown = headstart(command, *words, "--on-bad-rows", "skip")
    assert shown.code == 0, shown.err
    assert "Traceback" not in shown.out + shown.err
    assert headstart(command, *words).code in (0, 2)


@pytest.mark.parametrize("name", ["log.tsv", "log.csv", "log.tsv.gz"])
@pytest.mark.parametrize("mark", [b"\t", b";"])
def test_names_of_columns_may_have_commas(name, mark, tmp_path):
    content = (HEADER + ROWS).replace(b",", mark).replace(b"x1", b"x1, in EUR, net, or so")
    content = gzip.compress(content) if name.endswith("gz") else content
    logs = opened(tmp_path / name, content)
    assert logs.feature_names == ("x0", "x1, in EUR, net, or so")
    assert sum(rows.count for rows in blocks(logs)) == 20
