"""Files and lines of code in each room; docstrings, comments and blank lines are not counted.

python tools/code_lines.py [PACKAGE]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

LAYOUT = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


def code_lines(source: str) -> int:
    """The number of lines that hold code.

    >>> code_lines('def f():\\n    "Says what it does."\\n\\n    return 1  # one\\n')
    2
    """
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            first = node.body[0]
            lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print one row for each room."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/headstart")
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for path in sorted(root.rglob("*.py")):
        place = path.relative_to(root).parts
        room = place[0] if len(place) > 1 else "(top level)"
        files[room] += 1
        lines[room] += code_lines(path.read_text(encoding="utf-8"))
    for room in sorted(files):
        print(f"{room:14}{files[room]:5} files {lines[room]:7} lines")
    print(f"{'all':14}{files.total():5} files {lines.total():7} lines")
    print(f"{'without fleet':14}{files.total() - files['fleet']:5} files", end=" ")
    print(f"{lines.total() - lines['fleet']:7} lines")


if __name__ == "__main__":
    main()
