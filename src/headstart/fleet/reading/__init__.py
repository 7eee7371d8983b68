"""Reading logs: which files, which columns, which rows can be used, and why others cannot.

A file's reader (``formats``) gives blocks of an Arrow table; ``cells``
casts them and sets rows aside. Sums over tasks are in :mod:`headstart.fleet.summing`.
"""
