"""Effective robustness against relative robustness, or to one shift against another (001 figures 5, 10 and C.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from shiftbench.errors import UnknownNameError
from shiftbench.reports import formatting
from shiftbench.reports.figures.naming import name_points, write_in_corner
from shiftbench.reports.figures.scatters import OWN, category_styles, legend_label
from shiftbench.reports.figures.style import (
    BLACK,
    DIAGONAL,
    PaperFigure,
    add_legend,
    finish,
    in_style,
    legend_mark,
    new_figure,
    width_in_cm,
)
from shiftbench.studies.base import StudyError, count_of, whole
from shiftbench.studies.fits import correlate
from shiftbench.studies.study import ShiftAxes, Study

_ASPECT = 0.85


@in_style
def robustness(
    study: Study,
    shift: tuple[str, ShiftAxes],
    against: tuple[str, ShiftAxes] | None = None,
    *,
    own: Sequence[str] = (),
    named: Sequence[str] = (),
    models: Sequence[str] = (),
    colour_by: str = "category",
    scale: str = "logit",
    level: float = 0.95,
    width: str | float = "single",
    show_notes: bool = True,
) -> PaperFigure:
    """Every model a point: rho on one shift against rho on another, or against tau on the same shift.

    Args:
        study: The accuracies, and which models the line goes through.
        shift: Name and axes of the shift on the y axis.
        against: Name and axes of the shift on the x axis; default: tau on ``shift`` against rho on it.
        own: The reader's own models: drawn larger and named.
        named: Other models to name.
        models: Only these models; default: all.
        colour_by: Column of the table of models that decides colours.
        scale: Scale of the line: ``"logit"``, ``"probit"`` or ``"linear"``.
        level: Confidence level of the correlation's interval.
        width: ``"single"`` (8.5 cm), ``"double"`` (17.5 cm), or centimetres.
        show_notes: Whether the notes are printed below the figure.
    """
    points = 100.0 / whole(study.results.unit)
    rho = _rho(study, shift[1], scale)
    xs, ys = (rho, study.relative(shift[1].y).tau) if against is None else (_rho(study, against[1], scale), rho)
    for name in (*own, *named, *models):
        if name not in study.results.models:
            raise UnknownNameError("model", name, study.results.models)
    shown = [name for name in (models or study.results.models) if name in xs and name in ys]
    if not shown:
        raise StudyError("no model has both measures", hint="tau needs a table of models with a column base_model")
    lost = len(models or study.results.models) - len(shown)
    notes = [f"not shown, without a value: {count_of(lost, 'model')}"] if lost else []
    figure = new_figure(width, width_in_cm(width) * _ASPECT, notes, show_notes=show_notes)
    axes = figure.add_subplot()
    axes.grid(visible=True)
    axes.axhline(0, **DIAGONAL, zorder=1)
    axes.axvline(0, **DIAGONAL, zorder=1)
    axes.set_xlabel(f"effective robustness, {(against or shift)[0]} (points)")
    axes.set_ylabel(f"{'relative' if against is None else 'effective'} robustness, {shift[0]} (points)")
    at = {name: (points * xs[name], points * ys[name]) for name in shown}
    labels = {name: legend_label(study, name, own, colour_by) for name in shown}
    styles = category_styles(list(labels.values()))
    for label, (colour, mark) in styles.items():
        here = np.array([at[name] for name in shown if labels[name] == label])
        large = label == OWN
        axes.scatter(
            here[:, 0], here[:, 1], color=colour, marker=mark, s=42 if large else 12, zorder=4 if large else 3,
            edgecolor=BLACK if large else "white", linewidth=0.4,
        )  # fmt: skip
    add_legend(figure, [legend_mark(*style, large=label == OWN) for label, style in styles.items()], list(styles))
    finish(figure)
    marks = np.array(list(at.values()))
    box = write_in_corner(axes, _summary(study, xs, ys, shown, level), marks)
    wanted = [(*at[name], name) for name in dict.fromkeys([*own, *named]) if name in at]
    unnamed = name_points(axes, wanted, marks, taken=[box] if box else [])
    figure.notes = (*figure.notes, *([f"no room for the names of {', '.join(unnamed)}"] if unnamed else []))
    return figure


def _rho(study: Study, shift: ShiftAxes, scale: str) -> dict[str, float]:
    return study.effective(shift.x, shift.y, min_x=shift.min_x, pivot=shift.pivot, scale=scale, resamples=0).rho


def _summary(
    study: Study, xs: Mapping[str, float], ys: Mapping[str, float], shown: Sequence[str], level: float
) -> list[str]:
    """The correlation over the shown models that are not standard."""
    if study.models is None:
        return []
    over = [name for name, here in zip(study.results.models, study.others, strict=True) if here and name in shown]
    if len(over) < 3:
        return []
    found = correlate({name: xs[name] for name in over}, {name: ys[name] for name in over}, level=level)
    ends = found.pearson_interval
    return [f"r {found.pearson:.2f}" + (f" {formatting.interval(*ends, 2, '')}" if ends else ""), f"n = {found.n}"]
