"""Reading logs: which files, which columns, which rows can be used, and why others cannot.

Rows come out as blocks of NumPy arrays; sums over tasks are in :mod:`headstart.fleet.summing`.
"""
