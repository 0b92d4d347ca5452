"""The table of corruption errors of a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError, StoreError
from shiftbench.metrics.corruption import ALEXNET, GROUPS
from shiftbench.reports.accuracy_grids import error_map_of_run
from shiftbench.reports.corruption import corruption_families, results_corruption_table
from shiftbench.reports.table import Table
from shiftbench.runs.results import StoredResults
from shiftbench.settings.base import Member
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec, SettingRecord
from shiftbench.store.workspace import Result, Workspace
from tests.metrics.making import with_hits
from tests.raised import raises
from tests.reports.recorded import record


class Shelf:
    """A workspace that holds predictions in memory."""

    root = Path("shelf")

    def __init__(self, found: list[Predictions]) -> None:
        self.results = [
            Result(
                one.classifier,
                one.setting,
                ResultSpec.from_json(
                    {
                        "row": row,
                        "classifier": {"fingerprint": one.classifier},
                        "source": "in-memory",
                        "reference": None if one.setting == "demo" else "demo",
                        "shift": one.spec.shift.values,
                    }
                ),
            )
            for row, one in enumerate(found)
        ]
        self._found = found

    def setting_record(self, result: Result) -> SettingRecord:
        return SettingRecord(member=result.spec.member(result.setting))

    def space(self, key: str) -> sb.LabelSpace:
        return sb.label_space("imagenet-1k")

    def read(self, result: Result, **_: Any) -> Predictions:
        return self._found[int(str(result.spec.others["row"]))]


def shelf(*classifiers: str, severities: tuple[int, ...] = (1, 3, 5)) -> Shelf:
    hard = np.random.default_rng(0).random(80)
    found = []
    for rank, name in enumerate(classifiers):
        error = 0.1 + 0.1 * rank
        found.append(with_hits(hard > error, classifier=name, setting="demo"))
        for corruption in ("fog", "snow"):
            found += [
                with_hits(
                    hard > error + 0.08 * s,
                    classifier=name,
                    setting=f"demo-c.{corruption}.{s}",
                    shift={"shift": "corruption", "corruption": corruption, "severity": float(s)},
                )
                for s in severities
            ]
    return Shelf(found)


class ShelfRun(StoredResults):
    """Results on a shelf, where every model has one version."""

    def __init__(self, stored: Shelf, results: list[Result]) -> None:
        self.workspace = cast(Workspace, stored)
        self.settings_left_out = ()
        self.results = results
        self._computed = {}


def run_of(stored: Shelf, results: list[Result] | None = None) -> StoredResults:
    chosen = stored.results if results is None else results
    return ShelfRun(stored, chosen)


def table_of(stored: Shelf, results: list[Result] | None = None, baseline: str | None = None) -> Table:
    return results_corruption_table(run_of(stored, results), baseline=baseline)


def test_one_row_a_classifier() -> None:
    stored = shelf("good", "bad")
    table = table_of(stored)
    assert [row["classifier"] for row in table.shown] == ["good", "bad"]
    assert {(row["setting"], row["metric"]) for row in table.rows} >= {
        ("demo", "error"),
        ("demo-c", "mean CE over 2 types at 1,3,5"),
        ("demo-c", "mean relative CE over 2 types at 1,3,5"),
        ("fog", "CE at 1,3,5"),
    }
    values = [row["value"] for row in table.rows if row["metric"].startswith("mean CE")]
    assert values[0] < values[1]
    assert max(map(len, table.to_text(60).splitlines())) <= 60


def test_another_classifier_as_baseline() -> None:
    stored = shelf("good", "bad")
    table = table_of(stored, baseline="bad")
    [score] = [
        row
        for row in table.rows
        if row["metric"] == "mean CE over 2 types at 1,3,5 vs bad" and row["classifier"] == "bad"
    ]
    assert (score["value"], score["low"], score["high"]) == pytest.approx((1, 1, 1))
    with pytest.raises(SettingError, match="'other' was not evaluated"):
        table_of(stored, baseline="other")


def test_what_is_not_the_released_benchmark_says_so() -> None:
    stored = shelf("good")
    [note] = corruption_families(run_of(stored))["demo-c"].comparability(ALEXNET)
    assert "not comparable with mCE as published" in note


def test_without_corrupted_settings() -> None:
    stored = shelf("good")
    with raises(StoreError, found="families: none"):
        table_of(stored, stored.results[:1])


def test_two_results_for_one_place_are_refused() -> None:
    stored = shelf("good")
    with raises(SettingError, found="'' and ''"):
        table_of(stored, stored.results * 2)


def test_families_are_read_from_specs_and_not_from_names() -> None:
    stored = shelf("good")
    attack = ResultSpec.from_json({"shift": {"shift": "attack", "attack": "pgd.l2.eps0.5", "eps": 0.5}})
    results = [*stored.results, Result("good", "demo-c.pgd.l2.eps0.5", attack)]
    found = corruption_families(run_of(stored, results))
    assert list(found) == ["demo-c"] and found["demo-c"].corruptions == ("snow", "fog")


def test_a_clean_set_of_other_images_costs_only_the_relative_errors() -> None:
    """Released arrays and a user's own clean pictures have different ids."""
    stored = shelf("good")
    clean = stored._found[0]
    stored._found[0] = replace(clean, ids=[f"elsewhere/{image}" for image in clean.ids])
    table = table_of(stored)
    shown = {row["metric"] for row in table.rows}
    assert "error" in shown and "mean CE over 2 types at 1,3,5" in shown
    assert not any(metric.startswith("relative") for metric in shown)


