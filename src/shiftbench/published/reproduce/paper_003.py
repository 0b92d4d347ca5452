"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import Recomputed, claim, out_of_reach
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue

#: Networks with public weights: the paper's name to the testbed's.
TESTBED_NAMES = {
    "ResNet-34": "resnet34", "ResNet-152": "resnet152", "ResNeXt-50": "resnext50_32x4d",
    "ResNeXt-50 (32x4d)": "resnext50_32x4d", "ResNeXt-101 (64x4d)": "resnext101_64x4d", "DPN-68": "dpn68",
}  # fmt: skip


def _with_weights() -> list[_Row]:
    return [row for row in published("003", metric="top1") if row.model in TESTBED_NAMES]


@claim(
    "003", "sections 5.1 and 5.2", "Accuracy on ImageNet-A, and on the usual images of its 200 classes",
    of=_with_weights, source="the testbed's evaluation of the public weights of the same architecture",
    remark="003 trained its ResNeXt-50 from scratch on the 200 classes; the testbed's has the public weights",
)  # fmt: skip
def accuracies(row: _Row, data: Data) -> Recomputed:
    return data.testbed_score(TESTBED_NAMES[row.model], row.setting)


#: What two paragraphs state: place, model and setting of one, place and model of the other.
_TWICE = {
    ("section 5.2, self-attention", "ResNet-152", "imagenet-o"): ("section 5.2, size", "ResNet-152"),
    ("section 5.2, size", "ResNeXt-50 (32x4d)", "imagenet-a"): ("section 5.1", "ResNeXt-50"),
}


def _stated_twice() -> list[_Row]:
    return [row for row in published("003") if (row.table, row.model, row.setting) in _TWICE]


@claim(
    "003", "sections 5.1 and 5.2", "Numbers that two paragraphs state", of=_stated_twice,
    source="the other paragraph",
)  # fmt: skip
def stated_twice(row: _Row, data: Data) -> Recomputed:
    table, model = _TWICE[row.table, row.model, row.setting]
    [other] = published("003", table, model=model, setting=row.setting, metric=row.metric)
    return Recomputed(other.value, other.rounding)


out_of_reach(
    "trained", "003", "section 5.1", "Accuracies of networks that 003 trained with noise, attacks or styles",
    of=lambda: [row for row in published("003", metric="top1") if row.model not in TESTBED_NAMES],
    needed="these trained networks, and the images of ImageNet-A",
)  # fmt: skip
out_of_reach(
    "anomalies", "003", "section 5.2", "AUPR of telling ImageNet-O from ImageNet",
    of=lambda: published("003", metric="AUPR"),
    needed="confidences of these networks on ImageNet-O and on its 200 classes (shiftbench eval --suite imagenet-o)",
)  # fmt: skip
