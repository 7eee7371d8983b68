"""Worlds: where the tasks of an experiment come from.

:class:`Synthetic` needs nothing else; :class:`MovieLens` downloads its data and :class:`Logged`
reads files with what ``headstart[lab]`` brings.
"""

from headstart.worlds.base import Episode, Population, Truth, World
from headstart.worlds.logged import Logged
from headstart.worlds.movielens import MovieLens
from headstart.worlds.synthetic import Synthetic

__all__ = [
    "Episode",
    "Logged",
    "MovieLens",
    "Population",
    "Synthetic",
    "Truth",
    "World",
]
