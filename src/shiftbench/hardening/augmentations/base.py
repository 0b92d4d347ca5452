"""Two kinds of augmentation, each a small callable registered under the name that recipes and the CLI use.

An image augmentation sees one picture and a generator that belongs to (seed, epoch, image) alone, so that the
order of the work and the number of workers change nothing. A batch augmentation sees a batch as tensors, with the
targets as probabilities, because mixing two pictures mixes their labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.registry import Registry

if TYPE_CHECKING:
    import torch


class ImageAugmentation(Protocol):
    """uint8 RGB (H, W, 3) in, uint8 RGB of the same size out. The input is not changed."""

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels: ...


class BatchAugmentation(Protocol):
    """Images (N, 3, H, W) in [0, 1] and targets (N, classes) that sum to one; both come back, mixed."""

    def __call__(
        self, images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]: ...


#: Factories: the options of a recipe's table are their keyword arguments.
image_augmentations: Registry[Callable[..., ImageAugmentation]] = Registry(
    "image augmentation",
    builtin=(
        "shiftbench.hardening.augmentations.geometry",
        "shiftbench.hardening.augmentations.noise",
        "shiftbench.hardening.augmentations.erasing",
        "shiftbench.hardening.augmentations.augmix",
        "shiftbench.hardening.augmentations.deepaugment.augmentation",
        "shiftbench.hardening.augmentations.stylizing",
    ),
)
batch_augmentations: Registry[Callable[..., BatchAugmentation]] = Registry(
    "batch augmentation",
    builtin=("shiftbench.hardening.augmentations.mixing", "shiftbench.hardening.augmentations.noise2net"),
)


def make_image_augmentation(name: str, **options: Any) -> ImageAugmentation:
    return image_augmentations.get(name)(**options)


def make_batch_augmentation(name: str, **options: Any) -> BatchAugmentation:
    return batch_augmentations.get(name)(**options)
