"""Worlds: distributions of tasks for experiments, synthetic or from data.

:class:`Synthetic` and :class:`Clicks` need only NumPy; :class:`MovieLens` downloads its data, and
:class:`Logged` reads files with the libraries of ``headstart[lab]``. How policies play in a world
is in :mod:`headstart.lab`.
"""

from headstart.worlds.base import Episode, Population, Truth, World
from headstart.worlds.clicks import Clicks
from headstart.worlds.logged import Logged
from headstart.worlds.movielens import MovieLens
from headstart.worlds.synthetic import Synthetic

__all__ = ["Clicks", "Episode", "Logged", "MovieLens", "Population", "Synthetic", "Truth", "World"]
