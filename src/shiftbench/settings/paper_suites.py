"""Suites of several data sets, as the papers group them: val is needed, what else is missing is left out."""

from __future__ import annotations

from collections.abc import Iterable

from shiftbench.settings import natural_suites as sets
from shiftbench.settings import video_suites as videos
from shiftbench.settings.base import Setting, SuiteBuilder, SuiteOptions, optional, suite
from shiftbench.settings.corruption_suites import imagenet_c


def joined(builders: Iterable[SuiteBuilder], options: SuiteOptions) -> list[Setting]:
    """Val, then the settings of these suites, each once."""
    found = {"val": sets.VAL}
    for builder in builders:
        for setting in optional(builder(options)):
            found.setdefault(setting.name, setting)
    return list(found.values())


@suite("natural")
def natural(options: SuiteOptions) -> list[Setting]:
    """Every natural shift of ImageNet: V2, A, R, Sketch, ObjectNet, blurry images and the two video sets."""
    builders = (
        sets.imagenetv2,
        sets.imagenet_a,
        sets.imagenet_r,
        sets.imagenet_sketch,
        sets.objectnet,
        sets.real_blurry_images,
        videos.imagenet_vid_robust,
        videos.ytbb_robust,
    )
    return joined(builders, options)


@suite("many-faces")
def many_faces(options: SuiteOptions) -> list[Setting]:
    """The Many Faces of Robustness on ImageNet: ImageNet-R, Real Blurry Images and ImageNet-C, against val."""
    return joined((sets.imagenet_r, sets.real_blurry_images, imagenet_c), options)


@suite("natural-adversarial")
def natural_adversarial(options: SuiteOptions) -> list[Setting]:
    """Natural Adversarial Examples: ImageNet-A (accuracy, calibration) and ImageNet-O (detection), against val."""
    return joined((sets.imagenet_a, sets.imagenet_o), options)
