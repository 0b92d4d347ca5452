"""The pool: candidate and reference images, stored by content, and their sources.

``sources``, ``downloads`` and ``flickr`` bring images in, ``images`` stores their files, ``entries`` what is known of
them, and ``suspects`` queues near-duplicates for review. No module here sees predictions of a model: candidates must
not be chosen by what models make of them.
"""
