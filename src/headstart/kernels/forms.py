"""Functions with two forms: a reference in NumPy, and loops compiled by Numba.

One rule decides between them. The compiled form is used where Numba is installed and its module is
loaded already, or where there is enough work to repay loading it (about a second; some seconds on
the first use on a machine, when the loops are compiled and cached on disk). A program that expects
work loads the module in the background. Decisions of bandits, of which each takes microseconds, are
switched on by hand instead (:func:`headstart.use_numba`).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

Form = TypeVar("Form", bound=Callable[..., Any])

MIN_COMPILED_WORK = 1 << 16  # rows, or as much other work, that repay loading compiled loops

_loaders: dict[str, threading.Thread] = {}


def load(module: str) -> Any:
    """A module of compiled loops, or ``None`` where Numba is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def load_in_background(module: str) -> None:
    """Begin to load a module and to prepare its loops, without waiting for it."""
    if module not in _loaders:
        _loaders[module] = threading.Thread(target=prepare, args=(module,), daemon=True)
        _loaders[module].start()


def prepare(module: str) -> None:
    """Load a module and compile its loops; an error is raised where they are used."""
    with contextlib.suppress(Exception):
        loaded = load(module)
        if loaded is not None:
            loaded.prepare()


def is_loading(module: str) -> bool:
    """Whether a module is being loaded in the background."""
    return module in _loaders and _loaders[module].is_alive()


def load_if_worth(module: str, work: int) -> Any:
    """A module of compiled loops, or ``None`` where this much work does not repay loading it.

    One that is being loaded in the background is waited for.
    """
    if is_loading(module):
        _loaders[module].join()
    return None if work < MIN_COMPILED_WORK and module not in sys.modules else load(module)


class Kernel(Generic[Form]):
    """A function in NumPy, and where its compiled form is.

    Both take the same arguments and agree up to rounding.

    Parameters
    ----------
    reference
        The form in NumPy.
    module
        The module that has a compiled form of the same name.
    """

    def __init__(self, reference: Form, module: str) -> None:
        self.reference, self.module = reference, module

    def form(self, work: int = MIN_COMPILED_WORK, wait: bool = True) -> Form:
        """The form to use for this much work.

        While the module is being loaded in the background, it is the reference unless ``wait``.
        """
        if not wait and is_loading(self.module):
            return self.reference
        loaded = load_if_worth(self.module, work)
        compiled: Form = getattr(loaded, self.reference.__name__, self.reference)
        return compiled
