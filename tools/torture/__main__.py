"""Attack the library for some minutes, and count what gets through.

``python tools/torture`` runs every attack in processes of their own, two at a time, and prints a
table: for each attack how many cases there were, how many were accepted wrongly, how many ended in
an exception that is none of headstart's (crashes and hangs included), and how many changed
something although they were refused. The exit status is 1 unless the last three are 0 everywhere.

``--attack NAME --seed S --case K`` repeats one case in this process, with its traceback.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import dataclasses
import importlib
import json
import os
import re
import resource
import secrets
import select
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

HERE = Path(__file__).parent
ATTACKS = ["damage", "resealed", "kills", "hostile", "interrupts", "forks", "numerics", "logs"]
ATTACKS += ["schemas", "sequences"]
VERDICTS = ["accepted", "raw", "changed"]
HANG = 60.0  # seconds without a case finished


@dataclasses.dataclass
class Count:
    """What came of one attack; failures that are alike are shown once."""

    cases: int = 0
    verdicts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    first: dict = dataclasses.field(default_factory=dict)  # a case of each kind of failure
    alike: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds: float = 0.0

    def add(self, case: int, verdict: str, message: str) -> None:
        self.cases += 1
        if verdict != "ok":
            self.verdicts[verdict] += 1
            # Of an exception where it was raised, of others what is said without numbers.
            said = message.partition(": " if verdict == "raw" else ";")[0]
            kind = verdict + re.sub(r"(?<=<- )[^:]*|'[^']*'|[\d.+-]+(e[+-]?\d+)?", "#", said)
            self.first.setdefault(kind, (case, verdict, message))
            self.alike[kind] += 1


def judge(module, case) -> tuple[str, str]:
    """Run one case: its verdict, and what went wrong."""
    from common import Accepted, Changed

    try:
        module.attack(case)
    except Accepted as error:
        return "accepted", str(error)
    except Changed as error:
        return "changed", str(error)
    except (SystemExit, Exception) as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if f"{os.sep}headstart{os.sep}" in frame.filename]
        at = ours[-1] if ours else frames[-1]
        where = f"{os.path.basename(os.path.dirname(at.filename))}/{os.path.basename(at.filename)}"
        return "raw", f"{type(error).__name__} at {where}, {at.name}, line {at.lineno}: {error}"
    return "ok", ""


def prepared(name: str):
    """An attack's module, with no more memory than it may take."""
    from common import quiet

    quiet()
    module = importlib.import_module(name)
    limit = getattr(module, "LIMIT", None)
    if limit is not None and sys.platform == "linux":
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + limit, taken + limit))
    return module


def work(name: str, seed: int, start: int, seconds: float, cases: int) -> None:
    """Run cases in this process, and tell of each on the standard output."""
    from common import Case

    tell = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever else is printed
    module, folder = prepared(name), Path.cwd() / "case"
    end = time.monotonic() + seconds
    number = start
    while number < start + cases and (number == start or time.monotonic() < end):
        folder.mkdir()
        found = judge(module, Case(name, seed, number, folder))
        tell.write(json.dumps([number, *found]) + "\n")
        shutil.rmtree(folder)
        number += 1


