"""Augmentations of other libraries: policies of timm, transforms of torchvision, OpenCV's CLAHE.

timm and torchvision draw from global generators; these are set for each image and put back.
"""

from __future__ import annotations

import importlib
import random
from typing import Annotated, Any

import cv2
import numpy as np
from msgspec import Meta
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.classifiers.zoo import import_timm, import_torchvision
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.hardening.errors import AugmentationError
from shiftbench.integrations.training_state import kept_random_state
from shiftbench.io.schema import Positive


@image_augmentations.register("auto-augment")
def auto_augment(policy: str = "rand-m9-mstd0.5-inc1") -> ImageAugmentation:
    """A policy of timm: RandAugment (rand-m9-mstd0.5), AutoAugment (original, v0), 3-Augment (3a)."""
    import_timm()
    makers = importlib.import_module("timm.data.auto_augment")
    make = {"rand": makers.rand_augment_transform, "augmix": makers.augment_and_mix_transform}
    try:
        made = make.get(policy.split("-")[0], makers.auto_augment_transform)(policy, {})
    except (AssertionError, KeyError, ValueError, IndexError) as error:
        raise AugmentationError("unknown policy", found=policy, expected="as timm's --aa: rand-m9-mstd0.5") from error
    return _seeded(made)


@image_augmentations.register("torchvision")
def of_torchvision(transform: str = "TrivialAugmentWide", options: dict[str, Any] | None = None) -> ImageAugmentation:
    """A transform of torchvision.transforms.v2 by its class: TrivialAugmentWide, AutoAugment, RandomErasing, ..."""
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    found = getattr(v2, transform, None)
    if not isinstance(found, type) or not issubclass(found, v2.Transform):
        known = [name for name in dir(v2) if isinstance(getattr(v2, name), type)]
        raise UnknownNameError("transform of torchvision", transform, known)
    try:
        return _seeded(found(**(options or {})))
    except (TypeError, ValueError) as error:
        raise AugmentationError(f"invalid options of {transform}", found=str(error)) from error


@image_augmentations.register("clahe")
def clahe(clip: Positive = 2.0, tiles: Annotated[int, Meta(ge=1, le=64)] = 8) -> ImageAugmentation:
    """Contrast limited adaptive histogram equalisation of the lightness (002); nothing is random."""
    equalise = cv2.createCLAHE(clip, (tiles, tiles))

    def equalised(image: Pixels, generator: np.random.Generator) -> Pixels:
        lab = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2LAB)
        lab[..., 0] = equalise.apply(np.ascontiguousarray(lab[..., 0]))
        return np.asarray(cv2.cvtColor(lab, cv2.COLOR_LAB2RGB), np.uint8)

    return equalised


def _seeded(transform: Any) -> ImageAugmentation:
    def augmented(image: Pixels, generator: np.random.Generator) -> Pixels:
        import torch

        seed = int(generator.integers(2**32))
        with kept_random_state():
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            return np.array(transform(Image.fromarray(np.ascontiguousarray(image))), np.uint8)

    return augmented
