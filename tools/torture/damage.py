"""Random damage: bytes of files flipped, cut, inserted or blanked.

A damaged file is refused with a FileError, or has exactly the content that it had before (as where
a space that only fills up became another one). Of a damaged journal some lines may be missing, but
none has become another one.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from common import KINDS, Accepted, Case, content, folder, saved

import headstart as hs

SHARE = 0.5
LIMIT = 2**30
LINES = 12  # of a journal


@functools.cache
def archive(seed: int, kind: int) -> bytes:
    """A file of evidence: single or double precision, with forced rounds apart or not."""
    rng = np.random.default_rng([seed, kind, 1])
    dim = int(rng.integers(1, 5))
    items = []
    for number in range(int(rng.integers(1, 40))):
        evidence = hs.Evidence.zero(dim, forced=bool(kind % 2))
        for _ in range(3):
            evidence = evidence.add(rng.normal(size=dim), rng.normal(), forced=bool(kind % 2))
        items.append((f"tâche {number}", evidence))
    with folder() as place:
        path = Path(place, "archive")
        hs.write_evidence(path, items, dim, precision=["double", "single"][kind // 2 % 2])
        return path.read_bytes()


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """One to three wounds."""
    raw = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        # Half of them near the start or the end, where the structure is.
        place = int(rng.integers(len(raw))) if raw else 0
        if rng.random() < 0.5:
            place = min(int(rng.integers(64)), len(raw))
            place = len(raw) - place if rng.random() < 0.5 else place
        length = int(2 ** rng.uniform(0, 8))
        other = int(rng.integers(max(len(raw), 1)))
        kind = int(rng.integers(8))
        if kind == 0 and place < len(raw):
            raw[place] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            del raw[place:]
        elif kind == 2:
            raw[place:place] = rng.bytes(length)
        elif kind == 3:
            raw[place : place + length] = bytes(len(raw[place : place + length]))
        elif kind == 4:
            del raw[place : place + length]
        elif kind == 5:
            raw[place : place + length] = rng.bytes(len(raw[place : place + length]))
        elif kind == 6:
            raw[place:place] = raw[other : other + length]
        elif kind == 7:
            raw[place : place + length] = raw[other : other + length]
    return bytes(raw)


def bandit_content(path: Path) -> object:
    bandit = hs.load(path)
    bandit.save(path)
    return content(path)


def archive_content(path: Path) -> object:
    found = []
    with hs.EvidenceFile(path) as file:
        for name, evidence in file.items():
            found.append((name, evidence.pack().tobytes(), file[name].pack().tobytes()))
    return found


@functools.cache
def journal(seed: int) -> tuple[bytes, bytes]:
    """A bandit's file, and a journal of rewards that are different powers of two.

    So their sum tells which of them were learned from.
    """
    bandit = hs.Bandit(1, hs.Independent(), intercept=False, seed=seed)
    task = bandit.task("tâche")
    with folder() as place:
        bandit.save(f"{place}/bandit")
        with hs.Journal(f"{place}/journal") as lines:
            for power in range(LINES):
                if power % 3 == 2:
                    task.observe([[1.0]], [2.0**power], journal=lines)
                else:
                    lines.append(task.choose([[1.0]]), 2.0**power)
        return Path(place, "bandit").read_bytes(), Path(place, "journal").read_bytes()


def attack_journal(case: Case) -> None:
    """Whatever is learned from a damaged journal is some of what was written to it."""
    file, lines = journal(case.seed)
    path = case.folder / "journal"
    (case.folder / "bandit").write_bytes(file)
    path.write_bytes(damaged(lines, case.rng))
    bandit = hs.load(case.folder / "bandit")
    replayed = bandit.replay(path)
    evidence = bandit.task("tâche").evidence
    total = int(evidence.moment[0])
    powers = [power for power in range(LINES) if total >> power & 1]
    wanted = len(powers), sum(2.0**power for power in powers), sum(4.0**power for power in powers)
    if (evidence.rounds, evidence.moment[0], evidence.squares) != wanted:
        raise Accepted(f"a damaged journal was read as another: {replayed}")
    if replayed.learned != len(powers):
        raise Accepted(f"{replayed.learned} lines were learned from, not {len(powers)}")


def attack(case: Case) -> None:
    if case.number % 5 == 4:
        attack_journal(case)
        return
    path, kind = case.folder / "file", int(case.rng.integers(len(KINDS)))
    of_bandit = case.rng.random() < 0.6
    sound = saved(case.seed, kind) if of_bandit else archive(case.seed, kind % 4)
    read = bandit_content if of_bandit else archive_content
    wounded = damaged(sound, case.rng)
    if wounded == sound:
        return
    path.write_bytes(wounded)
    try:
        found = read(path)
    except hs.FileError:
        return
    path.write_bytes(sound)
    if found != read(path):
        raise Accepted(f"a damaged {'bandit' if of_bandit else 'archive'} was read as another")
