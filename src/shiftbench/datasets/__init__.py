"""Datasets: folders, arrays, shards and tables of labelled images behind one interface.

``base`` defines what a dataset is; ``catalogue`` opens one by its name or path and reports what lies at a path; each
kind of dataset is one module, which ``catalogue`` imports when a path may be of that kind; ``images`` and ``geometry``
turn files into pixels. A module belongs here if it finds, opens, checks or selects images: models, shifts and scores
are left to other packages.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
