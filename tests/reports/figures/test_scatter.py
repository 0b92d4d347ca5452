"""The scatter plot: what it draws is what the study computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D

from shiftbench.errors import UnknownNameError
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.importers import open_table
from shiftbench.reports.figures import robustness, scatter
from shiftbench.reports.figures.scatters import make_panel
from shiftbench.reports.figures.style import BLUE, GREEN, VERMILION
from shiftbench.studies import Results, StudyError
from shiftbench.studies.base import logit
from shiftbench.studies.study import ShiftAxes, Study
from tests.reports.figures.looking import check, check_svg, texts


def marks(axes: Axes) -> dict[str, list[tuple[float, float]]]:
    """Filled points by colour."""
    found: dict[str, list[tuple[float, float]]] = {}
    for points in axes.collections:
        colours = np.asarray(points.get_facecolor(), dtype=float)
        offsets = np.asarray(points.get_offsets(), dtype=float)
        if isinstance(points, PathCollection) and len(offsets) and len(colours):
            places = [(float(x), float(y)) for x, y in offsets]
            found.setdefault(to_hex(tuple(colours[0])).upper(), []).extend(places)
    return found


def test_points_line_and_band_are_the_study_s(study: Study) -> None:
    figure = scatter(study, "shifted", resamples=200)
    check(figure)
    [axes] = figure.axes
    drawn = marks(axes)
    assert np.array(drawn[BLUE][:3]) == pytest.approx(logit([[0.55, 0.41], [0.60, 0.46], [0.66, 0.52]]))
    assert len(drawn[BLUE]) == 6
    line = study.fit("val", "shifted", resamples=200)
    pieces = [one for one in axes.lines if one.get_gid() == "line"]
    assert [one.get_linestyle() for one in pieces] == ["--", "-", "--"]
    for piece in pieces:
        x, y = np.asarray(piece.get_xydata()).T
        assert y == pytest.approx(line.slope * x + line.intercept)  # type: ignore[union-attr]
    panel = make_panel(study, ShiftAxes("val", "shifted"), scale="logit", level=0.95, point_level=0.95, resamples=200)
    [(x, low, high)] = panel.bands()
    band = line.band(100 * panel.scale.inverse(x))
    assert band is not None
    inside = (logit(band.low / 100) > panel.y_axis.low) & (logit(band.high / 100) < panel.y_axis.high)
    assert low[inside] == pytest.approx(logit(band.low / 100)[inside])
    assert high[inside] == pytest.approx(logit(band.high / 100)[inside])
    assert any(text.startswith("slope 0.9") for text in texts(figure))


def test_intervals_are_clopper_pearson(study: Study) -> None:
    panel = make_panel(study, ShiftAxes("val", "shifted"), scale="logit", level=0.95, point_level=0.99, resamples=0)
    low, high = clopper_pearson(410, 1000, 0.99)
    assert (panel.points.y.low[0], panel.points.y.high[0]) == pytest.approx((low, high))
    unsized = Study(replace(study.results, sizes={}), study.models)
    bare = make_panel(unsized, ShiftAxes("val", "shifted"), scale="logit", level=0.95, point_level=0.99, resamples=0)
    assert bare.points.y.low.tolist() == bare.points.y.value.tolist()
    check(scatter(unsized, "shifted", resamples=20))


def test_accuracies_of_0_and_100_lie_on_the_edge(study: Study) -> None:
    figure = scatter(study, "shifted", resamples=20)
    check_svg(figure)
    [axes] = figure.axes
    low, high = axes.get_ylim()
    edge = [
        (float(x), float(y))
        for points in axes.collections
        if isinstance(points, PathCollection) and points.get_gid() == "edge"
        for x, y in np.asarray(points.get_offsets())
    ]
    assert sorted(y for _, y in edge) == pytest.approx([low, high])
    assert figure.notes == ("hollow, on the edge: 0 and 100 % have no place on the logit scale (net-8, net-9)",)
    assert any("net-8, net-9" in text.replace("\n", " ") for text in texts(figure))
    assert not scatter(study, "shifted", scale="linear", resamples=20).notes
    quiet = scatter(study, "shifted", resamples=20, show_notes=False)
    assert quiet.notes and not any("hollow" in text for text in texts(quiet))


def test_own_models_and_categories(study: Study) -> None:
    figure = scatter(study, "shifted", own=["net-7"], named=["net-0"], resamples=20, scale="probit")
    check(figure)
    drawn = marks(figure.axes[0])
    assert len(drawn[VERMILION]) == 1 and len(drawn[GREEN]) == 1
    shown = texts(figure)
    assert {"standard", "more data", "in no category", "own", "fit", "y = x", "net-7", "net-0"} <= set(shown)
    assert "net-1" not in shown and "my own kind" not in shown
    with pytest.raises(UnknownNameError, match="net-77"):
        scatter(study, "shifted", own=["net-77"])


def test_own_models_stay_beside_chosen_ones_and_colours_need_a_column(study: Study) -> None:
    figure = scatter(study, "shifted", own=["net-7"], models=["net-0"], resamples=0, scale="probit")
    assert {"net-7", "own"} <= set(texts(figure)) and "net-1" not in texts(figure)
    for column in ("colour", "size"):  # not in the table, or with nothing in it
        with pytest.raises(UnknownNameError, match=f"unknown column '{column}'"):
            scatter(study, "shifted", colour_by=column, resamples=0)


def test_few_models_are_all_named(study: Study) -> None:
    assert {f"net-{i}" for i in range(10)} <= set(texts(scatter(study, "shifted", resamples=20)))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_models_for_a_line(count: int) -> None:
    values = np.array([[0.5, 0.4], [0.6, 0.5], [0.7, 0.55]])[:count]
    few = Study(Results(tuple("abc")[:count], ("val", "new"), values, "fraction"))
    figure = scatter(few, "new", resamples=50)
    check(figure)
    lines = [line for line in figure.axes[0].lines if isinstance(line, Line2D) and line.get_gid() == "line"]
    assert bool(lines) == (count > 1)
    assert any("no line: a line needs at least two models" in note for note in figure.notes) == (count == 1)


def test_missing_cells_and_thresholds(study: Study) -> None:
    values = study.results.values.copy()
    values[0, 1] = np.nan
    gappy = Study(replace(study.results, values=values), study.models)
    figure = scatter(gappy, ShiftAxes("val", "shifted", min_x=65), resamples=20)
    check(figure)
    assert figure.notes[:2] == ("not shown, without a value: 1 model", "not shown, val below 65 %: 1 model")
    with pytest.raises(StudyError, match="no model has both"):
        scatter(gappy, ShiftAxes("val", "shifted", min_x=99))
    with pytest.raises(StudyError, match="no shift"):
        scatter(gappy, [])


def test_the_public_testbed(public: Study) -> None:
    """Three shifts, one with a knee; the numbers are the published ones."""
    own = ["resnet50_augmix", "resnext101_32x8d_deepaugment_augmix"]
    figure = scatter(public, ["imagenetv2", "objectnet", "imagenet-a"], own=own, resamples=100, width="double")
    check(figure)
    shown = texts(figure)
    assert any("slope 0.92 [0.9" in text and "r² 0.997, n = 78" in text for text in shown)
    assert any("knee at 91.86 %" in text for text in shown)
    assert "(c) hollow, on the edge: 0 and 100 % have no place on the logit scale (resnet50)" in figure.notes
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["(a)", "(b)", "(c)"]
    named = [text.replace("\n", "") for text in shown]
    assert all(named.count(name) == 3 for name in own)


@pytest.mark.parametrize("width", ["single", 5.0])
def test_many_panels_in_a_narrow_column(public: Study, width: str | float) -> None:
    check(scatter(public, ["vid-pm10", "imagenet-r"], resamples=20, width=width, named=["alexnet"]))


def test_robustness_to_two_shifts_is_that_of_models_that_are_not_standard(reference_data: Path) -> None:
    """001, figure 5, right: the 115 models that r is over, and none of the standard ones that the line is through."""
    study = open_table(reference_data / "imagenet-testbed")
    figure = robustness(
        study, ("imagenetv2", study.shift("imagenetv2")), ("corruptions", study.shift("corruptions")), width="double"
    )
    [axes] = figure.axes
    assert sum(map(len, marks(axes).values())) == 115
    assert any("n = 115" in text for text in texts(figure))
