"""Corruption error from predictions: values, names, shared bootstrap, refusals."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import SettingError, ShiftbenchError
from shiftbench.metrics.bootstrap import percentile_interval, resampled_means
from shiftbench.metrics.corruption import ALEXNET, Baseline, corruption_errors
from shiftbench.metrics.corruption_scores import CorruptionScores, corruption_scores
from shiftbench.store.predictions import Predictions
from tests.metrics.making import changed, with_hits
from tests.raised import raises

N = 60
Grid = dict[tuple[str, int], Predictions]


def hits_at(error: float, seed: int, hard: NDArray[np.float64]) -> NDArray[np.bool_]:
    noise = np.random.default_rng(seed).normal(0, 0.1, len(hard))
    return hard + noise > error


def grid_of(
    corruptions: tuple[str, ...] = ("fog", "snow"),
    severities: tuple[int, ...] = (1, 2, 3, 4, 5),
    *,
    base: float = 0.2,
    **more: Any,
) -> tuple[Grid, Predictions]:
    hard = np.random.default_rng(9).random(N)
    grid = {
        (c, s): with_hits(hits_at(base + 0.1 * s, 10 * i + s, hard), setting=f"t.{c}.{s}", **more)
        for i, c in enumerate(corruptions)
        for s in severities
    }
    return grid, with_hits(hits_at(base, 999, hard), setting="t", **more)


def errors(grid: Grid) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for (c, _), one in sorted(grid.items(), key=lambda item: item[0]):
        found.setdefault(c, []).append(1 - float(one.correct.mean()))
    return found


def all_scores(found: CorruptionScores) -> list[Any]:
    return [*found.summary(), *found.ce.values(), *found.relative_ce.values(), *found.error.values()]


def test_values_equal_the_plain_formulas() -> None:
    grid, clean = grid_of()
    found = corruption_scores(grid, clean, resamples=50)
    ce = corruption_errors(errors(grid))
    relative = corruption_errors(errors(grid), 1 - float(clean.correct.mean()))
    for c in ("fog", "snow"):
        assert found.ce[c].value == pytest.approx(ce[c])
        assert found.relative_ce[c].value == pytest.approx(relative[c])
        assert found.error[c].value == pytest.approx(np.mean(errors(grid)[c]))
    assert found.mce is not None and found.relative_mce is not None
    assert found.mce.value == pytest.approx(np.mean(list(ce.values())))
    assert found.relative_mce.value == pytest.approx(np.mean(list(relative.values())))
    assert found.mean_error.value == pytest.approx(np.mean(list(errors(grid).values())))
    assert {score.n for score in all_scores(found)} == {N}
    assert not any(score.higher_is_better for score in all_scores(found))


def test_an_interval_over_another_model_equals_a_bootstrap_written_out() -> None:
    """Draw images, recompute everything, take percentiles."""
    grid, clean = grid_of(severities=(1, 3))
    base, base_clean = grid_of(severities=(1, 3), base=0.1, classifier="base")
    scores = corruption_scores(grid, clean, baseline=base, baseline_clean=base_clean, resamples=100, seed=5, level=0.8)
    rng = np.random.default_rng(5)
    means = []
    for _ in range(100):
        rows = rng.integers(0, N, N)
        drawn = {key: 1 - predictions.correct[rows].mean() for key, predictions in grid.items()}
        divisors = {key: 1 - predictions.correct[rows].mean() for key, predictions in base.items()}
        ratios = [
            (drawn[name, 1] + drawn[name, 3]) / (divisors[name, 1] + divisors[name, 3]) for name in ("fog", "snow")
        ]
        means.append(np.mean(ratios))
    assert scores.mce is not None
    assert (scores.mce.low, scores.mce.high) == pytest.approx(tuple(np.quantile(means, [0.1, 0.9])))
    assert "bootstrap" in scores.mce.method


def test_intervals_hold_the_mean_of_a_population_with_few_errors() -> None:
    """One image of fifty is always wrong and may be missing from the sample: the rest does not show it."""
    rng = np.random.default_rng(3)
    n = 50
    runs = 300
    truth = 0.02 + 0.98 * 0.02
    held = 0
    held_by_percentiles = 0
    for _ in range(runs):
        wrong = (rng.random(n) < 0.02)[:, None] | (rng.random((n, 5)) < 0.02)
        grid = {("fog", s): with_hits(~wrong[:, s - 1], setting=f"t.fog.{s}") for s in (1, 2, 3, 4, 5)}
        score = corruption_scores(grid, baseline=None).mean_error
        held += score.low <= truth <= score.high
        low, high = percentile_interval(resampled_means(wrong, resamples=200).mean(axis=1))
        held_by_percentiles += float(low) <= truth <= float(high)
    assert held / runs >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / runs)
    assert held_by_percentiles / runs < 0.85


def test_a_relative_error_is_as_wide_as_its_parts_allow() -> None:
    """Images that are wrong both clean and corrupted cancel: the rise is known better than the error."""
    rng = np.random.default_rng(4)
    hard = rng.random(N) < 0.4
    new = rng.random((5, N)) < 0.02
    grid = {("fog", s): with_hits(~(hard | new[s - 1]), setting=f"t.fog.{s}") for s in (1, 2, 3, 4, 5)}
    clean = with_hits(~hard, setting="t")
    plain = Baseline.from_errors("one", {"fog": [1.0] * 5}, clean=0.0)
    scores = corruption_scores(grid, clean, baseline=plain)
    rise = scores.relative_ce["fog"]
    error = scores.ce["fog"]
    assert rise.low < rise.value < rise.high
    assert rise.high - rise.low < 0.6 * (error.high - error.low)


def test_names_say_what_is_not_the_whole_benchmark() -> None:
    grid, clean = grid_of(severities=(1, 3))
    found = corruption_scores(grid, clean, resamples=10)
    assert [score.metric for score in found.summary()] == [
        "mean CE over 2 types at 1,3",
        "mean relative CE over 2 types at 1,3",
        "mean error over 2 types at 1,3",
    ]
    assert found.ce["fog"].metric == "CE at 1,3"
    whole, clean = grid_of((*BENCHMARK_CORRUPTIONS, "saturate"))
    found = corruption_scores(whole, clean, resamples=10)
    assert [score.metric for score in found.summary()] == ["mCE", "relative mCE", "mean error"]
    assert found.corruptions == BENCHMARK_CORRUPTIONS
    assert "saturate" in found.ce
    assert found.ce["saturate"].metric == "CE"


def test_extra_corruptions_never_enter_the_mean() -> None:
    """Not even if one of the fifteen is missing; without any of them, there is nothing else to average."""
    for some in (BENCHMARK_CORRUPTIONS[1:], BENCHMARK_CORRUPTIONS[:2]):
        grid, clean = grid_of((*some, "saturate"))
        found = corruption_scores(grid, clean, resamples=10)
        assert found.corruptions == some and found.mce is not None
        assert found.mce.value == pytest.approx(np.mean([found.ce[name].value for name in some]))
        assert found.mce.metric == f"mean CE over {len(some)} types"
    found = corruption_scores(*grid_of(("saturate",)), resamples=10)
    assert found.mce is not None and found.mce.metric == "mean CE over 1 type"


def test_a_classifier_against_itself_is_exactly_one() -> None:
    """Resampled with the same draws, so the ratio has no spread either."""
    grid, clean = grid_of(classifier="a")
    found = corruption_scores(grid, clean, baseline=grid, baseline_clean=clean, resamples=50)
    assert found.mce is not None and found.relative_mce is not None
    for score in (found.mce, found.relative_mce):
        assert (score.value, score.low, score.high) == pytest.approx((1.0, 1.0, 1.0))
    assert found.mce.metric == "mean CE over 2 types vs a"


def test_published_errors_are_constants() -> None:
    """Dividing by constants scales value and interval alike."""
    grid, clean = grid_of(("fog",))
    plain = Baseline.from_errors("one", {"fog": [1.0] * 5}, clean=0.0)
    by_one = corruption_scores(grid, clean, baseline=plain, resamples=50).ce["fog"]
    by_alexnet = corruption_scores(grid, clean, resamples=50).ce["fog"]
    base = ALEXNET.mean("fog", (1, 2, 3, 4, 5))
    assert (by_alexnet.low * base, by_alexnet.high * base) == pytest.approx((by_one.low, by_one.high))
    assert "divided by AlexNet as published" in by_alexnet.provenance


def test_without_clean_or_baseline_less_is_computed() -> None:
    grid, clean = grid_of()
    found = corruption_scores(grid, resamples=10)
    assert found.relative_mce is None and not found.relative_ce and found.mce is not None
    found = corruption_scores(grid, clean, baseline=None, resamples=10)
    assert [score.metric for score in found.summary()] == ["mean error over 2 types"]
    assert "divided" not in found.mean_error.provenance


def test_skipped_pictures_leave_only_their_setting() -> None:
    grid, clean = grid_of(("fog",))
    broken = grid["fog", 2]
    top = broken.top.copy()
    top[:7] = -1
    grid["fog", 2] = replace(broken, top=top)
    found = corruption_scores(grid, clean, resamples=20)
    assert found.error["fog"].value == pytest.approx(np.mean(errors(grid)["fog"]))
    assert found.error["fog"].n == N - 7


def test_all_pictures_skipped() -> None:
    grid, clean = grid_of(("fog",))
    grid = {key: replace(one, top=np.full_like(one.top, -1)) for key, one in grid.items()}
    found = corruption_scores(grid, replace(clean, top=np.full_like(clean.top, -1)), resamples=10)
    assert all(np.isnan([score.value, score.low, score.high]).all() for score in all_scores(found))
    assert found.mean_error.n == 0


@pytest.mark.parametrize(
    "difference",
    [
        {"source": "on-disk"},
        {"shift": {"seed": 1}},
        {"shift": {"seed": 0, "then": "JPEG quality 85"}},
        {"family": "something else"},
        {"dataset": {"name": "t", "fingerprint": "ffffffff"}},
    ],
)
def test_different_provenance_is_never_averaged(difference: dict[str, Any]) -> None:
    spec: dict[str, Any] = {
        "source": "in-memory",
        "shift": {"seed": 0},
        "dataset": {"name": "t", "fingerprint": "00000000"},
    }
    grid, clean = grid_of(**spec)
    assert corruption_scores(grid, clean, resamples=10).mean_error.n == N
    odd = grid["snow", 3]
    grid["snow", 3] = changed(odd, **difference)
    with raises(SettingError, expected="all settings made the same way"):
        corruption_scores(grid, clean)
    other = {key: changed(replace(one, classifier="b"), **{**spec, **difference}) for key, one in grid_of()[0].items()}
    with raises(SettingError, expected="the same"):
        corruption_scores(grid_of(**spec)[0], baseline=other)


def test_what_differs_by_nature_is_no_difference() -> None:
    """The corruption's own parameters, and for released files the folder."""
    grid, clean = grid_of()
    own = {
        (c, s): changed(one, source="in-memory", shift={"corruption": c, "severity": s, "seed": 0})
        for (c, s), one in grid.items()
    }
    assert corruption_scores(own, clean, resamples=10).mean_error.provenance.endswith("in-memory, seed 0")
    released = {
        (c, s): changed(one, source="on-disk", dataset={"name": f"{c}/{s}", "fingerprint": c})
        for (c, s), one in grid.items()
    }
    assert corruption_scores(released, clean, resamples=10).mean_error.provenance.endswith("on-disk")


