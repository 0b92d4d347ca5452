"""002: mCE and relative mCE from their columns, AlexNet's means; mCE from the testbed's evaluation."""

from __future__ import annotations

from statistics import fmean

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.metrics.corruption import ALEXNET_CLEAN_ERROR, ALEXNET_ERRORS, Baseline, mean_corruption_error
from shiftbench.published.reproduce.base import (
    PREDICTIONS,
    PUBLIC,
    Recomputed,
    by_place,
    by_table,
    claim,
    mean_of,
    missing,
)
from shiftbench.published.reproduce.sources import Data, predictions
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue


def _but_alexnet(table: str, metric: str) -> list[_Row]:
    """Without AlexNet, whose numbers are 100 by definition."""
    return [row for row in published("002", table, metric=metric) if row.model != "AlexNet"]


claim(
    "002", "table 1", "mCE is the mean of fifteen corruption errors", name="mean_ce",
    of=lambda: _but_alexnet("1", "mCE"), source="the CE columns, printed without decimals",
)(lambda row, data: mean_of(published("002", "1", model=row.model, metric="CE")))  # fmt: skip
claim(
    "002", "table 2", "Relative mCE is the mean of fifteen relative corruption errors", name="mean_relative_ce",
    of=lambda: _but_alexnet("2", "relative mCE"), source="its columns, printed without decimals",
)(lambda row, data: mean_of(published("002", "2", model=row.model, metric="relative CE")))  # fmt: skip


@claim(
    "002", "table 2", "Relative CE follows from CE, the clean error and AlexNet's errors",
    of=lambda: _but_alexnet("2", "relative CE"), source="table 1 and AlexNet's errors by severity", group=by_table,
)  # fmt: skip
def relative_from_ce(row: _Row, data: Data) -> Recomputed:
    [ce] = published("002", "1", model=row.model, setting=row.setting, metric="CE")
    [clean] = published("002", "1", model=row.model, metric="error")
    alexnet = fmean(ALEXNET_ERRORS[row.setting.removeprefix("imagenet-c.")])
    rise = alexnet - ALEXNET_CLEAN_ERROR
    slack = (ce.rounding * alexnet + clean.rounding) / rise
    return Recomputed((ce.value * alexnet - clean.value) / rise, slack)


@claim(
    "002", "table 2", "Clean errors are those of table 1", of=lambda: published("002", "2", metric="error"),
    source="table 1",
)  # fmt: skip
def clean_twice(row: _Row, data: Data) -> Recomputed:
    [other] = published("002", "1", model=row.model, metric="error")
    return Recomputed(other.value, other.rounding)


claim(
    "002", "appendix C", "AlexNet's error on each corruption, the mean over severities", name="alexnet_means",
    kind=PUBLIC, of=lambda: published("002", "appendix C"),
    source="AlexNet's errors by severity, as its authors give them",
)(lambda row, data: fmean(ALEXNET_ERRORS[row.setting]))  # fmt: skip
claim(
    "002", "table 1", "Clean errors", kind=PUBLIC, of=lambda: published("002", "1", metric="error"),
    source="the testbed's accuracies on the validation set", name="clean_errors",
)(lambda row, data: data.testbed_score(row.model, "val", error=True))  # fmt: skip


@claim(
    "002", "tables 1 and 2", "mCE and relative mCE, from the testbed's evaluation of ImageNet-C",
    kind=PUBLIC,
    of=lambda: [*_but_alexnet("1", "mCE"), *_but_alexnet("2", "relative mCE"), *published("002", "section 3.6")],
    source="the testbed's 75 columns of ImageNet-C from disk, divided by its own AlexNet",
    remark="the testbed resizes the released 224-pixel files to 256 and crops: the same networks, other images",
)  # fmt: skip
def testbed_mce(row: _Row, data: Data) -> float:
    errors, clean = _testbed_errors(row.model, data)
    alexnet = Baseline.from_errors("AlexNet", *_testbed_errors("AlexNet", data))
    return mean_corruption_error(errors, None if row.metric == "mCE" else clean, baseline=alexnet)


def _testbed_errors(network: str, data: Data) -> tuple[dict[str, list[float]], float]:
    """Errors by corruption and severity, and the clean one."""

    def error(setting: str) -> float:
        return data.testbed_score(network, setting, error=True).value

    errors = {c: [error(f"imagenet-c.{c}.{s}_on-disk") for s in range(1, 6)] for c in BENCHMARK_CORRUPTIONS}
    return errors, error("val")


claim(
    "002", "tables 1 and 2, section 3", "Clean errors, corruption errors, mCE and relative mCE, network by network",
    kind=PREDICTIONS, source="predictions in the workspace, scored again", group=by_place,
    of=lambda: [row for table in ("1", "2", "section 3.6", "section 3") for row in published("002", table)],
)(predictions)  # fmt: skip
claim(
    "002", "section 4.2", "Accuracy on held-out styles, subtypes and versions of Icons-50",
    of=lambda: published("002", "section 4.2"), name="icons",
)(missing("the networks trained on Icons-50 (shiftbench experiment icons-style, icons-subtype)"))  # fmt: skip
