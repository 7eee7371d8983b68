"""MovieLens: users are tasks, the movies they rated the arms; the files are made up here."""

import collections
import os

import numpy as np
import pytest
from scipy import stats

import headstart as hs
from headstart.worlds import MovieLens
from headstart.worlds.completion import RANK, complete, past_features
from headstart.worlds.offers import draw_distinct
from headstart.worlds.ratings import GENRES

versions = pytest.mark.parametrize("version", ["1m", "100k"])


@pytest.fixture
def world(files, table):
    """``world(…)``: MovieLens on the small files."""
    folders = {version: files(version, table) for version in ("1m", "100k")}

    def make(version="1m", **settings):
        settings = {"arms": 5, "min_ratings": 20, "verify": False, **settings}
        return MovieLens(version, data=folders[version], **settings)

    return make


def stars_of(table, user):
    """What a user rated: the stars by the set of genres, as the files say it."""
    genres = {movie.id: tuple(movie.genres) for movie in table.movies}
    return [(genres[movie], stars) for id, movie, stars in table.ratings if id == user]


@versions
def test_arms_are_movies_the_user_rated_with_their_ratings(world, table, version):
    population = world(version).population(0)
    for task in range(population.tasks):
        known = set(stars_of(table, population.users[task]))
        episode = population.episode(task, 30)
        assert episode.contexts.shape == (30, 5, 18)
        for context, value in zip(
            episode.contexts.reshape(-1, 18), episode.values.ravel(), strict=True
        ):
            genres = tuple(np.flatnonzero(context))
            np.testing.assert_allclose(context[list(genres)], len(genres) ** -0.5)
            assert (genres, 1 + 4 * value) in known
        np.testing.assert_array_equal(episode.values, episode.rewards)
        assert episode.theta is None
    assert (population.dim, population.noise, population.truth) == (18, 0.25, None)


def test_both_versions_of_the_same_ratings_are_the_same_world(world):
    for settings in ({}, {"group": "women"}, {"group": "age:18"}, {"group": "writer"}):
        one, other = (world(version, **settings).population(3) for version in ("1m", "100k"))
        np.testing.assert_array_equal(one.users, other.users)
        for left, right in zip(one.episode(1, 9)[:3], other.episode(1, 9)[:3], strict=True):
            np.testing.assert_array_equal(left, right)


@versions
@pytest.mark.parametrize(
    ("group", "belongs"),
    [
        ("everybody", lambda user: True),
        ("men", lambda user: user.gender == "M"),
        ("women", lambda user: user.gender == "F"),
        ("age:1", lambda user: user.years < 18),
        ("age:25", lambda user: 25 <= user.years < 35),
        ("programmer", lambda user: user.occupation == "programmer"),
        ("Writer", lambda user: user.occupation == "writer"),
        (20, lambda user: user.occupation == "writer"),
        ("20", lambda user: user.occupation == "writer"),
    ],
)
def test_tasks_are_the_groups_users_with_enough_ratings(world, table, version, group, belongs):
    wanted = [
        user.id for user in table.users if belongs(user) and len(stars_of(table, user.id)) >= 20
    ]
    population = world(version, group=group).population(0)
    assert sorted(population.users) == wanted
    assert population.tasks == len(wanted)


@versions
def test_groups_are_counted_the_largest_first(world, table, version):
    users = [user for user in table.users if len(stars_of(table, user.id)) >= 20]
    writers = sum(user.occupation == "writer" for user in users)
    occupations = world(version).groups()
    assert len(occupations) == 21
    assert occupations["writer"] == writers
    assert occupations["programmer"] == len(users) - writers
    assert list(occupations.values()) == sorted(occupations.values(), reverse=True)
    assert sum(world(version).groups("gender").values()) == len(users)
    for kind in ("occupation", "gender", "age"):
        for name, count in world(version).groups(kind).items():
            if count:
                assert world(version, group=name).population(0).tasks == count


