"""What all tasks have learned about items, identified by their ids, as columns of every row.

``table.py`` holds the statistics of items and their columns, ``offers.py`` how often they were on
offer, ``repeats.py`` how a task's own rewards of an item are weighted, ``influence.py`` how much a
task counts for the others, ``vectors.py`` the update of an item's vector. Which task has
contributed what is in :mod:`headstart.bandit.ledger`.
"""
