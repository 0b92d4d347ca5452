"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import Recomputed, claim
from shiftbench.published.reproduce.sources import TESTBED_NAMES, Data, predictions
from shiftbench.published.tables import PublishedValue, published


def _networks_of_the_testbed() -> list[PublishedValue]:
    """The accuracies of networks that the testbed evaluated, too."""
    return [row for row in published("003", metric="top1") if row.model in TESTBED_NAMES]


@claim("003.accuracies", of=_networks_of_the_testbed)
def accuracies(row: PublishedValue, data: Data) -> Recomputed | float:
    return data.testbed_score(row.model, row.setting)


claim("003.predictions")(predictions)
