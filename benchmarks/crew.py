"""The parent's side of the workers: start them, ask them, and do without those that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from catalog import Contender
from environments import last_error, python_of

HERE = Path(__file__).parent
TIME_LIMIT = 180  # seconds for one answer
ONE_THREAD = dict.fromkeys(
    (
        "OPENBLAS_NUM_THREADS",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "NUMEXPR_NUM_THREADS",
        "POLARS_MAX_THREADS",
    ),
    "1",
)


class NoAnswer(Exception):
    """A worker did not answer; the message says why."""


class Member:
    """A contender's worker process."""

    def __init__(self, contender: Contender) -> None:
        self.contender = contender
        # Open as long as the process lives; closed with it.
        self.error_output: Any = tempfile.TemporaryFile(  # noqa: SIM115
            "w+", encoding="utf-8", errors="replace"
        )
        python = sys.executable if contender.peer is None else str(python_of(contender.peer))
        path = HERE / "contenders" / f"{contender.file}.py"
        self.process = subprocess.Popen(
            [python, str(HERE / "worker.py"), str(path), contender.variant],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.error_output,
            text=True,
            env={**os.environ, **ONE_THREAD},
        )

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        self.read()

    def ask(self, **question: Any) -> dict[str, Any]:
        """Its answer to a question."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise NoAnswer(self.last_error()) from None
        return self.read()

    def read(self) -> dict[str, Any]:
        """The next answer, or why there is none."""
        assert self.process.stdout is not None
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.process.kill()

        timer = threading.Timer(TIME_LIMIT, give_up)
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            waited = f"no answer after {TIME_LIMIT} seconds"
            raise NoAnswer(waited if late.is_set() else self.last_error())
        answer: dict[str, Any] = json.loads(line)
        for problem in ("unavailable", "error"):
            if problem in answer:
                raise NoAnswer(answer[problem])
        return answer

    def last_error(self) -> str:
        """The last line it wrote."""
        self.process.wait(10)
        self.error_output.seek(0)
        return f"the worker ended: {last_error(self.error_output.read())}"

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.error_output):
            if stream is not None:
                stream.close()


@contextmanager
def worker_processes(
    contenders: Sequence[Contender],
) -> Iterator[tuple[dict[str, Member], dict[str, str]]]:
    """The workers by name, and why the missing ones are missing."""
    members = {contender.name: Member(contender) for contender in contenders}
    failures = {}
    try:
        for name, member in members.items():
            try:
                member.wait_until_ready()
            except NoAnswer as error:
                failures[name] = str(error)
        yield {name: it for name, it in members.items() if name not in failures}, failures
    finally:
        for member in members.values():
            member.close()
