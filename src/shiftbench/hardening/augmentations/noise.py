"""Noise as an augmentation: the laws of the corruptions of the same name, with a strength drawn for each image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, cast

import numpy as np
from msgspec import Meta

from shiftbench.arrays import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, image_augmentations
from shiftbench.io.schema import Probability
from shiftbench.shifts.corruptions.noise import gaussian_noise, speckle_noise
from shiftbench.shifts.seeds import Draws, KeyedDraws

NoiseScale = Annotated[float, Meta(gt=0, le=10)]
#: Each scale has a table of its law, of which the corruptions keep 64.
NoiseScales = Annotated[tuple[NoiseScale, ...], Meta(min_length=1, max_length=32)]
#: ImageNet-C's five strengths of speckle noise, which paper 000 trains DeepFashion Remixed with.
SPECKLE_SCALES = (0.15, 0.2, 0.35, 0.45, 0.6)
#: ImageNet-C's five strengths of Gaussian noise.
GAUSSIAN_SCALES = (0.08, 0.12, 0.18, 0.26, 0.38)

_Noise = Callable[[Pixels, tuple[float], Draws], Pixels]


@image_augmentations.register("speckle")
def speckle(
    scales: NoiseScale | NoiseScales = SPECKLE_SCALES, probability: Probability = 0.5, per_channel: bool = True
) -> ImageAugmentation:
    """x + x * N(0, c), the corruption speckle_noise, with c drawn from ``scales``.

    As paper 000 trains DeepFashion Remixed: half of the images, each channel with its own c. Its ImageNet
    classifier, which multiplies by 1 + x everywhere, is ``probability=1, per_channel=False``.
    """
    return _drawn_noise(cast(_Noise, speckle_noise), scales, probability, per_channel)


@image_augmentations.register("gaussian-noise")
def gaussian(
    scales: NoiseScale | NoiseScales = GAUSSIAN_SCALES, probability: Probability = 0.5, per_channel: bool = False
) -> ImageAugmentation:
    """x + N(0, c), the corruption gaussian_noise, with c drawn from ``scales``."""
    return _drawn_noise(cast(_Noise, gaussian_noise), scales, probability, per_channel)


@image_augmentations.register("uniform-noise")
def uniform(strength: Probability = 8 / 255, random_strength: bool = True) -> ImageAugmentation:
    """x + U(-e, e) with e = u * ``strength`` and u ~ U(0, 1) for each image: paper 003's zero-step adversary.

    With ``random_strength=False``, e is always ``strength``. Rounded to grey levels; the training scheme of the
    same purpose adds the noise to real numbers.
    """

    def noisy(image: Pixels, generator: np.random.Generator) -> Pixels:
        limit = 255 * strength * (generator.random() if random_strength else 1)
        values = generator.random(image.shape, dtype=np.float32)
        values *= 2 * limit
        values += image - np.float32(limit)
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)

    return noisy


def _drawn_noise(
    noise: _Noise, scales: float | tuple[float, ...], probability: float, per_channel: bool
) -> ImageAugmentation:
    choices = scales if isinstance(scales, tuple) else (scales,)

    def noisy(image: Pixels, generator: np.random.Generator) -> Pixels:
        if generator.random() >= probability:
            return image.copy()
        if not per_channel:
            return noise(np.ascontiguousarray(image), _drawn(choices, generator), _draws(generator))
        channels = [np.ascontiguousarray(image[:, :, channel]) for channel in range(image.shape[2])]
        return np.stack([noise(each, _drawn(choices, generator), _draws(generator)) for each in channels], axis=2)

    return noisy


def _drawn(choices: tuple[float, ...], generator: np.random.Generator) -> tuple[float]:
    return (choices[generator.integers(len(choices))],)


def _draws(generator: np.random.Generator) -> Draws:
    """A stream of the corruptions' own kind, named by the generator: the quick way to the very same law."""
    first, second = generator.integers(0, 2**64, 2, dtype=np.uint64)
    return KeyedDraws((int(first), int(second)))
