"""Settings on images as they are: your own data, ImageNet val and the sets that share its classes."""

from __future__ import annotations

from shiftbench.settings.base import Setting, SuiteOptions, suite


@suite("clean")
def own_data(options: SuiteOptions) -> list[Setting]:
    """Your own data set as it is."""
    return [Setting(options.data_name, "data")]


@suite("imagenet")
def imagenet(options: SuiteOptions) -> list[Setting]:
    """ImageNet val, all 1,000 classes."""
    return [Setting("val", "imagenet-val")]


@suite("imagenet-a")
def imagenet_a(options: SuiteOptions) -> list[Setting]:
    """ImageNet-A over its 200 classes and over all 1,000, against val on the same classes."""
    return _two_hundred("imagenet-a")


@suite("imagenet-r")
def imagenet_r(options: SuiteOptions) -> list[Setting]:
    """ImageNet-R over its 200 classes and over all 1,000, against val on the same classes."""
    return _two_hundred("imagenet-r")


def _two_hundred(name: str) -> list[Setting]:
    """Masked: scores restricted to the 200 classes first, as published. Unmasked: all 1,000 compete."""
    reference = f"val-on-{name}-classes"
    return [
        Setting(reference, "imagenet-val", space=f"{name}-200", optional=True),
        Setting(name, name, space=f"{name}-200", reference=reference),
        Setting(f"{name}.unmasked", name, space="imagenet-1k", reference="val"),
    ]
