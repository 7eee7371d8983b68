"""A catalogue of 100,000 ids: memory and time of a decision, next to a catalogue of 1,000.

    python benchmarks/many_items.py [--items 1000 100000]

Every item has had one reward before anything is measured. A decision offers 20 actions of the
catalogue by a schema of 30 columns; times are medians of processor time over blocks, of the choice
alone and with the reward that is learned. The floor is a bandit without a schema, which was fitted
on the same rows as arrays and decides on arrays.
"""

import argparse
import gc
import itertools
import resource
import time
from pathlib import Path

import numpy as np

import headstart as hs

DEVICES = ("phone", "desktop")
SCHEMA = {
    "context": {"device": hs.category(*DEVICES)},
    "action": {
        "price": hs.number(missing=False),
        "brand": hs.category(buckets=18),
        "new": hs.boolean(missing=False),
    },
    "crosses": [("device", "price"), ("device", "new")],
}


def catalogue(count):
    """Actions with an id, a price, a brand and a flag."""
    return [
        {"id": f"item-{at}", "price": 1.0 + at % 97, "brand": f"b{at % 40}", "new": at % 3 == 0}
        for at in range(count)
    ]


def fit(bandit, columns, count):
    """Let a bandit learn a reward of each action, of users with 50 each."""
    frame = dict(columns)
    frame["user"] = [at // 50 for at in range(count)]
    frame["reward"] = [float(at % 5) for at in range(count)]
    bandit.fit(frame, task="user", reward="reward")
    return bandit


def fitted(actions, identity):
    """A bandit with a schema that has learned a reward of each action, and its memory."""
    frame = {name: [action[name] for action in actions] for name in actions[0]}
    frame["device"] = list(itertools.islice(itertools.cycle(DEVICES), len(actions)))
    before = resident()
    bandit = fit(hs.Bandit(hs.Schema(**SCHEMA, identity=identity), seed=0), frame, len(actions))
    return bandit, resident() - before


def fitted_on_rows(task, actions):
    """The same without a schema, from the rows that a task encodes."""
    tables = [task.encode(context={"device": name}, actions=actions).table for name in DEVICES]
    rows = np.where(np.arange(len(actions))[:, None] % 2, *reversed(tables))
    columns = {f"x{at}": column for at, column in enumerate(rows.T)}
    return fit(hs.Bandit(rows.shape[1], seed=0), columns, len(actions))


def resident():
    """The resident memory of this process, in MiB (Linux)."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * resource.getpagesize() / 2**20


def times(decide, blocks=15, rounds=100):
    """The median processor time of a call, in microseconds."""
    spent = []
    for _ in range(blocks):
        start = time.process_time()
        for _ in range(rounds):
            decide()
        spent.append((time.process_time() - start) / rounds)
    return 1e6 * float(np.median(spent))


def measure(count, identity):
    """Print the figures of one catalogue."""
    actions, rng = catalogue(count), np.random.default_rng(0)
    bandit, memory = fitted(actions, identity)
    task = bandit.task("new")
    offers = [[actions[at] for at in rng.choice(count, 20, replace=False)] for _ in range(64)]
    devices = [{"device": name} for name in DEVICES]
    picks = itertools.cycle(rng.integers(len(offers), size=1021).tolist())

    def choose():
        pick = next(picks)
        return task.choose(context=devices[pick % 2], actions=offers[pick])

    for _ in range(50):
        task.learn(choose(), float(rng.integers(5)))
    tables = [
        task.encode(context=devices[at % 2], actions=offer).table for at, offer in enumerate(offers)
    ]
    width = tables[0].shape[1]
    plain = fitted_on_rows(task, actions).task("new")

    def choose_from_array():
        return plain.choose(tables[next(picks)])

    for _ in range(50):
        plain.learn(choose_from_array(), float(rng.integers(5)))
    figures = times(choose), times(lambda: task.learn(choose(), 1.0))
    floor = times(choose_from_array), times(lambda: plain.learn(choose_from_array(), 1.0))
    print(
        f"{count} items, identity={identity}, {width} columns: choose {figures[0]:.0f} µs (array "
        f"{floor[0]:.0f}), choose and learn {figures[1]:.0f} µs (array {floor[1]:.0f}); "
        f"the bandit takes {memory:.0f} MiB",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="*", default=[1_000, 100_000])
    options = parser.parse_args()
    for count in options.items:
        for identity in (False, True):
            measure(count, identity)


if __name__ == "__main__":
    main()
