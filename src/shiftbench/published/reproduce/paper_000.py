"""000: gaps and means of its tables, its tables of hypotheses; ImageNet-R and -A from the testbed's evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from statistics import fmean

import numpy as np
from scipy.stats import spearmanr

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.errors import UnknownNameError
from shiftbench.metrics.corruption import ALEXNET_ERRORS, GROUPS
from shiftbench.published.reproduce.base import NoDataError, Recomputed, claim, claim_missing, difference_of, mean_of
from shiftbench.published.reproduce.sources import Data, predictions
from shiftbench.published.tables import PublishedValue, published, stated
from shiftbench.studies.hypotheses import HitData, Hypothesis, ScoredData, weigh_hypotheses

_Row = PublishedValue
_BASE = "ResNet-50"


claim("000.mean_ce")(lambda row, data: mean_of(published("000", "8", model=row.model, metric="CE")))


@claim("000.gaps")
def gaps(row: _Row, data: Data) -> Recomputed:
    [shifted] = published("000", row.table, model=row.model, setting="imagenet-r", metric="error")
    [unshifted] = published("000", row.table, model=row.model, setting="imagenet-200", metric="error")
    return difference_of(shifted, unshifted)


@claim("000.dfr_means")
def dfr_means(row: _Row, data: Data) -> Recomputed:
    # A single shift has a name such as dfr.size.small; dfr.ood is the mean itself.
    return mean_of([shift for shift in published("000", "3", model=row.model) if shift.setting.count(".") == 2])


_BLURS = [f"imagenet-c.{name}" for name in GROUPS["blur"]]


def _blurred(table: str, model: str) -> list[_Row]:
    return [row for row in published("000", table, model=model) if row.setting in _BLURS]


def _error_from_ce(row: _Row) -> Recomputed:
    """A corruption error is an error over AlexNet's."""
    alexnet = fmean(ALEXNET_ERRORS[row.setting.removeprefix("imagenet-c.")])
    return Recomputed(row.value * alexnet, row.rounding * alexnet)


@claim("000.blur_errors", of=lambda: [row for row in published("000", "5") if row.setting in _BLURS])
def blur_errors(row: _Row, data: Data) -> Recomputed:
    for corruption_error in _blurred("8", row.model):
        if corruption_error.setting == row.setting:
            return _error_from_ce(corruption_error)
    raise NoDataError("this network in table 8")


@claim("000.blur_means")
def blur_means(row: _Row, data: Data) -> Recomputed:
    printed_errors = _blurred("5", row.model)
    if printed_errors:
        return mean_of(printed_errors)
    errors = [_error_from_ce(corruption_error) for corruption_error in _blurred("8", row.model)]
    return Recomputed(fmean(error.value for error in errors), fmean(error.slack for error in errors))


def _in_table_7(row: _Row) -> list[_Row]:
    """The same number in table 7, if that has it."""
    return published("000", "7", model=row.model, setting=row.setting, metric=row.metric)


def _printed_twice() -> list[_Row]:
    """The numbers of table 1 that table 7 prints, too."""
    return [row for row in published("000", "1") if _in_table_7(row)]


@claim("000.table_1", of=_printed_twice)
def table_1(row: _Row, data: Data) -> Recomputed:
    [in_table_7] = _in_table_7(row)
    return Recomputed(in_table_7.value, row.rounding)


@claim("000.text")
def text(row: _Row, data: Data) -> Recomputed:
    base = row.model.partition(" + ")[0]
    [base_error] = published("000", "7", model=base, setting=row.setting, metric="error")
    [error] = published("000", "7", model=row.model, setting=row.setting, metric="error")
    return difference_of(base_error, error)


@claim("000.statements")
def statements(row: _Row, data: Data) -> Recomputed:
    if row.table == "section 5.2, ImageNet-R":
        return _statement_on_r(row)
    if row.table == "section 5.2, SVSF":
        return _error_ratio(row)
    if row.table == "section 5.2, DFR":
        compared = "ResNet-50 + Random Erasure" if row.metric == "gain over Random Erasure" else _BASE
        return difference_of(_printed("3", row.model, row.setting), _printed("3", compared, row.setting))
    if row.table == "figure 4":
        return _accuracy_gain(row.model)
    if row.metric == "rank correlation":
        return Recomputed(_blur_rank_correlation())
    return difference_of(_printed("8", _BASE, row.setting), _printed("8", row.model, row.setting))


def _printed(table: str, model: str, setting: str, metric: str | None = None) -> _Row:
    """The one number of a table; of ImageNet-C the mCE."""
    if setting == "imagenet-c":
        metric = "mCE"
    [row] = published("000", table, model=model, setting=setting, metric=metric)
    return row


def _statement_on_r(row: _Row) -> Recomputed:
    """A gain, base minus model, in error; or the change of the gap between ImageNet-200 and ImageNet-R."""
    if row.metric == "gain":
        return difference_of(_printed("1", _BASE, row.setting, "error"), _printed("1", row.model, row.setting, "error"))
    return difference_of(_printed("1", row.model, row.setting, "gap"), _printed("1", _BASE, row.setting, "gap"))


def _error_ratio(row: _Row) -> Recomputed:
    shifted = _printed("2", row.model, row.setting)
    unshifted = _printed("2", row.model, "svsf")
    ratio = shifted.value / unshifted.value
    slack = ratio * (shifted.rounding / shifted.value + unshifted.rounding / unshifted.value)
    return Recomputed(ratio, slack)


