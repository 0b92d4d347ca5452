"""Figures for papers: SVG, PDF or PNG by Matplotlib, from the same numbers as the tables.

Every function returns a ``PaperFigure``, which is a Matplotlib figure: draw more into it if you like, then
``figure.write("scatter.svg")``. What a reader has to know about it is in ``figure.notes``.
"""

from __future__ import annotations

from shiftbench.errors import MissingExtraError

try:
    import matplotlib  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError("matplotlib", "figures", "drawing figures") from error

from shiftbench.reports.figures.confidence import reliability, response
from shiftbench.reports.figures.corruption_data import error_map, error_map_of_run, severity_grid
from shiftbench.reports.figures.heatmaps import correlations, heatmap
from shiftbench.reports.figures.new_test_sets import bins, rank
from shiftbench.reports.figures.scatters import scatter
from shiftbench.reports.figures.severities import corruptions
from shiftbench.reports.figures.style import PaperFigure

__all__ = [
    "PaperFigure",
    "bins",
    "correlations",
    "corruptions",
    "error_map",
    "error_map_of_run",
    "heatmap",
    "rank",
    "reliability",
    "response",
    "scatter",
    "severity_grid",
]
