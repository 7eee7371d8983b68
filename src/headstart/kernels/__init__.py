"""Compiled inner loops (Numba) and the switch that turns them on.

Every loop here has a NumPy form that is its reference: ``predict``, ``width``, ``draw`` and
``update`` in :mod:`headstart.model.belief`, ``index`` in :mod:`headstart.rules`, ties in
:mod:`headstart.rules.ties`, and ``play`` in :mod:`headstart.lab.engine`. Nothing else in the core
compiles code.
"""
