"""Augmentations of single images: flips and crops, what every recipe begins with; parts taken away by random erasing
(Zhong et al. 2020) and Cutout (DeVries and Taylor 2017); noise by the laws of the corruptions of the same name, with a
strength drawn for each image; and those of other libraries: policies of timm, transforms of torchvision, CLAHE.
"""

from __future__ import annotations

import importlib
import math
import random
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

import cv2
import numpy as np
from msgspec import Meta
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.classifiers.defences import Clahe
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.errors import UnknownNameError
from shiftbench.hardening.augmentations.base import ImageAugmentation, Ratio, Share, ascending, image_augmentations
from shiftbench.hardening.errors import AugmentationError
from shiftbench.hardening.recipe import timm_part
from shiftbench.integrations.training_state import kept_random_state
from shiftbench.io.schema import Positive, Probability
from shiftbench.shifts.corruptions.noise import gaussian_noise, speckle_noise
from shiftbench.shifts.seeds import Draws, KeyedDraws

#: How often a box of a drawn area and shape may fail to fit, before the middle of the image is taken.
_TRIES = 10
# timm and torchvision draw from the generators of the process; these are set for each image and put back.
_drawing = threading.Lock()


@image_augmentations.register("flip")
def flip(probability: Probability = 0.5) -> ImageAugmentation:
    """Left and right swapped, in half of the cases."""

    def flipped(image: Pixels, generator: np.random.Generator) -> Pixels:
        return np.asarray(cv2.flip(image, 1), np.uint8) if generator.random() < probability else image.copy()

    return flipped


@image_augmentations.register("crop")
def crop(padding: Annotated[int, Meta(ge=0, le=4096)] = 4) -> ImageAugmentation:
    """A black border of ``padding`` pixels, then a random window of the old size: the custom of 32-pixel images."""

    def cropped(image: Pixels, generator: np.random.Generator) -> Pixels:
        height, width = image.shape[:2]
        padded = np.zeros((height + 2 * padding, width + 2 * padding, 3), np.uint8)
        padded[padding : padding + height, padding : padding + width] = image
        top, left = generator.integers(0, 2 * padding + 1, 2)
        return np.ascontiguousarray(padded[top : top + height, left : left + width])

    return cropped


@image_augmentations.register("resized-crop")
def resized_crop(
    size: Annotated[int, Meta(ge=1, le=16384)] | None = None,
    scale: tuple[Ratio, Ratio] = (0.08, 1.0),
    ratio: tuple[Ratio, Ratio] = (3 / 4, 4 / 3),
) -> ImageAugmentation:
    """A window of random area and shape, resized: the custom of ImageNet.

    The area is uniform over ``scale`` of the image's, the logarithm of width / height uniform over ``ratio``;
    a window that never fits (an area above 1 never does) gives the middle. ``size`` is the side of the result, by
    default that of the image.
    """
    ascending("scale", scale)
    ascending("ratio", ratio)

    def resized(image: Pixels, generator: np.random.Generator) -> Pixels:
        height, width = image.shape[:2]
        top, left, rows, columns = random_window(height, width, scale, ratio, generator)
        window = Image.fromarray(np.ascontiguousarray(image[top : top + rows, left : left + columns]))
        target = (width, height) if size is None else (size, size)
        return np.array(window.resize(target, Image.Resampling.BILINEAR))

    return resized


