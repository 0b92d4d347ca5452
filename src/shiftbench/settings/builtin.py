"""The built-in suites.

Corruptions (ImageNet-C and others), perturbation sequences (ImageNet-P: every frame is a setting, and flips are counted
between them) and attacks, also on a user's own data; images as they are (``suites.toml``); sets that a protocol splits
by factors; the ImageNet testbed.

Each shifted set of ``suites.toml`` names its reference: val, or val restricted to its classes, scores included. The
restricted ones read the same dataset with the same (no) shift as val, so that a run computes all in one pass over val.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shiftbench.settings.base import Member, Setting, SettingMean, SuiteBuilder, SuiteOptions, optional, suite, suites
from shiftbench.shifts.base import Shift
from shiftbench.shifts.compose import Greyscale, ThenJpeg
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruptions
from shiftbench.shifts.perturbations import frames_of, perturbations

if TYPE_CHECKING:
    from shiftbench.datasets.factors import Protocol


def corruption_settings(prefix: str, role: str, reference: str, which: str, options: SuiteOptions) -> list[Setting]:
    """``<prefix>.<corruption>.<severity>`` for each corruption (of the set ``which``) and severity."""
    settings = []
    for name in options.corruptions or corruptions(which):
        for severity in options.severities:
            title, member = f"{prefix}.{name}.{severity:g}", Member(prefix, name, float(severity))
            if options.source == "on-disk":
                # Trap: released files are 224 px already; resizing them again costs a point or two of accuracy.
                place = f"{prefix}/{name}/{severity:g}"
                made = Setting(title, place, reference=reference, crop_only=True, source="on-disk", member=member)
            else:
                given = {"frost_textures": options.frost_textures, "network": options.style_network}
                given |= {"styles": options.styles}
                takes = CORRUPTIONS.get(name).options
                own = {key: value for key, value in given.items() if value and key in takes}
                shift: Shift = Corruption(name, severity, own)
                shift = ThenJpeg(shift) if options.source == "jpeg-85" else shift
                made = Setting(title, role, shift, reference=reference, source=options.source, member=member)
            settings.append(made)
    return settings


def _published(family: str, role: str, clean: str, which: str, about: str) -> SuiteBuilder:
    """The clean side comes first; released corrupted files can be scored without it."""

    def build(options: SuiteOptions) -> list[Setting]:
        settings = corruption_settings(family, role, clean, which, options)
        return [Setting(clean, role, optional=options.source == "on-disk"), *settings]

    build.__doc__ = about
    return build


for _name, *_fields in (
    (
        "imagenet-c", "imagenet-c", "imagenet-val", "val", "benchmark",
        "ImageNet-C: 15 corruptions x 5 severities of ImageNet val, and val itself (mCE).",
    ),
    (
        "imagenet-c-extra", "imagenet-c", "imagenet-val", "val", "extra",
        "The four validation corruptions of ImageNet-C: speckle_noise, gaussian_blur, spatter, saturate.",
    ),
    (
        "cifar-10-c", "cifar-10-c", "cifar-10", "cifar-10", "benchmark",
        "CIFAR-10-C: 15 corruptions x 5 severities of the CIFAR-10 test set, and the test set itself.",
    ),
):  # fmt: skip
    suite(_name)(_published(*_fields))


@suite("demo")
def demo(options: SuiteOptions) -> list[Setting]:
    """114 real photographs that registry packages carry, clean and under the 15 corruptions."""
    return [Setting("demo", "demo"), *corruption_settings("demo-c", "demo", "demo", "benchmark", options)]


@suite("corruptions")
def own_data_corrupted(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under the 15 corruptions x 5 severities."""
    clean = options.data_name
    return [Setting(clean, "data"), *corruption_settings(f"{clean}-c", "data", clean, "benchmark", options)]


