"""Ctrl-C while jobs run in threads: they end soon, and nothing is left behind."""

import threading
import time

import pytest

from headstart.fleet.engines.threads import job_runner


def test_jobs_that_run_are_stopped():
    begun, ended = threading.Barrier(3), []

    def work(job):
        try:
            begun.wait(10.0)
            for _ in range(2000):  # twenty seconds
                time.sleep(0.01)
        finally:
            ended.append(job)

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), job_runner(workers=2) as map_jobs:
        next(map_jobs(work, jobs_until(begun)))
    assert time.monotonic() - start < 10.0
    assert sorted(ended) == [0, 1]  # no thread runs on


def jobs_until(begun):
    """Two jobs, and an interrupt when both have begun."""
    yield from (0, 1)
    begun.wait(10.0)
    raise KeyboardInterrupt


def test_jobs_that_end_meanwhile_do_no_harm():
    with pytest.raises(ZeroDivisionError), job_runner(workers=2) as map_jobs:
        list(map_jobs(divmod, [1] * 50, 0))
    with job_runner(workers=2) as map_jobs:
        assert list(map_jobs(pow, range(4), 2)) == [0, 1, 4, 9]


def test_an_interrupted_evaluation_says_so(headstart, tmp_path, monkeypatch):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    (tmp_path / "log.csv").write_text("task,reward,x0\n" + "a,1,2\nb,0,1\n" * 9)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("headstart.fleet.evaluation.evaluate.read_sample", interrupted)
    words = ["log.csv", "--task", "task", "--reward", "reward", "--features", "x*"]
    shown = headstart("evaluate", *words)
    assert shown.code == 130
    assert shown.err.endswith("headstart: interrupted; nothing was written.\n")
    assert [path.name for path in tmp_path.iterdir()] == ["log.csv"]
