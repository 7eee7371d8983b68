"""What the tests of the fleet share."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def logbook():
    """The helpers in logbook.py, which write small logs and read them back."""
    place = Path(__file__).with_name("logbook.py")
    spec = importlib.util.spec_from_file_location("logbook", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
