"""One divisor for each family of corrupted settings, whichever command divides by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.metrics.corruption import ALEXNET, published_baseline
from shiftbench.reports.accuracy_grids import ce_table, error_map, severity_grid
from shiftbench.reports.figures.mce import error_points, error_points_of_run
from shiftbench.settings.base import Member
from shiftbench.studies.results import Results, read_results
from tests.reports.recorded import record

#: ResNet-50's mCE in the testbed's own evaluation, computed from its table apart from this package.
RESNET50 = {"imagenet-c_on-disk": 76.5, "imagenet-c_in-memory": 74.0}


@pytest.fixture(scope="module")
def table(reference_data: Path) -> Results:
    return read_results(reference_data / "imagenet-testbed" / "results_204x213.csv")


@pytest.mark.parametrize("family", RESNET50)
def test_the_testbed_is_divided_by_its_own_alexnet(family: str, table: Results) -> None:
    grid = severity_grid(table, family=family, clean="val")
    baseline = published_baseline(family)
    alexnet = grid.accuracy[grid.models.index("alexnet")]
    for corruption, accuracies in zip(grid.corruptions, alexnet.tolist(), strict=True):
        errors = [baseline.errors[corruption][severity] for severity in grid.severities]
        assert errors == pytest.approx([1 - accuracy for accuracy in accuracies], abs=1e-6)
    assert baseline.clean_error() == pytest.approx(ALEXNET.clean_error())


@pytest.mark.parametrize("family", RESNET50)
def test_tables_reports_and_figures_give_the_same_number(family: str, table: Results) -> None:
    grid = severity_grid(table, family=family, clean="val")
    shown = {row["model"]: row["mean"] for row in ce_table(grid).rows}
    errors = error_map(grid)
    drawn = dict(zip(errors.models, errors.values[:, 0].tolist(), strict=True))
    points = error_points(grid)
    assert round(100 * shown["resnet50"], 1) == RESNET50[family]
    assert shown["alexnet"] == pytest.approx(1, abs=1e-6)
    assert drawn["resnet50"] == pytest.approx(shown["resnet50"])
    mce = next(iter(points.series.values()))
    assert mce.value[points.models.index("resnet50")] == pytest.approx(100 * shown["resnet50"])
    assert all("published" not in name and "testbed" in name for name in points.series)


def test_the_figure_of_a_workspace_has_accuracies_without_corruption(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 1000, 760)
    for severity in (1, 2, 3, 4, 5):
        name = f"imagenet-c.fog.{severity}"
        member = Member("imagenet-c", "fog", severity)
        record(tmp_path / "w", name, 1000, 700 - 50 * severity, reference="val", member=member, source="on-disk")
    points = error_points_of_run(sb.Run.open(tmp_path / "w"))
    assert points.x.value.tolist() == pytest.approx([76.0])


def test_models_of_one_fingerprint_have_their_own_scores(tmp_path: Path) -> None:
    """The recorded fingerprint is of the first six letters, as that of two functions may be of the same code."""
    for model, hits in (("resnet50", 760), ("resnet101", 780)):
        record(tmp_path / "w", "val", 1000, hits, model=model)
    run = sb.Run.open(tmp_path / "w")
    run.scores()
    scores = {model: score.value for model, _, score in run.scores()}
    assert scores == pytest.approx({"resnet50": 0.76, "resnet101": 0.78})
