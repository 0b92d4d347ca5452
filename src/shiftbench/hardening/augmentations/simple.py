"""Augmentations of single images.

Every recipe begins with flips and crops. Random erasing (Zhong et al. 2020) and Cutout (DeVries and Taylor 2017)
overwrite a part of an image. Noise follows the laws of the corruptions of the same name, with a strength drawn for each
image. The others come from libraries: policies of timm, transforms of torchvision, CLAHE.

torchvision has flips, crops and erasing, too, but draws from torch's global generator. Here the generator of each image
decides, so that its augmentation depends on seed, epoch and image alone.
"""

from __future__ import annotations

import importlib
import math
import random
import threading
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, cast

import cv2
import numpy as np
from msgspec import Meta
from PIL import Image

from shiftbench.errors import UnknownNameError
from shiftbench.extend.classifiers import Clahe, import_torchvision, kept_random_state
from shiftbench.extend.options import Positive, Probability
from shiftbench.extend.shifts import Draws, KeyedDraws, gaussian_noise, speckle_noise
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, Ratio, Share, ascending, image_augmentations
from shiftbench.hardening.errors import AugmentationError
from shiftbench.hardening.recipe import timm_part

#: Number of random windows that may fail to fit, before the middle of the image is taken.
_TRIES = 10
#: timm and torchvision draw from the generators of the process, which are set for each image and put back. The lock
#: keeps other threads from drawing meanwhile.
_drawing = threading.Lock()


@image_augmentations.register("flip")
def flip(probability: Probability = 0.5) -> ImageAugmentation:
    """Left and right swapped, in half of the cases."""

    def flipped(image: Pixels, generator: np.random.Generator) -> Pixels:
        if generator.random() >= probability:
            return image.copy()
        return np.asarray(cv2.flip(image, 1), np.uint8)

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
        window = random_window(height, width, scale, ratio, generator)
        cropped = Image.fromarray(np.ascontiguousarray(image[window.slices()]))
        target = (width, height) if size is None else (size, size)
        return np.array(cropped.resize(target, Image.Resampling.BILINEAR))

    return resized


class Window(NamedTuple):
    """A rectangle within an image."""

    top: int
    left: int
    height: int
    width: int

    def slices(self) -> tuple[slice, slice]:
        return slice(self.top, self.top + self.height), slice(self.left, self.left + self.width)


def _placed(rows: int, columns: int, height: int, width: int, generator: np.random.Generator) -> Window:
    """A window of rows x columns pixels at a random position within an image."""
    top = int(generator.integers(height - rows + 1))
    left = int(generator.integers(width - columns + 1))
    return Window(top, left, rows, columns)


