"""A folder with the finished jobs of an experiment, its tables and its manifest."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from headstart.errors import FileError
from headstart.lab.engine import Trace
from headstart.lab.plan import Plan, Results
from headstart.lab.versions import versions

__all__ = ["Store"]


class Store:
    """A folder with the finished jobs of a plan, its tables and its manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"folder {str(folder)!r} cannot be written ({error})") from error

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
            noted = json.loads((self.folder / "manifest.json").read_text())
        except (OSError, ValueError):
            return ""
        return str(noted.get("key", "")) if isinstance(noted, dict) else ""

    def find(self, job: Plan) -> dict[str, Trace] | None:
        """The result of a finished job, or ``None``."""
        path = self.parts / f"{job.key}.npz"
        if not path.exists():
            return None
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                traces = {
                    policy.name: Trace(
                        saved[f"{at}.regret"],
                        {
                            key.split(".", 2)[2]: saved[key]
                            for key in saved.files
                            if key.startswith(f"{at}.probe.")
                        },
                    )
                    for at, policy in enumerate(job.policies)
                }
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error):
            return None  # truncated or damaged: the job is run again
        return traces

    def save(self, job: Plan, traces: dict[str, Trace]) -> None:
        """Write a finished job's result, atomically."""
        arrays: dict[str, Any] = {}
        for at, policy in enumerate(job.policies):
            arrays[f"{at}.regret"] = traces[policy.name].regret
            for key, value in traces[policy.name].probed.items():
                arrays[f"{at}.probe.{key}"] = value
        target = self.parts / f"{job.key}.npz"
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                np.savez(file, **arrays)
            temporary.replace(target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise FileError(f"folder {str(self.folder)!r} cannot be written ({error})") from error

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
        try:
            results.regret.write_parquet(self.folder / "regret.parquet")
            results.probes.write_parquet(self.folder / "probes.parquet")
            (self.folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        except OSError as error:
            raise FileError(f"folder {str(self.folder)!r} cannot be written ({error})") from error
