"""004's tables from the released predictions, and the parts of every model's gap."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import beta

from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies import Results, StudyError, fit
from shiftbench.studies.reproducibility import (
    Reproducibility,
    decompose_gap,
    decompose_gaps,
    reproducibility,
)
from tests.raised import raises

#: Names in the released predictions and in the paper's tables.
CIFAR_NAMES = {
    "random_features_256k_no_aug": "random_features_256k",
    "random_features_32k_no_aug": "random_features_32k",
    "resnet_preact_basic_110": "resnet_v2_basic_110",
    "resnet_preact_bottleneck_164": "resnet_v2_bottleneck_164",
    "resnetv2_tf": "resnetv2_tf_32",
    "wide_resnet_tf": "wide_resnet_tf_28_10",
    "shake_shake_26_2x32d_SSI": "shake_shake_32d",
    "shake_shake_26_2x64d_SSI": "shake_shake_64d",
    "shake_shake_26_2x64d_SSI_cutout16": "shake_shake_64d_cutout",
}


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
    """Ranks too; fv_16k's released predictions on the new images are stored worst first."""
    old, new = (
        np.load(reference_data / "imagenetv2" / f"predictions_top5_{name}.npz")
        for name in ("imagenet-validation-original", "imagenetv2-b-33")
    )
    ranked = {id(data): data["predictions"] for data in (old, new)}
    worst_first = new["models"].tolist().index("fv_16k")
    ranked[id(new)][worst_first] = ranked[id(new)][worst_first, :, ::-1]
    accuracy = [
        dict(
            zip(
                data["models"].tolist(),
                (ranked[id(data)][:, :, :k] == data["labels"][:, None]).any(-1).mean(-1),
                strict=True,
            )
        )
        for data in (old, new)
    ]
    found = reproducibility(accuracy[0], accuracy[1], n_original=50_000, n_new=10_000)
    assert agrees(found, table, ranks=True) == 67


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
    line = fit(x, y, models=models, scale="linear", resamples=100_000, procedure="shiftbench")
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
        ("c", 1, 2, -1),
        ("a", 2, 3, -1),
        ("b", 3, 1, 2),
    ]
    assert "d" in found.notes[0]
    with raises(StudyError, found="left out, a value is missing: 2 models (a, b)"):
        reproducibility({"a": 0.5}, {"b": 0.5}, n_original=10, n_new=10)


def test_gap_parts_add_up() -> None:
    parts = decompose_gap(0.76, 0.63, n_original=50_000, n_new=10_000, fresh=0.755, n_fresh=10_000)
    assert parts.adaptivity is not None and parts.distribution is not None
    assert parts.adaptivity + parts.distribution == pytest.approx(parts.total)
    assert parts.generalisation.low < 0 < parts.generalisation.high and parts.generalisation.width < 0.02
    assert not parts.chance_alone
    assert parts.distribution_interval is not None and parts.distribution_interval.low > 0.1
    assert decompose_gap(0.7, 0.69, n_original=500, n_new=500).chance_alone
    with raises(StudyError, found=76, expected="0 to 1"):
        decompose_gap(76, 63, n_original=1, n_new=1)


def test_a_004_statement_on_chance() -> None:
    """With 10,000 images a 95 % interval reaches at most one point to either side, at 99.99 % two."""
    for level, reach in ((0.95, 0.01), (0.9999, 0.02)):
        ends = decompose_gap(0.6, 0.5, n_original=50_000, n_new=10_000, level=level).generalisation
        assert max(-ends.low, ends.high) <= reach


def table(unit: str = "percent", **sizes: float) -> Results:
    values = np.array([[90.0, 80.0, 89.0], [70.0, 69.0, np.nan], [60.0, np.nan, 58.0]])
    known = {"old": 10_000.0, "new": 2_000.0, "fresh": 5_000.0} | sizes
    arrays = {name: np.asarray(n) for name, n in known.items()}
    return Results(("a", "b", "c"), ("old", "new", "fresh"), values / (1 if unit == "percent" else 100), unit, arrays)


def test_parts_of_every_model() -> None:
    found = decompose_gaps(table(), "old", "new")
    assert [row.model for row in found.rows] == ["a", "b"] and "c" in found.notes[0]
    first = found.rows[0]
    assert first.total == pytest.approx(0.1) and not first.chance_alone and first.adaptivity is None
    low = beta.ppf(0.025, 1600, 401)
    high = beta.ppf(0.975, 1601, 400)
    assert first.generalisation == pytest.approx((low - 0.8, high - 0.8))
    assert found.rows[1].chance_alone  # a point on 2,000 images is chance
    data = found.rows[0].as_dict()
    assert data["generalisation_low"] == first.generalisation.low and data["adaptivity_low"] is None


def test_units_agree() -> None:
    percent, fraction = (
        [row.systematic.low for row in decompose_gaps(table(unit), "old", "new").rows]
        for unit in ("percent", "fraction")
    )
    assert percent == pytest.approx(fraction)


def test_fresh_images_split_the_rest() -> None:
    found = decompose_gaps(table(), "old", "new", fresh="fresh")
    assert [row.model for row in found.rows] == ["a"]
    parts = found.rows[0]
    assert (parts.adaptivity, parts.distribution) == pytest.approx((0.01, 0.09))
    assert parts.adaptivity_interval is not None and parts.adaptivity_interval.low < 0.01


def test_unknown_numbers_of_images() -> None:
    with pytest.raises(StudyError, match="images behind 'new'"):
        decompose_gaps(replace(table(), sizes={"old": np.asarray(10.0)}), "old", "new")
    with raises(StudyError, found="left out, a value is missing: 3 models (a, b, c)"):
        decompose_gaps(table(new=float("nan")), "old", "new")


def test_no_model_of_004_is_explained_by_chance(reference_data: Path) -> None:
    """004 section 3.2: the drops on both new test sets are far outside their intervals."""
    data = np.load(reference_data / "cifar-10.1" / "cifar10_and_10.1_predictions_30models.npz")
    values = np.column_stack([(data[name] == data[f"labels_{name}"]).mean(axis=1) for name in ("cifar10", "v6")])
    sizes = {"cifar10": np.asarray(10_000.0), "v6": np.asarray(2_000.0)}
    results = Results(tuple(map(str, data["models"])), ("cifar10", "v6"), values, "fraction", sizes)
    found = decompose_gaps(results, "cifar10", "v6", level=0.99)
    assert len(found.rows) == 30 and not any(row.chance_alone for row in found.rows)
