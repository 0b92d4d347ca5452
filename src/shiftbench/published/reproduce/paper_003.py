"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import PREDICTIONS, PUBLIC, by_place, claim
from shiftbench.published.reproduce.sources import TESTBED_NAMES, predictions
from shiftbench.published.tables import published

claim(
    "003", "sections 5.1 and 5.2", "Accuracy on ImageNet-A, and on the usual images of its 200 classes",
    kind=PUBLIC, of=lambda: [row for row in published("003", metric="top1") if row.model in TESTBED_NAMES],
    source="the testbed's evaluation of the public weights of the same architecture", name="accuracies",
    remark="003 trained its ResNeXt-50 from scratch on the 200 classes; the testbed's has the public weights. Two "
    "paragraphs state ResNet-152's AUPR on ImageNet-O, as 17.2 and 18.0",
)(lambda row, data: data.testbed_score(row.model, row.setting))  # fmt: skip
claim(
    "003", "sections 5.1 and 5.2", "Accuracy on ImageNet-A, and AUPR of telling ImageNet-O from ImageNet",
    kind=PREDICTIONS, of=lambda: published("003"), source="predictions in the workspace, scored again", group=by_place,
)(predictions)  # fmt: skip
