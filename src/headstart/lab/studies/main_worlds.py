"""The six worlds that results are shown for, and the seeds that they are reported on."""

from __future__ import annotations

from headstart.worlds.synthetic import Synthetic

FIRST_REPORTED_SEED, FIRST_TUNING_SEED = 1000, 9000  # no seed is both

#: The worlds of the main table, by the name that figures show.
WORLDS = {
    "mean off the plane": Synthetic(),
    "mean off the plane, R = 0.3": Synthetic(noise=0.3),
    "mean anywhere": Synthetic(offset=1.0, mean="anywhere"),
    "three dimensions": Synthetic(rank=3, inside=0.5, offset=1.0, mean="anywhere"),
    "no structure": Synthetic(rank=30, offset=0.0),
    "mean anywhere, R = 0.5": Synthetic(noise=0.5, offset=1.0, mean="anywhere"),
}
