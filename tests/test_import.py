"""Importing headstart is cheap, and brings only what it says."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys

import headstart as hs

HEAVY = ["scipy", "safetensors", "pandas", "polars", "sklearn", "matplotlib", "jax", "numba", "ray"]


def told_by(script, **variables):
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | variables,
    )
    return json.loads(done.stdout)


def test_importing_loads_nothing_but_numpy():
    loaded = told_by("import json, sys, headstart; print(json.dumps(sorted(sys.modules)))")
    tops = {name.partition(".")[0] for name in loaded}
    assert tops.isdisjoint(HEAVY)
    outside = tops - set(sys.stdlib_module_names) - {"numpy", "headstart", "__main__"}
    hooks = {name for name in outside if name.startswith(("_", "sitecustomize", "usercustomize"))}
    assert outside - hooks == set()


def test_choosing_and_learning_load_no_more():
    loaded = told_by(
        "import json, sys, headstart as hs\n"
        "bandit = hs.Bandit(dim=2, seed=0)\n"
        "for id in range(4):\n"
        "    task = bandit.task(id)\n"
        "    for _ in range(4): task.learn(task.choose([[1.0, 0.0], [0.0, 1.0]]), 1.0)\n"
        "    task.close()\n"
        "bandit.report()\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    assert {name.partition(".")[0] for name in loaded}.isdisjoint(HEAVY)


def test_importing_costs_less_than_a_tenth_of_a_second_beyond_numpy(tmp_path):
    """With compiled bytecode at hand, as installers leave it, whatever the environment says.

    In processor time: elapsed time depends on what else is running.
    """
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    script = (
        "import time, numpy, numpy.random, numpy.linalg\n"
        "start = time.process_time()\n"
        "import headstart\n"
        "print(time.process_time() - start)"
    )
    assert min(told_by(script, **kept) for _ in range(7)) < 0.1


def test_importing_warns_of_nothing():
    subprocess.run([sys.executable, "-W", "error", "-c", "import headstart"], check=True)


def test_only_numpy_and_scipy_are_required():
    needs = importlib.metadata.requires("headstart")
    required = {re.split(r"[ <>=!~;\[]", need)[0] for need in needs if "extra ==" not in need}
    assert required == {"numpy", "scipy"}


def test_every_public_name_is_there_and_documented():
    for name in hs.__all__:
        assert hasattr(hs, name), name
        if name != "__version__":
            assert getattr(hs, name).__doc__, name
    assert hs.__version__ == importlib.metadata.version("headstart")


def test_public_names_are_all_that_a_star_brings():
    names = {}
    exec("from headstart import *", names)
    names.pop("__builtins__")
    assert set(names) == set(hs.__all__)


def test_the_package_is_a_command():
    done = subprocess.run(
        [sys.executable, "-m", "headstart", "--help"], capture_output=True, text=True, check=True
    )
    assert "evaluate" in done.stdout
