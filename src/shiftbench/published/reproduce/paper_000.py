"""000: gaps and means of its tables, its tables of hypotheses; ImageNet-R and -A from the testbed's evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import fmean

import numpy as np

from shiftbench.errors import UnknownNameError
from shiftbench.metrics.corruption import ALEXNET_ERRORS, GROUPS
from shiftbench.published.reproduce.base import NoDataError, Recomputed, claim, claim_missing, difference_of, mean_of
from shiftbench.published.reproduce.sources import Data, predictions
from shiftbench.published.tables import PublishedValue, published
from shiftbench.studies.hypotheses import HitData, Hypothesis, ScoredData, weigh_hypotheses

_Row = PublishedValue


claim("000.mean_ce")(lambda row, data: mean_of(published("000", "8", model=row.model, metric="CE")))


@claim("000.gaps")
def gaps(row: _Row, data: Data) -> Recomputed:
    [shifted] = published("000", row.table, model=row.model, setting="imagenet-r", metric="error")
    [usual] = published("000", row.table, model=row.model, setting="imagenet-200", metric="error")
    return difference_of(shifted, usual)


claim("000.dfr_means")(
    lambda row, data: mean_of([one for one in published("000", "3", model=row.model) if one.setting.count(".") == 2])
)


_BLURS = [f"imagenet-c.{name}" for name in GROUPS["blur"]]


def _blurred(table: str, model: str) -> list[_Row]:
    return [one for one in published("000", table, model=model) if one.setting in _BLURS]


def _error_from_ce(row: _Row) -> Recomputed:
    """A corruption error is an error over AlexNet's."""
    alexnet = fmean(ALEXNET_ERRORS[row.setting.removeprefix("imagenet-c.")])
    return Recomputed(row.value * alexnet, row.rounding * alexnet)


@claim("000.blur_errors", of=lambda: [row for row in published("000", "5") if row.setting in _BLURS])
def blur_errors(row: _Row, data: Data) -> Recomputed:
    found = [one for one in _blurred("8", row.model) if one.setting == row.setting]
    if not found:
        raise NoDataError("this network in table 8")
    return _error_from_ce(found[0])


@claim("000.blur_means")
def blur_means(row: _Row, data: Data) -> Recomputed:
    parts = _blurred("5", row.model)
    if parts:
        return mean_of(parts)
    errors = [_error_from_ce(one) for one in _blurred("8", row.model)]
    return Recomputed(fmean(one.value for one in errors), fmean(one.slack for one in errors))


claim("000.table_1", of=lambda: [row for row in published("000", "1") if _again(row)])(
    lambda row, data: Recomputed(_again(row)[0].value, row.rounding)
)


def _again(row: _Row) -> list[_Row]:
    return published("000", "7", model=row.model, setting=row.setting, metric=row.metric)


@claim("000.text")
def text(row: _Row, data: Data) -> Recomputed:
    models = (row.model.partition(" + ")[0], row.model)
    [first], [second] = (published("000", "7", model=m, setting=row.setting, metric="error") for m in models)
    return difference_of(first, second)


@cache
def _marks(table: str) -> dict[tuple[str, str], str]:
    return {(one.hypothesis, one.dataset): one.mark for one in weigh_hypotheses(HYPOTHESES, scored_datasets(table))}


claim("000.evidence")(lambda row, data: 1.0 if _marks(row.table)[row.model, row.setting] == "+" else -1.0)


_BASE = "ResNet-50"
#: What each hypothesis adds to a ResNet-50; the deeper network stands for size.
_CHANGES = {
    "Larger Models": ("ResNet-152",),
    "Self-Attention": (f"{_BASE} + CBAM", f"{_BASE} + SE"),
    "Diverse Data Augmentation": (f"{_BASE} + Style Transfer", f"{_BASE} + AugMix", f"{_BASE} + DeepAugment"),
    "Pretraining": (f"{_BASE} + ImageNet-21K Pretraining",),
}
HYPOTHESES = [Hypothesis(name, tuple((model, _BASE) for model in models)) for name, models in _CHANGES.items()]


def scored_datasets(table: str) -> list[ScoredData]:
    """The printed scores behind the evidence of table 4 or 6, in points.

    mCE is divided by AlexNet's errors, so clean error is not its in-distribution score. StreetView StoreFronts has the
    mean over its four shifts.
    """
    clean = _points("8", "imagenet", "error")
    if table == "4":
        blurry = _points("5", "real-blurry", "error")
        own = ScoredData("real-blurry", blurry, clean, higher_is_better=False, metric="error")
    else:
        accuracies = {model: 100.0 - error for model, error in clean.items()}
        own = ScoredData("imagenet-a", _points("9", "imagenet-a", "top1"), accuracies, metric="top1")
    shifts = ("hardware.old", "year.2017", "year.2018", "location.france")
    stores = [_points("2", f"svsf.{shift}", "error") for shift in shifts]
    mean = {model: float(np.mean([one[model] for one in stores])) for model in stores[0]}
    rendered, usual = (_points("1", setting, "error") for setting in ("imagenet-r", "imagenet-200"))
    return [
        ScoredData("imagenet-c", _points("8", "imagenet-c", "mCE"), higher_is_better=False, metric="mCE"),
        own,
        ScoredData("imagenet-r", rendered, usual, higher_is_better=False, metric="error"),
        ScoredData("dfr", _points("3", "dfr.ood", "mAP"), _points("3", "dfr", "mAP"), metric="mean mAP"),
        ScoredData("svsf", mean, _points("2", "svsf", "error"), higher_is_better=False, metric="mean error"),
    ]


def printed_faces(only: Sequence[str] = ()) -> tuple[list[str], list[ScoredData | HitData]]:
    """The synthetic ones of the datasets of tables 4 and 6, and all of them, with their printed scores."""
    datasets = {one.dataset: one for table in ("4", "6") for one in scored_datasets(table)}
    if unknown := [name for name in only if name not in datasets]:
        raise UnknownNameError("dataset", unknown[0], datasets)
    return ["imagenet-c"], [one for name, one in datasets.items() if not only or name in only]


def _points(table: str, setting: str, metric: str) -> dict[str, float]:
    rows = published("000", table, setting=setting, metric=metric)
    return {row.model: round(100.0 * row.value, 6) for row in rows}


claim("000.errors_on_r")(lambda row, data: data.testbed_score(row.model, "imagenet-r", error=True))
claim("000.errors_on_200")(lambda row, data: data.testbed_score(row.model, "val-on-imagenet-r-classes", error=True))
claim("000.accuracies_on_a")(lambda row, data: data.testbed_score(row.model, "imagenet-a"))


claim("000.predictions")(predictions)
claim_missing("000")
