"""Kills during a save: SIGKILL at a random moment of a process that saves in a loop.

Afterwards the file is one of those that were saved, whole, and what the killed process left behind
is no more readable than the file is. In some cases two processes save to one file, and are not
killed: whoever reads it meanwhile finds one of those that were saved, and nothing is left behind.
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
    if case.number % 4 == 3:
        save_together(case)
        return
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


def save_together(case: Case) -> None:
    """Two processes save two bandits to one file, some times each, while it is read."""
    target = case.folder / "target"
    kinds = case.rng.permutation(len(KINDS))[:2].tolist()
    sources = [case.folder / f"source {number}" for number in range(2)]
    for source, kind in zip(sources, kinds, strict=True):
        source.write_bytes(saved(case.seed, kind))
    target.write_bytes(sources[0].read_bytes())
    wanted = [content(source) for source in sources]
    children = []
    for source in sources:
        child = os.fork()
        if not child:
            code = 1
            try:
                bandit = hs.load(source)
                for _ in range(8):
                    bandit.save(target)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes: list[int] = []
    while len(codes) < len(children):
        if content(target) not in wanted:
            raise Changed("a file to which two processes save is none of those that they save")
        child, status = os.waitpid(children[len(codes)], os.WNOHANG)
        if child:
            codes.append(status)
    if any(codes):
        raise RuntimeError(f"two processes that save to one file ended with {codes}")
    if content(target) not in wanted:
        raise Changed("a file to which two processes have saved is none of those that they saved")
    left = {path.name for path in case.folder.iterdir()} - {"target", "source 0", "source 1"}
    if left:
        raise Changed(f"two processes that saved to one file left {left} behind")


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