def random_window(
    height: int, width: int, areas: tuple[float, float], shapes: tuple[float, float], generator: np.random.Generator
) -> Window:
    """A window of random area and shape within an image."""
    logs = math.log(shapes[0]), math.log(shapes[1])
    for _ in range(_TRIES):
        area = height * width * generator.uniform(*areas)
        shape = math.exp(generator.uniform(*logs))
        rows = round(math.sqrt(area / shape))
        columns = round(math.sqrt(area * shape))
        if 0 < rows <= height and 0 < columns <= width:
            return _placed(rows, columns, height, width, generator)
    # The largest window of an allowed shape is taken from the middle.
    shape = min(max(width / height, shapes[0]), shapes[1])
    rows = max(min(height, round(width / shape)), 1)
    columns = max(min(width, round(height * shape)), 1)
    return Window((height - rows) // 2, (width - columns) // 2, rows, columns)


# Erased parts

_Level = Annotated[float, Meta(ge=0, le=255)]
#: A grey level, or red, green and blue.
Colour = _Level | Annotated[tuple[_Level, ...], Meta(min_length=3, max_length=3)]
#: CIFAR-10's mean colour. The published code of both fills with it, by setting normalised pixels to zero.
CIFAR_MEAN = (125, 123, 114)
#: Number of boxes that may fail to fit before the image stays as it is.
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
    colour = None if fill == "random" else np.array(fill, np.uint8)
    shapes = aspect
    if log_aspect:
        shapes = (math.log(aspect[0]), math.log(aspect[1]))

    def erased(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        if generator.random() >= probability:
            return out
        height, width = image.shape[:2]
        for _ in range(_ERASING_TRIES):
            pixels = height * width * generator.uniform(*area)
            shape = generator.uniform(*shapes)
            if log_aspect:
                shape = math.exp(shape)
            rows = round(math.sqrt(pixels * shape))
            columns = round(math.sqrt(pixels / shape))
            if 0 < rows < height and 0 < columns < width:
                box = out[_placed(rows, columns, height, width, generator).slices()]
                if colour is None:
                    box[:] = generator.integers(0, 256, box.shape, dtype=np.uint8)
                else:
                    box[:] = colour
                break
        return out

    return erased


@image_augmentations.register("cutout")
def cutout(size: Annotated[int, Meta(ge=1, le=16384)] = 16, fill: Colour = CIFAR_MEAN) -> ImageAugmentation:
    """A square of ``size`` pixels overwritten with one colour, 16 on 32-pixel images.

    Its centre is any pixel, so that a part of it, at a corner three quarters, may fall outside.
    """
    colour = np.array(fill, np.uint8)

    def cut(image: Pixels, generator: np.random.Generator) -> Pixels:
        out = image.copy()
        height, width = image.shape[:2]
        top = int(generator.integers(height)) - size // 2
        left = int(generator.integers(width)) - size // 2
        out[max(top, 0) : max(top + size, 0), max(left, 0) : max(left + size, 0)] = colour
        return out

    return cut


# Noise

NoiseScale = Annotated[float, Meta(gt=0, le=10)]
#: The corruptions cache a table for each scale, 64 in all, so the number of scales is limited.
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
    """Noise of a random scale on a share of the images, the same for all channels or drawn for each."""
    choices = scales if isinstance(scales, tuple) else (scales,)

    def once(pixels: Pixels, generator: np.random.Generator) -> Pixels:
        scale = (choices[generator.integers(len(choices))],)
        # The corruptions' own random numbers, seeded by the generator, are the quick way to exactly the same law.
        first, second = generator.integers(0, 2**64, 2, dtype=np.uint64)
        return noise(np.ascontiguousarray(pixels), scale, KeyedDraws((int(first), int(second))))

    def noisy(image: Pixels, generator: np.random.Generator) -> Pixels:
        if generator.random() >= probability:
            return image.copy()
        if not per_channel:
            return once(image, generator)
        return np.stack([once(image[:, :, channel], generator) for channel in range(image.shape[2])], axis=2)

    return noisy


# Augmentations of other libraries


@image_augmentations.register("auto-augment")
def auto_augment(policy: str = "rand-m9-mstd0.5-inc1") -> ImageAugmentation:
    """A policy of timm: RandAugment (rand-m9-mstd0.5), AutoAugment (original, v0), 3-Augment (3a)."""
    module = timm_part("data.auto_augment")
    factories = {"rand": module.rand_augment_transform, "augmix": module.augment_and_mix_transform}
    factory = factories.get(policy.split("-")[0], module.auto_augment_transform)
    try:
        transform = factory(policy, {})
    except (AssertionError, KeyError, ValueError, IndexError) as error:
        raise AugmentationError("unknown policy", found=policy, expected="as timm's --aa: rand-m9-mstd0.5") from error
    return _seeded(transform)


@image_augmentations.register("torchvision")
def of_torchvision(transform: str = "TrivialAugmentWide", options: dict[str, Any] | None = None) -> ImageAugmentation:
    """A transform of torchvision.transforms.v2 by its class: TrivialAugmentWide, AutoAugment, RandomErasing, ..."""
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    transform_class = getattr(v2, transform, None)
    if not isinstance(transform_class, type) or not issubclass(transform_class, v2.Transform):
        class_names = [name for name in dir(v2) if isinstance(getattr(v2, name), type)]
        raise UnknownNameError("transform of torchvision", transform, class_names)
    try:
        return _seeded(transform_class(**(options or {})))
    except (TypeError, ValueError) as error:
        raise AugmentationError(f"invalid options of {transform}", found=str(error)) from error


@image_augmentations.register("clahe")
def clahe(clip: Positive = 2.0, tiles: Annotated[int, Meta(ge=1, le=64)] = 8) -> ImageAugmentation:
    """Contrast limited adaptive histogram equalisation of the lightness (002); nothing is random."""
    equalise = Clahe(clip, tiles)
    return lambda image, generator: equalise(image[None])[0]


def _seeded(transform: Any) -> ImageAugmentation:
    """An augmentation from a transform that draws from the generators of the process."""

    def augmented(image: Pixels, generator: np.random.Generator) -> Pixels:
        import torch

        seed = int(generator.integers(2**32))
        with _drawing, kept_random_state():
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            torch.manual_seed(seed)
            return np.array(transform(Image.fromarray(np.ascontiguousarray(image))), np.uint8)

    return augmented
