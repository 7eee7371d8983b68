"""The state of a bandit's tasks: their entries, the cache of beliefs and the state of the prior.

- ``ledger.py``: choices and rewards are added to entries and beliefs;
- ``entries.py``: what is stored of a task, and which of its choices were learned from;
- ``cache.py``: the beliefs of the tasks used last;
- ``prior_state.py``: which tasks the transfer's state holds; in what order tasks are folded and
  removed (late rewards, reopening, deleting); the prior without a task's own evidence;
- ``fold_job.py``: folding a closed task outside the lock;
- ``changes.py``: changes of several fields that no exception can leave half made;
- ``rounds.py``: a cached task after one more reward;
- ``additions.py``: rounds that were not choices;
- ``items.py``: the statistics of items; ``task_items.py``: what a task has contributed to them;
  ``influences.py``: how much it counts.

Nothing here chooses an arm, checks what a user has passed or reads a file.
"""
