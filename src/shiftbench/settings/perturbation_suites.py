"""Perturbation sequences: every frame is a setting, and flips are counted between them."""

from __future__ import annotations

from shiftbench.settings.base import Member, Setting, SuiteOptions, suite
from shiftbench.shifts.frames import frames_of
from shiftbench.shifts.perturbations import perturbations


def sequence_settings(prefix: str, role: str, reference: str, names: list[str]) -> list[Setting]:
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
        for name in names
        for frame in frames_of(name)
    ]


@suite("imagenet-p")
def imagenet_p(options: SuiteOptions) -> list[Setting]:
    """ImageNet-P: 10 perturbation sequences of ImageNet val at difficulty 1 (flip probability)."""
    names = list(options.corruptions) or perturbations("test")
    return sequence_settings("imagenet-p", "imagenet-val", "val", names)


@suite("perturbations")
def own_data_perturbed(options: SuiteOptions) -> list[Setting]:
    """Your own data set as perturbation sequences of 31 frames (flip probability)."""
    names = list(options.corruptions) or perturbations("test")
    return sequence_settings(f"{options.data_name}-p", "data", options.data_name, names)
