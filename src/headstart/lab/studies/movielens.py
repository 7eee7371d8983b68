"""The paper's MovieLens experiments: men, women, and the largest occupations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headstart.algorithms import ALGORITHMS
from headstart.lab import figures
from headstart.lab.experiments.plan import Results
from headstart.lab.policies import PAPER, NamedPolicy, policy
from headstart.lab.report import Section
from headstart.lab.studies import synthetic
from headstart.lab.studies.outcome import tuning_sections
from headstart.lab.studies.runner import Runner
from headstart.worlds.movielens import MovieLens

#: Those of the paper that need no truth, which is not known of users; and a control.
WITHOUT_TRUTH = (*(name for name in PAPER if not ALGORITHMS[name].truth), "meta_ts_unforced")
GENRES = 18


def play_users(
    runner: Runner, name: str, world: MovieLens, policies: Sequence[NamedPolicy]
) -> tuple[Results, int]:
    """Run policies on the users of a world, on five seeds; also gives how many users there are."""
    tasks = min(runner.scale.tasks, world.population(0).tasks or runner.scale.tasks)
    seeds = runner.scale.reported_seeds[:5]
    return runner.run(name, world, policies, tasks=tasks, seeds=seeds), tasks


def comparison(runner: Runner) -> tuple[dict[str, Results], list[Section]]:
    """Regret curves for each group of users."""
    # Users with fewer ratings than any that is reported on.
    others = MovieLens(min_ratings=150, max_ratings=249, data=runner.data)
    tuned_policies, tuning = runner.tune_policies("movielens", others, WITHOUT_TRUTH)
    scale = next(each.options["scale"] for each in tuned_policies if each.algorithm == "meta_ts")
    ridge = policy("meta_ts", "M-TS, ridge", estimate="ridge", scale=scale)
    occupations = list(MovieLens(data=runner.data).groups("occupation"))
    groups: list[str] = ["men", "women", *occupations[: 1 if not runner.tune else 3]]
    how = "Tuned on users with 150 to 249 ratings."
    if tuning is None:
        how = "Options come with headstart."
    results, sections = {}, []
    for group in groups:
        world, title = MovieLens(group=group, data=runner.data), f"MovieLens, {group}"
        name = "movielens-" + "".join(letter if letter.isalnum() else "-" for letter in group)
        group_results, tasks = play_users(runner, name, world, (*tuned_policies, ridge))
        printed_results, _ = play_users(runner, f"{name}-printed", world, printed_policies())
        results[group] = group_results
        users = world.population(0).tasks
        sections += [
            Section(
                f"{title}: expected transfer regret",
                f"{tasks} of {users} users with 250 ratings or more, 10 rated movies a round; "
                f"contexts are {GENRES} genre flags divided by their norm; regret is the best "
                f"rating on offer minus that of the pick, ratings scaled to [0, 1]. {how}",
                figures.transfer_regret(group_results.regret, f"{name}-rounds"),
            ),
            Section(
                f"{title}: cumulative regret against users",
                "",
                figures.cumulative_regret(group_results.regret, f"{name}-tasks"),
            ),
            Section(
                f"{title}: total regret against LinUCB's",
                "",
                figures.totals(group_results.regret, name=f"{name}-totals"),
            ),
            Section(
                f"{title}: the paper's printed constants",
                "Algorithms 1 to 3 as printed, nothing tuned.",
                [
                    figures.transfer_regret(printed_results.regret, f"{name}-printed-rounds"),
                    figures.totals(printed_results.regret, name=f"{name}-printed-totals"),
                ],
            ),
        ]
    title, text = "MovieLens: how much tuning mattered", "Tried on users that no figure shows."
    return results, [*sections, *tuning_sections(title, text, tuning, "movielens-tuning")]


def printed_policies() -> tuple[NamedPolicy, ...]:
    """The paper's algorithms as printed, without the oracles: no truth is known of users."""
    return tuple(each for each in synthetic.printed_policies() if not each.entry.truth)


def singular_share(runner: Runner) -> float:
    """The share of 400 users whose DᵀD is singular after 2d random rounds."""
    population = MovieLens(data=runner.data).population(0)
    users = range(min(400, population.tasks or 400))
    # The arms of a round are in random order: the first is a random choice.
    choices = (population.episode(user, 2 * GENRES).contexts[:, 0] for user in users)
    return float(np.mean([np.linalg.matrix_rank(contexts) < GENRES for contexts in choices]))
