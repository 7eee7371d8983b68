"""The low-rank population of very many tasks, step by step."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.model.own_noise import MIN_RESIDUAL_DOF
from headstart.transfer.empirical_bayes.full_covariance.past import Past
from headstart.transfer.empirical_bayes.full_covariance.population import Fit
from headstart.transfer.empirical_bayes.low_rank.passes import (
    LowRankSums,
    factor_rotation,
    low_rank_step,
    low_rank_totals,
    noise_after_step,
)
from headstart.transfer.empirical_bayes.low_rank.population import LowRank, start_low_rank
from headstart.transfer.empirical_bayes.low_rank.update import (
    FRESH_ROUNDS,
    SWEEPS,
    WARM_ROUNDS,
    safe_fit,
)
from headstart.transfer.empirical_bayes.refits.passes import Look, Passes, counting_noise
from headstart.transfer.empirical_bayes.tasks import Tasks

__all__ = ["LowRankSearch"]

FIRST_NOISE_STEPS = 4  # on the first tasks, where tasks are short


class LowRankSearch:
    """The low-rank population of the tasks of partitions, step by step.

    It starts from a fit to the first tasks.

    Parameters
    ----------
    over
        The passes over all tasks, which sum for the full covariance and for this population.
    fit
        The population with a full covariance.
    first
        The first tasks.
    known_noise
        R where it is given, else 0.
    level
        Whether the last coefficient is the level of log-odds, whose mean is not shrunk.

    Attributes
    ----------
    population
        The population without the tasks that are left out.
    noise
        s², if tasks are too short on average to tell it by least squares; else ``None``.
    """

    before: LowRank
    totals: LowRankSums
    noise: Any

    def __init__(
        self, over: Passes, fit: Fit, first: Tasks, known_noise: float, level: bool = False
    ) -> None:
        self.over, self.noise, self.level = over, None, level
        past = Past.zero(fit.mean.shape[-1])
        first = first.replace(noise_variance=counting_noise(fit, first))
        low = start_low_rank(fit, float(len(first)))
        low = safe_fit(low, fit, first, past, FRESH_ROUNDS, SWEEPS, level)
        short = first.rounds.mean() < fit.mean.shape[-1] + MIN_RESIDUAL_DOF
        if short and not known_noise and low.active.any():
            for _ in range(FIRST_NOISE_STEPS):
                fit = noise_after_step(fit, low_rank_totals(fit, low, first, True))
                first = first.replace(noise_variance=counting_noise(fit, first))
                low = safe_fit(low, fit, first, past, WARM_ROUNDS, SWEEPS, level)
            self.noise = fit.noise_variance
        self.population, self.tasks = low, len(first)

    @property
    def active(self) -> bool:
        """Whether tasks differ along any direction."""
        return bool(self.population.active.any())

    @property
    def tells_noise(self) -> bool:
        """Whether s² is that of this population."""
        return self.noise is not None

    def with_noise(self, fit: Fit) -> Fit:
        """The population with a full covariance, with s² where this one tells it."""
        return fit if self.noise is None else fit.replace(noise_variance=self.noise)

    def arguments(self, look: Look) -> tuple[LowRank, bool]:
        """The population for the next pass, and whether it is to score the noise.

        Its information is that of as many tasks as the pass will stand for.
        """
        tasks = self.over.stands_for(look) if look is not Look.ALL else len(self.over.partitions)
        information = self.population.information * (tasks / self.tasks)
        self.population, self.tasks = self.population.replace(information=information), tasks
        return self.population, self.tells_noise

    def step(self, fit: Fit, totals: LowRankSums, others: LowRankSums) -> None:
        """One step from the sums of a pass with the population and a fit.

        ``others`` are the sums without the tasks that are left out, which can then tell how well
        the population predicts.
        """
        self.before, self.totals = self.population, totals
        if self.tells_noise:
            self.noise = noise_after_step(fit, totals).noise_variance
        self.population = step_if_sound(self.before, others, self.level)
        if self.over.missing is not None:
            full, missing = self.over.missing
            turn = factor_rotation(self.before, self.population)
            self.over.missing = full, missing.rotate(turn)

    def finish(self) -> LowRank:
        """The population with the tasks that were left out: the last step once more, with them."""
        return step_if_sound(self.before, self.totals, self.level)


def step_if_sound(low: LowRank, totals: LowRankSums, level: bool) -> LowRank:
    """The population after a step, or before it where estimated sums allow none.

    They may be sums that no tasks have where a few tasks outweigh all others.
    """
    try:
        after = low_rank_step(low, totals, level)
    except np.linalg.LinAlgError:
        return low
    return after if after.finite.all() else low
