"""Films with ids: the schema on MovieLens-1M, next to item means and to other libraries.

    python benchmarks/movies.py --data ml-1m.tar.xz

Each of 400 users, in random order, is a task of 50 rounds. A round offers ten films that the user
has rated and was not shown yet; the reward is the rating, and a film that was chosen leaves. All
contenders see the same users, in the same order, with the same draws of films. Regret is the best
rating on offer minus that of the film chosen, averaged over rounds, of all users and of the last
60 % of them. Ratios are taken order by order; intervals are 95 % by Student's t over orders.

MABWiser and Vowpal Wabbit take part if they are installed. Nothing was tuned on the orders that are
reported (seeds 1 to 5); trials used those from 101 on (``--first 101``).
"""

import argparse
import json
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

import numpy as np
from scipy import stats

import headstart as hs
from headstart.worlds import ratings
from headstart.worlds.download import fetch

USERS, ROUNDS, ARMS, MIN_RATINGS = 400, 50, 10, 60
LAST = 0.6  # of the users


class Films:
    """The ratings of users with enough of them, and the genres of films."""

    def __init__(self, folder):
        data = ratings.read(Path(folder), "1m")
        self.genres = data.genres
        self.names = [genre.replace(" ", "_") for genre in ratings.GENRES]
        enough = np.flatnonzero(data.counts >= MIN_RATINGS)
        self.users = [(int(user), *data.of_user(user)) for user in enough]
        self.actions = [
            {"id": film, **dict(zip(self.names, flags.astype(bool).tolist(), strict=True))}
            for film, flags in enumerate(self.genres)
        ]

    def tasks(self, seed, count):
        """Users in random order, each with the films it was offered drawn by fixed priorities."""
        rng = np.random.default_rng(seed)
        for place in rng.permutation(len(self.users))[:count]:
            user, films, rewards = self.users[place]
            yield user, films, 1.0 + 4.0 * rewards, rng.integers(2**62)


def play(films, seed, users, contender):
    """The mean regret of every user."""
    regrets = []
    for user, movies, stars, draws in films.tasks(seed, users):
        left, rng, regret = np.arange(len(movies)), np.random.default_rng(draws), 0.0
        for _ in range(ROUNDS):
            priority = rng.random(len(movies))
            offered = left[np.argsort(priority[left])[:ARMS]]
            arm = contender.choose(user, movies[offered].tolist())
            reward = float(stars[offered[arm]])
            contender.learn(reward)
            regret += stars[offered].max() - reward
            left = left[left != offered[arm]]
        contender.close(user)
        regrets.append(regret / ROUNDS)
    return np.array(regrets)


class Random:
    def __init__(self, films, seed):
        self.rng = np.random.default_rng(seed + 1000)

    def choose(self, user, movies):
        return int(self.rng.integers(len(movies)))

    def learn(self, reward):
        pass

    def close(self, user):
        pass


class ItemMeans(Random):
    """Shrunken means of all ratings so far, with a bonus for films that few have rated."""

    def __init__(self, films, seed):
        super().__init__(films, seed)
        self.counts, self.sums = np.zeros(len(films.genres)), np.zeros(len(films.genres))
        self.rewards = self.total = self.squares = 0.0

    def choose(self, user, movies):
        mean = self.total / max(self.rewards, 1.0)
        spread = np.sqrt(max(self.squares / max(self.rewards, 1.0) - mean**2, 0.0))
        counts = self.counts[movies] + 5.0
        scores = (self.sums[movies] - self.counts[movies] * mean) / counts
        scores += 0.5 * spread / np.sqrt(counts) + 1e-9 * self.rng.random(len(movies))
        self.film = movies[int(scores.argmax())]
        return int(scores.argmax())

    def learn(self, reward):
        self.counts[self.film] += 1
        self.sums[self.film] += reward
        self.rewards, self.total = self.rewards + 1.0, self.total + reward
        self.squares += reward**2


class Headstart:
    """The default, with a schema."""

    def __init__(self, films, seed, *, genres, identity):
        fields = {name: hs.boolean(missing=False) for name in films.names} if genres else None
        schema = hs.Schema(action=fields, identity=identity)
        self.bandit = hs.Bandit(schema, seed=seed)
        self.actions = films.actions if genres else range(len(films.actions))

    def choose(self, user, movies):
        self.choice = self.bandit.task(user).choose(actions=[self.actions[film] for film in movies])
        return self.choice.arm

    def learn(self, reward):
        self.bandit.learn(self.choice, reward)

    def close(self, user):
        self.bandit.task(user).close()


