"""Kills during a save: SIGKILL at a random moment of a process that saves in a loop.

Afterwards the file is one of those that were saved, whole, and what the killed process left behind
is no more readable than the file is.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from pathlib import Path

from common import KINDS, Case, Changed, content, saved
from damage import archive

import headstart as hs

SHARE = 1.0


def attack(case: Case) -> None:
    """One kill. (The moment is random in real time, so that a case repeats only roughly.)"""
    folder = case.folder / f"kill {case.number}"
    folder.mkdir()
    target, mode = folder / "target", case.pick([0o600, 0o640, 0o644])
    versions = [int(case.rng.integers(len(KINDS))) for _ in range(3)]
    of_bandit = case.rng.random() < 0.7
    if of_bandit:
        contents = [saved(case.seed, version) for version in versions]
    else:
        contents = [archive(case.seed, version % 2) for version in versions]
    sources = [folder / f"source {number}" for number in range(3)]
    for source, whole in zip(sources, contents, strict=True):
        source.write_bytes(whole)
    target.write_bytes(contents[0])
    target.chmod(mode)
    ready, tell = os.pipe()
    child = os.fork()
    if not child:
        try:
            save_forever(sources, target, of_bandit, tell)
        finally:
            os._exit(1)
    os.close(tell)
    os.read(ready, 1)
    os.close(ready)
    time.sleep(case.rng.uniform(0.0, 0.006))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if stat.S_IMODE(target.stat().st_mode) != mode:
        raise Changed(f"the file's mode was {mode:o} and is {target.stat().st_mode:o}")
    saved_there = content(target) if of_bandit else target.read_bytes()
    wanted = [content(source) for source in sources] if of_bandit else contents
    if saved_there not in wanted:
        raise Changed("the file is none of those that were saved")
    hs.load(target) if of_bandit else hs.EvidenceFile(target).close()
    for left in set(folder.iterdir()) - {target, *sources}:
        shown = stat.S_IMODE(left.stat().st_mode)
        if shown & ~mode:
            raise Changed(f"a draft of mode {shown:o} was left behind for a file of mode {mode:o}")


def save_forever(sources: list[Path], target: Path, of_bandit: bool, tell: int) -> None:
    os.umask(0o022)
    if of_bandit:
        saves = [hs.load(source).save for source in sources]
    else:
        saves = [rewriting(source) for source in sources]
    os.write(tell, b".")
    while True:
        for save in saves:
            save(target)


def rewriting(source: Path):
    with hs.EvidenceFile(source) as file:
        items, dim = list(file.items()), file.dim
    return lambda path: hs.write_evidence(path, items, dim)
