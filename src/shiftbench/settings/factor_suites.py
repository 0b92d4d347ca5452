"""Factor-split sets as settings: the test set like training, and one that differs in one factor each."""

from __future__ import annotations

from pathlib import Path

from shiftbench.datasets.factors import TEST, Protocol, read_protocol
from shiftbench.errors import SettingError
from shiftbench.settings.base import Setting, SuiteOptions, suite


def factor_settings(protocol: str | Path | Protocol) -> list[Setting]:
    """Settings for ``evaluate(model, factor_settings(p), data=open_splits(table, p))``.

    Of sets with one label an image; several labels are scored from kept scores (``factors.multi_hot``,
    ``metrics.mean_average_precision``).
    """
    chosen = protocol if isinstance(protocol, Protocol) else read_protocol(protocol)
    if chosen.several_labels:
        raise SettingError(
            f"the images of {chosen.name!r} have several labels, and settings score one",
            hint="evaluate with keep_scores=True and give scores and multi_hot(dataset) to mean_average_precision",
        )
    clean = f"{chosen.name}.{TEST}"
    shifted = [
        Setting(f"{chosen.name}.{name}", f"{chosen.name}.{name}", metric=chosen.metric, reference=clean, optional=True)
        for name in chosen.shifts
    ]
    return [Setting(clean, clean, metric=chosen.metric), *shifted]


@suite("streetview-storefronts")
def streetview_storefronts(options: SuiteOptions) -> list[Setting]:
    """StreetView StoreFronts' protocol on your own table: another year, an old camera, France (error)."""
    return factor_settings("streetview-storefronts")
