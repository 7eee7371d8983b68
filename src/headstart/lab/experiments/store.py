"""A folder with the finished jobs of an experiment, its tables and its manifest."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from headstart.lab.engine import Trace
from headstart.lab.experiments.files import read_arrays, write_arrays, writing
from headstart.lab.experiments.plan import Plan, Results
from headstart.lab.experiments.versions import versions
from headstart.records import Array

__all__ = ["Store"]


class Store:
    """A folder with the finished jobs of a plan, its tables and its manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        with writing(folder):
            self.parts.mkdir(parents=True, exist_ok=True)

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
        arrays = read_arrays(self.parts / f"{job.key}.npz")
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
        """Write a finished job's result, atomically."""
        arrays: dict[str, Array] = {}
        for at, policy in enumerate(job.policies):
            arrays[f"{at}.regret"] = traces[policy.name].regret
            for key, value in traces[policy.name].probed.items():
                arrays[f"{at}.probe.{key}"] = value
        write_arrays(self.parts / f"{job.key}.npz", arrays)

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
