"""Does a learned prior help on this log? Splits, baselines, intervals, the verdict and its page.

The prior itself is fitted by :mod:`headstart.transfer`.
"""
