"""Own models among the published ones: exact distances, and reasons where nothing can be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

import shiftbench as sb
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.base import Score
from shiftbench.published.baselines import baseline_of, baselines
from shiftbench.reports.placement import effective_of, place_models
from shiftbench.settings.base import Member
from shiftbench.studies.robustness import effective_robustness
from tests.reports.recorded import record

V2 = "imagenetv2-matched-frequency"


def _exact(value: float, n: int) -> Score:
    return Score("top1", value, value - 0.01, value + 0.01, n)


@pytest.mark.parametrize("baseline", [one for one in baselines() if one.x], ids=lambda one: one.y.setting)
def test_a_model_on_the_line_is_at_zero(baseline) -> None:  # type: ignore[no-untyped-def]
    line = baseline.line()
    x = sum(line.x_range) / 2
    y = float(line.predict(x))
    found = effective_of("mine", _exact(x, 50_000), _exact(y, 10_000), line)
    assert found.rho == pytest.approx(0.0, abs=1e-12)
    assert found.low < -0.01 and found.high > 0.01  # at least as wide as the interval of y
    above = effective_of("mine", _exact(x, 50_000), _exact(y + 0.012, 10_000), line)
    assert above.rho == pytest.approx(0.012)


def test_published_models_have_their_residuals(tmp_path: Path) -> None:
    """A workspace with the accuracies of three models of 004 gives the residuals of the study of all 67."""
    baseline = baseline_of(V2)
    assert baseline is not None
    x, y = zip(*baseline.values.values(), strict=True)
    residual = effective_robustness(x, y, baseline.line(), models=list(baseline.values)).rho
    for model in ("resnet50", "alexnet", "pnasnet_large_tf"):
        clean, shifted = baseline.values[model]
        record(tmp_path / "w", "val", 50_000, round(50_000 * clean), model=model)
        record(tmp_path / "w", V2, 10_000, round(10_000 * shifted), model=model, reference="val")
    placements = place_models(sb.Run.open(tmp_path / "w"))
    assert not placements.unplaced and len(placements) == 3
    for one in placements:
        assert one.effective is not None and one.line_models == 67
        assert one.effective.rho == pytest.approx(residual[one.model], abs=1e-9)
        assert one.effective.low < one.effective.rho < one.effective.high
        assert one.effective.high - one.effective.low < 0.03
    [alexnet] = [one for one in placements if one.model == "alexnet"]
    assert alexnet.lower == sum(value < alexnet.score.value for value in y)


def test_reencoded_files_are_placed_with_a_note(tmp_path: Path) -> None:
    record(tmp_path / "w", "val", 50_000, 38_000)
    record(tmp_path / "w", f"{V2}-format-val", 10_000, 6_400, reference="val")
    [one] = place_models(sb.Run.open(tmp_path / "w"))
    assert one.setting == f"{V2}-format-val" and len(one.notes) == 2


@pytest.mark.parametrize(
    ("images", "space", "expected"),
    [(5_000, "imagenet-1k", "5,000 images"), (10_000, "imagenet-a-200", "imagenet-a-200")],
)
def test_other_images_or_classes_are_not_placed(tmp_path: Path, images: int, space: str, expected: str) -> None:
    record(tmp_path / "w", "val", 50_000, 38_000)
    record(tmp_path / "w", V2, images, images // 2, space=space, reference="val")
    placements = place_models(sb.Run.open(tmp_path / "w"))
    [why] = placements.unplaced
    assert not placements.placed and expected in why.why


def test_a_line_is_not_used_far_from_its_models(tmp_path: Path) -> None:
    record(tmp_path / "w", "val-on-imagenet-r-classes", 10_000, 5_000, space="imagenet-r-200")
    record(tmp_path / "w", "imagenet-r", 30_000, 6_000, space="imagenet-r-200")
    [why] = place_models(sb.Run.open(tmp_path / "w")).unplaced
    assert "50.0" in why.why


def test_without_val_there_is_no_place(tmp_path: Path) -> None:
    record(tmp_path / "w", V2, 10_000, 6_000, reference="val")
    [why] = place_models(sb.Run.open(tmp_path / "w")).unplaced
    assert "val" in why.why


def test_corrupted_released_files_are_placed(tmp_path: Path) -> None:
    """Small numbers of images stand in for 50,000: only the check of their number differs."""
    from dataclasses import replace

    from shiftbench.published import baselines as module
    from shiftbench.reports import placement

    [full] = [one for one in baselines() if one.family]
    small = replace(full, y=replace(full.y, images=50), x=replace(full.x, images=50) if full.x else None)
    record(tmp_path / "w", "val", 50, 38)
    for name in BENCHMARK_CORRUPTIONS:
        for severity in range(1, 6):
            record(
                tmp_path / "w", f"imagenet-c.{name}.{severity}", 50, 25, reference="val", source="on-disk",
                member=Member("imagenet-c", name, severity),
            )  # fmt: skip
    run = sb.Run.open(tmp_path / "w")
    assert module.baseline_of("imagenet-c") is full
    found = placement._place("mine", run, small, "imagenet-c", 0.95)
    assert found.score.value == pytest.approx(0.5) and found.line_models == 11
    assert found.effective is not None
    assert found.effective.rho == pytest.approx(0.5 - float(full.line().predict(0.76)), abs=1e-9)
    [why] = place_models(run).unplaced
    assert "50" in why.why
