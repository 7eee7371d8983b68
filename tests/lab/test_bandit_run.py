"""Policies that know items by their ids are played by bandits, as they are served."""

import zlib

import numpy as np
import polars as pl
import pytest

import headstart as hs
from headstart.errors import InputError
from headstart.lab import policy
from headstart.lab.engine import simulate
from headstart.worlds import Logged

SCHEMA = hs.Schema(action={"price": hs.number()}, identity=True)
DEFAULT, LINUCB = policy("empirical_bayes"), policy("linucb")


def listened(tasks=12, rounds=30, items=15, seed=0):
    """Users who like the same few of many songs, which nothing but their ids tells."""
    rng = np.random.default_rng(seed)
    liked = rng.normal(size=items)
    count = tasks * rounds * 4
    song = rng.integers(0, items, count)
    return pl.DataFrame(
        {
            "user": np.repeat(np.arange(tasks), rounds * 4),
            "id": [f"song {at}" for at in song],
            "price": rng.normal(size=count),
            "stars": liked[song] + 0.3 * rng.normal(size=count),
            "round": np.tile(np.repeat(np.arange(rounds), 4), tasks),
        }
    )


def world(**options):
    return Logged(listened(), task="user", reward="stars", schema=SCHEMA, **options)


def test_a_policy_plays_as_the_bandit_that_is_served():
    played = world(round="round")
    found = simulate(played, [DEFAULT, LINUCB], [3], tasks=4, rounds=20)[DEFAULT.name]
    population = played.population(3)
    mine = DEFAULT.for_populations([population])
    regrets = []
    numbers = np.random.SeedSequence([3, 2, zlib.crc32(DEFAULT.name.encode())])
    how = {"seed": int(numbers.generate_state(1)[0]), "intercept": mine.intercept}
    bandit = hs.Bandit(SCHEMA, mine.transfer, mine.rule, **how)
    for number in range(4):
        episode, task = population.episode(number, 20), bandit.task(number)
        regrets.append(0.0)
        for place, offer in enumerate(episode.offers):
            choice = task.choose(actions=offer.actions)
            reward = episode.rewards[place, offer.arms[choice.arm]]
            task.learn(choice, reward)
            regrets[-1] += episode.values[place].max() - reward
        task.close()
    np.testing.assert_allclose(found.regret[0, :, 0], regrets)


def test_each_policy_knows_items_from_its_own_choices():
    both = simulate(world(round="round"), [DEFAULT, LINUCB], [0, 1], tasks=6, rounds=20)
    alone = simulate(world(round="round"), [LINUCB], [1], tasks=6, rounds=20)
    name = LINUCB.name
    np.testing.assert_array_equal(both[name].regret[1:], alone[name].regret)
    without = hs.Schema(action={"price": hs.number()})
    plain = Logged(listened(), task="user", reward="stars", schema=without, round="round")
    blind = simulate(plain, [DEFAULT], [0, 1], tasks=12, rounds=30)
    known = simulate(world(round="round"), [DEFAULT], [0, 1], tasks=12, rounds=30)
    lost, least = (found[DEFAULT.name].regret.sum() for found in (blind, known))
    assert least < 0.6 * lost


def test_of_rows_of_one_item_the_first_is_on_offer():
    population = world(arms=8).population(0)
    episode = population.episode(0, 25)
    assert episode.rewards.shape == (25, 8)
    for place, offer in enumerate(episode.offers):
        names = [action["id"] for action in offer.actions]
        assert len(set(names)) == len(names) == len(offer.arms)
        assert set(episode.rewards[place]) == set(episode.rewards[place, offer.arms])
    assert any(len(offer.arms) < 8 for offer in episode.offers)


def test_ids_alone_and_what_cannot_be_played():
    ids = hs.Schema(identity=True)
    played = Logged(listened(), task="user", reward="stars", schema=ids, arms=3, intercept=True)
    found = simulate(played, [DEFAULT, LINUCB], [0], tasks=2, rounds=5)
    assert all(np.isfinite(each.regret).all() for each in found.values())
    with pytest.raises(InputError, match="probe must be left out"):
        simulate(played, [DEFAULT], [0], 1, 1, probe=lambda *_: {})
    table = listened().drop("id")
    with pytest.raises(InputError, match="id"):
        Logged(table, task="user", reward="stars", schema=SCHEMA)
