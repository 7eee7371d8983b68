"""Checks of rules."""

from __future__ import annotations

from typing import Any

import numpy as np

from headstart.bandit import Bandit
from headstart.errors import InputError
from headstart.model.base import BaseBelief
from headstart.records import set_read_only
from headstart.rules import Pick, Propensities, Rule
from headstart.testing.samples import DIM, Beliefs, bytes_of, options_for, require, run_checks
from headstart.testing.settings import SETTINGS_CHECKS

CONTEXTS = set_read_only(np.random.default_rng(7).standard_normal((5, DIM)))
PICKS = 1500  # how often a rule picks where frequencies are compared


def check_rule(rule: Rule) -> None:
    """Check that a rule does what bandits, experiments and files expect of it.

    Parameters
    ----------
    rule
        The rule, with any settings.

    Raises
    ------
    AssertionError
        Which check has failed, and how.

    See Also
    --------
    check_transfer, check_belief
    """
    require(isinstance(rule, Rule), f"{rule!r} is not a Rule")
    run_checks(rule, (*SETTINGS_CHECKS, *RULE_CHECKS))


def picks_a_row_with_its_score(rule: Rule) -> None:
    """A pick is a row of the contexts and a finite score."""
    pick = rule.choose(Beliefs(1).together, CONTEXTS, np.random.default_rng(0))
    require(isinstance(pick, Pick), f"choose gives {pick!r}, no Pick")
    require(type(pick.arm) is int and 0 <= pick.arm < 5, f"arm {pick.arm!r} is not a row")
    require(type(pick.score) is float and np.isfinite(pick.score), f"score {pick.score!r}")
    require(isinstance(pick.forced, bool), f"forced {pick.forced!r} is neither True nor False")


def is_determined_by_the_generator(rule: Rule) -> None:
    """The same generator gives the same pick."""
    belief = Beliefs(1, rounds=1).together
    for seed in range(5):
        first, second = (
            rule.choose(belief, CONTEXTS, np.random.default_rng(seed)) for _ in range(2)
        )
        require(first == second, f"{first} and {second} from one seed")


def states_a_distribution(rule: Rule) -> None:
    """Propensities are a distribution over the arms that are allowed."""
    allowed = np.array([True, False, True, True, False])
    for rounds in (0, 6):
        for mask in (None, allowed):
            belief, rng = Beliefs(2, rounds).together, np.random.default_rng(0)
            stated = rule.propensities(belief, CONTEXTS, rng, mask)
            require(isinstance(stated, Propensities), f"propensities gives {stated!r}")
            require(stated.values.shape == (5,), f"shape {stated.values.shape}")
            require((stated.values >= 0).all(), "a propensity is negative")
            np.testing.assert_allclose(stated.values.sum(), 1.0, atol=1e-12)
            if mask is not None:
                np.testing.assert_array_equal(stated.values[~mask], 0.0)


def picks_as_often_as_it_states(rule: Rule) -> None:
    """Arms are picked as often as the propensities say."""
    allowed = np.array([True, True, True, False, True])
    for rounds in (0, 6):
        belief, rng = Beliefs(2, rounds).together, np.random.default_rng(0)
        picks = [rule.choose(belief, CONTEXTS, rng, allowed).arm for _ in range(PICKS)]
        stated = rule.propensities(belief, CONTEXTS, rng, allowed)
        counts = np.bincount(picks, minlength=5) / PICKS
        estimated = 0.25 / stated.draws if stated.draws else 0.0
        np.testing.assert_allclose(
            counts, stated.values, atol=4.5 * np.sqrt(0.25 / PICKS + estimated)
        )
        if stated.draws is None:
            require((counts[stated.values == 0] == 0).all(), "an arm of propensity 0 was picked")


