"""Files of logs that are damaged or odd: read, or refused by name, without tracebacks."""

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headstart as hs
from headstart.fleet import Columns, Logs

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
