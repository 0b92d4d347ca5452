"""Reliability diagrams, and accuracy by response rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpecFromSubplotSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from shiftbench.arrays import FloatArray
from shiftbench.metrics.base import Score, metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram, response_rate_accuracy
from shiftbench.reports import formatting
from shiftbench.reports.figures import style
from shiftbench.reports.figures.axes import write_in_corner
from shiftbench.reports.figures.style import BLUE, COLOURS, PaperFigure, finish, in_style, new_figure
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError

#: Reliability diagrams in one figure; curves in one figure are as many as there are colours.
_MAX_PANELS = 12
#: Points of a response curve.
_CURVE_POINTS = 200
#: With fewer answers no band is drawn.
_MIN_ANSWERS = 10


@in_style
def reliability(
    predictions: Sequence[Predictions],
    *,
    bins: int = 15,
    level: float = 0.95,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """One reliability diagram for each of the predictions, with how many images each bin holds.

    A point is a bin of equal width: its accuracy with the Clopper-Pearson interval, at its mean confidence. Points
    below the diagonal are overconfident. Empty bins have no point.

    Args:
        predictions: One entry per panel.
        bins: Number of bins of equal width.
        level: Confidence level of the intervals.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    titles = _titles(predictions, _MAX_PANELS)
    rows, columns, side = style.panel_grid(len(predictions), width, 5.8)
    notes = [f"{formatting.level_text(level)} intervals; RMS over bins of 100 images, ECE over 15 bins of equal width"]
    figure = new_figure(width, rows * (side * 1.05 + 0.7), notes, show_notes=show_notes)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(hspace=0.0, h_pad=0.03)
    grid = figure.add_gridspec(rows, columns)
    corners = []
    for number, (result, title) in enumerate(zip(predictions, titles, strict=True)):
        inner = GridSpecFromSubplotSpec(2, 1, grid[number // columns, number % columns], height_ratios=(4, 1))
        upper = figure.add_subplot(inner[0])
        lower = figure.add_subplot(inner[1], sharex=upper)
        diagram = reliability_diagram(result.confidence[result.valid], result.correct, bins, level=level)
        obstacles = _diagram(upper, lower, diagram)
        upper.set_title(style.wrapped_name(title, 0.8 * side * style.CM * 72, style.TEXT))
        lines = [
            f"RMS {_text(metrics.get('rms_calibration_error')(result, level=level))}",
            f"ECE {_text(metrics.get('ece')(result, level=level))}",
        ]
        corners.append((upper, lines, obstacles))
    finish(figure)
    for axes, lines, obstacles in corners:
        write_in_corner(axes, lines, obstacles)
    return figure


def _diagram(axes: Axes, below: Axes, bins: Sequence[ReliabilityBin]) -> FloatArray:
    """Draw it and, below, how many images each bin holds; points along its bars, which text should not cover."""
    axes.plot([0, 100], [0, 100], **style.DIAGONAL)
    rows = [(each.confidence, each.accuracy, each.low, each.high) for each in bins if each.n]
    x, y, low, high = 100 * np.array(rows).T
    interval = np.stack([low, high])
    # The gap to the diagonal is what the errors measure.
    axes.vlines(x, np.minimum(x, y), np.maximum(x, y), color=style.SKY, linewidth=3, alpha=0.5)
    axes.errorbar(x, y, yerr=np.abs(interval - y), fmt="none", ecolor=BLUE, elinewidth=0.7, capsize=1.2, capthick=0.7)
    axes.scatter(x, y, s=9, color=BLUE, zorder=3, clip_on=False)
    axes.set(xlim=(0, 100), ylim=(0, 101), ylabel="accuracy (%)")
    axes.tick_params(labelbottom=False)
    total = sum(each.n for each in bins)
    shares = [100 * each.n / total for each in bins]
    edges = [100 * each.start for each in bins]
    widths = [100 * (each.stop - each.start) for each in bins]
    below.grid(visible=False)
    below.bar(edges, shares, widths, align="edge", color=style.GREY, edgecolor="white", linewidth=0.3)
    below.set(ylim=(0, 1.1 * max(shares)), xlabel=f"confidence (%), n = {total:,}", ylabel="images\n(%)")
    below.set_yticks([0, round(max(shares))])
    along = np.linspace(low, high, 12)
    return np.column_stack([np.broadcast_to(x, along.shape).ravel(), along.ravel()])


@in_style
def response(
    predictions: Sequence[Predictions], *, level: float = 0.95, width: str | float = "single", show_notes: bool = True
) -> PaperFigure:
    """Accuracy on the most confident share of the images, one curve for each of the predictions.

    The area under a curve, AURRA, stands in the legend with its interval; the bands are pointwise Clopper-Pearson.

    Args:
        predictions: One entry per curve.
        level: Confidence level of the intervals.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    titles = _titles(predictions, len(COLOURS))
    notes = [f"{formatting.level_text(level)} intervals of AURRA; pointwise bands, from {_MIN_ANSWERS} answers on"]
    figure = new_figure(width, 0.75 * style.width_in_cm(width) + 0.5, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    handles: list[Line2D] = []
    labels = []
    lowest = 100.0
    for i, (result, title) in enumerate(zip(predictions, titles, strict=True)):
        curve = response_rate_accuracy(
            result.confidence[result.valid], result.correct, points=_CURVE_POINTS, level=level
        )
        # The bands of the first few images are so wide that they would flatten all curves.
        enough = curve.rate * result.valid.sum() >= _MIN_ANSWERS
        rate = 100 * curve.rate[enough]
        low = 100 * curve.low[enough]
        high = 100 * curve.high[enough]
        axes.fill_between(rate, low, high, color=COLOURS[i], alpha=0.1, linewidth=0)
        handles += axes.plot(100 * curve.rate, 100 * curve.accuracy, color=COLOURS[i], linestyle=style.DASHES[i])
        labels.append(f"{title}: AURRA {_text(metrics.get('aurra')(result, level=level))}")
        lowest = min(lowest, 100 * float(curve.accuracy.min()), float(low[rate >= 10].min(initial=100.0)))
    axes.set(xlim=(0, 100), ylim=(max(0.0, lowest - 3), 101))
    axes.set(xlabel="response rate (%)", ylabel="accuracy on what is answered (%)")
    style.add_legend(figure, handles, labels)
    return finish(figure)


def _titles(predictions: Sequence[Predictions], most: int) -> list[str]:
    """The model, the setting, or both, as needed to distinguish them; what can't be drawn is refused."""
    if not predictions or len(predictions) > most:
        raise StudyError(
            "invalid number of results for one figure",
            found=len(predictions),
            expected=f"1 to {most}",
            hint="choose models and settings: -c, -s; in Python, run.select(models=..., settings=...)",
        )
    for result in predictions:
        if not result.valid.any():
            raise StudyError(f"no image of {result.setting!r} counts for {result.classifier}")
        if np.isnan(result.confidence[result.valid]).any():
            raise StudyError(
                f"{result.classifier} in {result.setting!r} has no confidences",
                hint="evaluate the model itself, or import its predictions with a column of confidences",
            )
    if len({result.setting for result in predictions}) == 1:
        return [result.classifier for result in predictions]
    if len({result.classifier for result in predictions}) == 1:
        return [result.setting for result in predictions]
    return [f"{result.classifier}, {result.setting}" for result in predictions]


def _text(score: Score) -> str:
    places = formatting.digits(score.n)
    return f"{formatting.number(score.value, places)} {formatting.interval(score.low, score.high, places)}".rstrip()