def picks_a_single_allowed_arm(rule: Rule) -> None:
    """Where one arm is allowed, it is certain."""
    if rule.bounds is not None and rule.bounds[1] < 1.0:
        return  # it cannot be
    only, belief, rng = np.arange(5) == 3, Beliefs(1).together, np.random.default_rng(0)
    require(rule.choose(belief, CONTEXTS, rng, only).arm == 3, "another arm was picked")
    values = rule.propensities(belief, CONTEXTS, rng, only).values
    np.testing.assert_allclose(values, only, atol=1e-12)


def breaks_ties_evenly(rule: Rule) -> None:
    """Equal arms are picked equally often."""
    belief, same, rng = Beliefs(1).together, np.ones((4, DIM)), np.random.default_rng(0)
    picks = [rule.choose(belief, same, rng).arm for _ in range(800)]
    counts = np.bincount(picks, minlength=4)
    require(counts.min() > 200 - 5 * np.sqrt(150), f"equal arms were picked {counts} times")


def handles_batch_axes(rule: Rule) -> None:
    """Decisions along leading axes are those of each belief alone.

    Where a rule draws, it draws in another order: then frequencies agree, not picks.
    """
    for batch in ((4,), (2, 3)):
        beliefs, rng = Beliefs(3, batch=batch), np.random.default_rng(5)
        contexts = rng.standard_normal((*batch, 5, DIM))
        allowed = rng.random((*batch, 5)) < 0.8
        allowed[..., 0] = True
        rngs = [np.random.default_rng(0) for _ in range(2)]
        stated = rule.propensities(beliefs.together, contexts, rngs[0], allowed)
        pick = rule.choose(beliefs.together, contexts, rngs[1], allowed)
        require(stated.values.shape == (*batch, 5), f"propensities of shape {stated.values.shape}")
        require(pick.arm.shape == pick.score.shape == batch, f"arms of shape {pick.arm.shape}")
        for at, alone in beliefs.alone.items():
            rng = np.random.default_rng(0)
            expected = rule.propensities(alone, contexts[at], rng, allowed[at])
            tolerance = 1e-9 if expected.draws is None else 5 * np.sqrt(0.5 / expected.draws)
            np.testing.assert_allclose(stated.values[at], expected.values, atol=tolerance)
            require(allowed[at][pick.arm[at]], "an arm that is not allowed was picked")
            if expected.draws is None and expected.values.max() == 1.0:
                lone = rule.choose(alone, contexts[at], np.random.default_rng(0), allowed[at])
                require(pick.arm[at] == lone.arm, "another arm than that of the belief alone")
                np.testing.assert_allclose(pick.score[at], lone.score, rtol=1e-9)


def leaves_its_arguments(rule: Rule) -> None:
    """Neither belief, contexts nor mask are changed."""
    belief, contexts = Beliefs(1).together, CONTEXTS.copy()
    allowed = np.array([True, True, False, True, True])
    before = bytes_of(belief, contexts, allowed)
    for mask in (None, allowed):
        rule.choose(belief, contexts, np.random.default_rng(0), mask)
        rule.propensities(belief, contexts, np.random.default_rng(0), mask)
    require(bytes_of(belief, contexts, allowed) == before, "an argument was changed")
    rule.choose(belief, set_read_only(contexts), np.random.default_rng(0), allowed)


def needs_only_what_every_belief_has(rule: Rule) -> None:
    """It uses only rounds, noise, dim, predict, width and draw, or names what is missing."""
    belief = Beliefs(1).together
    names = ("rounds", "noise", "dim", "predict", "width", "draw", "update")
    other: Any = type("Other", (BaseBelief,), {name: getattr(belief, name) for name in names})()
    if options_for(rule):
        try:
            rule.choose(other, CONTEXTS, np.random.default_rng(0))
        except InputError:
            return
    expected = rule.choose(belief, CONTEXTS, np.random.default_rng(0))
    require(rule.choose(other, CONTEXTS, np.random.default_rng(0)) == expected, "another pick")
    stated = rule.propensities(other, CONTEXTS, np.random.default_rng(0))
    np.testing.assert_allclose(stated.values.sum(), 1.0, atol=1e-12)


