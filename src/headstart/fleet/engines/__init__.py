"""Where reading and summing run: threads of this machine, or a Ray cluster.

Both give the same sums; what is done with them is in ``fit.py``, ``check`` and ``evaluation``.
The connection, attempts and resources are in ``cluster.py``, reading and merging in ``ray.py``.
"""
