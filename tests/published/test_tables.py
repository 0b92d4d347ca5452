"""The papers' printed numbers: complete, plausible, and consistent with each other."""

from __future__ import annotations

from statistics import fmean

import pytest

from shiftbench.errors import UnknownNameError
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.published.tables import PAPERS, published
from tests.raised import raises


def tables(paper: str) -> list[str]:
    return list(dict.fromkeys(row.table for row in published(paper)))


def test_every_paper_and_table_is_there() -> None:
    keywords = [f"6, {name}" for name in label_space("cifar-10").keys]
    assert tables("004") == [
        "1",
        "2",
        "3",
        "4",
        "5",
        *sorted(keywords),
        "11",
        "12",
        "13",
        "14",
        "15",
        "16",
        "17",
        "18",
        "19",
        "20",
        "section 3.3",
        "section 4",
        "abstract",
        "appendix B.2.5",
        "figure 12",
        "appendix B.2.6",
    ]
    assert tables("000") == ["1", "7", "2", "3", "4", "6", "5", "8", "9", "11", "appendix B", "appendix B, ImageNet-R"]
    assert tables("002") == [
        "1",
        "2",
        "appendix C",
        "section 3.5, size",
        "section 3.5",
        "section 3.4",
        "section 4.2",
        "appendix E",
        "appendix E, style transfer",
    ]
    assert all(published(paper) for paper in PAPERS)
    with raises(UnknownNameError, name="005"):
        published("005")


def test_shares_of_keywords_are_whole_numbers_of_images() -> None:
    shares = [row for row in published("004", setting="cifar-10.1-v4") if row.metric == "share of images"]
    assert len(shares) == 250
    assert all(row.agrees(round(row.value * 2021) / 2021) for row in shares)
    assert sum(not row.agrees(round(row.value * 2000) / 2000) for row in shares) == 88  # not those of version 6


def test_values_are_fractions_within_their_intervals() -> None:
    for row in published():
        if row.unit == "%" and row.metric in ("top1", "top5", "error", "mAP", "AUPR"):
            assert 0 <= row.value <= 1, row
        if row.low is not None and row.high is not None:
            assert row.low - row.rounding <= row.value <= row.high + row.rounding, row
        assert row.rounding == 0 if row.unit in ("rank", "count", "sign") else row.rounding > 0


def test_no_number_twice() -> None:
    for paper in PAPERS:
        keys = [(row.table, row.model, row.setting, row.metric) for row in published(paper)]
        assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("table", "models", "n_original", "n_new"),
    [("11", 34, 10_000, 2021), ("12", 34, 10_000, 2000), *((str(t), 67, 50_000, 10_000) for t in range(15, 21))],
)
def test_tables_of_004_are_whole(table: str, models: int, n_original: int, n_new: int) -> None:
    """Gap = original - new, ranks are permutations, intervals are Clopper-Pearson: every digit checks another."""
    by_model: dict[str, dict[str, list[float]]] = {}
    for row in published("004", table):
        by_model.setdefault(row.model, {}).setdefault(row.metric, []).append(row.value)
        if row.low is not None:
            n = n_new if row.setting.startswith(("cifar-10.1", "imagenetv2")) else n_original
            ends = clopper_pearson(row.value * n, n)
            assert (row.low, row.high) == pytest.approx(ends, abs=0.0016), row
    assert len(by_model) == models
    accuracy = "top5" if int(table) in (16, 18, 20) else "top1"
    for values in by_model.values():
        assert values[accuracy][0] - values[accuracy][1] == pytest.approx(values["gap"][0], abs=0.00151)
        assert values["rank"][0] - values["rank"][1] == values["rank change"][0]
    for place in (0, 1):
        assert sorted(values["rank"][place] for values in by_model.values()) == list(range(1, models + 1))


def test_table_1_of_004_repeats_the_full_tables() -> None:
    #: Its one CIFAR-10 model that table 11 calls by another name.
    names = {"wide_resnet_28_10": "wrn_28_10"}
    for row in published("004", "1"):
        table = "11" if row.setting.startswith("cifar") else "15"
        [full] = published("004", table, model=names.get(row.model, row.model), setting=row.setting, metric=row.metric)
        assert full.value == row.value and full.low == row.low


def test_mce_of_000_is_the_mean_of_its_ce() -> None:
    for row in published("000", "8", metric="mCE"):
        ce = [one.value for one in published("000", "8", model=row.model, metric="CE")]
        assert len(ce) == 15 and fmean(ce) == pytest.approx(row.value, abs=0.006)


def test_000_repeats_itself_and_002() -> None:
    for row in published("000", "1"):
        [again] = published("000", "7", model=row.model, setting=row.setting, metric=row.metric)
        assert again.value == row.value
    for row in published("000", "8", model="ResNet-50"):
        [again] = published("002", "1", model="ResNet-50", setting=row.setting, metric=row.metric)
        assert again.value == row.value
    for row in published("000", "3", setting="dfr.ood"):
        parts = [one.value for one in published("000", "3", model=row.model) if one.setting.count(".") == 2]
        assert len(parts) == 8 and fmean(parts) == pytest.approx(row.value, abs=0.0006)
    for table in ("1", "7"):
        for row in published("000", table, metric="gap"):
            [iid] = published("000", table, model=row.model, setting="imagenet-200")
            [ood] = published("000", table, model=row.model, setting="imagenet-r", metric="error")
            assert ood.value - iid.value == pytest.approx(row.value, abs=1e-9)


def test_blur_means_of_000() -> None:
    for row in published("000", "5", setting="imagenet-c.blur-mean"):
        parts = [one.value for one in published("000", "5", model=row.model) if one.setting.endswith("_blur")]
        if parts:
            assert fmean(parts) == pytest.approx(row.value, abs=0.011)
