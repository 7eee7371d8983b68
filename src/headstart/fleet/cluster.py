"""The same on a Ray cluster: parts are read by tasks, evidence is held by actors.

Every reading task adds up some parts of the logs and gives its evidence back divided by bucket. A
*holder*, an actor, takes its buckets from all of them and then answers passes over its portions.
Ray starts a task again whose worker has died, and a holder too, which then takes its buckets anew
from where the tasks have left them (or, if those are lost, from tasks that are run again). What is
added up is added up in the buckets' order, so the answer does not depend on any of this.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from headstart import checks
from headstart.errors import HeadstartError, InputError
from headstart.fleet.local import READING, Progress, Tally, amounts
from headstart.fleet.logs import Logs, Part
from headstart.fleet.passes import faster, one_blas_thread
from headstart.fleet.sums import BUCKETS, Portion, Shelf, Sums
from headstart.records import Array
from headstart.transfer.portions import Portions

__all__ = ["Spread", "connected", "gather", "run_jobs"]

Found = TypeVar("Found")

RETRIES = 5  # how often a task is run again whose worker has died
GROUPS = 2  # reading tasks for each worker, where there are many
MANY = 4  # workers


@contextlib.contextmanager
def connected(cluster: str, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster; what is started here is stopped at the end.

    ``"ray"`` is a cluster that this process already has, or a new one with so many workers.
    ``"ray://host:port"`` and ``"host:port"`` are clusters that run elsewhere.
    """
    address = address_of(cluster)
    try:
        # Ray's own words about itself are not for those who read logs.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        import ray
    except ImportError as error:
        raise InputError(
            "cluster needs Ray, which is not installed: pip install 'headstart[fleet]'"
        ) from error
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if address is None:
            ray.init(num_cpus=workers or os.cpu_count(), include_dashboard=False, **quiet)
        else:
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, OSError, RuntimeError, ValueError) as error:
                raise InputError(
                    f"cluster {cluster!r} cannot be reached ({str(error).splitlines()[0]})"
                ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def address_of(cluster: str) -> str | None:
    """The address to connect to; ``None`` for a cluster of one's own.

    >>> address_of("ray"), address_of("ray://head:10001"), address_of("10.0.0.1:6379")
    (None, 'ray://head:10001', '10.0.0.1:6379')
    """
    want = "'ray', 'ray://host:port' or 'host:port'"
    if not isinstance(cluster, str):
        raise checks.refuse("cluster", want, cluster)
    if cluster == "ray":
        return None
    host, _, port = cluster.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise checks.refuse("cluster", want, cluster)
    return cluster


class Spread(Portions):
    """Evidence on a cluster: buckets that are held by actors."""

    def __init__(
        self, ray: Any, holders: Sequence[Any], dim: int, tally: Tally, shares: Sequence[Any]
    ) -> None:
        self.ray, self.holders, self.dim, self.tally = ray, list(holders), dim, tally
        self.shares = list(shares)  # with every call: a holder that was started again has nothing
        self.told: Callable[[], None] | None = None
        self.sizes = [0] * BUCKETS
        for held in asked(ray, [one.sizes.remote(share) for one, share in self.each_holder()]):
            for bucket, size in held.items():
                self.sizes[bucket] = size

    def each_holder(self) -> Iterator[tuple[Any, Any]]:
        """The holders, each with its share."""
        return zip(self.holders, self.shares, strict=True)

    def map(
        self, function: Callable[..., Found], *arguments: Any, first: int | None = None
    ) -> list[Found]:
        """Every bucket's, by the actors that hold them."""
        shared = self.ray.put((function, arguments, len(self)))
        found: dict[int, Found] = {}
        calls = [one.apply.remote(share, shared, first) for one, share in self.each_holder()]
        for part in asked(self.ray, calls):
            found |= part
        if self.told is not None:
            self.told()
        return [found[bucket] for bucket in sorted(found)]

    def rows(self, portion: int) -> Array:
        """The packed evidence of one bucket."""
        return self.portion(portion).rows

    def portion(self, bucket: int) -> Portion:
        """The tasks of one bucket."""
        place = bucket % len(self.holders)
        call = self.holders[place].portion.remote(self.shares[place], bucket)
        (portion,) = asked(self.ray, [call])
        return Portion(portion.names, np.array(portion.rows))

    def each_portion(self) -> Iterator[Portion]:
        """All of them, in order."""
        return (self.portion(bucket) for bucket in range(BUCKETS))


def gather(
    ray: Any,
    logs: Logs,
    *,
    workers: int | None = None,
    memory: int = 2 << 30,
    progress: Progress | None = None,
) -> Spread:
    """Read all logs on the cluster; the evidence stays there."""
    there = int(ray.cluster_resources().get("CPU", 1)) or 1
    workers = max(1, there if workers is None else min(workers, there))
    parts = logs.parts()
    amount = amounts(parts)
    # Every task sends on what it has added up: the fewer there are, the less is sent.
    many = GROUPS * workers if workers > MANY else workers
    groups = [list(group) for group in divided(parts, amount, many)]
    budget = max(memory - workers * READING, memory // 4) // workers
    read = ray.remote(read_parts).options(
        num_returns=workers + 1, max_retries=RETRIES, num_cpus=1, scheduling_strategy="SPREAD"
    )
    reference = ray.put(logs)
    pieces = [read.remote(reference, group, workers, budget) for group in groups]
    tally, done = Tally(), 0.0
    total = sum(amount.values())
    waiting = {refs[0]: group for refs, group in zip(pieces, groups, strict=True)}
    while waiting:
        if progress is not None:
            progress("reading", done, total)
        ready, _ = ray.wait(list(waiting), num_returns=1)
        for tallied, reference in zip(asked(ray, ready), ready, strict=True):
            tally.add(tallied)
            done += sum(amount[part.key] for part in waiting.pop(reference))
    if progress is not None:
        progress("reading", total, total)
    hold = ray.remote(Holder).options(
        num_cpus=0, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
    )
    shares = [[refs[1 + place] for refs in pieces] for place in range(workers)]
    holders = [hold.remote(logs.dim, budget) for _ in shares]
    return Spread(ray, holders, logs.dim, tally, shares)


def divided(parts: Sequence[Part], amount: dict[str, float], many: int) -> Iterator[Sequence[Part]]:
    """Parts in so many groups of about the same size, neighbours together."""
    ends = np.cumsum([amount[part.key] for part in parts])
    owner = np.minimum((ends - 1e-9) / max(ends[-1], 1e-9) * many, many - 1).astype(int)
    for group in range(many):
        some = [part for part, whose in zip(parts, owner, strict=True) if whose == group]
        if some:
            yield some


def read_parts(logs: Logs, parts: Sequence[Part], holders: int, budget: int) -> list[Any]:
    """Add up some parts: what was read, and for every holder its buckets."""
    sums, tally = Sums(logs.dim, budget), Tally()
    for part in parts:
        tally.parts.append(part.key)
        for rows in logs.read(part):
            tally.count(rows)
            sums.add(rows)
    shelf = sums.shelf()
    shares: list[list[Portion]] = [[] for _ in range(holders)]
    for bucket, portion in enumerate(shelf):
        shares[bucket % holders].append(portion)
    shelf.remove()
    return [tally, *shares]


class Holder:
    """Buckets of evidence, and whatever is computed from them.

    Every call brings the holder's share, references to what the reading tasks have left for it. It
    is fetched once, and again after the holder has died and was started anew.
    """

    def __init__(self, dim: int, budget: int) -> None:
        self.dim, self.budget = dim, budget
        self.shelf: Shelf | None = None

    def held(self, share: Sequence[Any]) -> Shelf:
        """The buckets, added up."""
        if self.shelf is None:
            import ray

            sums = Sums(self.dim, self.budget)
            for piece in share:
                for portion in ray.get(piece):
                    sums.add_packed(portion.names, portion.rows)
            self.shelf = sums.shelf()
        return self.shelf

    def sizes(self, share: Sequence[Any]) -> dict[int, int]:
        """How many tasks each bucket has here."""
        return {bucket: size for bucket, size in enumerate(self.held(share).sizes) if size}

    def portion(self, share: Sequence[Any], bucket: int) -> Portion:
        """The tasks of one bucket."""
        return self.held(share).portion(bucket)

    def apply(
        self, share: Sequence[Any], call: tuple[Any, tuple[Any, ...], int], first: int | None
    ) -> dict[int, Any]:
        """A function of every portion here."""
        shelf = self.held(share)
        function, arguments = faster(*call)
        with one_blas_thread():
            return {
                bucket: function(shelf.portion(bucket).rows, self.dim, *arguments)
                for bucket in range(BUCKETS)[:first]
                if shelf.sizes[bucket]
            }


def asked(ray: Any, references: Sequence[Any]) -> list[Any]:
    """What the cluster answers; errors of this library as if they had happened here."""
    try:
        answers: list[Any] = ray.get(list(references))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, HeadstartError):
            raise cause from None
        raise
    except ray.exceptions.RayError as error:
        raise HeadstartError(
            f"the cluster could not finish the work ({type(error).__name__}: "
            f"{str(error).splitlines()[0]})"
        ) from error
    return answers


def run_jobs(
    jobs: Sequence[Any],
    function: Callable[..., Found],
    *arguments: Any,
    cluster: str = "ray",
    workers: int | None = None,
) -> Iterator[tuple[int, Found]]:
    """``function(job, *arguments)`` of every job, on a cluster: its place and result as it comes.

    A job whose worker dies is run again. The function must be one that can be imported.
    """
    with connected(cluster, workers) as ray:
        task = ray.remote(function).options(max_retries=RETRIES, num_cpus=1)
        waiting = {task.remote(job, *arguments): place for place, job in enumerate(jobs)}
        try:
            while waiting:
                ready, _ = ray.wait(list(waiting), num_returns=1)
                for reference, found in zip(ready, asked(ray, ready), strict=True):
                    yield waiting.pop(reference), found
        finally:
            for reference in waiting:
                ray.cancel(reference, force=False)
