"""The attacks of ``make torture``: a handful of cases of each, and that failures are told."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

TORTURE = Path(__file__).parents[1] / "tools" / "torture"


@pytest.fixture
def torture(monkeypatch):
    """The program as a module."""
    monkeypatch.syspath_prepend(str(TORTURE))
    spec = importlib.util.spec_from_file_location("torture", TORTURE / "__main__.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torture", module)
    spec.loader.exec_module(module)
    yield module
    for name in (*module.ATTACKS, "common"):
        sys.modules.pop(name, None)


#: Some cases of those that look into the library, which renaming may break.
ATTACKS = [("damage", 25), ("sequences", 4)]


@pytest.mark.parametrize(("attack", "cases"), ATTACKS)
def test_nothing_gets_through(attack, cases):
    words = ["--attack", attack, "--cases", str(cases), "--seed", "0", "--minutes", "3"]
    ran = subprocess.run(
        [sys.executable, str(TORTURE), *words], capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "seed 0" in ran.stdout
    assert f"{attack:<12}{cases:>8}{0:>10}{0:>8}{0:>9}" in ran.stdout


def test_what_gets_through_is_counted_by_its_kind(torture):
    from common import Accepted, Changed

    count = torture.Count()
    for number, error in enumerate(
        [None, Accepted("2 a"), Accepted("3 a"), Changed("b"), KeyError("c")]
    ):

        def attack(case, error=error):
            if error is not None:
                raise error

        count.add(number, *torture.judge(SimpleNamespace(attack=attack), None))
    assert count.cases == 5
    assert count.verdicts == {"accepted": 2, "changed": 1, "raw": 1}
    assert [case for case, _, _ in count.first.values()] == [1, 3, 4]


def test_every_attack_has_a_file(torture):
    files = {path.stem for path in TORTURE.glob("*.py")}
    assert files == {*torture.ATTACKS, "__main__", "common"}
