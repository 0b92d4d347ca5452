"""Figures for papers: SVG, PDF or PNG by Matplotlib, from the same numbers as the tables.

Every function returns a ``PaperFigure``, which is a Matplotlib figure: draw more into it if you like, then
``figure.write("scatter.svg")``. ``figure.notes`` are the notes that belong below it.
"""

import lazy_loader

from shiftbench.errors import required

required("matplotlib", "figures", "drawing figures")
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
