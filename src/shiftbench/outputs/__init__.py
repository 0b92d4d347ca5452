"""Resumable output folders: for each source image some variants, in one layout, with a record of how they were made.

A run that was stopped at any moment continues with the same call and ends with the same bytes, whatever the number of
workers, the executor, or the division into shards.
"""
