"""AugMix (Hendrycks et al. 2020): several chains of simple operations, mixed with each other and with the image.

    mixture = (1 - m) * image + m * sum of w[i] * chain[i](image)
    w ~ Dirichlet(alpha, .., alpha), m ~ Beta(alpha, alpha)

The published code mixes normalised pixels; the weights sum to one, so mixing pixels is the same, up to the rounding
to grey levels here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.augmix_operations import (
    GEOMETRIC,
    MAX_LEVEL,
    OPERATIONS,
    WITHHELD,
    Operation,
    filled,
)
from shiftbench.hardening.augmentations.base import Concentration, ImageAugmentation, image_augmentations
from shiftbench.hardening.errors import AugmentationError
from shiftbench.native import kernel

#: The least level that is drawn.
MIN_LEVEL = 0.1
#: The most operations of a chain of random length.
MAX_DEPTH = 3


@image_augmentations.register("augmix")
def augmix(
    severity: Annotated[float, Meta(ge=MIN_LEVEL, le=MAX_LEVEL)] = 3,
    width: Annotated[int, Meta(ge=1, le=100)] = 3,
    depth: Annotated[int, Meta(ge=-1, le=100)] = -1,
    alpha: Concentration = 1.0,
    all_operations: bool = False,
    fill: Annotated[int, Meta(ge=0, le=255)] = 0,
) -> ImageAugmentation:
    """``width`` chains, each of ``depth`` operations (-1: one to three), levels U(0.1, ``severity``).

    Severity is 3 for CIFAR and 1 for ImageNet. ``all_operations`` adds colour, contrast, brightness and sharpness,
    which overlap the corruptions of ImageNet-C. ``fill`` is the grey level of what rotating, shearing and moving
    uncover. Paper 000 on DeepFashion Remixed: severity 10, width 5, all operations, fill 128.
    """
    if depth == 0:
        raise AugmentationError("invalid option 'depth'", found=depth, expected="-1, or at least 1")
    chosen = {**OPERATIONS, **WITHHELD} if all_operations else OPERATIONS
    return AugMix(
        severity=severity,
        width=width,
        depth=None if depth == -1 else depth,
        alpha=alpha,
        operations=[filled(one, fill) if fill and one in GEOMETRIC else one for one in chosen.values()],
    )


class AugMix:
    """See ``augmix``. ``depth`` None draws the length of each chain.

    Every call with the same generator is a further, independent mixture: the Jensen-Shannon loss takes two.
    """

    def __init__(
        self, *, severity: float, width: int, depth: int | None, alpha: float, operations: Sequence[Operation]
    ) -> None:
        self.severity, self.width, self.depth, self.alpha = severity, width, depth, alpha
        self.operations = tuple(operations)

    def __call__(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        image = np.ascontiguousarray(image)
        weights = generator.dirichlet([self.alpha] * self.width)
        share = float(generator.beta(self.alpha, self.alpha))
        chains = np.stack([self.chain(image, generator) for _ in range(self.width)])
        out = np.empty_like(image)
        _mixture(image.reshape(-1), chains.reshape(len(chains), -1), weights * share, 1 - share, out.reshape(-1))
        return out

    def chain(self, image: Pixels, generator: np.random.Generator) -> Pixels:
        """One chain of operations, drawn with replacement, each with its own level and sign."""
        length = self.depth or int(generator.integers(1, MAX_DEPTH + 1))
        for which in generator.integers(len(self.operations), size=length):
            level = generator.uniform(MIN_LEVEL, self.severity)
            sign = 1 if generator.random() < 0.5 else -1
            image = self.operations[which](image, level, sign)
        return image


@kernel
def _mixture(image: Pixels, chains: Pixels, weights: NDArray[np.float64], clean: float, out: Pixels) -> None:
    """clean * image + the weighted chains, rounded to the nearest level; an image is a flat row."""
