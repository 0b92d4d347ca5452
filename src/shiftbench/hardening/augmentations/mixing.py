"""Two images of a batch made into one, labels included: Mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019)."""

from __future__ import annotations

import math

import numpy as np
import torch

from shiftbench.hardening.augmentations.base import BatchAugmentation, Concentration, batch_augmentations
from shiftbench.io.schema import Probability


@batch_augmentations.register("mixup")
def mixup(alpha: Concentration = 1.0, probability: Probability = 1.0) -> BatchAugmentation:
    """share * x + (1 - share) * x of another image, and the same of the targets; share ~ Beta(alpha, alpha).

    One share and one permutation for a batch. ``alpha``: 1 for CIFAR, 0.2 for ImageNet.
    """

    def mixed(
        images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = numpy_generator(generator)
        if numbers.random() >= probability:
            return images, targets
        share = float(numbers.beta(alpha, alpha))
        others = _others(images, numbers)
        return torch.lerp(images[others], images, share), torch.lerp(targets[others], targets, share)

    return mixed


@batch_augmentations.register("cutmix")
def cutmix(alpha: Concentration = 1.0, probability: Probability = 0.5) -> BatchAugmentation:
    """A box of another image pasted in; the targets are mixed by the area that is really seen of each.

    The box has the image's shape and a share 1 - s of its area, s ~ Beta(alpha, alpha), around a uniform centre;
    what falls outside is lost. ``probability``: 0.5 for CIFAR, 1 for ImageNet.
    """

    def mixed(
        images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        numbers = numpy_generator(generator)
        if numbers.random() >= probability:
            return images, targets
        side = math.sqrt(1 - numbers.beta(alpha, alpha))
        height, width = images.shape[-2:]
        top, bottom = _stretch(height, side, numbers)
        left, right = _stretch(width, side, numbers)
        others = _others(images, numbers)
        out = images.clone()
        out[..., top:bottom, left:right] = images[others, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / (height * width)
        return out, torch.lerp(targets[others], targets, kept)

    return mixed


@batch_augmentations.register("mixup-cutmix")
def mixup_or_cutmix(
    mixup_alpha: Concentration = 0.8,
    cutmix_alpha: Concentration = 1.0,
    probability: Probability = 1.0,
    switch: Probability = 0.5,
) -> BatchAugmentation:
    """Mixup, or with the probability ``switch`` CutMix, drawn for each batch; the defaults are DeiT's."""
    kinds = mixup(mixup_alpha, probability), cutmix(cutmix_alpha, probability)

    def mixed(
        images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return kinds[numpy_generator(generator).random() < switch](images, targets, generator)

    return mixed


def numpy_generator(generator: torch.Generator) -> np.random.Generator:
    """NumPy's distributions (torch draws no Beta from a generator), named by the next number of torch's."""
    word = torch.randint(2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    return np.random.default_rng(int(word))


def _stretch(length: int, side: float, numbers: np.random.Generator) -> tuple[int, int]:
    """Where a box begins and ends along one axis, cut off at the edges."""
    cut, centre = int(length * side), int(numbers.integers(length))
    return max(centre - cut // 2, 0), min(centre + cut // 2, length)


def _others(images: torch.Tensor, numbers: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(numbers.permutation(len(images))).to(images.device)
