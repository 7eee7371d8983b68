"""From rows to the sufficient statistics of every task, in memory or on disk.

Nothing here knows file formats or decides where work runs; see :mod:`headstart.fleet.reading` and
:mod:`headstart.fleet.engines`.
"""
