"""Settings and suites: what is evaluated under which name, against which reference.

``base`` defines them, ``builtin`` and ``suites.toml`` register the suites, ``designs`` shares the images of a dataset
among the shifts of a suite, and ``roles`` opens the data that the user names for a suite. A setting only describes
what is evaluated: models, predictions and scores belong to ``runs``.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
