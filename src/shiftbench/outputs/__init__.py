"""Resumable output folders: for each source image some variants, in one layout, with a record of how they were made.

An interrupted run is resumed by the same call and ends with the same bytes for any number of workers, any executor and
any division into shards. A caller passes ``Variants`` (what to make of each image) and a ``Layout`` (which files hold
them) to ``write``; ``record`` keeps the recipe, and refuses to continue a folder with another one.
"""
