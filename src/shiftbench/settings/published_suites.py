"""Settings on images as they are (``suites.toml``), sets that a protocol splits by factors, and the ImageNet testbed.

Each shifted set names its reference: val, or val restricted to its classes, scores included. The restricted ones read
the same dataset with the same (no) shift as val, so that a run computes all of them in one pass over val.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.settings.base import (
    Member,
    Setting,
    SettingMean,
    SuiteBuilder,
    SuiteOptions,
    optional,
    suite,
    suites,
)  # fmt: skip
from shiftbench.shifts.compose import Greyscale
from shiftbench.shifts.corruptions import Corruption, corruptions

if TYPE_CHECKING:
    from shiftbench.datasets.factors import Protocol


@suite("clean")
def own_data(options: SuiteOptions) -> list[Setting]:
    """Your own dataset as it is."""
    return [Setting(options.data_name, "data")]


def _joined(names: Iterable[str], options: SuiteOptions) -> list[Setting]:
    """Val, then the settings of these suites, each once."""
    found = {"val": Setting("val", "imagenet-val")}
    for name in names:
        for setting in optional(suites.get(name)(options)):
            found.setdefault(setting.name, setting)
    return list(found.values())


def _listed(entry: Mapping[str, Any]) -> SuiteBuilder:
    def build(options: SuiteOptions) -> list[Setting]:
        return _joined(entry["join"], options) if "join" in entry else [Setting(**one) for one in entry["settings"]]

    build.__doc__ = entry["about"]
    return build


for _name, _entry in tomllib.loads(
    resources.files("shiftbench.settings").joinpath("suites.toml").read_text("utf-8")
).items():
    suite(_name)(_listed(_entry))


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


# The 213 settings of the ImageNet testbed (Taori et al. 2020) under their own names, so that its published grid and
# our runs line up: released ImageNet-C files go through the model's own resize and crop, as in the testbed and unlike
# in the suite ``imagenet-c``. Where we differ from the testbed, the setting's note says so.
_ON_DISK = (
    "released files go through the model's own resize and crop, as in the testbed; the suite imagenet-c crops them "
    "only, as ImageNet-C defines it, which gives higher accuracy (the testbed's AlexNet has mCE 102.3 and not 100)"
)
_IN_MEMORY = "the testbed's own variant of the corruption, rounded to 8 bits; its random numbers were not seeded"
_ATTACKED = "as the testbed ran it, away from the classifier's own prediction: a weaker attack than away from the label"
#: Names of ours that the testbed has not.
_OURS = ("imagenet-a.unmasked", "imagenet-r.unmasked")


_NATURAL = (
    "imagenetv2 imagenet-a imagenet-r imagenet-sketch objectnet imagenet-vid-robust ytbb-robust stylized-imagenet"
)


@suite("testbed-213")
def testbed_213(options: SuiteOptions) -> list[Setting]:
    """The 213 settings of the ImageNet testbed: natural shifts, ImageNet-C on disk and in memory, style, attacks."""
    from shiftbench.shifts.attacks import published_attacks  # here, so that no other suite waits for it

    kept = [setting for setting in _joined(_NATURAL.split(), options) if setting.name not in _OURS]
    # A fixed eighth of the classes, to see what fewer classes alone change.
    eighth = Setting("val_subsampled_class_1_8", "imagenet-val", space="imagenet-eighth-125")
    role = "imagenetv2-matched-frequency-format-val"
    made = [eighth, replace(eighth, name=f"{role}_subsampled_class_1_8", dataset=role, reference=eighth.name)]
    made.append(Setting("greyscale", "imagenet-val", Greyscale(), reference="val", source="in-memory"))
    # 95 on disk (19 corruptions), 90 in memory (without glass_blur).
    frost = {"frost_textures": options.frost_textures} if options.frost_textures else {}
    for name in corruptions("all"):
        for severity in (1, 2, 3, 4, 5):
            title, place = f"imagenet-c.{name}.{severity}", f"imagenet-c/{name}/{severity}"
            on_disk = Setting(f"{title}_on-disk", place, reference="val", source="on-disk")
            made.append(replace(on_disk, note=_ON_DISK, member=Member("imagenet-c_on-disk", name, severity)))
            if name != "glass_blur":
                shift = Corruption(f"testbed_{name}", severity, frost if name == "frost" else {})
                own = Setting(f"{title}_in-memory", "imagenet-val", shift, reference="val", source="in-memory")
                made.append(replace(own, note=_IN_MEMORY, member=Member("imagenet-c_in-memory", name, severity)))
    # Untargeted PGD of 100 steps, as the testbed ran it.
    for name, attack in published_attacks().items():
        made.append(Setting(name, "imagenet-val", attack, reference="val", note=_ATTACKED))
    return [*kept, *optional(made)]