def random_window(
    height: int, width: int, areas: tuple[float, float], shapes: tuple[float, float], generator: np.random.Generator
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a window within an image."""
    logs = math.log(shapes[0]), math.log(shapes[1])
    for _ in range(_TRIES):
        area = height * width * generator.uniform(*areas)
        shape = math.exp(generator.uniform(*logs))
        rows, columns = round(math.sqrt(area / shape)), round(math.sqrt(area * shape))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
            return int(top), int(left), rows, columns
    # The largest window of an allowed shape, in the middle.
    shape = min(max(width / height, shapes[0]), shapes[1])
    rows, columns = min(height, round(width / shape)), min(width, round(height * shape))
    rows, columns = max(rows, 1), max(columns, 1)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


# Parts taken away

_Level = Annotated[float, Meta(ge=0, le=255)]
#: A grey level, or red, green and blue.
Colour = _Level | Annotated[tuple[_Level, ...], Meta(min_length=3, max_length=3)]
#: CIFAR-10's mean colour: what the published code of both fills with, by setting normalised pixels to zero.
CIFAR_MEAN = (125, 123, 114)
#: Boxes that may fail to fit before the image stays as it is.
_ERASING_TRIES = 100


@image_augmentations.register("erase")
def erase(
    probability: Probability = 0.5,
    area: tuple[Share, Share] = (0.02, 0.4),
    aspect: tuple[Ratio, Ratio] = (0.3, 1 / 0.3),
    fill: Literal["random"] | Colour = "random",
    log_aspect: bool = False,
) -> ImageAugmentation:
    """One rectangle overwritten: its share of the image uniform over ``area``, height / width over ``aspect``.

    ``fill`` is "random", a value for each pixel (the best of the paper's four), or a colour. ``log_aspect``: the
    logarithm of height / width is uniform, as in torchvision.
    """
    ascending("area", area)
    ascending("aspect", aspect)
    paint = None if fill == "random" else np.array(fill, np.uint8)
    shapes = (math.log(aspect[0]), math.log(aspect[1])) if log_aspect else aspect

    def erased(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        if generator.random() >= probability:
            return out
        height, width = image.shape[:2]
        for _ in range(_ERASING_TRIES):
            pixels, shape = height * width * generator.uniform(*area), generator.uniform(*shapes)
            shape = math.exp(shape) if log_aspect else shape
            rows, columns = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
            if 0 < rows < height and 0 < columns < width:
                top, left = generator.integers(height - rows + 1), generator.integers(width - columns + 1)
                box = out[top : top + rows, left : left + columns]
                box[:] = generator.integers(0, 256, box.shape, dtype=np.uint8) if paint is None else paint
                break
        return out

    return erased


@image_augmentations.register("cutout")
def cutout(size: Annotated[int, Meta(ge=1, le=16384)] = 16, fill: Colour = CIFAR_MEAN) -> ImageAugmentation:
    """A square of ``size`` pixels overwritten with one colour, 16 on 32-pixel images.

    Its centre is any pixel, so that a part of it, at a corner three quarters, may fall outside.
    """
    paint = np.array(fill, np.uint8)

    def cut(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        top, left = (int(generator.integers(length)) - size // 2 for length in image.shape[:2])
        out[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = paint
        return out

    return cut


# Noise

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

    As paper 000 trains DeepFashion Remixed: half of the images, each channel with its own c. Its ImageNet model, that
    of Rusak et al. (2020), has one c per image: ``per_channel=False``.
    """
    return _drawn_noise(cast(_Noise, speckle_noise), scales, probability, per_channel)


@image_augmentations.register("gaussian-noise")
def gaussian(
    scales: NoiseScale | NoiseScales = GAUSSIAN_SCALES, probability: Probability = 0.5, per_channel: bool = False
) -> ImageAugmentation:
    """x + N(0, c), the corruption gaussian_noise, with c drawn from ``scales``."""
    return _drawn_noise(cast(_Noise, gaussian_noise), scales, probability, per_channel)


def _drawn_noise(
    noise: _Noise, scales: float | tuple[float, ...], probability: float, per_channel: bool
) -> ImageAugmentation:
    choices = scales if isinstance(scales, tuple) else (scales,)

    def once(pixels: Pixels, generator: np.random.Generator) -> Pixels:
        scale = (choices[generator.integers(len(choices))],)
        # A stream of the corruptions' own kind, named by the generator: the quick way to the very same law.
        first, second = generator.integers(0, 2**64, 2, dtype=np.uint64)
        return noise(np.ascontiguousarray(pixels), scale, KeyedDraws((int(first), int(second))))

    def noisy(image: Pixels, generator: np.random.Generator) -> Pixels:
        if generator.random() >= probability:
            return image.copy()
        if not per_channel:
            return once(image, generator)
        return np.stack([once(image[:, :, channel], generator) for channel in range(image.shape[2])], axis=2)

    return noisy


# Of other libraries


@image_augmentations.register("auto-augment")
def auto_augment(policy: str = "rand-m9-mstd0.5-inc1") -> ImageAugmentation:
    """A policy of timm: RandAugment (rand-m9-mstd0.5), AutoAugment (original, v0), 3-Augment (3a)."""
    makers = timm_part("data.auto_augment")
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
    equalise = Clahe(clip, tiles)
    return lambda image, generator: equalise(image[None])[0]


def _seeded(transform: Any) -> ImageAugmentation:
    def augmented(image: Pixels, generator: np.random.Generator) -> Pixels:
        import torch

        seed = int(generator.integers(2**32))
        with _drawing, kept_random_state():
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            return np.array(transform(Image.fromarray(np.ascontiguousarray(image))), np.uint8)

    return augmented
