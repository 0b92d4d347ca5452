"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import claim
from shiftbench.published.reproduce.sources import TESTBED_NAMES, predictions
from shiftbench.published.tables import published

claim("003.accuracies", of=lambda: [row for row in published("003", metric="top1") if row.model in TESTBED_NAMES])(
    lambda row, data: data.testbed_score(row.model, row.setting)
)
claim("003.predictions")(predictions)
