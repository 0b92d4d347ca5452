"""Tables 1 and 2 of paper 002 (Hendrycks and Dietterich, ImageNet-C): corruption errors of seven networks.

The text that table 1 was taken from is damaged: some two-digit errors have lost a digit. Those were completed from
recollection and checked only for agreement with table 2 and the printed means, within rounding, so a single CE of
table 1 may be off by one. The printed mCE, relative mCE and clean errors, and table 2, are as printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS
from shiftbench.published.base import PublishedValue

#: Model: clean error, mCE, then the fifteen corruption errors in benchmark order; per cent.
_TABLE_1 = {
    "AlexNet": (43.5, 100.0, (100,) * 15),
    "SqueezeNet": (41.8, 104.4, (107, 106, 105, 100, 103, 101, 100, 101, 103, 97, 97, 98, 106, 109, 134)),
    "VGG-11": (31.0, 93.5, (97, 97, 100, 92, 99, 93, 91, 92, 91, 84, 75, 86, 97, 107, 100)),
    "VGG-19": (27.6, 88.9, (89, 91, 95, 89, 98, 90, 90, 89, 86, 75, 68, 80, 97, 102, 94)),
    "VGG-19+BN": (25.8, 81.6, (82, 83, 88, 82, 94, 84, 86, 80, 78, 69, 61, 74, 94, 85, 83)),
    "ResNet-18": (30.2, 84.7, (87, 88, 91, 84, 91, 87, 89, 86, 84, 78, 69, 78, 90, 80, 85)),
    "ResNet-50": (23.9, 76.7, (80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77)),
}

#: Model: clean error, relative mCE, then the fifteen relative corruption errors.
_TABLE_2 = {
    "AlexNet": (43.5, 100.0, (100,) * 15),
    "SqueezeNet": (41.8, 117.9, (118, 116, 114, 104, 110, 106, 105, 106, 110, 98, 101, 100, 126, 129, 229)),
    "VGG-11": (31.0, 123.3, (122, 121, 125, 116, 129, 121, 115, 114, 113, 99, 86, 102, 151, 161, 174)),
    "VGG-19": (27.6, 122.9, (114, 117, 122, 118, 136, 123, 122, 114, 111, 88, 82, 98, 165, 161, 172)),
    "VGG-19+BN": (25.8, 111.1, (104, 105, 114, 108, 132, 114, 119, 102, 100, 79, 68, 89, 165, 125, 144)),
    "ResNet-18": (30.2, 103.9, (104, 106, 111, 100, 116, 108, 112, 103, 101, 89, 67, 87, 133, 97, 126)),
    "ResNet-50": (23.9, 105.0, (104, 107, 107, 97, 126, 107, 110, 101, 97, 79, 62, 89, 146, 111, 132)),
}


def rows() -> Iterator[PublishedValue]:
    """Every number of both tables.

    >>> [row.value for row in rows() if (row.model, row.metric) == ("ResNet-50", "mCE")]
    [0.767]
    """
    for number, table, kind in (("1", _TABLE_1, ""), ("2", _TABLE_2, "relative ")):
        for model, (clean, mean, by_type) in table.items():
            yield _row(number, model, "imagenet", "error", clean, 0.1)
            yield _row(number, model, "imagenet-c", f"{kind}mCE", mean, 0.1)
            for corruption, value in zip(BENCHMARK_CORRUPTIONS, by_type, strict=True):
                yield _row(number, model, f"imagenet-c.{corruption}", f"{kind}CE", value, 1.0)


def _row(table: str, model: str, setting: str, metric: str, percent: float, last_digit: float) -> PublishedValue:
    return PublishedValue("002", table, model, setting, metric, percent / 100, last_digit / 200)
