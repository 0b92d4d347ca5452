"""The four method hypotheses of paper 000 with the numbers it printed, ready to be weighed.

>>> from shiftbench.studies.hypotheses import weigh_hypotheses
>>> found = weigh_hypotheses(hypotheses(), [imagenet_r()])
>>> [(one.hypothesis, one.mark) for one in found][:2]
[('Larger Models', '+'), ('Self-Attention', '-')]
"""

from __future__ import annotations

import numpy as np

from shiftbench.published.tables import published
from shiftbench.studies.hypotheses import Hypothesis, ScoredData

_BASE = "ResNet-50"
#: What each hypothesis adds to a ResNet-50; the deeper network stands for size.
_CHANGES = {
    "Larger Models": ("ResNet-152",),
    "Self-Attention": (f"{_BASE} + CBAM", f"{_BASE} + SE"),
    "Diverse Data Augmentation": (f"{_BASE} + Style Transfer", f"{_BASE} + AugMix", f"{_BASE} + DeepAugment"),
    "Pretraining": (f"{_BASE} + ImageNet-21K Pretraining",),
}


def hypotheses() -> list[Hypothesis]:
    """Each with its pairs: changed model, ResNet-50."""
    return [Hypothesis(name, tuple((model, _BASE) for model in models)) for name, models in _CHANGES.items()]


def imagenet_c() -> ScoredData:
    """mCE of table 8. It is divided by AlexNet's errors, so clean error is no in-distribution score of it."""
    return ScoredData("imagenet-c", _points("8", "imagenet-c", "mCE"), higher_is_better=False)


def real_blurry() -> ScoredData:
    """Errors of table 5, with the clean errors of table 8."""
    return ScoredData("real-blurry", _points("5", "real-blurry", "error"), _clean(), higher_is_better=False)


def imagenet_a() -> ScoredData:
    """Accuracies of table 9, with clean accuracies from table 8."""
    clean = {model: 100.0 - error for model, error in _clean().items()}
    return ScoredData("imagenet-a", _points("9", "imagenet-a", "top1"), clean)


def imagenet_r() -> ScoredData:
    """Errors of table 1."""
    return ScoredData(
        "imagenet-r",
        _points("1", "imagenet-r", "error"),
        _points("1", "imagenet-200", "error"),
        higher_is_better=False,
    )


def dfr() -> ScoredData:
    """mAP of table 3: its mean over eight shifts against in-distribution."""
    return ScoredData("dfr", _points("3", "dfr.ood", "mAP"), _points("3", "dfr", "mAP"))


def svsf() -> ScoredData:
    """Errors of table 2: the mean over its four shifts against in-distribution."""
    by_shift = [
        _points("2", f"svsf.{shift}", "error")
        for shift in ("hardware.old", "year.2017", "year.2018", "location.france")
    ]
    shifted = {model: float(np.mean([one[model] for one in by_shift])) for model in by_shift[0]}
    return ScoredData("svsf", shifted, _points("2", "svsf", "error"), higher_is_better=False)


def table_4() -> list[ScoredData]:
    return [imagenet_c(), real_blurry(), imagenet_r(), dfr(), svsf()]


def table_6() -> list[ScoredData]:
    return [imagenet_c(), imagenet_a(), imagenet_r(), dfr(), svsf()]


def _clean() -> dict[str, float]:
    return _points("8", "imagenet", "error")


def _points(table: str, setting: str, metric: str) -> dict[str, float]:
    rows = published("000", table, setting=setting, metric=metric)
    return {row.model: round(100.0 * row.value, 6) for row in rows}
