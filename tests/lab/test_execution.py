"""How experiments are run: one record, checked when it is made."""

import pytest

import headstart as hs
from headstart.cli import experiments
from headstart.lab import Execution, Plan, policy, run
from headstart.lab.experiments.execution import map_jobs
from headstart.lab.studies import STUDIES
from headstart.worlds import Synthetic

PLAN = Plan(Synthetic(dim=3, rank=1, arms=2), (policy("linucb"),), (1, 2), tasks=2, rounds=4)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"workers": 0}, "workers"),
        ({"workers": 1.5}, "workers"),
        ({"engine": "warp"}, "engine"),
        ({"engine": None}, "engine"),
    ],
)
def test_what_cannot_be_is_refused_by_name(options, word):
    with pytest.raises(hs.InputError, match=word):
        Execution(**options)


def test_stored_only_reads_and_never_simulates(tmp_path):
    stored = Execution(workers=1, stored_only=True)
    with pytest.raises(hs.FileError, match="lacks 1 of 1 jobs"):
        run(PLAN, tmp_path, stored)
    found = run(PLAN, tmp_path, Execution(workers=1))
    assert run(PLAN, tmp_path, stored).regret.equals(found.regret)


def test_progress_has_the_label_of_the_experiment():
    labels = []

    class Bar:
        def __init__(self, label):
            labels.append(label)

        def __enter__(self):
            return None

        def __exit__(self, *error):
            pass

    execution = Execution(workers=1, progress=Bar)
    run(PLAN, execution=execution)
    run(PLAN, execution=execution, label="mine")
    assert labels == ["synthetic", "mine"]


def power(base, exponent):
    return base**exponent


def backwards(jobs, function, *arguments):
    """An executor whose results come last first."""
    for index in reversed(range(len(jobs))):
        yield index, function(jobs[index], *arguments)


@pytest.mark.parametrize(
    "execution", [Execution(workers=1), Execution(workers=2), Execution(executor=backwards)]
)
def test_jobs_come_back_in_their_order(execution):
    jobs = [(2, 3), (3, 2), (5, 1)]
    assert map_jobs(power, jobs, execution) == [8, 9, 5]


def test_the_command_line_knows_the_studies_of_the_library():
    assert experiments.complete_study("") == list(STUDIES)
    assert experiments.complete_study("s") == ["synthetic", "subspace"]