def _accuracy_gain(model: str) -> Recomputed:
    """How much lower the mean error under the fifteen corruptions is than the base's, from the columns of table 8."""
    gains = []
    slacks = []
    for corruption in BENCHMARK_CORRUPTIONS:
        base_error = _error_from_ce(_printed("8", _BASE, f"imagenet-c.{corruption}"))
        error = _error_from_ce(_printed("8", model, f"imagenet-c.{corruption}"))
        gains.append(base_error.value - error.value)
        slacks.append(base_error.slack + error.slack)
    return Recomputed(fmean(gains), fmean(slacks))


def _blur_rank_correlation() -> float:
    """Spearman's correlation of table 5's mean errors over synthetic blurs with the errors on real blur."""
    synthetic = _points("5", "imagenet-c.blur-mean", "error")
    real = _points("5", "real-blurry", "error")
    models = [model for model in synthetic if model in real]
    return float(spearmanr([synthetic[model] for model in models], [real[model] for model in models]).statistic)


@cache
def _marks(table: str) -> dict[tuple[str, str], str]:
    """The marks of table 4 or 6 by hypothesis and dataset, from our rule."""
    evidence = weigh_hypotheses(HYPOTHESES, scored_datasets(table))
    return {(entry.hypothesis, entry.dataset): entry.mark for entry in evidence}


@claim("000.evidence")
def evidence(row: _Row, data: Data) -> float:
    mark = _marks(row.table)[row.model, row.setting]
    return 1.0 if mark == "+" else -1.0


#: What each hypothesis adds to a ResNet-50; the deeper network stands for size.
_CHANGES = {
    "Larger Models": ("ResNet-152",),
    "Self-Attention": (f"{_BASE} + CBAM", f"{_BASE} + SE"),
    "Diverse Data Augmentation": (f"{_BASE} + Style Transfer", f"{_BASE} + AugMix", f"{_BASE} + DeepAugment"),
    "Pretraining": (f"{_BASE} + ImageNet-21K Pretraining",),
}
HYPOTHESES = [Hypothesis(name, tuple(product(models, [_BASE]))) for name, models in _CHANGES.items()]


def scored_datasets(table: str) -> list[ScoredData]:
    """The printed scores behind the evidence of table 4 or 6, in points.

    mCE is divided by AlexNet's errors, so clean error is not its in-distribution score. StreetView StoreFronts has the
    mean over its four shifts.
    """
    clean = _points("8", "imagenet", "error")
    if table == "4":
        blurry = _points("5", "real-blurry", "error")
        only_in_table = ScoredData("real-blurry", blurry, clean, higher_is_better=False, metric="error")
    else:
        accuracies = {model: 100.0 - error for model, error in clean.items()}
        only_in_table = ScoredData("imagenet-a", _points("9", "imagenet-a", "top1"), accuracies, metric="top1")
    rendered = _points("1", "imagenet-r", "error")
    unshifted = _points("1", "imagenet-200", "error")
    return [
        ScoredData("imagenet-c", _points("8", "imagenet-c", "mCE"), higher_is_better=False, metric="mCE"),
        only_in_table,
        ScoredData("imagenet-r", rendered, unshifted, higher_is_better=False, metric="error"),
        ScoredData("dfr", _points("3", "dfr.ood", "mAP"), _points("3", "dfr", "mAP"), metric="mean mAP"),
        ScoredData(
            "svsf", _mean_storefronts(), _points("2", "svsf", "error"), higher_is_better=False, metric="mean error"
        ),
    ]


def _mean_storefronts() -> dict[str, float]:
    """The mean error over the four shifts of StreetView StoreFronts by model, in points."""
    shifts = ("hardware.old", "year.2017", "year.2018", "location.france")
    errors = [_points("2", f"svsf.{shift}", "error") for shift in shifts]
    means = {}
    for model in errors[0]:
        means[model] = float(np.mean([by_model[model] for by_model in errors]))
    return means


def printed_faces(only: Sequence[str] = ()) -> tuple[list[str], list[ScoredData | HitData]]:
    """The names of the synthetic datasets of tables 4 and 6, and all datasets with their printed scores."""
    datasets = {data.dataset: data for data in (*scored_datasets("4"), *scored_datasets("6"))}
    for name in only:
        if name not in datasets:
            raise UnknownNameError("dataset", name, datasets)
    selected: list[ScoredData | HitData] = []
    for name, data in datasets.items():
        if not only or name in only:
            selected.append(data)
    return ["imagenet-c"], selected


def _points(table: str, setting: str, metric: str) -> dict[str, float]:
    """Printed numbers by model, in points."""
    rows = published("000", table, setting=setting, metric=metric)
    return {row.model: round(100.0 * row.value, 6) for row in rows}


@claim("000.errors_on_r")
def errors_on_r(row: _Row, data: Data) -> Recomputed | float:
    return data.testbed_score(row.model, "imagenet-r", error=True)


def _printed_gains() -> list[_Row]:
    on_r = [row for row in stated("000", "section 5.2, ImageNet-R", metric="gain") if row.setting == "imagenet-r"]
    return [*on_r, *stated("000", "figure 4")]


@claim("000.gains", of=_printed_gains)
def gains(row: _Row, data: Data) -> float:
    settings = ["imagenet-r"]
    if row.setting == "imagenet-c":
        settings = [
            f"imagenet-c.{name}.{severity}_on-disk" for name in BENCHMARK_CORRUPTIONS for severity in range(1, 6)
        ]
    base = fmean(data.testbed_score(_BASE, setting).value for setting in settings)
    return fmean(data.testbed_score(row.model, setting).value for setting in settings) - base


claim("000.errors_on_200")(lambda row, data: data.testbed_score(row.model, "val-on-imagenet-r-classes", error=True))
claim("000.accuracies_on_a")(lambda row, data: data.testbed_score(row.model, "imagenet-a"))


claim("000.predictions")(predictions)
claim_missing("000")
