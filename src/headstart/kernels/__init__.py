"""Compiled loops (Numba), their references, and the rules that say when they are used.

``switch`` turns the loops of decisions on and off (``compiled``); their references are ``predict``,
``width``, ``draw`` and ``update`` in :mod:`headstart.model.belief`, ``index`` in
:mod:`headstart.rules`, ties in :mod:`headstart.rules.ties`, and ``play`` in
:mod:`headstart.lab.engine`. ``forms`` chooses between the two forms of functions over many rows or
tasks (``tables``); each is registered with its reference where that is defined.
"""