def test_real_blur_is_shown_beside_the_synthetic_ones(tmp_path: Path) -> None:
    record(tmp_path / "w", "real-blurry-images", 40, 10)
    for number, name in enumerate(GROUPS["blur"]):
        member = Member("val-c", name, 3)
        record(tmp_path / "w", f"val-c.{name}.3", 50, 40 - number, member=member, source="in-memory")
    scores = sb.Run.open(tmp_path / "w").corruption_table().as_data()["scores"]
    found = {(score["setting"], score["metric"]): score["value"] for score in scores}
    assert found["real-blurry-images", "error"] == pytest.approx(0.75)
    assert found["blur", "mean error over 4 types at 3"] == pytest.approx(1 - 38.5 / 50)


@pytest.mark.parametrize("others", [(), BENCHMARK_CORRUPTIONS], ids=["alone", "beside the benchmark"])
def test_corruptions_that_alexnet_was_not_evaluated_on(tmp_path: Path, others: tuple[str, ...]) -> None:
    """Their errors are not divided; the mCE over the benchmark is what it is without them."""
    record(tmp_path / "w", "val", 50, 40)
    for name in (*others, "style_transfer"):
        member = Member("val-c", name, 3)
        record(tmp_path / "w", f"val-c.{name}.3", 50, 20, reference="val", member=member, source="in-memory")
    run = sb.Run.open(tmp_path / "w")
    scores = run.corruption_table().as_data()["scores"]
    found = {(score["setting"], score["metric"]): score["value"] for score in scores}
    assert {metric: value for (setting, metric), value in found.items() if setting == "style_transfer"} == {
        "error at 3": pytest.approx(0.6)
    }
    wanted = np.mean([0.6 / ALEXNET.errors[name][3] for name in others]) if others else None
    assert found.get(("val-c", "mean CE at 3")) == (pytest.approx(wanted) if others else None)
    drawn = error_map_of_run(run)
    assert ("style_transfer" in drawn.columns) is not bool(others) and bool(others) == ("style" in str(drawn.notes))


def test_a_model_that_is_always_wrong_shares_the_column(tmp_path: Path) -> None:
    """Its interval is an exact bound, because its images show no spread."""
    for model, hits in (("never", 0), ("often", 60)):
        for severity in (1.0, 3.0):
            member = Member("photos-c", "fog", severity)
            record(tmp_path, f"photos-c.fog.{severity:g}", 100, hits, model=model, member=member)
    table = sb.Run.open(tmp_path).corruption_table()
    assert [column.heading for column in table.columns] == ["model", "photos-c", "photos-c", "fog"]
    assert [row["classifier"] for row in table.shown] == ["never", "often"]
