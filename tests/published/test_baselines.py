"""The published models as lines: checked against what the papers say about their own tables."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from shiftbench.published.baselines import baseline_of, baselines
from shiftbench.published.tables import published
from shiftbench.settings.base import build_suite
from shiftbench.studies.fits import fit
from shiftbench.studies.robustness import effective_robustness


def _line(setting: str, *, without: str = "none", scale: str = "linear") -> tuple[float, float]:
    found = baseline_of(setting)
    assert found is not None
    models = {name: pair for name, pair in found.values.items() if not name.startswith(without)}
    line = fit({m: x for m, (x, _) in models.items()}, {m: y for m, (_, y) in models.items()}, scale=scale, resamples=0)
    return line.slope, line.intercept


def test_every_setting_is_one_of_our_suites() -> None:
    known = {s.name for suite in ("natural", "cifar", "natural-adversarial") for s in build_suite(suite).settings}
    for baseline in baselines():
        sides = [side.setting for side in (baseline.x, baseline.inside) if side]
        assert {*sides, *baseline.settings} - {"imagenet-c"} <= known
        assert len(baseline.values) == baseline.n


def test_numbers_of_models() -> None:
    assert {baseline.y.setting: baseline.n for baseline in baselines()} == {
        "imagenetv2-matched-frequency": 67,
        "imagenetv2-threshold0.7": 67,
        "imagenetv2-topimages": 67,
        "cifar-10.1-v4": 34,
        "cifar-10.1-v6": 34,
        "imagenet-r": 18,
        "imagenet-a": 13,
        "imagenet-c": 20,
        "imagenet-o": 7,
    }


@pytest.mark.parametrize(
    ("setting", "without"), [("imagenetv2-matched-frequency", "fv_"), ("cifar-10.1-v4", "no such model")]
)
def test_fits_are_those_that_004_states(setting: str, without: str) -> None:
    slope, intercept = _line(setting, without=without)
    stated = {row.metric: row for row in published("004", "section 3.3", setting=setting)}
    assert slope == pytest.approx(stated["slope"].value, abs=0.006)
    assert intercept == pytest.approx(stated["intercept"].value, abs=0.006)


def test_residuals_of_004_are_small_and_cancel() -> None:
    """Probit, all 67 models: every model lies within 2.5 points of the line, and the mean is near 0."""
    for setting in ("imagenetv2-matched-frequency", "imagenetv2-threshold0.7", "imagenetv2-topimages"):
        found = baseline_of(setting)
        assert found is not None and found.x is not None
        line = found.line()
        assert (line.n, line.scale) == (67, "probit") and line.r2 > 0.99
        x, y = zip(*found.values.values(), strict=True)
        rows = effective_robustness(x, y, line, models=list(found.values)).rows
        rho = np.array([row.rho for row in rows])
        assert abs(rho).max() < 0.025 and abs(rho.mean()) < 0.002
        assert not any(row.extrapolated for row in rows)


def test_accuracies_of_004_are_those_of_the_released_predictions(reference_data: Path) -> None:
    """An independent source: accuracies counted from the authors' predictions, image by image."""
    columns = {
        "imagenetv2-matched-frequency": "imagenetv2-b-33_top1",
        "imagenetv2-threshold0.7": "imagenetv2-a-44_top1",
        "imagenetv2-topimages": "imagenetv2-c-12_top1",
    }
    with (reference_data / "imagenetv2" / "accuracies_67models_from_predictions.csv").open() as file:
        counted = {row["model"]: row for row in csv.DictReader(file)}
    for setting, column in columns.items():
        found = baseline_of(setting)
        assert found is not None
        for model, (x, y) in found.values.items():
            row = counted[model]
            assert 100 * x == pytest.approx(float(row["imagenet-validation-original_top1"]), abs=0.051), model
            if model != "fv_16k":  # its released predictions are stored worst first
                assert 100 * y == pytest.approx(float(row[column]), abs=0.051), model


def test_accuracies_of_000_are_those_of_the_testbed(reference_data: Path) -> None:
    """Models that both evaluated: val on the 200 classes and ImageNet-R, ImageNet-A."""
    with (reference_data / "imagenet-testbed" / "results_204x213.csv").open() as file:
        rows = {next(iter(row.values())): row for row in csv.DictReader(file)}
    renditions = baseline_of("imagenet-r")
    adversarial = baseline_of("imagenet-a")
    assert renditions is not None and adversarial is not None
    for name, theirs in (("ResNet-101", "resnet101"), ("ResNet-152", "resnet152")):
        expected = [float(rows[theirs][key]) for key in ("val-on-imagenet-r-classes", "imagenet-r")]
        assert [100 * v for v in renditions.values[name]] == pytest.approx(expected, abs=0.06)
    expected = [float(rows["resnet152"][key]) for key in ("val", "imagenet-a")]
    assert [100 * v for v in adversarial.values["ResNet-152"]] == pytest.approx(expected, abs=0.06)


def test_mean_accuracy_under_corruption_gives_the_printed_mce_back() -> None:
    found = baseline_of("imagenet-c")
    assert found is not None
    values = found.values
    assert values["AlexNet"][1] == pytest.approx(0.2110, abs=0.0005)  # 1 - the mean of its published errors
    # Dividing every type by AlexNet's error or only their mean makes little difference.
    for paper, table in (("002", "1"), ("000", "8")):
        for row in published(paper, table, setting="imagenet-c", metric="mCE"):
            assert 1 - values[row.model][1] == pytest.approx(row.value * (1 - values["AlexNet"][1]), abs=0.02)


def test_interventions_are_shown_but_not_fitted() -> None:
    found = baseline_of("imagenet-r")
    assert found is not None
    line = found.line()
    assert line.n == 9 and "ResNet-50 + AugMix" not in line.models and "ResNet-152 + SE" in line.models
