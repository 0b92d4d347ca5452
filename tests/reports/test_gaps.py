"""Gaps to the reference, and tables with one row per model, against sums by hand and what `study` reads back."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from scipy.stats import beta

import shiftbench as sb
from shiftbench.metrics.base import Score, SettingScore
from shiftbench.reports.gaps import with_gaps
from shiftbench.studies.results import read_results
from tests.commands import answer, call, output
from tests.reports.recorded import record


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for model, hits in (("first", (900, 700)), ("second", (950, 760))):
        record(tmp_path / "w", "val", 1000, hits[0], model=model)
        record(tmp_path / "w", "renditions", 1000, hits[1], model=model, reference="val")
    return tmp_path / "w"


def exact_ends(k: int, n: int) -> tuple[float, float]:
    return float(beta.ppf(0.025, k, n - k + 1)), float(beta.ppf(0.975, k + 1, n - k))


def test_a_gap_follows_its_setting(workspace: Path) -> None:
    scores = answer("table", "-w", workspace, "--gaps", "-c", "first")["scores"]
    assert [(row["setting"], row["metric"]) for row in scores] == [
        ("renditions", "top1"),
        ("renditions", "top1 gap"),
        ("val", "top1"),
    ]
    gap = scores[1]
    clean_low, clean_high = exact_ends(900, 1000)
    low, high = exact_ends(700, 1000)
    assert gap["value"] == pytest.approx(0.2)
    assert gap["low"] == pytest.approx(0.2 - ((0.9 - clean_low) ** 2 + (high - 0.7) ** 2) ** 0.5)
    assert gap["high"] == pytest.approx(0.2 + ((clean_high - 0.9) ** 2 + (0.7 - low) ** 2) ** 0.5)
    text = output("table", "-w", workspace, "--gaps")
    assert "20.0" in text and "19.0" in text and "gap" in text


def test_gaps_of_errors_and_scores_without_a_reference() -> None:
    clean = Score("error", 0.1, 0.05, 0.15, n=100, higher_is_better=False)
    shifted = Score("error", 0.4, 0.3, 0.5, n=100, higher_is_better=False)
    entries = [SettingScore("a", "clean", clean), SettingScore("a", "fog", shifted), SettingScore("b", "fog", shifted)]
    scores = with_gaps(entries, {"fog": "clean"})
    assert [(entry.model, entry.setting, entry.score.metric) for entry in scores] == [
        ("a", "clean", "error"),
        ("a", "fog", "error"),
        ("a", "fog", "error gap"),
        ("b", "fog", "error"),
    ]
    gap = scores[2].score
    assert gap.value == pytest.approx(0.3) and gap.low < 0.3 < gap.high and not gap.higher_is_better


def test_one_row_per_model_is_a_table_of_results(workspace: Path, tmp_path: Path) -> None:
    output("table", "-w", workspace, "--pivot", "-o", tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"model": "first", "renditions": "0.7", "val": "0.9"},
        {"model": "second", "renditions": "0.76", "val": "0.95"},
    ]
    results = read_results(tmp_path / "results.csv")
    assert results.of("renditions") == {"first": 0.7, "second": 0.76}
    text = output("table", "-w", workspace, "--pivot")
    assert "[" not in text.split("intervals")[0] and text.index("first") < text.index("second")
    table = sb.Run.open(workspace).table("top1,error", pivot=True, gaps=True)
    assert [column.key for column in table.columns] == [
        "model",
        "renditions top1",
        "renditions top1 gap",
        "renditions error",
        "renditions error gap",
        "val top1",
        "val error",
    ]


@pytest.mark.parametrize("option", ["--gaps", "--pivot"])
def test_not_with_corruption_errors(option: str, workspace: Path) -> None:
    refused = call("table", "-w", workspace, "--mce", option)
    assert refused.exit_code == 2 and "not with --mce" in refused.output
