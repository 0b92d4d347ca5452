"""Two kinds of augmentation, each a small callable registered under the name that recipes and the CLI use.

An image augmentation sees one image and a generator that belongs to (seed, epoch, image) alone, so that the
order of the work and the number of workers change nothing. A batch augmentation sees a batch as tensors, with the
targets as probabilities, because mixing two images mixes their labels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import numpy as np
from msgspec import Meta

from shiftbench.extend.options import check_options
from shiftbench.extend.registration import Registry
from shiftbench.extend.shifts import derive_key
from shiftbench.extend.types import Pixels
from shiftbench.hardening.errors import AugmentationError

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


#: Factories of augmentations: the options of a recipe's table are their keyword arguments.
image_augmentations: Registry[Callable[..., ImageAugmentation]] = Registry(
    "image augmentation",
    builtin=(
        "shiftbench.hardening.augmentations.simple",
        "shiftbench.hardening.augmentations.augmix",
        "shiftbench.hardening.augmentations.deepaugment.augmentation",
        "shiftbench.hardening.augmentations.stylize",
    ),
)
batch_augmentations: Registry[Callable[..., BatchAugmentation]] = Registry(
    "batch augmentation", builtin=("shiftbench.hardening.augmentations.mixing",)
)


def make_image_augmentation(name: str, **options: object) -> ImageAugmentation:
    """An augmentation of single images by its name.

    Args:
        name: The name that tables and provenance show.
        options: Its options.
    """
    factory = image_augmentations.get(name)
    checked = check_options(options, factory, f"the augmentation {name!r}", AugmentationError)
    return partial(_augment_colours, name, factory(**checked))


def _augment_colours(name: str, augment: ImageAugmentation, image: Pixels, generator: np.random.Generator) -> Pixels:
    # The C code of some augmentations would read and write beyond the end of any other array.
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        found = f"an array of {image.dtype} {image.shape}"
        raise AugmentationError(f"{name!r} augments colour images", found=found, expected="uint8 (H, W, 3)")
    return augment(image, generator)


def make_batch_augmentation(name: str, **options: object) -> BatchAugmentation:
    """An augmentation of batches by its name.

    Args:
        name: The name that tables and provenance show.
        options: Its options.
    """
    factory = batch_augmentations.get(name)
    return factory(**check_options(options, factory, f"the augmentation {name!r}", AugmentationError))


#: A share of an image's area.
Share = Annotated[float, Meta(gt=0, le=1)]
#: A ratio of an image's sides.
Ratio = Annotated[float, Meta(gt=0, le=100)]
#: The concentration of a Beta or Dirichlet distribution.
Concentration = Annotated[float, Meta(gt=0, le=1000)]


def ascending(option: str, values: tuple[float, float]) -> None:
    """Raises if the two ends of a range are in the wrong order."""
    if values[0] > values[1]:
        raise AugmentationError(f"invalid range {option!r}", found=values, expected="two numbers, the lower one first")


def stream(seed: int, *parts: str | int) -> np.random.Generator:
    """Numbers that belong to (seed, parts) alone, on every machine and in any order.

    >>> float(stream(0, "cat.jpg", 1).random()) == float(stream(0, "cat.jpg", 1).random())
    True
    """
    return np.random.Generator(np.random.Philox(key=np.array(derive_key(seed, *parts), np.uint64)))


# Descriptions, for listings


@dataclass(frozen=True)
class AugmentationInfo:
    """An augmentation for listings, with its options and their defaults; an option without a default has None."""

    name: str
    kind: Literal["image", "batch"]
    about: str
    options: dict[str, Any]

    def options_in_words(self) -> str:
        return ", ".join(f"{key}={in_words(value)}" for key, value in self.options.items()) or "no options"


def list_augmentations() -> list[AugmentationInfo]:
    """All registered augmentations, those of plugins included: first those of images, then those of batches."""
    listing = [_describe(name, "image", factory) for name, factory in image_augmentations]
    listing += [_describe(name, "batch", factory) for name, factory in batch_augmentations]
    return listing


def _describe(name: str, kind: Literal["image", "batch"], factory: Callable[..., object]) -> AugmentationInfo:
    options = {}
    for parameter in inspect.signature(factory).parameters.values():
        options[parameter.name] = None if parameter.default is parameter.empty else parameter.default
    about = (inspect.getdoc(factory) or "").split("\n")[0].replace("``", "")
    return AugmentationInfo(name, kind, about, options)


def in_words(value: object) -> str:
    """An option's value, as it would be typed.

    >>> in_words((0.333333, True))
    '[0.333, true]'
    """
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(in_words, value))}]"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)
