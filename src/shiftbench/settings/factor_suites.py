"""Factor-split sets as settings: the test set like training, and one that differs in one factor each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shiftbench.settings.base import Setting, SuiteBuilder, SuiteOptions, suite, suites

if TYPE_CHECKING:
    from shiftbench.datasets.factors import Protocol


def factor_settings(protocol: str | Path | Protocol) -> list[Setting]:
    """Settings for ``evaluate(model, factor_settings(p), {p.name: table})``, or with ``open_splits(table, p)``."""
    from shiftbench.datasets.factors import TEST, read_protocol

    chosen = read_protocol(protocol)

    def setting(which: str, reference: str | None) -> Setting:
        return Setting(
            f"{chosen.name}.{which}",
            f"{chosen.name}/{which}",
            metric=chosen.metric,
            reference=reference,
            optional=reference is not None,
            protocol=chosen,
        )

    return [setting(TEST, None), *(setting(name, f"{chosen.name}.{TEST}") for name in chosen.shifts)]


@suite("deepfashion-remixed")
def deepfashion_remixed(options: SuiteOptions) -> list[Setting]:
    """DeepFashion Remixed: another scale, occlusion, viewpoint or zoom; several labels an image (mAP)."""
    return factor_settings("deepfashion-remixed")


@suite("streetview-storefronts")
def streetview_storefronts(options: SuiteOptions) -> list[Setting]:
    """StreetView StoreFronts' protocol on your own table: another year, an old camera, France (error)."""
    return factor_settings("streetview-storefronts")


@suites.family("factors:PROTOCOL.toml", r"factors:(.+)")
def own_protocol(path: str) -> SuiteBuilder:
    """Your own table, split by the factors that your protocol names (see `data factors --help`)."""
    return lambda options: factor_settings(path)
