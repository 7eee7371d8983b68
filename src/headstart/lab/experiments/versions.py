"""The versions that a result depends on, for manifests and reports."""

from __future__ import annotations

import platform
from importlib.metadata import version

__all__ = ["versions"]


def versions() -> dict[str, str]:
    """The versions of Python, headstart and the packages that compute.

    >>> list(versions())
    ['python', 'headstart', 'numpy', 'scipy', 'polars']
    """
    packages = ("headstart", "numpy", "scipy", "polars")
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