class MABWiser(Random):
    """UCB1 with the films as arms; of those on offer, one with the largest index.

    ``partial_fit`` computes the indices of all films, whose logarithm of the number of rounds has
    changed: 13 ms a round. Here they are computed by the same function of MABWiser when a film is
    on offer, which gives the same choices. Films without a reward have the index 0.
    """

    def __init__(self, films, seed):
        from mabwiser.mab import MAB, LearningPolicy

        super().__init__(films, seed)
        arms = sorted({int(film) for _, movies, _ in films.users for film in movies})
        self.bandit = MAB(arms, LearningPolicy.UCB1(alpha=1.0), seed=seed)
        self.none = np.array([])
        self.is_fitted = False

    def choose(self, user, movies):
        index = dict.fromkeys(movies, 0.0)
        if self.is_fitted:
            inner = self.bandit._imp
            for film in movies:
                inner._fit_arm(film, self.none, self.none)
            index = inner.arm_to_expectation
        scores = np.array([index[film] for film in movies])
        arm = int(self.rng.choice(np.flatnonzero(scores == scores.max())))
        self.film = movies[arm]
        return arm

    def learn(self, reward):
        if self.is_fitted:
            inner = self.bandit._imp
            inner.total_count += 1
            inner._fit_arm(self.film, np.array([self.film]), np.array([reward / 5.0]))
        else:
            self.bandit.fit([self.film], [reward / 5.0])
        self.is_fitted = True


class VowpalWabbit(Random):
    """Action-dependent features: ids and genres."""

    def __init__(self, films, seed, exploration):
        import vowpalwabbit

        super().__init__(films, seed)
        options = f"--cb_explore_adf --cb_type mtr --quiet {exploration}"
        self.model = vowpalwabbit.Workspace(options)
        self.texts = [
            f"|a id={film} "
            + " ".join(name for name, flag in zip(films.names, flags, strict=True) if flag)
            for film, flags in enumerate(films.genres)
        ]

    def choose(self, user, movies):
        self.examples = self.model.parse("\n".join(self.texts[film] for film in movies))
        self.chances = self.model.predict(self.examples)
        steps = np.cumsum(self.chances)
        draw = np.searchsorted(steps, self.rng.random() * steps[-1])
        self.arm = min(int(draw), len(steps) - 1)
        return self.arm

    def learn(self, reward):
        label = f"0:{-reward / 5.0}:{self.chances[self.arm]}"
        self.examples[self.arm].set_label_string(label)
        self.model.learn(self.examples)
        self.model.finish_example(self.examples)


CONTENDERS = {
    "random": Random,
    "genres, headstart": lambda f, s: Headstart(f, s, genres=True, identity=False),
    "item means": ItemMeans,
    "ids, headstart": lambda f, s: Headstart(f, s, genres=False, identity=True),
    "ids and genres, headstart": lambda f, s: Headstart(f, s, genres=True, identity=True),
    "MABWiser UCB1": MABWiser,
    "Vowpal Wabbit, SquareCB": lambda f, s: VowpalWabbit(f, s, "--squarecb"),
    "Vowpal Wabbit, epsilon": lambda f, s: VowpalWabbit(f, s, "--epsilon 0.05"),
}


def folder_of(data, scratch):
    """The folder with the files: given, in an archive, or downloaded."""
    if data is None:
        return fetch("1m")
    path = Path(data)
    if path.is_dir():
        return path
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(scratch)
    else:
        with tarfile.open(path) as archive:
            archive.extractall(scratch, filter="data")
    return next(Path(scratch).rglob("ratings.dat")).parent


def interval(values):
    """A mean and the half-width of its 95 % interval."""
    values = np.asarray(values)
    if len(values) < 2:
        return float(values.mean()), float("nan")
    half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values)
    return float(values.mean()), float(half)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="an archive or a folder; downloaded if not given")
    parser.add_argument("--users", type=int, default=USERS)
    parser.add_argument("--orders", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the seed of the first order")
    parser.add_argument("--only", nargs="*", choices=list(CONTENDERS), default=list(CONTENDERS))
    parser.add_argument("--out", help="a file for the figures, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        films = Films(folder_of(options.data, scratch))
    regrets, seeds = {}, range(options.first, options.first + options.orders)
    for name in options.only:
        start = time.process_time()
        try:
            made = [CONTENDERS[name](films, seed) for seed in seeds]
        except ImportError as error:
            print(f"{name}: left out ({error})", flush=True)
            continue
        users = options.users
        regrets[name] = [
            play(films, seed, users, each) for seed, each in zip(seeds, made, strict=True)
        ]
        spent = (time.process_time() - start) / options.orders / users / ROUNDS
        print(f"{name}: {spent * 1e6:.0f} µs a round", flush=True)
    report(regrets, options)


def report(regrets, options):
    """Print the table of regrets, and of ratios to the better baseline."""
    late = {
        name: [each[-round(LAST * len(each)) :].mean() for each in several]
        for name, several in regrets.items()
    }
    every = {name: [each.mean() for each in several] for name, several in regrets.items()}
    print(f"\n{options.users} users, {options.orders} orders, regret a round\n")
    print("| contender | last 60 % of users | all users | ratio to item means (last 60 %) |")
    print("|---|---:|---:|---:|")
    for name in regrets:
        cells = ["{:.3f} ± {:.3f}".format(*interval(values[name])) for values in (late, every)]
        ratio = "–"
        if "item means" in late:
            ratio = "{:.3f} ± {:.3f}".format(*interval(np.divide(late[name], late["item means"])))
        print(f"| {name} | {' | '.join(cells)} | {ratio} |")
    if options.out:
        Path(options.out).write_text(json.dumps({"last 60 %": late, "all": every}), "utf-8")


if __name__ == "__main__":
    main()
