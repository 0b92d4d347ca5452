"""The published ImageNet-C numbers against the reference files and against each other."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean

import pytest

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS, EXTRA_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS
from shiftbench.published.tables import published

#: Paper 002, appendix C: the mean over severities, per cent.
APPENDIX_C = {
    "gaussian_noise": 88.6, "shot_noise": 89.4, "impulse_noise": 92.3, "defocus_blur": 82.0,
    "glass_blur": 82.6, "motion_blur": 78.6, "zoom_blur": 79.8, "snow": 86.7, "frost": 82.7, "fog": 81.9,
    "brightness": 56.5, "contrast": 85.3, "elastic_transform": 64.6, "pixelate": 71.8,
    "jpeg_compression": 60.7, "speckle_noise": 84.5, "gaussian_blur": 78.7, "spatter": 71.8, "saturate": 65.8,
}  # fmt: skip


def test_fifteen_and_four_in_order() -> None:
    assert (len(BENCHMARK_CORRUPTIONS), len(EXTRA_CORRUPTIONS)) == (15, 4)
    assert list(ALEXNET_ERRORS) == list(APPENDIX_C)
    assert EXTRA_CORRUPTIONS == ("speckle_noise", "gaussian_blur", "spatter", "saturate")


@pytest.mark.parametrize("corruption", APPENDIX_C)
def test_means_are_those_of_the_appendix(corruption: str) -> None:
    assert 100 * fmean(ALEXNET_ERRORS[corruption]) == pytest.approx(APPENDIX_C[corruption], abs=0.0501)


def test_errors_are_counts_of_fifty_thousand_images() -> None:
    for values in ALEXNET_ERRORS.values():
        for value in values:
            assert value * 50_000 == pytest.approx(round(value * 50_000), abs=1e-6)


def test_equal_to_the_reference_file(reference_data: Path) -> None:
    data = json.loads((reference_data / "alexnet_imagenet_c_errors.json").read_text())
    by_severity = next(values for key, values in data.items() if key.startswith("official_by_severity"))
    assert list(by_severity) == list(ALEXNET_ERRORS)
    for corruption, values in by_severity.items():
        assert ALEXNET_ERRORS[corruption] == pytest.approx(tuple(values), abs=1e-9)
        assert fmean(values) == pytest.approx(data["official_mean_19"][corruption], abs=1e-9)


def test_two_tables_of_seven_networks() -> None:
    found = [*published("002", "1"), *published("002", "2")]
    assert len(found) == 2 * 7 * 17
    assert len({(row.table, row.model, row.setting, row.metric) for row in found}) == len(found)
    clean = {(row.model, row.value) for row in found if row.metric == "error"}
    assert len(clean) == 7, "both tables print the same clean errors"
    alexnet = next(row for row in found if row.model == "AlexNet" and row.metric == "error")
    assert alexnet.agrees(ALEXNET_CLEAN_ERROR)


@pytest.mark.parametrize(("table", "metric", "kind"), [("1", "mCE", "CE"), ("2", "relative mCE", "relative CE")])
def test_the_means_follow_from_the_types(table: str, metric: str, kind: str) -> None:
    for row in published("002", table, metric=metric):
        types = [other.value for other in published("002", table, metric=kind, model=row.model)]
        assert fmean(types) == pytest.approx(row.value, abs=0.0035), row
