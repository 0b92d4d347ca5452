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
    settings: list[Setting] = []
    for name in options.corruptions or corruptions(which):
        for severity in options.severities:
            title = f"{prefix}.{name}.{severity:g}"
            member = Member(prefix, name, float(severity))
            if options.source == "on-disk":
                setting = Setting(
                    title,
                    f"{prefix}/{name}/{severity:g}",
                    reference=reference,
                    # Released files are 224 px already; resizing them again costs a point or two of accuracy.
                    crop_only=True,
                    source="on-disk",
                    member=member,
                )
            else:
                shift = _corruption(name, severity, options)
                setting = Setting(title, role, shift, reference=reference, source=options.source, member=member)
            settings.append(setting)
    return settings


def _corruption(name: str, severity: float, options: SuiteOptions) -> Shift:
    """A corruption with those of the options that it takes."""
    paths = {
        "frost_textures": options.frost_textures,
        "network": options.style_network,
        "styles": options.styles,
    }
    accepted = CORRUPTIONS.get(name).options
    accepted_paths = {key: path for key, path in paths.items() if path and key in accepted}
    shift = Corruption(name, severity, accepted_paths)
    return ThenJpeg(shift) if options.source == "jpeg-85" else shift


def _with_clean_images(family: str, role: str, clean: str, which: str, options: SuiteOptions) -> list[Setting]:
    """The clean images, then the corrupted ones; released corrupted files can be scored without the clean images."""
    corrupted = corruption_settings(family, role, clean, which, options)
    return [Setting(clean, role, optional=options.source == "on-disk"), *corrupted]


@suite("imagenet-c")
def imagenet_c(options: SuiteOptions) -> list[Setting]:
    """ImageNet-C: 15 corruptions x 5 severities of ImageNet val, and val itself (mCE)."""
    return _with_clean_images("imagenet-c", "imagenet-val", "val", "benchmark", options)


@suite("imagenet-c-extra")
def imagenet_c_extra(options: SuiteOptions) -> list[Setting]:
    """The four validation corruptions of ImageNet-C: speckle_noise, gaussian_blur, spatter, saturate."""
    return _with_clean_images("imagenet-c", "imagenet-val", "val", "extra", options)


@suite("cifar-10-c")
def cifar_10_c(options: SuiteOptions) -> list[Setting]:
    """CIFAR-10-C: 15 corruptions x 5 severities of the CIFAR-10 test set, and the test set itself."""
    return _with_clean_images("cifar-10-c", "cifar-10", "cifar-10", "benchmark", options)


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
    settings: list[Setting] = []
    for name in options.corruptions or perturbations("test"):
        for frame in frames_of(name):
            setting = Setting(
                f"{prefix}.{frame.name}",
                role,
                frame,
                reference=reference,
                uncropped=True,
                source="in-memory",
                member=Member(prefix, name, frame.index),
            )
            settings.append(setting)
    return settings


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
    attacked = [Setting(f"{clean}-{attack.name}", "data", attack, reference=clean) for attack in attacks]
    return [Setting(clean, "data"), *attacked]


