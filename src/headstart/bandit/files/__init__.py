"""What is on disk: the file of a bandit, checks of what was read from one, and journals of rewards.

How bytes are written, tensors and archives of evidence included, is in :mod:`headstart.storage`.
"""
