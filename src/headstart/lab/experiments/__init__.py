"""Running experiments: plans, jobs, processes, and the results on disk.

How a policy plays its rounds is in :mod:`headstart.lab.engine`, what policies there are in
:mod:`headstart.lab.policies`.
"""