def decides_for_many_as_one_by_one(rule: Rule) -> None:
    """A bandit's choose_many decides as choose does, task by task."""
    many, single = (Bandit(DIM, rule=rule, seed=3, **options_for(rule)) for _ in range(2))
    for at in range(5):
        tables = np.random.default_rng(at).standard_normal((6, 4, DIM))
        together = many.choose_many(range(6), tables)
        choices = [single.task(id).choose(table) for id, table in enumerate(tables)]
        arms = [choice.arm for choice in choices]
        require(list(together.arms) == arms, f"{list(together.arms)} together, {arms} alone")
        rewards = [float(choice.context[0]) for choice in choices]
        many.learn(together, rewards)
        single.learn(choices, rewards)


def ranks_different_rows(rule: Rule) -> None:
    """A ranking starts with the pick of choose, and lists different rows that are allowed."""
    belief, allowed = Beliefs(2, rounds=6).together, np.array([True, False, True, True, True])
    most = 5 if rule.bounds is None else int(5 - np.ceil(1.0 / rule.bounds[1])) + 1
    for mask, count in ((None, most), (allowed, most - 1), (allowed, 1)):
        rngs = [np.random.default_rng(3) for _ in range(2)]
        picks = rule.rank(belief, CONTEXTS, rngs[0], count, mask)
        arms = [pick.arm for pick in picks]
        require(len(set(arms)) == count, f"{count} rows were to be picked; got {arms}")
        require(mask is None or bool(mask[arms].all()), "a row that is not allowed was picked")
        first = rule.choose(belief, CONTEXTS, rngs[1], mask)
        require(arms[0] == first.arm, "the first row of a ranking is not the one that is chosen")


def ranks_as_often_as_it_states(rule: Rule) -> None:
    """Given the first row of a ranking, the second is picked as often as stated."""
    belief, rng = Beliefs(2, rounds=6).together, np.random.default_rng(0)
    rankings = [rule.rank(belief, CONTEXTS, rng, 2) for _ in range(PICKS)]
    first = int(np.bincount([ranking[0].arm for ranking in rankings]).argmax())
    second = [ranking[1].arm for ranking in rankings if ranking[0].arm == first]
    stated = rule.rank_propensities(belief, CONTEXTS, rng, [first])
    np.testing.assert_allclose(stated.values.sum(), 1.0, atol=1e-12)
    require(stated.values[first] == 0.0, "a row can be picked twice")
    estimated = 0.25 / stated.draws if stated.draws else 0.0
    spread = np.sqrt(0.25 / len(second) + 3.0 * estimated)  # draws may depend on each other
    counts = np.bincount(second, minlength=5) / len(second)
    np.testing.assert_allclose(counts, stated.values, atol=4.5 * spread)


def draws_from_what_it_states(rule: Rule) -> None:
    """With bounds on the probabilities, propensities are within them and not estimated again."""
    if rule.bounds is None:
        return
    floor, ceiling = rule.bounds
    belief = Beliefs(2, rounds=6).together
    one, other = (rule.propensities(belief, CONTEXTS, np.random.default_rng(at)) for at in (0, 1))
    np.testing.assert_array_equal(one.values, other.values)
    require(one.draws is None, "the propensities are estimated")
    inside = (one.values >= floor).all() and (one.values <= ceiling).all()
    require(bool(inside), f"{one.values} are not all between {floor} and {ceiling}")


#: Checks of rules, each called with the rule.
RULE_CHECKS = (
    picks_a_row_with_its_score,
    is_determined_by_the_generator,
    states_a_distribution,
    picks_as_often_as_it_states,
    picks_a_single_allowed_arm,
    breaks_ties_evenly,
    handles_batch_axes,
    leaves_its_arguments,
    needs_only_what_every_belief_has,
    decides_for_many_as_one_by_one,
    ranks_different_rows,
    ranks_as_often_as_it_states,
    draws_from_what_it_states,
)
