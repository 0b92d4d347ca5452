"""Work that can be distributed: jobs, the executors that run them (threads, processes, Ray), and progress.

A job computes items and keeps their results on disk; an executor decides where, how many at once, and what to retry.
Nothing here depends on models or datasets: whatever computes something large, a run or a test set, defines a job of its
own (``base``), or computes rows per image in blocks (``blocks``). ``detached`` runs whole commands without a terminal.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
