"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import PUBLIC, Recomputed, claim
from shiftbench.published.reproduce.predictions import from_predictions
from shiftbench.published.reproduce.sources import Data
from shiftbench.published.tables import PublishedValue, published

_Row = PublishedValue

#: Networks with public weights: the paper's name to the testbed's.
TESTBED_NAMES = {
    "ResNet-34": "resnet34", "ResNet-152": "resnet152", "ResNeXt-50": "resnext50_32x4d",
    "ResNeXt-50 (32x4d)": "resnext50_32x4d", "ResNeXt-101 (64x4d)": "resnext101_64x4d", "DPN-68": "dpn68",
    "DPN-98": "dpn98", "DenseNet-121": "densenet121",
}  # fmt: skip


def _with_weights() -> list[_Row]:
    return [row for row in published("003", metric="top1") if row.model in TESTBED_NAMES]


@claim(
    "003", "sections 5.1 and 5.2", "Accuracy on ImageNet-A, and on the usual images of its 200 classes",
    kind=PUBLIC, of=_with_weights, source="the testbed's evaluation of the public weights of the same architecture",
    remark="003 trained its ResNeXt-50 from scratch on the 200 classes; the testbed's has the public weights. Two "
    "paragraphs state ResNet-152's AUPR on ImageNet-O, as 17.2 and 18.0",
)  # fmt: skip
def accuracies(row: _Row, data: Data) -> Recomputed:
    return data.testbed_score(TESTBED_NAMES[row.model], row.setting)


from_predictions(
    "003", "sections 5.1 and 5.2", "Accuracy on ImageNet-A, and AUPR of telling ImageNet-O from ImageNet",
    published("003"),
)  # fmt: skip
