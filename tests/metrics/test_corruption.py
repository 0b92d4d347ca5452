"""Corruption error from plain numbers: the published tables come out."""

from __future__ import annotations

import math
from itertools import product

import pytest

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError
from shiftbench.metrics.corruption import (
    ALEXNET,
    ALEXNET_ERRORS,
    Baseline,
    corruption_errors,
    mean_corruption_error,
)
from shiftbench.published.tables import published
from tests.raised import raises

PRINTED = [*published("002", "1"), *published("002", "2")]
TABLE = {(row.model, row.metric, row.setting.removeprefix("imagenet-c.")): row for row in PRINTED}
MODELS = list(dict.fromkeys(model for model, _, _ in TABLE))


def errors_of(model: str) -> dict[str, list[float]]:
    """Mean errors that give the model's printed CEs, the same at every severity."""
    return {c: [TABLE[model, "CE", c].value * ALEXNET.mean(c, (1, 2, 3, 4, 5))] * 5 for c in BENCHMARK_CORRUPTIONS}


def test_alexnet_is_one_hundred() -> None:
    assert set(corruption_errors(ALEXNET_ERRORS).values()) == {1.0}
    assert mean_corruption_error(ALEXNET_ERRORS) == 1.0
    assert mean_corruption_error(ALEXNET_ERRORS, 0.43478) == pytest.approx(1.0)


def test_published_mce_from_published_ce() -> None:
    """The printed mCE is the mean of the unrounded CEs: within their rounding of half a point."""
    assert len(MODELS) >= 7
    for model in MODELS:
        mean = mean_corruption_error(errors_of(model))
        assert mean == pytest.approx(TABLE[model, "mCE", "imagenet-c"].value, abs=0.0035), model


def test_table_2_follows_from_table_1() -> None:
    """Relative CEs recomputed from the other table's CEs and clean errors, within what rounding allows."""
    for model, c in product(MODELS, BENCHMARK_CORRUPTIONS):
        relative = corruption_errors(errors_of(model), TABLE[model, "error", "imagenet"].value)
        base = ALEXNET.mean(c, (1, 2, 3, 4, 5))
        rise = base - ALEXNET.clean_error()
        room = (0.005 * base + 0.0005) / rise + 0.005 + 0.005 * abs(relative[c])
        assert relative[c] == pytest.approx(TABLE[model, "relative CE", c].value, abs=room), (model, c)


def test_a_subset_of_severities_is_divided_by_the_same_subset() -> None:
    some = {c: [errors[0], errors[4]] for c, errors in ALEXNET_ERRORS.items()}
    assert mean_corruption_error(some, severities=(1, 5)) == 1.0
    assert corruption_errors({"fog": [0.67474 / 2]}, severities=[1])["fog"] == pytest.approx(0.5)


def test_another_baseline() -> None:
    base = Baseline.from_errors("half", {"fog": [0.4, 0.6]}, clean=0.3, severities=(1, 5))
    assert corruption_errors({"fog": [0.2, 0.3]}, baseline=base, severities=(1, 5)) == {"fog": 0.5}
    relative = corruption_errors({"fog": [0.2, 0.3]}, 0.15, baseline=base, severities=(1, 5))
    assert relative["fog"] == pytest.approx(0.1 / 0.2)


def test_a_baseline_that_corruption_does_not_hurt_gives_no_ratio() -> None:
    base = Baseline.from_errors("odd", {"fog": [0.3], "snow": [0.0]}, clean=0.3, severities=(1,))
    assert math.isnan(corruption_errors({"fog": [0.5]}, 0.2, baseline=base, severities=(1,))["fog"])
    assert math.isnan(corruption_errors({"snow": [0.5]}, baseline=base, severities=(1,))["snow"])


def test_what_is_refused() -> None:
    with raises(SettingError, found="2 errors", expected="5, for severities 1, 2, 3, 4, 5"):
        corruption_errors({"fog": [0.5, 0.5]})
    with raises(SettingError, found="50, 50, 50, 50, 50", expected="between 0 and 1: 23.9 % is 0.239"):
        corruption_errors({"fog": [50.0] * 5})
    with pytest.raises(SettingError, match="no error for 'fogg'"):
        corruption_errors({"fogg": [0.5] * 5})
    with raises(SettingError, found="severities 1, 2, 3, 4, 5"):
        corruption_errors({"fog": [0.5, 0.5]}, severities=(2.5, 3))
    with pytest.raises(SettingError, match="needs all of them"):
        mean_corruption_error({"fog": [0.5] * 5})
    with pytest.raises(SettingError, match="no clean error"):
        corruption_errors({"fog": [0.5] * 5}, 0.1, baseline=Baseline("x", ALEXNET.errors))
