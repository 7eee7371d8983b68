"""What the documents promise of the project's own commands and files is there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [
    path
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    if path.exists() and "_build" not in path.parts
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def commands_in(text):
    """Give the shell commands of a document: `inline` ones and lines of blocks but Python's."""
    fence = re.compile(r"^ *```+ *(\S*)[^\n]*\n(.*?)^ *```+ *$", re.MULTILINE | re.DOTALL)
    for language, body in fence.findall(text):
        if language in {"", "bash", "console", "sh", "shell", "text"}:
            yield from (line.strip().removeprefix("$ ") for line in body.splitlines())
    yield from re.findall(r"`([^`\n]+)`", fence.sub("", text))


def make_targets_in(text):
    for command in commands_in(text):
        if command.startswith("make "):
            words = re.sub(r"-C +\S+", "", command.partition("#")[0])
            yield from (word for word in shlex.split(words)[1:] if re.fullmatch(r"[a-z-]+", word))


def extras_in(text):
    for names in re.findall(r"\bheadstart\[([\w, -]+)\]", text):
        yield from (name.strip() for name in names.split(","))


def pins_in(lock):
    """Map each pin of a lock file to its hashes."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^ *#.*$", "", lock, flags=re.MULTILINE))
    lines = [line.split() for line in joined.splitlines() if line.strip()]
    return {line[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}\b", " ".join(line)) for line in lines}


def test_commands_and_extras_are_found_where_documents_name_them():
    text = (
        "We make sure. Run `make -C there tidy`.\n\n"
        "```bash\nmake build PYTHON=python3.12  # make it so\n$ make one two\n```\n\n"
        "```python\nmake = 'make nothing'\nmake up\n```\n\n"
        "    pip install 'headstart[lab, moon]'\n"
    )
    assert list(make_targets_in(text)) == ["build", "one", "two", "tidy"]
    assert list(extras_in(text)) == ["lab", "moon"]


@each_document
def test_every_make_command_named_in_a_document_exists(document):
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):(?!=)", makefile, re.MULTILINE))
    assert set(make_targets_in(document.read_text("utf-8"))) <= targets


@each_document
def test_every_extra_named_in_a_document_exists(document):
    assert set(extras_in(document.read_text("utf-8"))) <= set(PROJECT["optional-dependencies"])


def test_lock_file_names_no_address():
    assert "://" not in (ROOT / "dev.lock").read_text("utf-8")


def test_lock_file_pins_every_dependency_by_hash():
    pins = pins_in((ROOT / "dev.lock").read_text("utf-8"))
    assert [pin for pin, hashes in pins.items() if "==" not in pin or not hashes] == []
    pinned = {pin.partition("==")[0] for pin in pins}
    assert {re.split(r"[<>=\[ ]", need)[0] for need in PROJECT["dependencies"]} <= pinned


def test_continuous_integration_runs_what_contributors_run():
    script = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert script[-1] == "exec make test"


def test_citation_names_this_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"version: {PROJECT['version']}" in citation.splitlines()
