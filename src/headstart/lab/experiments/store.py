"""Results on disk: what names them, and a folder with the finished jobs of an experiment."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import os
import platform
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headstart.errors import FileError
from headstart.lab.engine import Trace
from headstart.records import Array
from headstart.storage.atomic import atomic_write

if TYPE_CHECKING:
    from headstart.lab.experiments.plan import Plan, Results


def versions() -> dict[str, str]:
    """The versions that a result depends on: of Python, headstart and the packages that compute.

    >>> list(versions())
    ['python', 'headstart', 'numpy', 'scipy', 'polars']
    """
    packages = ("headstart", "numpy", "scipy", "polars")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}


@contextlib.contextmanager
def writing(path: Path, what: str = "folder") -> Iterator[None]:
    """Raise a :class:`~headstart.FileError` where a folder, or a file, cannot be written."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{what} {str(path)!r} cannot be written ({error})") from error


def fingerprint(value: Any) -> str:
    """A hash of everything in a nested value: settings, arrays and tables by their content.

    >>> fingerprint({"a": np.zeros(9)}) == fingerprint({"a": np.zeros(9)})
    True
    >>> fingerprint({"a": np.zeros(9)}) == fingerprint({"a": np.ones(9)})
    False
    """
    hashed = hashlib.blake2b(digest_size=10)
    update_hash(hashed, value)
    return hashed.hexdigest()


def update_hash(hashed: Any, value: Any) -> None:
    """Add a value and its parts to a hash, each with its type, so that none collide."""
    hashed.update(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            hashed.update(field.name.encode())
            update_hash(hashed, getattr(value, field.name))
    elif isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype} {value.shape}".encode())
        hashed.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
    elif isinstance(value, Mapping):
        for key, item in value.items():
            update_hash(hashed, key)
            update_hash(hashed, item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            update_hash(hashed, item)
    elif hasattr(value, "columns") and hasattr(value, "to_numpy"):
        for name in value.columns:
            hashed.update(str(name).encode())
            update_hash(hashed, np.asarray(value[name].to_numpy()))
    elif callable(value):
        code = getattr(value, "__code__", None)
        hashed.update(f"{value.__module__}.{value.__qualname__}".encode())
        hashed.update(code.co_code if code is not None else b"")
    else:
        hashed.update(repr(value).encode())
        if isinstance(value, (str, os.PathLike)) and is_file(value):
            status = os.stat(value)
            hashed.update(f"{status.st_size} {status.st_mtime_ns}".encode())


def is_file(value: str | os.PathLike[str]) -> bool:
    """Whether a text is the path of a file, whose size and age then count too."""
    try:
        return Path(value).is_file()
    except (OSError, ValueError):
        return False


def check_stored(folder: object, missing: int, jobs: int) -> None:
    """Refuse a folder that lacks jobs of an experiment."""
    if missing:
        raise FileError(
            f"folder {str(folder)!r} lacks {missing} of {jobs} jobs of this experiment "
            "(unfinished, or of another version of headstart): run it again"
        )


class Store:
    """A folder with finished jobs by their keys, and the tables and manifest of a plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        with writing(folder):
            self.parts.mkdir(parents=True, exist_ok=True)

    def read(self, key: str) -> dict[str, Array] | None:
        """The arrays of a finished job; ``None`` if they are missing, truncated or damaged."""
        try:
            path = self.parts / f"{key}.npz"
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                return {name: saved[name] for name in saved.files}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None

    def write(self, key: str, arrays: Mapping[str, Array]) -> None:
        """Write the arrays of a finished job, atomically."""
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)  # type: ignore[arg-type]  # a name may not be "file"
        with atomic_write(self.parts / f"{key}.npz") as draft:
            draft.write(buffer.getbuffer())

    def device_of(self, plan: Plan) -> Plan:
        """The plan on the device whose results are stored; the latest if both are."""
        plans = [dataclasses.replace(plan, device=device) for device in ("gpu", "cpu")]
        plans.sort(key=lambda each: each.key != self.last_key())
        for each in plans:
            if all(self.find(job) for job in each.jobs()):
                return each
        return plan

    def last_key(self) -> str:
        """The key of the plan that was run last, from the manifest."""
        try:
            manifest = json.loads((self.folder / "manifest.json").read_text())
        except (OSError, ValueError):
            return ""
        return str(manifest.get("key", "")) if isinstance(manifest, dict) else ""

    def find(self, job: Plan) -> dict[str, Trace] | None:
        """The result of a finished job, or ``None``."""
        arrays = self.read(job.key)
        if arrays is None or any(f"{at}.regret" not in arrays for at in range(len(job.policies))):
            return None
        probes = [(key.split(".", 2), array) for key, array in arrays.items() if ".probe." in key]
        return {
            policy.name: Trace(
                arrays[f"{at}.regret"],
                {name: array for (place, _, name), array in probes if place == str(at)},
            )
            for at, policy in enumerate(job.policies)
        }

    def save(self, job: Plan, traces: dict[str, Trace]) -> None:
        """Write a finished job's result."""
        arrays: dict[str, Array] = {}
        for at, policy in enumerate(job.policies):
            arrays[f"{at}.regret"] = traces[policy.name].regret
            for key, value in traces[policy.name].probes.items():
                arrays[f"{at}.probe.{key}"] = value
        self.write(job.key, arrays)

    def finish(self, results: Results, seconds: float, jobs: int) -> None:
        """Write the tables and the manifest."""
        plan = results.plan
        manifest = {
            "plan": repr(plan),
            "key": plan.key,
            "world": repr(plan.world),
            "policies": {policy.name: repr(policy) for policy in plan.policies},
            "seeds": [int(seed) for seed in plan.seeds],
            "device": plan.device,
            "tasks": plan.tasks,
            "rounds": plan.rounds,
            "checkpoints": list(plan.recorded_rounds),
            "policy_rounds": plan.work,
            "jobs_run": jobs,
            "seconds": round(seconds, 3),
            "versions": versions(),
        }
        with writing(self.folder):
            results.regret.write_parquet(self.folder / "regret.parquet")
            results.probes.write_parquet(self.folder / "probes.parquet")
            (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
