"""What every figure must be: nothing cut off, no two texts over each other, no number that is none."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection, PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from shiftbench.reports.figures import PaperFigure


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text, _ in placed_texts(figure)]


def placed_texts(figure: Figure) -> Iterator[tuple[Text, Bbox]]:
    """Every text that is drawn, with the box of its glyphs in display coordinates."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    outside = set(_outside_labels(figure))
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text.get_text().strip() and text.get_visible() and id(text) not in outside:
            yield text, Text.get_window_extent(text, renderer)


def _outside_labels(figure: Figure) -> Iterator[int]:
    """Labels of ticks beyond the limits: Matplotlib makes them but never draws them."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks() + axis.get_minor_ticks():
                if not low <= tick.get_loc() <= high:
                    yield from (id(tick.label1), id(tick.label2))


def check(figure: PaperFigure) -> None:
    """The three rules; call it on every figure a test makes."""
    figure.draw_without_rendering()
    found = list(placed_texts(figure))
    whole = figure.bbox
    slack = 0.5 / 72 * figure.dpi
    for text, box in found:
        inside = box.x0 >= -slack and box.y0 >= -slack and box.x1 <= whole.x1 + slack and box.y1 <= whole.y1 + slack
        assert inside, f"cut off: {text.get_text()!r} at {box.extents} of {whole.extents}"
    for (first, a), (second, b) in itertools.combinations(found, 2):
        shared = Bbox.intersection(a, b)
        # Boxes of lines include the space above small letters: touching is no overlap.
        covers = shared is not None and min(shared.width, shared.height) > 1.0 / 72 * figure.dpi
        assert not covers, f"{first.get_text()!r} over {second.get_text()!r}"
    check_numbers(figure)


def check_numbers(figure: Figure) -> None:
    for line in figure.findobj(Line2D):
        assert isinstance(line, Line2D)
        assert np.isfinite(np.asarray(line.get_xydata(), dtype=float)).all(), line
    for marks in figure.findobj(Collection):
        assert isinstance(marks, Collection)
        if isinstance(marks, PathCollection):
            assert np.isfinite(np.asarray(marks.get_offsets(), dtype=float)).all(), marks
        for path in marks.get_paths():
            assert np.isfinite(np.asarray(path.vertices, dtype=float)).all(), marks


def check_svg(figure: Figure) -> None:
    """The same of the file itself, where Matplotlib had the last word."""
    shapes = re.sub(r">[^<]*<|style=\"[^\"]*\"", "><", written(figure, "svg").decode())
    assert not re.search(r"(?<![\w.])(nan|inf|None)(?![\w.])", shapes)


def written(figure: Figure, kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind)
    return buffer.getvalue()
