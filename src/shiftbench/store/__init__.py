"""The workspace on disk: predictions, records of datasets and label spaces, and how each result was computed.

``workspace`` is the folder itself, ``prediction_files`` and ``sealed`` are its two kinds of files, ``spec`` is what
decides a result, and ``models``, ``run_records`` and ``designs`` answer questions about the results it holds. Files are
written atomically and carry digests. Nothing here loads a model or a dataset; runs pass in arrays and descriptions.
"""