def watch(name: str, arguments: argparse.Namespace, seconds: float) -> Count:
    """Run an attack in other processes: a new one where one crashes or hangs."""
    from common import ROOM

    count, begin, next_case = Count(), time.monotonic(), 0
    while True:
        left = seconds - (time.monotonic() - begin)
        if next_case >= arguments.cases or (next_case and left <= 0):
            break
        work = f"{next_case},{max(left, 0.0)},{arguments.cases - next_case}"
        words = [sys.executable, str(HERE), "--attack", name, "--seed", str(arguments.seed)]
        words += ["--work", work]
        with (
            tempfile.TemporaryDirectory(prefix="torture-", dir=ROOM) as folder,
            tempfile.TemporaryFile("w+", errors="replace") as said,
            subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, cwd=folder) as process,
        ):
            ended, rest = None, b""
            while ended is None:
                if not select.select([process.stdout], [], [], HANG)[0]:
                    ended = f"no answer within {HANG:.0f} seconds"
                    break
                piece = os.read(process.stdout.fileno(), 2**16)
                if not piece:
                    code = process.wait()
                    ended = f"the process died with {code}" if code else ""
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    number, verdict, message = json.loads(line)
                    count.add(number, verdict, message)
                    next_case = number + 1
            process.kill()
            if not ended:
                break
            said.seek(0)
            words = said.read().strip().splitlines()
            count.add(next_case, "raw", ended + (f": {words[-1]}" if words else ""))
            next_case += 1
    count.seconds = time.monotonic() - begin
    return count


def replay(arguments: argparse.Namespace) -> int:
    """One case, here, with its traceback."""
    from common import Case, folder

    module = prepared(arguments.attack[0])
    with folder() as place:
        os.chdir(place)
        try:
            module.attack(
                Case(
                    arguments.attack[0],
                    arguments.seed,
                    arguments.case,
                    Path(place),
                )
            )
        except BaseException:
            traceback.print_exc()
            return 1
        finally:
            os.chdir("/")
    print("nothing got through")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="torture", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=3.5, help="how long it takes, about")
    parser.add_argument("--cases", type=int, default=10**9, help="at most so many of each attack")
    parser.add_argument("--seed", type=int, help="a fresh one unless given")
    parser.add_argument("--attack", action="append", choices=ATTACKS, help="only this; repeat")
    parser.add_argument("--case", type=int, help="repeat only this case of one attack")
    parser.add_argument("--workers", type=int, default=2, help="how many attacks run at once")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.seed is None:
        arguments.seed = secrets.randbelow(10**6)
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if arguments.work:
        start, seconds, cases = arguments.work.split(",")
        work(
            arguments.attack[0],
            arguments.seed,
            int(start),
            float(seconds),
            int(cases),
        )
        return 0
    if arguments.case is not None:
        if arguments.attack is None or len(arguments.attack) != 1:
            parser.error("--case needs one --attack")
        return replay(arguments)
    names = arguments.attack or ATTACKS
    import headstart

    print(f"headstart {headstart.__version__} in {Path(headstart.__file__).parent}")
    print(f"seed {arguments.seed}, about {arguments.minutes:g} minutes: {', '.join(names)}")
    shares = {name: importlib.import_module(name).SHARE for name in names}
    whole = 60.0 * arguments.minutes * arguments.workers / sum(shares.values())
    order = sorted(names, key=lambda name: -shares[name])  # the longest first
    with concurrent.futures.ThreadPoolExecutor(arguments.workers) as pool:
        futures = {
            name: pool.submit(watch, name, arguments, whole * shares[name]) for name in order
        }
        counts = {name: futures[name].result() for name in names}
    for name, count in counts.items():
        for kind, (case, verdict, message) in count.first.items():
            again = f"--attack {name} --seed {arguments.seed} --case {case}"
            print(f"\n{name}: {verdict}, {count.alike[kind]} times: {message[:500]}\n    {again}")
    print(f"\n{'attack':<12}{'cases':>8}{'accepted':>10}{'raw':>8}{'changed':>9}{'seconds':>9}")
    for name, count in counts.items():
        accepted, raw, changed = (count.verdicts[verdict] for verdict in VERDICTS)
        cells = f"{count.cases:>8}{accepted:>10}{raw:>8}{changed:>9}{count.seconds:>9.0f}"
        print(f"{name:<12}{cells}")
    print("accepted: accepted wrongly. raw: an exception, crash or hang that is no HeadstartError.")
    print("changed: state changed by a call that was refused or interrupted.")
    failed = any(sum(count.verdicts.values()) or not count.cases for count in counts.values())
    print("Something got through." if failed else "Nothing got through.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
