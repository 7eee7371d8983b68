"""An environment for each peer, made once and kept as long as its requirements stay the same."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = HERE / ".environments"
TIME_LIMIT = 900  # seconds for one peer
AT_ONCE = 2


class InstallError(Exception):
    """A peer did not install; the message is its last error."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment."""
    return FOLDER / peer / "bin" / "python"


def install_all(peers: Iterable[str], log: Callable[[str], None]) -> dict[str, str]:
    """Install peers; gives the reason for each one that did not install."""
    failures = {}

    def one(peer: str) -> None:
        try:
            log(f"{peer}: {install(peer)}")
        except InstallError as error:
            failures[peer] = str(error)
            log(f"{peer}: did not install ({error})")

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, peers))
    return failures


def install(peer: str) -> str:
    """Make the environment unless it is there; says which."""
    stamp_text = f"{sys.version}\n{(HERE / 'peers' / f'{peer}.txt').read_text('utf-8')}"
    folder = FOLDER / peer
    stamp = folder / "ready.txt"  # written last, so that what was interrupted starts over
    if stamp.exists() and stamp.read_text("utf-8") == stamp_text:
        return "there already"
    shutil.rmtree(folder, ignore_errors=True)
    call(sys.executable, "-m", "venv", "--without-pip", str(folder))
    requirements = str(HERE / "peers" / f"{peer}.txt")
    pip = (sys.executable, "-m", "pip", "--python", str(python_of(peer)))
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input", "--retries", "2")
    call(*pip, "install", *quiet, "--prefer-binary", "--requirement", requirements)
    stamp.write_text(stamp_text, "utf-8")
    return "installed"


def call(*command: str) -> None:
    """Run a command, or raise with its last error."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise InstallError(f"not done after {TIME_LIMIT} seconds") from None
    if done.returncode:
        raise InstallError(last_error(done.stdout + "\n" + done.stderr))


def last_error(output: str) -> str:
    """The last line that tells an error, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no message"])[-1]