def test_a_corruption_of_another_variety_shows() -> None:
    """Frost from other pictures is another number: named, and never mixed within the corruption."""
    grid, clean = grid_of(("frost", "snow"), shift={"seed": 0})

    def frosted(source: str, severities: tuple[int, ...]) -> Grid:
        shift = {"seed": 0, "frost": {"textures": source}}
        return {key: changed(grid[key], shift=shift) for key in grid if key[0] == "frost" and key[1] in severities}

    ours = corruption_scores({**grid, **frosted("procedural", (1, 2, 3, 4, 5))}, clean, resamples=10)
    assert ours.mean_error.provenance.endswith("frost textures procedural")
    with raises(SettingError, expected="all settings made the same way"):
        corruption_scores({**grid, **frosted("procedural", (1,)), **frosted("photographs", (2, 3, 4, 5))}, clean)


def test_incomplete_or_mixed_grids_are_refused() -> None:
    grid, clean = grid_of()
    with raises(SettingError, expected="at least one"):
        corruption_scores({})
    holes = {key: one for key, one in grid.items() if key != ("fog", 3)}
    with raises(SettingError, found="no fog.3"):
        corruption_scores(holes, clean)
    with raises(SettingError, found="no frost"):
        corruption_scores(grid, clean, corruptions=["fog", "frost"])
    with raises(SettingError, found="net, other", expected="one"):
        corruption_scores(grid, replace(clean, classifier="other"))
    with raises(SettingError, found="no fog.3"):
        corruption_scores(grid, baseline=holes)
    with raises(ShiftbenchError, expected="the same image ids"):
        corruption_scores(grid, replace(clean, ids=[f"other-{i}" for i in range(N)]))


