"""What is in a log and what to fix in it.

Nothing is fitted here.
"""