def sequence_settings(prefix: str, role: str, reference: str, options: SuiteOptions) -> list[Setting]:
    """``<prefix>.<perturbation>.frame<NN>`` for each frame of each perturbation."""
    return [
        Setting(
            f"{prefix}.{frame.name}",
            role,
            frame,
            reference=reference,
            uncropped=True,
            source="in-memory",
            member=Member(prefix, name, frame.index),
        )
        for name in options.corruptions or perturbations("test")
        for frame in frames_of(name)
    ]


@suite("imagenet-p")
def imagenet_p(options: SuiteOptions) -> list[Setting]:
    """ImageNet-P: 10 perturbation sequences of ImageNet val at difficulty 1 (flip probability)."""
    return sequence_settings("imagenet-p", "imagenet-val", "val", options)


@suite("perturbations")
def own_data_perturbed(options: SuiteOptions) -> list[Setting]:
    """Your own dataset as perturbation sequences of 31 frames (flip probability)."""
    return sequence_settings(f"{options.data_name}-p", "data", options.data_name, options)


def _attacked(options: SuiteOptions, attacks: Sequence[Shift]) -> list[Setting]:
    """The clean side, then ``<data>-<attack>`` for each attack."""
    clean = options.data_name
    return [
        Setting(clean, "data"),
        *(Setting(f"{clean}-{attack.name}", "data", attack, reference=clean) for attack in attacks),
    ]


@suite("attacks")
def own_data_attacked(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under PGD (L-infinity, L2) and FGSM; torch classifiers only."""
    from shiftbench.shifts.attacks.attack import ATTACKS  # other suites do without

    return _attacked(options, list(ATTACKS.values()))


@suite("autoattack")
def own_data_under_autoattack(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under AutoAttack (L-infinity, L2); slow, needs shiftbench[attacks]."""
    from shiftbench.shifts.attacks.autoattack import AutoAttack

    return _attacked(
        options, [AutoAttack("autoattack.linf.eps2", "linf", 2 / 255), AutoAttack("autoattack.l2.eps0.5", "l2", 0.5)]
    )


@suite("clean")
def own_data(options: SuiteOptions) -> list[Setting]:
    """Your own dataset as it is."""
    return [Setting(options.data_name, "data")]


def _joined(names: Iterable[str], options: SuiteOptions) -> list[Setting]:
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
    from shiftbench.shifts.attacks.attack import published_attacks  # here, so that no other suite waits for it

    kept = [setting for setting in _joined(_NATURAL.split(), options) if setting.name not in _OURS]
    # A fixed eighth of the classes, to see what fewer classes alone change.
    eighth = Setting("val_subsampled_class_1_8", "imagenet-val", space="imagenet-eighth-125")
    role = "imagenetv2-matched-frequency-format-val"
    made = [eighth, replace(eighth, name=f"{role}_subsampled_class_1_8", dataset=role, reference=eighth.name)]
    made.append(Setting("greyscale", "imagenet-val", Greyscale(), reference="val", source="in-memory"))
    # 95 on disk (19 corruptions), 90 in memory (without glass_blur).
    frost = {"frost_textures": options.frost_textures} if options.frost_textures else {}
    for name in [name for name in corruptions("all") if not options.corruptions or name in options.corruptions]:
        for severity in [level for level in (1, 2, 3, 4, 5) if level in options.severities]:
            title, place = f"imagenet-c.{name}.{severity}", f"imagenet-c/{name}/{severity}"
            on_disk = Setting(f"{title}_on-disk", place, reference="val", source="on-disk", listed=True)
            made.append(replace(on_disk, note=_ON_DISK, member=Member("imagenet-c_on-disk", name, severity)))
            if name != "glass_blur":
                shift = Corruption(f"testbed_{name}", severity, frost if name == "frost" else {})
                own = Setting(f"{title}_in-memory", "imagenet-val", shift, reference="val", source="in-memory")
                made.append(
                    replace(own, listed=True, note=_IN_MEMORY, member=Member("imagenet-c_in-memory", name, severity))
                )
    # Untargeted PGD of 100 steps, as the testbed ran it.
    for name, attack in published_attacks().items():
        made.append(Setting(name, "imagenet-val", attack, reference="val", note=_ATTACKED, listed=True))
    return [*kept, *optional(made)]
