"""Figures for papers: SVG, PDF or PNG by Matplotlib, from the same numbers as the tables.

Every function returns a ``PaperFigure``, which is a Matplotlib figure: draw more into it if you like, then
``figure.write("scatter.svg")``. ``figure.notes`` are the notes that belong below it.
"""

import lazy_loader

from shiftbench.errors import MissingExtraError

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("matplotlib", "figures", "drawing figures") from error

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