def test_users_with_more_ratings_can_be_kept_for_later(world):
    some, others = world(max_ratings=31), world(min_ratings=32)
    everybody = world().population(0).users
    both = [*some.population(0).users, *others.population(0).users]
    assert sorted(both) == sorted(everybody)
    assert 0 < some.population(0).tasks < len(everybody)
    assert sum(some.groups().values()) == some.population(0).tasks


def test_seeds_shuffle_users_and_draw_rounds(world):
    one, again, other = (world().population(seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.users, again.users)
    assert list(one.users) != list(other.users)
    assert sorted(one.users) == sorted(other.users)
    again.episode(0, 7)
    for left, right in zip(one.episode(2, 7)[:3], again.episode(2, 7)[:3], strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.episode(2, 7).contexts, one.episode(3, 7).contexts)


@pytest.mark.parametrize(
    ("normalise", "entry"), [("l2", lambda g: g**-0.5), ("l1", lambda g: 1 / g), ("sqrt6", None)]
)
@pytest.mark.parametrize("intercept", [False, True])
def test_contexts_are_scaled_and_never_longer_than_one(world, normalise, entry, intercept):
    population = world(normalise=normalise, intercept=intercept).population(0)
    contexts = population.episode(0, 40).contexts.reshape(-1, population.dim)
    assert population.dim == 18 + intercept
    assert np.linalg.norm(contexts, axis=1).max() <= 1 + 1e-12
    shrunk = np.sqrt(0.5) if intercept else 1.0
    for context in contexts:
        flags = context[:18][context[:18] > 0]
        want = entry(len(flags)) if entry else 6**-0.5
        np.testing.assert_allclose(flags, want * shrunk)
        if intercept:
            assert context[-1] == pytest.approx(np.sqrt(0.5))


@versions
def test_completed_worlds_offer_any_movie(world, version):
    population = world(version, candidates="completed", arms=20).population(0)
    model = complete(population.data)
    episode = population.episode(0, 400)
    assert episode.contexts.shape == (400, 20, 18)
    assert 0 <= episode.values.min() <= episode.values.max() <= 1
    # The same noise for every arm of a round, as large as what the model leaves unexplained.
    errors = episode.rewards - episode.values
    np.testing.assert_allclose(errors, np.repeat(errors[:, :1], 20, axis=1), atol=1e-12)
    assert errors[:, 0].std() == pytest.approx(model.noise, rel=0.15)
    offered = np.unique(episode.contexts.reshape(-1, 18), axis=0)
    assert len(offered) == len(np.unique(population.features, axis=0))


@pytest.mark.parametrize("shape", [(0.0, 1.0, 1.0), (0.8, 0.0, 0.0)], ids=["factors", "means"])
def test_completion_predicts_ratings_it_has_not_seen(files, new_table, shape):
    table = new_table(users=120, movies=90)
    rng = np.random.default_rng(1)
    taste = {user.id: np.array(shape) * rng.standard_normal(3) for user in table.users}
    style = {movie.id: np.array(shape) * rng.standard_normal(3) for movie in table.movies}
    truth = {
        (u, m): 3 + a[0] + b[0] + a[1:] @ b[1:] for u, a in taste.items() for m, b in style.items()
    }
    table.ratings = [
        (u, m, int(np.clip(np.rint(value), 1, 5)))
        for (u, m), value in truth.items()
        if rng.random() < 0.6
    ]
    data = MovieLens(data=files("1m", table), verify=False).ratings()
    model = complete(data)
    assert complete(data) is model
    rated = {(u, m) for u, m, _ in table.ratings}
    got, want = [], []
    for row, user in enumerate(table.users):
        values = model.values(row, np.arange(len(table.movies)))
        for column, movie in enumerate(table.movies):
            if (user.id, movie.id) not in rated:
                got.append(values[column])
                want.append((np.clip(truth[user.id, movie.id], 1, 5) - 1) / 4)
    # Where there are factors, means would explain next to nothing.
    assert np.mean(np.subtract(got, want) ** 2) < 0.25 * np.var(want)
    assert 0.02 < model.noise < 0.15


def test_completion_falls_back_on_means(files, new_table):
    table = new_table(users=30, movies=60)
    unrated = table.movies[-1].id
    stars = {user.id: 1 + row % 5 for row, user in enumerate(table.users)}
    table.ratings = [(u, m, stars[u]) for u, m, _ in table.ratings if m != unrated]
    model = complete(MovieLens(data=files("1m", table), verify=False).ratings())
    values = [model.values(row, np.array([59]))[0] for row in range(1, 30)]
    want = [(stars[user.id] - 1) / 4 for user in table.users[1:]]
    np.testing.assert_allclose(values, want, atol=0.1)


@pytest.fixture
def past_table(new_table):
    """Users whose taste shows: 120 with about 10 ratings each, and 20 with about 30."""
    table = new_table(users=140)
    rng = np.random.default_rng(1)
    taste = {user.id: rng.standard_normal(2) for user in table.users}
    style = {movie.id: rng.standard_normal(2) for movie in table.movies}
    few = {user.id for user in table.users[:120]}
    table.ratings = [
        (user, movie, int(np.clip(np.rint(3 + taste[user] @ style[movie]), 1, 5)))
        for user in taste
        for movie in style
        if rng.random() < (0.25 if user in few else 0.75)
    ]
    return table


def learned_world(folder, **settings):
    settings = {"arms": 5, "min_ratings": 20, "verify": False, "features": "learned", **settings}
    return MovieLens(data=folder, **settings)


def test_learned_features_are_those_of_users_with_fewer_ratings(files, past_table, tmp_path):
    kept = past_table.ratings
    counts = collections.Counter(user for user, _, _ in kept)
    past = {user for user, number in counts.items() if number < 20}
    assert set(range(1, 240, 2)) <= past  # the first 120 users

    def features_of(ratings, name):
        past_table.ratings = ratings
        folder = files("1m", past_table, tmp_path / name)
        return past_features(learned_world(folder).ratings(), 20)

    before = features_of(kept, "plain")
    # Whatever those say whose tasks are played, the features are the same to the last bit.
    turned = [(user, movie, stars if user in past else 6 - stars) for user, movie, stars in kept]
    np.testing.assert_array_equal(features_of(turned, "turned"), before)
    most = max(counts, key=counts.get)
    np.testing.assert_array_equal(
        features_of([each for each in kept if each[0] != most], "one less"), before
    )
    # But not whatever the others say.
    others = [(user, movie, 6 - stars if user in past else stars) for user, movie, stars in kept]
    assert not np.allclose(features_of(others, "others"), before)
    assert not np.allclose(features_of([each for each in kept if each[0] != 1], "first"), before)


def test_learned_features_are_a_mean_and_factors_along_their_principal_axes(files, past_table):
    data = learned_world(files("1m", past_table)).ratings()
    features = past_features(data, 20)
    assert features.shape == (len(past_table.movies), RANK + 1)
    assert past_features(data, 20) is features
    lengths = np.linalg.norm(features, axis=1)
    assert lengths.max() == pytest.approx(1.0)
    products = features[:, 1:].T @ features[:, 1:]
    np.testing.assert_allclose(products, np.diag(np.diagonal(products)), atol=1e-9)
    assert (np.diff(np.diagonal(products)) <= 1e-12).all()
    assert not np.allclose(features, past_features(data, 10))


def test_learned_features_tell_more_of_the_next_ratings_than_genres(files, past_table):
    folder = files("1m", past_table)
    left = {}
    for features in ("genres", "learned"):
        population = learned_world(folder, features=features, intercept=True).population(0)
        errors = []
        for row in population.rows:
            movies, rewards = population.data.of_user(int(row))
            contexts = population.features[movies]
            seen, new = slice(None, None, 2), slice(1, None, 2)
            theta = hs.Evidence.of(contexts[seen], rewards[seen]).ridge(0.05)
            errors.append(np.mean((rewards[new] - contexts[new] @ theta) ** 2))
        left[features] = np.mean(errors)
    assert left["learned"] < 0.7 * left["genres"]


@versions
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("features", ["genres", "learned", "both"])
def test_features_stand_side_by_side_and_never_longer_than_one(
    files, past_table, version, features, intercept
):
    world = learned_world(
        files(version, past_table), version=version, features=features, intercept=intercept
    )
    population = world.population(0)
    genres = features != "learned"
    learned = features != "genres"
    assert population.dim == 18 * genres + (RANK + 1) * learned + intercept
    share = np.sqrt(genres + learned + intercept)
    episode = population.episode(0, 30)
    contexts = episode.contexts.reshape(-1, population.dim)
    assert np.linalg.norm(contexts, axis=1).max() <= 1 + 1e-12
    if learned:
        start = 18 * genres
        np.testing.assert_allclose(
            population.features[:, start : start + RANK + 1],
            past_features(population.data, 20) / share,
        )
    if genres:
        np.testing.assert_allclose(np.linalg.norm(contexts[:, :18], axis=1), 1 / share)
    if intercept:
        np.testing.assert_allclose(contexts[:, -1], 1 / share)
    plain = learned_world(files(version, past_table), version=version, features="genres")
    np.testing.assert_array_equal(episode.values, plain.population(0).episode(0, 30).values)


@pytest.mark.parametrize("features", ["learned", "both"])
def test_completed_worlds_have_learned_features_too(files, past_table, features):
    world = learned_world(files("1m", past_table), features=features, candidates="completed")
    population = world.population(0)
    contexts = population.episode(0, 50).contexts
    assert contexts.shape == (50, 5, RANK + 1 + 18 * (features == "both"))
    assert np.linalg.norm(contexts, axis=-1).max() <= 1 + 1e-12


def test_movies_that_nobody_has_rated_yet_have_features_near_zero(files, past_table):
    data = learned_world(files("1m", past_table)).ratings()
    unknown = past_table.movies[3].id
    counts = dict(zip(data.users, data.counts, strict=True))
    past_table.ratings = [
        (user, movie, stars)
        for user, movie, stars in past_table.ratings
        if counts[user] >= 20 or movie != unknown
    ]
    features = past_features(learned_world(files("1m", past_table)).ratings(), 20)
    np.testing.assert_allclose(features[3], 0.0, atol=1e-12)


def test_without_users_to_learn_from_learned_features_are_refused(files, past_table):
    world = learned_world(files("1m", past_table), min_ratings=2, arms=2)
    assert world.ratings().counts.min() >= 2
    with pytest.raises(hs.InputError, match="min_ratings"):
        world.population(0)


def test_movies_of_unknown_genre_are_left_out(files, table):
    table.movies[0].genres = []
    gone = table.movies[0].id
    population = MovieLens(
        "100k", data=files("100k", table), arms=5, min_ratings=5, verify=False
    ).population(0)
    assert len(population.features) == len(table.movies) - 1
    assert np.linalg.norm(population.features, axis=1).min() > 0
    assert len(population.data.reward) == sum(movie != gone for _, movie, _ in table.ratings)


def test_offers_are_drawn_uniformly_without_replacement():
    picks = draw_distinct(np.random.default_rng(0), 60_000, 5, 3)
    codes = picks @ [25, 5, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 5 * 4 * 3
    assert stats.chisquare(counts).pvalue > 1e-4
    everything = draw_distinct(np.random.default_rng(0), 100, 4, 4)
    np.testing.assert_array_equal(np.sort(everything), np.tile(np.arange(4), (100, 1)))


def test_files_are_read_again_when_they_change(files, table):
    folder = files("1m", table)
    world = MovieLens(data=folder, arms=5, min_ratings=20, verify=False)
    before = world.ratings()
    assert world.ratings() is before
    table.ratings = table.ratings[:-5]
    files("1m", table)
    os.utime(folder / "ratings.dat", ns=(1, 1))
    assert len(world.ratings().reward) == len(before.reward) - 5


@pytest.mark.parametrize(
    ("name", "line", "words"),
    [
        ("ratings.dat", b"1::2\n", ["ratings.dat", "user, movie and stars", "2 columns"]),
        ("ratings.dat", b"1::x::5::9\n", ["ratings.dat", "user, movie and stars", "'x'"]),
        ("ratings.dat", b"1::2::6::9\n", ["ratings.dat, line", "1 to 5 stars", "got 6"]),
        ("ratings.dat", b"2::2::5::9\n", ["ratings.dat, line", "user", "got 2"]),
        ("ratings.dat", b"1::1::5::9\n", ["ratings.dat, line", "movie", "got 1"]),
        ("users.dat", b"99::M\n", ["users.dat, line", "5 fields", "got 2"]),
        ("users.dat", b"99::M::25::77::0\n", ["users.dat, line", "occupation", "77"]),
        ("users.dat", b"x::M::25::7::0\n", ["users.dat", "whole numbers", "'x'"]),
        ("movies.dat", b"7\n", ["movies.dat, line", "3 fields"]),
    ],
)
def test_damaged_files_are_refused_by_line(files, table, name, line, words):
    path = files("1m", table) / name
    path.write_bytes(path.read_bytes() + line)
    with pytest.raises(hs.FileError) as caught:
        MovieLens(data=path.parent, verify=False).ratings()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"version": "10m"}, ["version", "'1m', '100k'", "'10m'"]),
        ({"group": "wemen"}, ["group", "'wemen'", "did you mean 'women'"]),
        ({"group": "age:30"}, ["group", "age:25", "did you mean"]),
        ({"group": 21}, ["group", "from 0 to 20", "21"]),
        ({"group": 1.5}, ["group", "1.5"]),
        ({"normalise": "l3"}, ["normalise", "'l3'"]),
        ({"features": "tags"}, ["features", "'genres', 'learned', 'both'", "'tags'"]),
        ({"candidates": "all"}, ["candidates", "'rated', 'completed'"]),
        ({"arms": 0}, ["arms"]),
        ({"arms": 20, "min_ratings": 10}, ["min_ratings", "20 or more", "got 10"]),
        ({"max_ratings": 249}, ["max_ratings", "250 or more", "got 249"]),
        ({"noise": 0.0}, ["noise", "positive"]),
        ({"intercept": 1}, ["intercept", "True or False"]),
        ({"data": 7}, ["data", "a folder", "7"]),
    ],
)
def test_bad_settings_are_refused(settings, words):
    with pytest.raises(hs.InputError) as caught:
        MovieLens(**settings)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["ratings.dat", "users.dat", "movies.dat"])
def test_empty_files_are_refused(files, table, name):
    path = files("1m", table) / name
    path.write_bytes(b"")
    with pytest.raises(hs.FileError, match=f"{name} must not be empty"):
        MovieLens(data=path.parent, verify=False).ratings()


def test_groups_without_users_and_unknown_tasks_are_refused(world):
    with pytest.raises(hs.InputError, match="'farmer' must have users with min_ratings=20"):
        world(group="farmer").population(0)
    with pytest.raises(hs.InputError, match="arms must be 40 or fewer"):
        world(candidates="completed", arms=41).population(0)
    population = world().population(0)
    with pytest.raises(hs.InputError, match="task must be"):
        population.episode(population.tasks, 10)
    with pytest.raises(hs.InputError, match="rounds must be"):
        population.episode(0, 0)


def test_names_say_the_group():
    assert MovieLens().name == "movielens"
    assert MovieLens(group="men").name == "movielens men"
    assert MovieLens(group=12).name == "movielens programmer"
    assert repr(MovieLens(group="men", arms=5)) == "MovieLens(group='men', arms=5)"
    assert len(GENRES) == 18
