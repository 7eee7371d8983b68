"""Progress on a cluster: what an actor is told of parts that were read."""

from types import SimpleNamespace

from headstart.fleet.engines.ray import watch_parts
from headstart.fleet.summing.summary import FinishedParts


class LateRay:
    """Ray with one actor, whose first answers come too late."""

    class exceptions:
        class RayError(Exception):
            pass

        class GetTimeoutError(RayError):
            pass

    def __init__(self, late):
        self.late = late
        self.actor = None

    def remote(self, kind):
        def start():
            self.actor = kind()
            return SimpleNamespace(take=SimpleNamespace(remote=lambda: [self.actor.take()]))

        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))

    def get(self, answer, timeout):
        if self.late:
            self.late -= 1
            raise self.exceptions.GetTimeoutError
        return answer[0]


def test_late_answers_lose_no_progress():
    looks, reached = [], []
    ray = LateRay(late=2)
    cluster = SimpleNamespace(ray=ray, watch=looks.append)
    parts = [SimpleNamespace(key=key, rows=rows) for key, rows in (("a", 3), ("b", 4))]
    watch_parts(cluster, FinishedParts(parts, lambda _, done, total: reached.append((done, total))))
    ray.actor.append("a")
    assert [looks[0]() for _ in range(3)] == [False, False, True]
    ray.actor.append("b")
    assert looks[0]()
    assert not looks[0]()
    assert reached == [(3.0, 7.0), (7.0, 7.0)]
