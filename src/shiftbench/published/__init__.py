"""The papers' own numbers as data.

``tables`` holds every number that the papers print, ``baselines`` their models as lines that a user's model is placed
on, and ``importers`` and ``downloads`` read and fetch the tables of results that others publish. ``reproduce`` computes
the printed numbers again. Data of others enters with its source; numbers that this project measured do not.
"""
