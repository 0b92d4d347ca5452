"""004's tables from the released predictions, gap parts, frequency bins, the difficulty model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shiftbench.published.base import PublishedValue
from shiftbench.published.tables import published
from shiftbench.studies import StudyError, fit
from shiftbench.studies.difficulty import Difficulty, implied_difficulty, line_of, recover, simulate
from shiftbench.studies.reproducibility import (
    Reproducibility,
    accuracy_by_frequency,
    decompose_gap,
    reproducibility,
)

#: Names in the released predictions and in the paper's tables.
CIFAR_NAMES = {
    "random_features_256k_no_aug": "random_features_256k", "random_features_32k_no_aug": "random_features_32k",
    "resnet_preact_basic_110": "resnet_v2_basic_110", "resnet_preact_bottleneck_164": "resnet_v2_bottleneck_164",
    "resnetv2_tf": "resnetv2_tf_32", "wide_resnet_tf": "wide_resnet_tf_28_10",
    "shake_shake_26_2x32d_SSI": "shake_shake_32d", "shake_shake_26_2x64d_SSI": "shake_shake_64d",
    "shake_shake_26_2x64d_SSI_cutout16": "shake_shake_64d_cutout",
}  # fmt: skip


def agrees(found: Reproducibility, table: str, *, ranks: bool, but: tuple[str, ...] = ()) -> int:
    """Every printed number of the models found is ours, rounded; how many models were compared."""
    printed: dict[tuple[str, str], list[PublishedValue]] = {}
    for value in published("004", table):
        printed.setdefault((value.model, value.metric), []).append(value)
    compared = 0
    for row in found.rows:
        if row.model in but or (row.model, "gap") not in printed:
            continue
        compared += 1
        metric = "top5" if (row.model, "top5") in printed else "top1"
        original, new = printed[row.model, metric]
        [gap], [change] = printed[row.model, "gap"], printed[row.model, "rank change"]
        assert original.agrees(row.original) and new.agrees(row.new) and gap.agrees(row.gap), row
        for value, ends in ((original, (row.original_low, row.original_high)), (new, (row.new_low, row.new_high))):
            # The printed ends come from rounded accuracies in places: a tenth is their last digit.
            assert (value.low, value.high) == pytest.approx(ends, abs=0.00065), row
        if ranks:
            assert row.rank_change == change.value, row
    return compared


@pytest.mark.parametrize(("table", "version", "n"), [("11", "v4", 2021), ("12", "v6", 2000)])
def test_cifar_tables(reference_data: Path, table: str, version: str, n: int) -> None:
    data = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    names = [CIFAR_NAMES.get(str(name), str(name)) for name in data["models"]]
    old = (data["cifar10"] == data["labels_cifar10"]).mean(axis=1)
    new = (data[version] == data[f"labels_{version}"]).mean(axis=1)
    found = reproducibility(old, new, models=names, n_original=10_000, n_new=n)
    # alexnet_tf_ben is in the release but in no table.
    assert agrees(found, table, ranks=False) == 29


@pytest.mark.parametrize(("table", "k"), [("15", 1), ("16", 5)])
def test_imagenet_tables(reference_data: Path, table: str, k: int) -> None:
    """Ranks too; fv_16k's released predictions on the new images are broken, and shift its neighbour's rank."""
    old, new = (
        np.load(reference_data / "imagenetv2" / f"predictions_top5_{name}.npz")
        for name in ("imagenet-validation-original", "imagenetv2-b-33")
    )
    accuracy = [
        dict(
            zip(
                data["models"].tolist(),
                (data["predictions"][:, :, :k] == data["labels"][:, None]).any(-1).mean(-1),
                strict=True,
            )
        )
        for data in (old, new)
    ]
    found = reproducibility(accuracy[0], accuracy[1], n_original=50_000, n_new=10_000)
    broken = ("fv_16k", "fv_4k") if k == 1 else ()
    assert agrees(found, table, ranks=True, but=broken) == 67 - len(broken)


@pytest.mark.parametrize(
    ("setting", "table"), [("matched-frequency", "15"), ("threshold-0.7", "17"), ("top-images", "19")]
)
def test_mean_changes_of_table_2_follow_from_the_full_tables(setting: str, table: str) -> None:
    for k, number in (("top1", table), ("top5", str(int(table) + 1))):
        gaps = [row.value for row in published("004", number, metric="gap")]
        [mean] = published("004", "2", setting=f"imagenetv2-{setting}", metric=f"{k} change")
        assert -np.mean(gaps) == pytest.approx(mean.value, abs=0.0012)


@pytest.mark.parametrize(
    ("table", "original", "new"),
    [("11", "cifar-10", "cifar-10.1-v4"), ("15", "imagenet", "imagenetv2-matched-frequency")],
)
def test_the_two_lines_of_004(table: str, original: str, new: str) -> None:
    """1.69 and -72.7, 1.11 and -20.2 (without Fisher vectors), with their intervals from 100,000 resamples."""
    x, y = (
        {row.model: row.value for row in published("004", table, setting=s, metric="top1")} for s in (original, new)
    )
    models = [model for model in x if not model.startswith("fv_")]
    line = fit(x, y, models=models, scale="linear", resamples=100_000)
    [slope], [intercept] = (published("004", "section 3.3", setting=new, metric=m) for m in ("slope", "intercept"))
    assert slope.agrees(round(line.slope, 2))
    assert line.intercept == pytest.approx(intercept.value, abs=0.001)
    assert line.slope_interval == pytest.approx((slope.low, slope.high), abs=0.011)
    assert line.intercept_interval == pytest.approx((intercept.low, intercept.high), abs=0.005)


def test_ties_are_ranked_by_name_and_gaps_named() -> None:
    found = reproducibility(
        {"b": 0.8, "a": 0.8, "c": 0.9, "d": 0.5}, {"b": 0.7, "a": 0.6, "c": 0.7}, n_original=10, n_new=10
    )
    assert [(row.model, row.rank, row.new_rank, row.rank_change) for row in found.rows] == [
        ("c", 1, 2, -1), ("a", 2, 3, -1), ("b", 3, 1, 2),
    ]  # fmt: skip
    assert "d" in found.notes[0]
    with pytest.raises(StudyError, match="no model has both"):
        reproducibility({"a": 0.5}, {"b": 0.5}, n_original=10, n_new=10)


def test_gap_parts_add_up() -> None:
    parts = decompose_gap(0.76, 0.63, n_original=50_000, n_new=10_000, fresh=0.755, n_fresh=10_000)
    assert parts.adaptivity is not None and parts.distribution is not None
    assert parts.adaptivity + parts.distribution == pytest.approx(parts.total)
    assert parts.generalisation.low < 0 < parts.generalisation.high and parts.generalisation.width < 0.02
    assert not parts.chance_alone
    assert parts.distribution_interval is not None and parts.distribution_interval.low > 0.1
    assert decompose_gap(0.7, 0.69, n_original=500, n_new=500).chance_alone
    with pytest.raises(StudyError, match="fraction"):
        decompose_gap(76, 63, n_original=1, n_new=1)


def test_a_004_statement_on_chance() -> None:
    """With 10,000 images a 95 % interval reaches at most one point to either side, at 99.99 % two."""
    for level, reach in ((0.95, 0.01), (0.9999, 0.02)):
        ends = decompose_gap(0.6, 0.5, n_original=50_000, n_new=10_000, level=level).generalisation
        assert max(-ends.low, ends.high) <= reach


def test_frequency_bins() -> None:
    frequency = np.array([0.0, 0.2, 0.39, 0.4, 0.6, 0.79, 0.8, 1.0])
    bins = accuracy_by_frequency([[1, 0, 1, 0, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]], frequency)
    assert [one.images for one in bins] == [1, 2, 1, 2, 2]
    assert [one.accuracy for one in bins] == [0.5, 0.25, 0.0, 1.0, 1.0]
    assert all(one.low is not None and one.high is not None and one.low <= one.high for one in bins)
    with pytest.raises(StudyError, match="one selection frequency"):
        accuracy_by_frequency([1, 0], [0.5])
    with pytest.raises(StudyError, match="shares"):
        accuracy_by_frequency([1, 0], [0.5, np.nan])


def test_difficulty_model_matches_its_formula() -> None:
    """Accuracy by formula against a plain simulation, and u and v recovered by the fit."""
    skills = np.linspace(-0.5, 2.5, 50)
    first, second = Difficulty(0.0, 1.0), Difficulty(0.6, 0.7)
    seen = simulate(skills, first, 40_000, seed=1).mean(axis=1)
    assert seen == pytest.approx(first.accuracy(skills), abs=0.012)
    u, v = line_of(first, second)
    exact = fit(first.accuracy(skills), second.accuracy(skills), scale="probit", resamples=0)
    assert (exact.slope, exact.intercept, exact.r2) == pytest.approx((u, v, 1.0))
    found = recover(skills, first, second, n_first=50_000, n_second=50_000, seed=4)
    assert (found.u, found.v) == (u, v)
    assert found.line.slope == pytest.approx(u, abs=0.02) and found.line.intercept == pytest.approx(v, abs=0.02)
    implied = implied_difficulty(exact, first)
    assert (implied.mean, implied.spread) == pytest.approx((0.6, 0.7))


def test_difficulty_edges() -> None:
    with pytest.raises(StudyError, match="probit"):
        implied_difficulty(fit([0.3, 0.5, 0.8], [0.2, 0.4, 0.7], resamples=0))
    steep = fit([0.45, 0.5, 0.55], [0.1, 0.5, 0.9], scale="probit", resamples=0)
    with pytest.raises(StudyError, match="so steep"):
        implied_difficulty(steep)
    with pytest.raises(StudyError, match="impossible"):
        Difficulty(0.0, -1.0)
