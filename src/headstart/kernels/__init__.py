"""Compiled inner loops (Numba) and the switch that turns them on.

Every loop here has a NumPy form elsewhere that is the reference; nothing else compiles code in the
core.
"""
