"""002: mCE and relative mCE from their columns, AlexNet's means; mCE from the testbed's evaluation."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, mean_corruption_error, published_baseline
from shiftbench.published.reproduce.base import Recomputed, claim, claim_missing, mean_of
from shiftbench.published.reproduce.sources import Data, predictions
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue


def _but_alexnet(table: str, metric: str) -> list[_Row]:
    """Without AlexNet, whose numbers are 100 by definition."""
    return [row for row in published("002", table, metric=metric) if row.model != "AlexNet"]


@claim("002.mean_ce", of=lambda: _but_alexnet("1", "mCE"))
def mean_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "1", model=row.model, metric="CE"))


@claim("002.mean_relative_ce", of=lambda: _but_alexnet("2", "relative mCE"))
def mean_relative_ce(row: _Row, data: Data) -> Recomputed:
    return mean_of(published("002", "2", model=row.model, metric="relative CE"))


@claim("002.relative_from_ce", of=lambda: _but_alexnet("2", "relative CE"))
def relative_from_ce(row: _Row, data: Data) -> Recomputed:
    [ce] = published("002", "1", model=row.model, setting=row.setting, metric="CE")
    [clean] = published("002", "1", model=row.model, metric="error")
    alexnet = fmean(ALEXNET_ERRORS[row.setting.removeprefix("imagenet-c.")])
    rise = alexnet - ALEXNET_CLEAN_ERROR
    slack = (ce.rounding * alexnet + clean.rounding) / rise
    return Recomputed((ce.value * alexnet - clean.value) / rise, slack)


@claim("002.clean_twice")
def clean_twice(row: _Row, data: Data) -> Recomputed:
    [in_table_1] = published("002", "1", model=row.model, metric="error")
    return Recomputed(in_table_1.value, in_table_1.rounding)


claim("002.alexnet_means")(lambda row, data: fmean(ALEXNET_ERRORS[row.setting]))
claim("002.clean_errors")(lambda row, data: data.testbed_score(row.model, "val", error=True))


def _printed_mces() -> list[_Row]:
    return [
        *_but_alexnet("1", "mCE"),
        *_but_alexnet("2", "relative mCE"),
        *_but_alexnet("section 3.5, size", "mCE"),
    ]


@claim("002.testbed_mce", of=_printed_mces)
def testbed_mce(row: _Row, data: Data) -> float:
    errors, clean = _testbed_errors(row.model, data)
    alexnet = published_baseline("imagenet-c_on-disk")
    if row.metric == "mCE":
        return mean_corruption_error(errors, None, baseline=alexnet)
    return mean_corruption_error(errors, clean, baseline=alexnet)


def _testbed_errors(network: str, data: Data) -> tuple[dict[str, list[float]], float]:
    """Errors by corruption and severity, and the clean one."""

    def error(setting: str) -> float:
        return data.testbed_score(network, setting, error=True).value

    errors = {}
    for corruption in BENCHMARK_CORRUPTIONS:
        errors[corruption] = [error(f"imagenet-c.{corruption}.{severity}_on-disk") for severity in range(1, 6)]
    return errors, error("val")


claim("002.predictions")(predictions)
claim("002.icons")(predictions)
claim("002.subtypes")(predictions)


@claim("002.icons_difference")
def icons_difference(row: _Row, data: Data) -> float:
    """How far MSDNet and DenseNet are apart, whichever is ahead."""
    msdnet = data.looked_up(replace(row, metric="top1"))
    densenet = data.looked_up(replace(row, model="DenseNet", metric="top1"))
    return abs(msdnet.value - densenet.value)


claim_missing("002")
