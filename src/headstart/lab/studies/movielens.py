"""The paper's MovieLens experiments: men, women, and the largest occupations."""

from __future__ import annotations

import numpy as np

from headstart.lab import figures
from headstart.lab.plan import Results
from headstart.lab.policies import NamedPolicy, policy
from headstart.lab.report import Section
from headstart.lab.studies import synthetic
from headstart.lab.studies.runner import Runner
from headstart.worlds.movielens import MovieLens

__all__ = ["comparison", "singular_share"]

ALGORITHMS = (
    "linucb",
    "lints",
    "bias_oful",
    "projected_linucb",
    "projected_ts",
    "meta_ts",
    "meta_ts_unforced",
)
GENRES = 18


def world_of(runner: Runner, group: str | int) -> MovieLens:
    """Users of a group with 250 ratings or more."""
    return MovieLens(group=group, data=runner.data)


def comparison(runner: Runner) -> tuple[dict[str, Results], list[Section]]:
    """Regret curves for each group of users."""
    # Users with fewer ratings than any that is reported on.
    others = MovieLens(min_ratings=150, max_ratings=249, data=runner.data)
    tuned, tuning = runner.tuned("movielens", others, ALGORITHMS)
    scale = next(each.options["scale"] for each in tuned if each.algorithm == "meta_ts")
    ridge = policy("meta_ts", "M-TS, ridge", estimate="ridge", scale=scale)
    policies = (*tuned, ridge)
    occupations = list(world_of(runner, "everybody").groups("occupation"))
    groups: list[str] = ["men", "women", *occupations[: 1 if not runner.tune else 3]]
    results, sections = {}, []
    for group in groups:
        world = world_of(runner, group)
        users = world.population(0).tasks or runner.scale.tasks
        tasks = min(runner.scale.tasks, users)
        seeds = runner.scale.reported[:5]
        slug = "".join(letter if letter.isalnum() else "-" for letter in group)
        found = runner.run(f"movielens-{slug}", world, policies, tasks=tasks, seeds=seeds)
        results[group] = found
        about = f"{tasks} of {users} users with 250 ratings or more, 10 rated movies a round"
        printed = runner.run(
            f"movielens-{slug}-printed", world, printed_policies(), tasks=tasks, seeds=seeds
        )
        sections += [
            Section(
                f"MovieLens, {group}: expected transfer regret",
                f"{about}; contexts are {GENRES} genre flags divided by their norm; regret is the "
                "best rating on offer minus that of the pick, ratings scaled to [0, 1]. "
                + (
                    "Settings come with headstart."
                    if tuning is None
                    else "Tuned on users with 150 to 249 ratings."
                ),
                figures.transfer_regret(found.regret, f"movielens-{slug}-rounds"),
            ),
            Section(
                f"MovieLens, {group}: cumulative regret against users",
                "",
                figures.cumulative_regret(found.regret, f"movielens-{slug}-tasks"),
            ),
            Section(
                f"MovieLens, {group}: total regret against LinUCB's",
                "",
                figures.totals(found.regret, name=f"movielens-{slug}-totals"),
            ),
            Section(
                f"MovieLens, {group}: the paper's printed constants",
                "Algorithms 1 to 3 as printed, nothing tuned.",
                [
                    figures.transfer_regret(printed.regret, f"movielens-{slug}-printed-rounds"),
                    figures.totals(printed.regret, name=f"movielens-{slug}-printed-totals"),
                ],
            ),
        ]
    if tuning is not None:
        table = tuning.table.drop("algorithm", "label")
        sections.append(
            Section(
                "MovieLens: how much tuning mattered",
                "Tried on users that no figure shows.",
                figures.tuning(table, name="movielens-tuning"),
            )
        )
    return results, sections


def printed_policies() -> tuple[NamedPolicy, ...]:
    """The paper's algorithms as printed, without the oracles: no truth is known of users."""
    return tuple(each for each in synthetic.printed_policies() if not each.entry.truth)


def singular_share(runner: Runner, rounds: int = 2 * GENRES, users: int = 400) -> float:
    """The share of users whose DᵀD is singular after so many random rounds."""
    population = world_of(runner, "everybody").population(0)
    users = min(users, population.tasks or users)
    singular = 0
    for user in range(users):
        # The arms of a round are in random order: the first is a random choice.
        contexts = population.episode(user, rounds).contexts[:, 0]
        singular += int(np.linalg.matrix_rank(contexts) < GENRES)
    return singular / users
