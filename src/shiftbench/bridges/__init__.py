"""Bridges to the tools that people already use: their datasets, models, tests and records, and ours in theirs.

Each module connects one library or protocol, and imports it when it is used. A module uses the public API and
``shiftbench.extend`` only, as a third party's plug-in would; the core knows none of them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
