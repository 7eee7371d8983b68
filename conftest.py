"""Run every Python block of README.md and docs/ as a test; see CONTRIBUTING.md.

The blocks of one document share their names and run in order, in an empty temporary folder. With
pytest-xdist they run in one process each, as the files of tests do.
"""

import doctest
import importlib.util
import os
import tempfile
from contextlib import ExitStack, chdir

from sybil import Sybil
from sybil.parsers.myst import PythonCodeBlockParser, SkipParser
from xdist.scheduler import LoadFileScheduling

os.environ.setdefault("MPLBACKEND", "Agg")

collect_ignore = ["docs/_build", "docs/conf.py"]
if importlib.util.find_spec("cupy") is None:  # only machines with a GPU have it
    collect_ignore.append("src/headstart/lab/gpu/rounds.py")


def enter_empty_folder(namespace):
    namespace["__cleanup__"] = cleanup = ExitStack()
    folder = cleanup.enter_context(tempfile.TemporaryDirectory())
    cleanup.enter_context(chdir(folder))


def leave_folder(namespace):
    namespace["__cleanup__"].close()


ON_RAY = ("tests/fleet/test_cluster.py", "tests/fleet/test_experiments_on_ray.py")


class ByFile(LoadFileScheduling):
    """A process for every file; one for all that need a Ray cluster, so that one is started."""

    def _split_scope(self, nodeid):
        file = super()._split_scope(nodeid)
        return "ray" if file in ON_RAY else file


def pytest_xdist_make_scheduler(config, log):
    return ByFile(config, log)


pytest_collect_file = Sybil(
    parsers=[
        PythonCodeBlockParser(doctest_optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE),
        SkipParser(),
    ],
    patterns=["*.md"],
    setup=enter_empty_folder,
    teardown=leave_folder,
).pytest()
