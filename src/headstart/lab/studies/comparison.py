"""Any policies on any world: the study behind ``headstart compare``."""

from __future__ import annotations

import inspect
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headstart import checks
from headstart.algorithms import ALGORITHMS
from headstart.errors import FileError, InputError
from headstart.lab import figures
from headstart.lab.experiments.execution import Execution
from headstart.lab.experiments.experiment import run
from headstart.lab.experiments.plan import Plan
from headstart.lab.experiments.store import versions
from headstart.lab.policies import policy, split_options
from headstart.lab.report import Section, write_report
from headstart.lab.studies.outcome import Outcome, ratios
from headstart.lab.studies.runner import even_checkpoints
from headstart.worlds import Clicks, Logged, MovieLens, Synthetic, World

__all__ = ["PLAN", "compare", "list_policies", "list_worlds"]

PLAN = "plan.toml"

WORLDS: dict[str, Callable[..., World]] = {
    "synthetic": Synthetic,
    "clicks": Clicks,
    "movielens": MovieLens,
    "logged": Logged,
}

#: The name of a world or of an algorithm, and options.
NameAndOptions = tuple[str, dict[str, Any]]

SIZES = {"seeds": 8, "first_seed": 0, "tasks": 100, "rounds": 250}
DEFAULT_POLICIES = ("empirical_bayes", "linucb", "bias_oful", "projected_linucb")


def compare(
    plan: str | os.PathLike[str] | None = None,
    *,
    world: str = "synthetic",
    schema: str | os.PathLike[str] | None = None,
    policies: Sequence[str] = DEFAULT_POLICIES,
    seeds: int | None = None,
    first_seed: int | None = None,
    tasks: int | None = None,
    rounds: int | None = None,
    out: str | os.PathLike[str] = "results/comparison",
    execution: Execution | None = None,
) -> Outcome:
    """Play policies on a world, given as text or in a TOML file, and write a report.

    Sizes given as arguments replace the file's, and so does the ``schema``, the path of a JSON file
    for the world ``logged``. Sizes, labels and options may be left out of a
    file::

        tasks = 200
        [world]
        name = "synthetic"
        rank = 3
        [[policy]]
        name = "projected_linucb"
        label = "three directions"
        rank = 3
    """
    size_arguments = {"seeds": seeds, "first_seed": first_seed, "tasks": tasks, "rounds": rounds}
    changed_sizes = {name: value for name, value in size_arguments.items() if value is not None}
    if plan is None:
        tables = [split_options("policy", text) for text in policies]
        sizes, (name, options), text = dict(SIZES), split_options("world", world), ""
    else:
        sizes, (name, options), tables, text = read_plan(Path(plan))
    options |= {} if schema is None else {"schema": os.fspath(schema)}
    played_world = make_world(name, options)
    plan_policies = tuple(policy(algorithm, **settings) for algorithm, settings in tables)
    if changed_sizes or schema is not None or not text:
        sizes |= changed_sizes
        text = toml(sizes, (name, options), tables)
    first = sizes["first_seed"]
    full = Plan(
        played_world,
        plan_policies,
        tuple(range(first, first + checks.integer("seeds", sizes["seeds"], 2))),
        sizes["tasks"],
        sizes["rounds"],
        even_checkpoints(sizes["rounds"]),
    )
    folder = Path(out)
    results = run(full, folder, execution)
    (folder / PLAN).write_text(text, encoding="utf-8")
    baseline = plan_policies[0].name
    drawings = [
        figures.transfer_regret(results.regret),
        figures.cumulative_regret(results.regret),
        figures.per_task_regret(results.regret),
        figures.totals(results.regret, baseline),
    ]
    for figure in drawings:
        figure.save(folder / "figures")
    sections = [Section(figure.title, "", figure) for figure in drawings]
    title = f"{len(plan_policies)} policies on {played_world.name}"
    manifest = {
        "world": repr(played_world),
        **{policy.name: repr(policy) for policy in plan_policies},
        **{name: str(value) for name, value in sizes.items()},
        "plan": text,
        **versions(),
    }
    path = write_report(folder / "report.html", title, sections, manifest)
    table = ratios(results, baseline)
    return Outcome(f"{title}: total regret ÷ {baseline}'s", path, table)


def read_plan(path: Path) -> tuple[dict[str, int], NameAndOptions, list[NameAndOptions], str]:
    """Sizes, world and policies of a TOML file, and its text."""
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"plan {str(path)!r} cannot be read ({error})") from error
    except tomllib.TOMLDecodeError as error:
        raise FileError(f"plan {str(path)!r} is not valid TOML ({error})") from error
    for key in content:
        checks.one_of(f"key in {path.name}", key, (*SIZES, "world", "policy"))
    world = content.get("world", {"name": "synthetic"})
    if not isinstance(world, dict):
        raise InputError(f"plan {str(path)!r} must have a [world] table; got {world!r}")
    rows = content.get("policy", [])
    if not rows or not all(isinstance(row, dict) and "name" in row for row in rows):
        raise InputError(f"plan {str(path)!r} must have [[policy]] tables, each with a name")
    policies = [(row.pop("name"), row) for row in rows]
    sizes = {
        name: checks.integer(name, content.get(name, default), 0 if name == "first_seed" else 1)
        for name, default in SIZES.items()
    }
    return sizes, (world.pop("name", "synthetic"), world), policies, text


def make_world(name: str, options: dict[str, Any]) -> World:
    """A world from its name and options."""
    make = WORLDS[checks.one_of("world", name, tuple(WORLDS))]
    parameters = inspect.signature(make).parameters
    for key in options:
        checks.one_of(f"option of {name}", key, tuple(parameters))
    required = [key for key, value in parameters.items() if value.default is value.empty]
    missing = [key for key in required if key not in options]
    if missing:
        raise InputError(f"world {name!r} needs the options {', '.join(missing)}")
    return make(**options)


def toml(sizes: dict[str, int], world: NameAndOptions, policies: Sequence[NameAndOptions]) -> str:
    """A plan as a file, to be run again."""
    lines = [f"{name} = {value}" for name, value in sizes.items()]
    tables = [("[world]", world), *(("[[policy]]", each) for each in policies)]
    for title, (name, options) in tables:
        lines += ["", title]
        for key, value in {"name": name, **options}.items():
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False, default=str)}")
    return "\n".join(lines) + "\n"


def list_policies() -> list[dict[str, Any]]:
    """What ``--policy`` takes: names, options with their defaults, a line on each, references."""
    return [
        {
            "name": algorithm.name,
            "about": algorithm.summary,
            "options": algorithm.options,
            "reference": algorithm.reference,
        }
        for algorithm in ALGORITHMS.values()
    ]


def list_worlds() -> list[dict[str, Any]]:
    """What ``--world`` takes: names, options with their defaults, and a line on each."""
    return [
        {
            "name": name,
            "about": (inspect.getdoc(world) or "").splitlines()[0],
            "options": {
                option: "required" if parameter.default is parameter.empty else parameter.default
                for option, parameter in inspect.signature(world).parameters.items()
            },
        }
        for name, world in WORLDS.items()
    ]
