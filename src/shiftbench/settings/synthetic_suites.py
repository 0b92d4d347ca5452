"""Corruptions (ImageNet-C and others), perturbation sequences (ImageNet-P) and attacks, also on a user's own data.

Every frame of a perturbation sequence is a setting, and flips are counted between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from shiftbench.settings.base import Member, Setting, SuiteBuilder, SuiteOptions, suite
from shiftbench.shifts.base import Shift
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions import Corruption, corruptions
from shiftbench.shifts.perturbations import frames_of, perturbations


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
                own = {"frost_textures": options.frost_textures} if name == "frost" and options.frost_textures else {}
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
    from shiftbench.shifts.attacks import ATTACKS  # other suites do without

    return _attacked(options, list(ATTACKS.values()))


@suite("autoattack")
def own_data_under_autoattack(options: SuiteOptions) -> list[Setting]:
    """Your own dataset, clean and under AutoAttack (L-infinity, L2); slow, needs shiftbench[attacks]."""
    from shiftbench.shifts.attacks import AutoAttack

    return _attacked(
        options, [AutoAttack("autoattack.linf.eps2", "linf", 2 / 255), AutoAttack("autoattack.l2.eps0.5", "l2", 0.5)]
    )