def test_entries_feed_a_table() -> None:
    grid, clean = grid_of(("fog",))
    rows = corruption_scores(grid, clean, resamples=10).entries("imagenet-c")
    assert [(who, where) for who, where, _ in rows[:4]] == [("net", "imagenet-c")] * 3 + [("net", "imagenet-c.fog")]


def test_where_all_images_fail_the_interval_is_the_exact_one() -> None:
    """A bootstrap of equal outcomes has no width; 60 of 60 wrong still leaves room for 94 %."""
    grid = {("fog", s): with_hits(np.zeros(N, bool), setting=f"t.fog.{s}") for s in (1, 3)}
    scores = corruption_scores(grid)
    assert scores.error["fog"].low == pytest.approx(0.025 ** (1 / N)) and scores.error["fog"].high == 1
    base = np.mean([ALEXNET.errors["fog"][s] for s in (1, 3)])
    assert scores.ce["fog"].low == pytest.approx(0.025 ** (1 / N) / base)
    assert scores.ce["fog"].high == pytest.approx(1 / base)


def test_means_of_equal_outcomes_have_width() -> None:
    """Four images, all wrong when corrupted, all right when clean: no mean is known exactly."""
    grid = {(c, s): with_hits(np.zeros(4, bool), setting=f"t.{c}.{s}") for c in ("fog", "snow") for s in (1, 3)}
    scores = corruption_scores(grid, with_hits(np.ones(4, bool), setting="t"))
    missed = 1 - 0.025 ** (1 / 4)
    base = [ALEXNET.mean(c, (1, 3)) for c in ("fog", "snow")]
    assert scores.mean_error.low == pytest.approx(1 - missed) and scores.mean_error.high == 1
    assert scores.mce is not None and scores.relative_mce is not None
    assert scores.mce.low == pytest.approx(np.mean([(1 - missed) / one for one in base]))
    rises = np.mean([1 / (one - ALEXNET.clean_error()) for one in base])
    assert scores.relative_mce.low == pytest.approx(scores.relative_mce.value - rises * math.hypot(missed, missed))
    assert scores.relative_mce.high == pytest.approx(scores.relative_mce.value)


def test_group_means_beside_the_types() -> None:
    """The mean error over four blurs, as table 5 of 000 has it; no group that lacks a member."""
    blurs = ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur")
    grid, clean = grid_of((*blurs, "fog"))
    scores = corruption_scores(grid, clean, resamples=50)
    assert list(scores.groups) == ["blur"]
    assert scores.groups["blur"].value == pytest.approx(np.mean([scores.error[name].value for name in blurs]))
    assert scores.groups["blur"].low < scores.groups["blur"].value < scores.groups["blur"].high
    assert scores.groups["blur"].metric.startswith("mean error over 4 types")
