"""Policies by name: from text and from options, with errors that name what is wrong."""

import pickle

import numpy as np
import pytest

import headstart as hs
from headstart import algorithms
from headstart.algorithms import ALGORITHMS, DEFAULT
from headstart.lab.policies import Policy, parse, policy
from headstart.rules import UCB, Forced, Thompson
from headstart.transfer import Bias, Gaussian, Independent, Subspace
from headstart.worlds import Synthetic

WORLD = Synthetic(dim=5, rank=2, arms=4)


def built(text, world=WORLD, seeds=(0,)):
    """A policy's transfer and rule in a world."""
    return parse(text).for_populations([world.population(seed) for seed in seeds])


def test_a_name_alone_has_the_usual_settings():
    for name in ALGORITHMS:
        assert parse(name) == policy(name)


def test_every_policy_has_a_name_of_its_own():
    names = [policy(name).name for name in ALGORITHMS]
    assert len(set(names)) == len(names)
    assert {"LinUCB", "LinTS", "B-OFUL", "P-LinUCB", "P-TS", "M-TS"} <= set(names)
    assert {"projection oracle", "Bayes oracle"} <= set(names)


def test_the_default_is_what_a_bandit_does_and_is_named_so():
    default, bandit = built("empirical_bayes"), hs.Bandit(5)
    assert default.name == DEFAULT == "headstart (default)"
    assert (default.transfer, default.rule) == (bandit.transfer, bandit.rule)
    assert not default.knows_noise
    assert default.intercept
    for other in ("empirical_bayes:radius=2", "empirical_bayes:decay_tasks=20", "mixture"):
        assert parse(other).name != DEFAULT


def test_policies_are_the_librarys_own_transfers_and_rules():
    assert built("linucb:lam=2") == Policy("LinUCB", Independent(lam=2), UCB())
    assert built("lints:scale=0.5") == Policy("LinTS", Independent(), Thompson(0.5))
    assert built("bias_oful:method=pooled") == Policy("B-OFUL", Bias(method="pooled"), UCB())
    assert built("projected_ts:rank=3,shrink=mean") == Policy(
        "P-TS", Subspace(rank=3, shrink="mean"), Thompson()
    )
    assert built("meta_ts:forced_rounds=7,lam=3") == Policy(
        "M-TS", Gaussian(lam=3), Forced(7, Thompson())
    )


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize("name", [name for name, each in ALGORITHMS.items() if not each.truth])
def test_a_policy_is_the_bandit_of_the_same_name(name, paper):
    """The same defaults, and the same printed form, in experiments as in the API."""
    if paper and ALGORITHMS[name].printed is None:
        return
    options = {"paper": True} if paper else {}
    bandit = getattr(algorithms, name)(dim=WORLD.dim, noise=WORLD.noise, **options)
    mine = policy(name, **options).for_populations([WORLD.population(0)])
    assert (mine.transfer, mine.rule) == (bandit.transfer, bandit.rule)


def test_the_printed_form_can_be_asked_for_in_text():
    text = "projected_linucb:paper=true,horizon=100,bound=2,delta=0.05"
    printed = built(text)
    assert printed.rule == UCB("paper", 0.05, 100)
    assert (printed.transfer.bound, printed.transfer.warmup) == (2, WORLD.dim - 1)
    with pytest.raises(hs.InputError, match="rank must be left out with paper=True"):
        parse("projected_linucb:paper=true,rank=3")
    with pytest.raises(hs.InputError, match="paper must be True or False"):
        parse("linucb:paper=yes")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("projected_linucb:rank=3", {"rank": 3}),
        (
            "projected_linucb:rank=paper,lam1=1e2,lam2=1",
            {"rank": "paper", "lam1": 100.0, "lam2": 1},
        ),
        ("projected_linucb: rank = 3 , radius = .5 ", {"rank": 3, "radius": 0.5}),
        ("projected_linucb:", {}),
        (" projected_linucb ", {}),
        ("projected_linucb:label=mine", {"label": "mine"}),
        ("projected_linucb:label=3,warmup=4", {"label": 3, "warmup": 4}),
    ],
)
def test_text_and_options_say_the_same(text, options):
    assert parse(text) == policy("projected_linucb", **options)


def test_a_label_renames_and_changes_nothing_else():
    mine = parse("bias_oful:label=my own: λ = 2,lam=2")
    assert mine.name == "my own: λ = 2"
    own = mine.for_populations([WORLD.population(0)])
    assert (own.transfer, own.rule) == (Bias(lam=2), UCB())


