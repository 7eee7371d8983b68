"""Files that cannot run code: atomic writes, tensors with a header, archives of evidence.

Only bytes, digests and layouts are here; what a bandit's file contains is decided in
:mod:`headstart.bandit.files.snapshot`.
"""
