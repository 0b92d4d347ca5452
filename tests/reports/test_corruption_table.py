"""The table of corruption errors of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from shiftbench.errors import SettingError
from shiftbench.reports.corruption import corruption_prefixes, corruption_table
from shiftbench.store.predictions import Predictions
from shiftbench.store.spec import ResultSpec
from shiftbench.store.workspace import Result, Workspace
from tests.metrics.making import with_hits


class Shelf:
    """A workspace that holds predictions in memory."""

    def __init__(self, found: list[Predictions]) -> None:
        self.results = [
            Result(
                one.classifier,
                one.setting,
                ResultSpec.from_json(
                    {"row": row, "classifier": {"fingerprint": one.classifier}, "source": "in-memory"}
                ),
            )
            for row, one in enumerate(found)
        ]
        self._found = found

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
                with_hits(hard > error + 0.08 * s, classifier=name, setting=f"demo-c.{corruption}.{s}")
                for s in severities
            ]
    return Shelf(found)


def test_one_row_a_classifier() -> None:
    stored = shelf("good", "bad")
    table = corruption_table(cast(Workspace, stored), stored.results, prefix="demo-c", clean="demo")
    assert [row["classifier"] for row in table.shown] == ["good", "bad"]
    assert {(row["setting"], row["metric"]) for row in table.rows} >= {
        ("demo", "error"),
        ("demo-c", "mCE over 2 types at 1,3,5"),
        ("demo-c", "relative mCE over 2 types at 1,3,5"),
        ("fog", "CE at 1,3,5"),
    }
    values = [row["value"] for row in table.rows if row["metric"].startswith("mCE")]
    assert values[0] < values[1]
    assert max(map(len, table.to_text(60).splitlines())) <= 60


def test_another_classifier_as_baseline() -> None:
    stored = shelf("good", "bad")
    table = corruption_table(cast(Workspace, stored), stored.results, prefix="demo-c", clean="demo", baseline="bad")
    [score] = [
        row for row in table.rows
        if row["metric"] == "mCE over 2 types at 1,3,5 vs bad" and row["classifier"] == "bad"
    ]  # fmt: skip
    assert (score["value"], score["low"], score["high"]) == pytest.approx((1, 1, 1))
    with pytest.raises(SettingError, match="'other' was not evaluated"):
        corruption_table(cast(Workspace, stored), stored.results, prefix="demo-c", baseline="other")


def test_what_is_not_the_released_benchmark_says_so() -> None:
    stored = shelf("good")
    text = corruption_table(cast(Workspace, stored), stored.results, prefix="demo-c", clean="demo").to_text(120)
    assert "not comparable with mCE as published" in text


def test_without_corrupted_settings() -> None:
    stored = shelf("good")
    with pytest.raises(SettingError, match="no corrupted settings named"):
        corruption_table(cast(Workspace, stored), stored.results[:1], prefix="demo-c")


def test_two_results_for_one_place_are_refused() -> None:
    stored = shelf("good")
    with pytest.raises(SettingError, match="several results"):
        corruption_table(cast(Workspace, stored), stored.results * 2, prefix="demo-c")


def test_prefixes() -> None:
    assert corruption_prefixes(["val", "a.b", "x.fog.1", "x.snow.2", "y-c.fog.5", "x.fog.high"]) == ["x", "y-c"]


def test_a_clean_set_of_other_images_costs_only_the_relative_errors() -> None:
    """Released arrays and a user's own clean pictures have different ids."""
    stored = shelf("good")
    clean = stored._found[0]
    stored._found[0] = replace(clean, ids=[f"elsewhere/{image}" for image in clean.ids])
    table = corruption_table(cast(Workspace, stored), stored.results, prefix="demo-c", clean="demo")
    shown = {row["metric"] for row in table.rows}
    assert "error" in shown and "mCE over 2 types at 1,3,5" in shown
    assert not any(metric.startswith("relative") for metric in shown)
