"""Sets that a protocol splits: by factors such as camera or year, and by styles and subtypes that training lacks.

Each suite has the side that is like training as its reference. Icons and subtypes are the surface variation of paper
002.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from shiftbench.settings.base import Setting, SettingMean, SuiteBuilder, SuiteOptions, suite, suites

if TYPE_CHECKING:
    from shiftbench.datasets.factors import Protocol


def factor_settings(protocol: str | Path | Protocol) -> list[Setting]:
    """Settings for ``evaluate(model, factor_settings(p), {p.name: table})``, or with ``open_splits(table, p)``.

    Tables also show the mean over all shifts, as ``<protocol>.shifted``.
    """
    from shiftbench.datasets.factors import TEST, read_protocol

    chosen = read_protocol(protocol)
    shifted = SettingMean(f"{chosen.name}.shifted", tuple(f"{chosen.name}.{name}" for name in chosen.shifts))

    def setting(which: str, reference: str | None) -> Setting:
        return Setting(
            f"{chosen.name}.{which}",
            f"{chosen.name}/{which}",
            metric=chosen.metric,
            reference=reference,
            optional=reference is not None,
            protocol=chosen,
            mean=shifted if reference is not None and len(chosen.shifts) > 1 else None,
        )

    return [setting(TEST, None), *(setting(name, f"{chosen.name}.{TEST}") for name in chosen.shifts)]


@suite("deepfashion-remixed")
def deepfashion_remixed(options: SuiteOptions) -> list[Setting]:
    """DeepFashion Remixed: another scale, occlusion, viewpoint or zoom; several labels per image (mAP)."""
    return factor_settings("deepfashion-remixed")


@suite("streetview-storefronts")
def streetview_storefronts(options: SuiteOptions) -> list[Setting]:
    """StreetView StoreFronts' protocol on your own table: another year, an old camera, France (error)."""
    return factor_settings("streetview-storefronts")


@suites.family("factors:PROTOCOL.toml", r"factors:(.+)")
def own_protocol(path: str) -> SuiteBuilder:
    """Your own table, split by the factors that your protocol names (see `data factors --help`)."""
    return lambda options: factor_settings(path)


def icon_settings(protocol: str, tested: str) -> list[Setting]:
    """Settings of a protocol of ``datasets.icons.protocols``: ``icons-style.seen`` and ``icons-style.<tested>``."""
    family = f"icons-{protocol}"
    note = f"for classifiers trained on icons/{protocol}.train"
    seen = Setting(f"{family}.seen", f"icons/{protocol}.seen", note=note)
    return [seen, Setting(f"{family}.{tested}", f"icons/{protocol}.test", reference=seen.name, note=note)]


@suite("icons-style")
def icons_style(options: SuiteOptions) -> list[Setting]:
    """Icons-50 in a style that training did not have (Microsoft's), against icons of the styles that it had."""
    from shiftbench.datasets.icons.protocols import STYLE

    return icon_settings("style", STYLE)


@suite("icons-subtype")
def icons_subtype(options: SuiteOptions) -> list[Setting]:
    """Icons-50's 50 subtypes that training did not have, against icons of those that it had."""
    return icon_settings("subtype", "unseen")


@suite("icons-version")
def icons_version(options: SuiteOptions) -> list[Setting]:
    """Icons-50 redrawn by their own vendor, against icons of the versions in training: a control, hardly a shift."""
    return icon_settings("version", "redrawn")


def _cifar_100_subtypes(held_out: int) -> SuiteBuilder:
    part = f"cifar-100/subtypes-{held_out}"
    note = f"for classifiers of the 20 broad classes trained on {part}.train"

    def build(options: SuiteOptions) -> list[Setting]:
        seen = Setting(f"cifar-100-subtypes-{held_out}.seen", f"{part}.seen", note=note)
        unseen = Setting(f"cifar-100-subtypes-{held_out}.unseen", f"{part}.unseen", reference=seen.name, note=note)
        return [seen, unseen]

    build.__doc__ = f"CIFAR-100's 20 broad classes, {held_out} of five subtypes of each unseen in training."
    return build


for _held_out in range(1, 5):
    suite(f"cifar-100-subtypes-{_held_out}")(_cifar_100_subtypes(_held_out))


@suite("imagenet-22k-subtypes")
def imagenet_22k_subtypes(options: SuiteOptions) -> list[Setting]:
    """25 broad classes of ImageNet-22K: subtypes that ImageNet-1K has (val), and subtypes that it has not."""
    space = "imagenet-22k-25"
    note = "scores of a broad class are the best of its ImageNet-1K classes; paper 002 fine-tunes for the 25 instead"
    seen = Setting("imagenet-22k-subtypes.seen", "imagenet-val", space=space, note=note)
    unseen = Setting(
        "imagenet-22k-subtypes.unseen", "imagenet-22k/subtypes.unseen", space=space, reference=seen.name, note=note
    )
    return [seen, unseen]
