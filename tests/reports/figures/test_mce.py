"""mCE against accuracy, seen against unseen corruptions, bars, and confusion matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.errors import UnknownNameError
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.reports.accuracy_grids import table_scores
from shiftbench.reports.figures import (
    bars,
    confusion,
    error_map_of_run,
    error_points,
    error_points_of_run,
    mce,
    severity_grid,
    size_points,
)
from shiftbench.studies import StudyError
from shiftbench.studies.models import ModelInfo, Models
from tests.reports.figures.looking import check, check_svg, texts
from tests.reports.figures.test_corruption_figures import grid_of
from tests.reports.page.making import classifiers, run_colours
from tests.runs.helpers import colour_folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> sb.Run:
    root = tmp_path_factory.mktemp("mce")
    return run_colours(colour_folder(root / "images", per_class=4), root / "w", severities=(3, 5))


def test_points_of_a_run_are_the_tables_numbers(run: sb.Run) -> None:
    points = error_points_of_run(run)
    table = {(row["classifier"], row["metric"]): row["value"] for row in run.corruption_table().rows}
    mean = next(value for (model, metric), value in table.items() if model == "unsure" and metric.startswith("mean"))
    [drawn] = points.series.values()
    assert mean > 0 and drawn.value[points.models.index("unsure")] == pytest.approx(100 * mean)
    clean = float(run.predictions("unsure", run.settings[0]).correct.mean())
    assert points.x.value[points.models.index("unsure")] == pytest.approx(100 * clean)
    figure = mce(points)
    check(figure)
    check_svg(figure)
    assert "unsure" in texts(figure)


def test_means_over_other_corruptions_are_not_drawn_beside_each_other(tmp_path: Path) -> None:
    folder, (bright, unsure) = colour_folder(tmp_path / "images", per_class=2), classifiers()
    run_colours(folder, tmp_path / "w", chosen=unsure, corruptions=("fog",), severities=(3,))
    run_colours(folder, tmp_path / "w", chosen=bright, corruptions=("fog", "contrast"), severities=(3,))
    run = sb.Run.open(tmp_path / "w")
    points = error_points_of_run(run)
    drawn = error_map_of_run(run)
    assert points.models == drawn.models == ("bright",)
    for one in (points, drawn):
        assert any("unsure" in note for note in one.notes)


def test_points_of_a_table() -> None:
    grid = severity_grid(grid_of(), clean="mine")
    points = error_points(grid, "net-1")
    assert grid.clean is not None
    two = [grid.corruptions.index(name) for name in ("fog", "gaussian_noise")]  # without saturate, an extra one
    ce = (1 - grid.accuracy).mean(axis=2)[:, two]
    rise = grid.clean.value[:, None] - grid.accuracy.mean(axis=2)[:, two]
    plain, relative = points.series.values()
    assert plain.value == pytest.approx(100 * (ce / ce[1]).mean(axis=1))
    assert relative.value == pytest.approx(100 * (rise / rise[1]).mean(axis=1))
    check(mce(points))
    with pytest.raises(StudyError):
        error_points(severity_grid(grid_of()))


def test_mean_accuracy_in_place_of_errors(run: sb.Run) -> None:
    """Figure 4 of paper 000: from a run and from a table, the mean over types and severities."""
    points = error_points_of_run(run, accuracy=True)
    [accuracies] = points.series.values()
    [errors] = error_points_of_run(run).series.values()
    np.testing.assert_allclose(accuracies.value, 100 - errors.value)
    np.testing.assert_allclose(accuracies.low, 100 - errors.high)
    assert points.labels[1] == "mean accuracy under corruption (%)"
    check(mce(points))
    grid = severity_grid(grid_of(), clean="mine")
    two = [grid.corruptions.index(name) for name in ("fog", "gaussian_noise")]  # without saturate, an extra one
    [of_table] = error_points(grid, accuracy=True).series.values()
    np.testing.assert_allclose(of_table.value, 100 * grid.accuracy[:, two].mean(axis=(1, 2)))


def test_scores_against_the_size_of_networks() -> None:
    """Figure 6 of paper 000, with the numbers of parameters that its appendix B prints."""
    models = Models(
        {name: ModelInfo(name, size=size) for name, size in (("small", "25.5"), ("large", "88"), ("odd", "huge"))}
    )
    entries = []
    for model, error in (("small", 0.639), ("large", 0.575), ("odd", 0.5), ("unlisted", 0.4)):
        entries.append(SettingScore(model, "imagenet-r", Score("error", error, error - 0.01, error + 0.01, n=30_000)))
    points = size_points(entries, models)
    assert points.models == ("small", "large") and points.x.value.tolist() == [25.5, 88.0]
    [errors] = points.series.values()
    np.testing.assert_allclose([errors.value, errors.low], [[63.9, 57.5], [62.9, 56.5]])
    assert points.labels == ("millions of parameters", "imagenet-r, error (%)")
    assert points.notes == ("not shown, of unknown size: odd, unlisted",)
    figure = mce(points)
    check(figure)
    assert {"small", "large"} <= set(texts(figure))
    with pytest.raises(StudyError, match="no model has a size"):
        size_points(entries[2:], models)


def test_many_models_are_named_only_if_asked_for() -> None:
    grid = severity_grid(grid_of(), clean="mine")
    names = [f"copy-{i}" for i in range(13)]
    assert grid.clean is not None
    every = np.array([0] * len(names))
    many = replace(
        grid,
        models=tuple(names),
        accuracy=grid.accuracy[every],
        low=grid.low[every],
        high=grid.high[every],
        clean=grid.clean.where(every),
    )
    points = error_points(many, "copy-0")
    assert not [text for text in texts(mce(points)) if text.startswith("copy")]
    assert [text for text in texts(mce(points, named=["copy-3"])) if text.startswith("copy")] == ["copy-3"]
    with pytest.raises(UnknownNameError):
        mce(points, named=["copy-99"])


def test_seen_against_unseen(run: sb.Run) -> None:
    grid = severity_grid(grid_of(), clean="mine")
    points = error_points(grid, seen=["gaussian_noise"], unseen=["fog"])
    at = [grid.corruptions.index(name) for name in ("gaussian_noise", "fog")]
    x, y = (100 * (1 - grid.accuracy[:, i].mean(axis=1)) for i in at)
    assert points.x.value == pytest.approx(x) and points.series["models"].value == pytest.approx(y)
    check(mce(points))
    own = error_points_of_run(run, seen=["gaussian_noise"])
    scores = {row["setting"]: row["value"] for row in run.corruption_table().rows if row["classifier"] == "bright"}
    assert own.x.value[0] == pytest.approx(100 * scores["gaussian_noise"])
    assert own.series["models"].value[0] == pytest.approx(50 * (scores["contrast"] + scores["frost"]))
    with pytest.raises(UnknownNameError):
        error_points(grid, seen=["rain"])
    with pytest.raises(StudyError):
        error_points(grid, seen=["fog"], unseen=["fog"])


def test_bars_have_a_line_at_chance() -> None:
    scores = [SettingScore("a", "imagenet-o", Score("aupr", 0.171, 0.16, 0.18, 12_000, 0.95))]
    figure = bars(scores, chance=[2_000 / 12_000])
    [axes] = figure.axes
    [line] = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert np.asarray(line.get_xdata(), float).tolist() == pytest.approx([16.667, 16.667], abs=1e-3)
    assert "dashed: chance, 16.7" in figure.notes


def test_bars_are_the_scores() -> None:
    entries = [
        SettingScore(f"net-{i}", s, Score("top1", 0.5 + i / 10, 0.4, 0.95, n=50)) for i in range(3) for s in ("a", "b")
    ]
    figure = bars(entries)
    check(figure)
    [axes] = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["net-2", "net-1", "net-0"]
    assert sorted({round(float(bar.get_width()), 6) for bar in axes.patches}) == [50, 60, 70]  # type: ignore[attr-defined]
    table = table_scores(grid_of(), ["mine"], ["net-0", "net-2"], 0.95)
    assert [(name, score.n) for name, _, score in table] == [("net-0", 500), ("net-2", 500)]
    assert table[0][2].low < table[0][2].value < table[0][2].high
    check(bars(table))
    with pytest.raises(StudyError):
        bars([*entries, SettingScore("net-0", "c", Score("nll", 1.0, 0.9, 1.1, n=5, unit=""))])


def test_confusion_matrix(run: sb.Run) -> None:
    p = run.predictions("unsure", next(name for name in run.settings if name.endswith("gaussian_noise.5")))
    figure = confusion(p)
    check(figure)
    wrong = int((p.top[:, 0] != p.labels).sum())
    assert f"{wrong} of {len(p)} images are misclassified" in figure.notes[0]
    share = 100 * float(np.mean(p.top[p.labels == 0, 0] == 0))
    assert texts(figure).count(f"{share:.0f}") >= 1 or share == 0
    assert "the 2 of 3 classes with the most mistakes" in confusion(p, most=2).notes
