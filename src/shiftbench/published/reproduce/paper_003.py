"""003: the figures stated in its text, beside other people's evaluation of the same networks."""

from __future__ import annotations

from shiftbench.published.reproduce.base import Recomputed, claim
from shiftbench.published.reproduce.sources import TESTBED_NAMES, Data, predictions
from shiftbench.published.tables import PublishedValue, published, stated

#: The images of ImageNet-O, and those of ImageNet's validation set in its 200 classes.
IMAGES_OF_O = 2_000
USUAL_IMAGES = 10_000


def _networks_of_the_testbed() -> list[PublishedValue]:
    """The accuracies of networks that the testbed evaluated, too."""
    rows = [*published("003", metric="top1"), *stated("003", metric="top1")]
    return [row for row in rows if row.model in TESTBED_NAMES]


@claim("003.accuracies", of=_networks_of_the_testbed)
def accuracies(row: PublishedValue, data: Data) -> Recomputed | float:
    return data.testbed_score(row.model, row.setting)


@claim("003.gains")
def gains(row: PublishedValue, data: Data) -> float:
    base = row.model.removesuffix(" + SE")
    return data.testbed_score(row.model, row.setting).value - data.testbed_score(base, row.setting).value


@claim("003.chance")
def chance(row: PublishedValue, data: Data) -> float:
    return IMAGES_OF_O / (IMAGES_OF_O + USUAL_IMAGES)


@claim("003.twice")
def twice(row: PublishedValue, data: Data) -> Recomputed:
    [other] = published("003", "section 5.2, size", model=row.model, setting=row.setting, metric=row.metric)
    return Recomputed(other.value, other.rounding)


claim("003.predictions")(predictions)