def test_a_whole_number_stays_whole():
    assert isinstance(parse("projected_linucb:rank=3").options["rank"], int)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", ["policy", "nonsense", "linucb", "bias_oful"]),
        ("", ["policy", "linucb"]),
        ("LinUCB", ["policy", "linucb"]),
        ("bias_oful:lm=2", ["option of bias_oful", "lm", "lam", "radius", "label"]),
        ("linucb:lam", ["policy", "option=value", "linucb:lam"]),
        ("linucb:lam=", ["lam"]),
        ("linucb:lam=-1", ["lam", "positive", "-1"]),
        ("linucb:lam=nan", ["lam", "nan"]),
        ("linucb:lam=much", ["lam", "much"]),
        ("linucb:radius=-0.5", ["radius", "-0.5"]),
        ("linucb:radius=wide", ["radius", "wide", "theory", "paper"]),
        ("lints:scale=wide", ["scale", "wide", "theory", "paper"]),
        ("projected_linucb:rank=1.5", ["rank", "1.5"]),
        ("projected_linucb:pca=fast", ["pca", "fast", "exact"]),
        ("projected_linucb:warmup=none", ["warmup", "none"]),
        ("bias_oful:method=median", ["method", "median", "average"]),
        ("meta_ts:forced_rounds=many", ["rounds", "many"]),
    ],
)
def test_what_cannot_be_is_refused_by_name(text, words):
    with pytest.raises(hs.InputError) as caught:
        parse(text)
    for word in words:
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [1.0], {"a": 1}, True])
def test_options_of_the_wrong_kind_are_refused_by_name(value):
    with pytest.raises(hs.InputError, match="lam"):
        policy("linucb", **{"lam": value})


def test_options_are_not_changed():
    options = {"lam": 2.0, "label": "mine"}
    policy("linucb", **options)
    assert options == {"lam": 2.0, "label": "mine"}


def test_policies_print_as_the_code_that_makes_them():
    mine = parse("bias_oful:lam=2,radius=0.5")
    assert repr(mine) == "policy('bias_oful', lam=2, radius=0.5)"
    assert eval(repr(mine)) == mine
    renamed = parse("bias_oful:label=mine,lam=2")
    assert eval(repr(renamed)) == renamed
    fixed = Policy("mine", Bias(lam=2), UCB(radius=0.5))
    assert repr(fixed) == "Policy(name='mine', transfer=Bias(lam=2), rule=UCB(radius=0.5))"
    assert eval(repr(fixed)) == fixed


@pytest.mark.parametrize("name", ALGORITHMS)
def test_policies_travel_to_other_processes(name):
    mine = policy(name)
    assert pickle.loads(pickle.dumps(mine)) == mine


def test_every_policy_has_the_knobs_that_are_tuned():
    for algorithm in ALGORITHMS.values():
        assert {"radius", "scale"} & set(algorithm.options)
        assert algorithm.summary


def test_an_intercept_is_true_or_false():
    assert not built("empirical_bayes:intercept=false").intercept
    with pytest.raises(hs.InputError, match="intercept must be True or False"):
        parse("empirical_bayes:intercept=maybe")


# --- Oracles ------------------------------------------------------------------------------------


def test_an_oracle_is_told_each_seeds_own_truth():
    populations = [WORLD.population(seed) for seed in (3, 1, 2)]
    bayes = parse("bayes_oracle").for_populations(populations).transfer
    plane = parse("projection_oracle:lam1=9,lam2=4").for_populations(populations).transfer
    assert (plane.lam1, plane.lam2) == (9, 4)
    for place, population in enumerate(populations):
        truth = population.truth
        np.testing.assert_array_equal(bayes.mean[place], truth.mean)
        np.testing.assert_array_equal(bayes.covariance[place], truth.covariance)
        np.testing.assert_array_equal(plane.mean[place], truth.mean)
        np.testing.assert_array_equal(plane.basis[place], truth.basis)
    assert not np.allclose(bayes.mean[0], bayes.mean[1])


def test_only_oracles_depend_on_the_truth():
    for name in ALGORITHMS:
        first, second = (built(name, seeds=(seed,)) for seed in (0, 1))
        assert (first == second) == ("oracle" not in name)


def test_an_oracle_without_a_truth_is_refused():
    drifting = Synthetic(dim=5, rank=2, arms=4, drift=0.1)
    for name in ("bayes_oracle", "projection_oracle"):
        with pytest.raises(hs.InputError, match="no known truth"):
            built(name, drifting)
    clusters = Synthetic(dim=5, rank=2, arms=4, clusters=2)
    built("bayes_oracle", clusters)
    with pytest.raises(hs.InputError, match="no single subspace"):
        built("projection_oracle", clusters)


def test_an_oracle_takes_no_lambda_from_data():
    with pytest.raises(hs.InputError, match=r"lam1.*plug-in"):
        parse("projection_oracle:lam1=plug-in")


def test_the_oracles_agree_where_the_mean_is_off_the_plane():
    """λ = R²/variance makes the projection oracle the Bayes oracle."""
    world = Synthetic(dim=5, rank=2)
    bayes, plane = (
        built(name, world).transfer
        for name in ("bayes_oracle", "projection_oracle:lam1=25,lam2=0.16")
    )
    one, other = (oracle.prior(oracle.init(5, world.noise, (1,))) for oracle in (bayes, plane))
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-12)
    np.testing.assert_allclose(one.covariance, other.covariance, rtol=1e-9, atol=1e-12)