@suite("attacks")
def own_data_attacked(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under PGD (L-infinity, L2) and FGSM; torch classifiers only."""
    from shiftbench.shifts.attacks.attack import ATTACKS  # other suites do without

    return _attacked(options, list(ATTACKS.values()))


@suite("autoattack")
def own_data_under_autoattack(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under AutoAttack (L-infinity, L2); slow, needs shiftbench[attacks]."""
    from shiftbench.shifts.attacks.autoattack import AutoAttack

    attacks = [AutoAttack("autoattack.linf.eps2", "linf", 2 / 255), AutoAttack("autoattack.l2.eps0.5", "l2", 0.5)]
    return _attacked(options, attacks)


@suite("clean")
def own_data(options: SuiteOptions) -> list[Setting]:
    """Your own dataset as it is."""
    return [Setting(options.data_name, "data")]


def _joined(names: Iterable[str], options: SuiteOptions) -> list[Setting]:
    """ImageNet val, and the settings of several suites, each of which may be left out."""
    settings = {"val": Setting("val", "imagenet-val")}
    for name in names:
        for setting in optional(suites.get(name)(options)):
            settings.setdefault(setting.name, setting)
    return list(settings.values())


def _listed(entry: Mapping[str, Any]) -> SuiteBuilder:
    """The suite of an entry of ``suites.toml``: a list of settings, or of suites to join."""

    def build(options: SuiteOptions) -> list[Setting]:
        if "join" in entry:
            return _joined(entry["join"], options)
        return [Setting(**fields) for fields in entry["settings"]]

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

    protocol = read_protocol(protocol)
    name = protocol.name
    test = Setting(f"{name}.{TEST}", f"{name}/{TEST}", metric=protocol.metric, protocol=protocol)
    mean: SettingMean | None = None
    if len(protocol.shifts) > 1:
        mean = SettingMean(f"{name}.shifted", tuple(f"{name}.{shift}" for shift in protocol.shifts))
    settings = [test]
    for shift in protocol.shifts:
        settings.append(
            replace(
                test,
                name=f"{name}.{shift}",
                dataset=f"{name}/{shift}",
                reference=test.name,
                optional=True,
                mean=mean,
            )
        )
    return settings


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
#: Settings of the suites below that the testbed does not have.
_OURS = ("imagenet-a.unmasked", "imagenet-r.unmasked")
#: The suites of natural shifts in the testbed.
_NATURAL = (
    "imagenetv2 imagenet-a imagenet-r imagenet-sketch objectnet imagenet-vid-robust ytbb-robust stylized-imagenet"
)


@suite("testbed-213")
def testbed_213(options: SuiteOptions) -> list[Setting]:
    """The 213 settings of the ImageNet testbed: natural shifts, ImageNet-C on disk and in memory, style, attacks."""
    from shiftbench.shifts.attacks.attack import published_attacks  # here, so that no other suite waits for it

    natural = [setting for setting in _joined(_NATURAL.split(), options) if setting.name not in _OURS]
    # A fixed eighth of the classes, to see what fewer classes alone change.
    eighth = Setting("val_subsampled_class_1_8", "imagenet-val", space="imagenet-eighth-125")
    role = "imagenetv2-matched-frequency-format-val"
    settings = [eighth, replace(eighth, name=f"{role}_subsampled_class_1_8", dataset=role, reference=eighth.name)]
    settings.append(Setting("greyscale", "imagenet-val", Greyscale(), reference="val", source="in-memory"))
    # There are 95 settings on disk (19 corruptions) and 90 in memory (without glass_blur).
    for name in corruptions("all"):
        if options.corruptions and name not in options.corruptions:
            continue
        for severity in (1, 2, 3, 4, 5):
            if severity in options.severities:
                settings.append(_testbed_on_disk(name, severity))
                if name != "glass_blur":
                    settings.append(_testbed_in_memory(name, severity, options))
    # Untargeted PGD of 100 steps, as the testbed ran it.
    for name, attack in published_attacks().items():
        settings.append(Setting(name, "imagenet-val", attack, reference="val", note=_ATTACKED, listed=True))
    return [*natural, *optional(settings)]


def _testbed_on_disk(corruption: str, severity: int) -> Setting:
    """A released folder of ImageNet-C, as the testbed evaluated it."""
    return Setting(
        f"imagenet-c.{corruption}.{severity}_on-disk",
        f"imagenet-c/{corruption}/{severity}",
        reference="val",
        source="on-disk",
        note=_ON_DISK,
        member=Member("imagenet-c_on-disk", corruption, severity),
        listed=True,
    )


def _testbed_in_memory(corruption: str, severity: int, options: SuiteOptions) -> Setting:
    """The testbed's own variant of a corruption."""
    corruption_options = {}
    if corruption == "frost" and options.frost_textures:
        corruption_options["frost_textures"] = options.frost_textures
    return Setting(
        f"imagenet-c.{corruption}.{severity}_in-memory",
        "imagenet-val",
        Corruption(f"testbed_{corruption}", severity, corruption_options),
        reference="val",
        source="in-memory",
        note=_IN_MEMORY,
        member=Member("imagenet-c_in-memory", corruption, severity),
        listed=True,
    )
