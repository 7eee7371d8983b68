"""Parts of figures: axes, styles, text, panels of lines, rows of intervals, statistics.

Each figure itself is a file of :mod:`headstart.lab.figures`.
"""
