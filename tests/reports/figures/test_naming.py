"""Names find places, or are returned; and the rules of ``looking`` can fail."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.text import Annotation

from shiftbench.reports.figures.axes import name_points, ring, write_in_corner
from shiftbench.reports.figures.style import PaperFigure, finish, in_style, new_figure
from tests.reports.figures.looking import check, texts


@in_style
def cloud(count: int, named: int) -> PaperFigure:
    """Points on a line, as accuracies are, some of them named."""
    rng = np.random.default_rng(count)
    x = rng.random(count)
    points = np.column_stack([x, x + rng.normal(0, 0.02, count)])
    figure = new_figure("single", 7)
    axes = figure.add_subplot()
    axes.scatter(points[:, 0], points[:, 1], s=4)
    finish(figure)
    box = write_in_corner(axes, ["slope 0.92", "r² 0.997"], points)
    asked = [(float(x), float(y), f"a-model-called-{i}") for i, (x, y) in enumerate(points[:named])]
    ring(axes, asked)
    unnamed = name_points(axes, asked, points, taken=[box] if box else [])
    figure.notes = tuple(unnamed)
    return figure


@pytest.mark.parametrize(("count", "named"), [(1, 1), (8, 8), (200, 20)])
def test_no_name_covers_another(count: int, named: int) -> None:
    figure = cloud(count, named)
    check(figure)
    shown = [text for text in texts(figure) if text.startswith("a-model")]
    assert len(shown) + len(figure.notes) == named and len(shown) >= min(named, 6)
    axes = figure.axes[0]
    frame = axes.get_window_extent()
    for name in axes.findobj(Annotation):
        assert isinstance(name, Annotation)
        if name.get_gid() == "name":
            box = name.get_window_extent()
            assert frame.x0 - 3 <= box.x0 and box.x1 <= frame.x1 + 3, name.get_text()


def test_corner_text_keeps_away_from_points() -> None:
    figure = cloud(200, 0)
    [summary] = [one for one in figure.axes[0].findobj(Annotation) if one.get_gid() == "summary"]
    assert isinstance(summary, Annotation)
    assert summary.xy in ((1, 0), (0, 1))  # the points lie on the other diagonal


@pytest.mark.filterwarnings("ignore:constrained_layout")
def test_the_rules_can_fail() -> None:
    @in_style
    def careless(x: float, y: float) -> PaperFigure:
        figure = new_figure("single", 5)
        axes = figure.add_subplot()
        axes.text(0.5, 0.5, "first")
        axes.text(x, y, "second", clip_on=False)
        return finish(figure)

    check(careless(0.1, 0.9))
    with pytest.raises(AssertionError, match="'first' over 'second'"):
        check(careless(0.52, 0.51))
    with pytest.raises(AssertionError, match="cut off"):
        check(careless(3.0, 0.9))
    with pytest.raises(AssertionError):
        figure = careless(0.1, 0.9)
        figure.axes[0].plot([0, np.nan], [0, 1])
        check(figure)
