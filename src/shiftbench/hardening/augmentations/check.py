"""Conformance checks for augmentations: what training relies on, for authors to run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from shiftbench.conformance import (
    CheckResult,
    require,
    require_own_randomness,
    require_same_pixels,
    require_unwrapped,
    requirement,
)
from shiftbench.extend.datasets import sample_images
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import (
    BatchAugmentation,
    ImageAugmentation,
    batch_augmentations,
    make_batch_augmentation,
    make_image_augmentation,
    stream,
)

#: Sides of the images that are tried besides square ones: odd, and wider or higher.
_ODD_SIZES = ((37, 53), (61, 32))
_SEED = 7
_HINT = "draw every random number from the generator of the call"


def check_augmentation(name: str, **options: object) -> list[CheckResult]:
    """Run every check on a registered augmentation of images or of batches.

    Args:
        name: The name under which it is registered.
        options: Its options.

    Example:
        >>> all(result.ok for result in check_augmentation("flip"))
        True
    """
    results: list[CheckResult] = []
    if name in batch_augmentations:
        with requirement("can be made", results):
            batch_augmentation = make_batch_augmentation(name, **options)
        if results[-1].ok:
            _check_batches(batch_augmentation, results)
        return results
    with requirement("can be made", results):
        augmentation = make_image_augmentation(name, **options)
    if results[-1].ok:
        # Every worker of a training makes the augmentation again, from the recipe.
        _check_images(augmentation, make_image_augmentation(name, **options), results)
    return results


def _check_images(augmentation: ImageAugmentation, copy: ImageAugmentation, results: list[CheckResult]) -> None:
    images = sample_images(3, (64, 64))
    with requirement("augments an image", results):
        _augmented(augmentation, images[0], "0")
    if not results[-1].ok:
        return
    with requirement("gives uint8 images of the same shape", results) as notes:
        for height, width in ((64, 64), *_ODD_SIZES):
            image = sample_images(1, (height, width))[0]
            pixels = _augmented(augmentation, image, "0")
            fits = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape == image.shape
            found = f"{getattr(pixels, 'dtype', type(pixels))} {getattr(pixels, 'shape', '')}"
            require(fits, "the result is not such an image", found=found, expected=f"uint8 {image.shape}")
        notes.append("odd sizes, too")
    with requirement("the image is left as it is", results):
        image = images[0].copy()
        augmentation(image, stream(_SEED, "0", 0))
        require(np.array_equal(image, images[0]), "it changed the pixels that it was given", hint="work on a copy")
    with requirement("values do not wrap around", results):
        require_unwrapped(lambda image: _augmented(augmentation, image, "0"))
    _check_determinism(augmentation, copy, images, results)


def _check_determinism(
    augmentation: ImageAugmentation, copy: ImageAugmentation, images: Pixels, results: list[CheckResult]
) -> None:
    """Check that an image and an epoch decide the pixels, whoever computes them and in whichever order."""
    alone = {(i, epoch): _augmented(augmentation, images[i], str(i), epoch) for i in range(3) for epoch in range(2)}
    with requirement("an image and an epoch decide the pixels", results):
        for (i, epoch), expected in alone.items():
            pixels = _augmented(augmentation, images[i], str(i), epoch)
            require_same_pixels(pixels, expected, f"image {i} differs in a second call for epoch {epoch}", _HINT)
    with requirement("the global random numbers are left alone", results):
        require_own_randomness(lambda: _augmented(augmentation, images[0], "0"), _HINT)
    with requirement("the order of the images does not matter", results):
        for (i, epoch), expected in reversed(alone.items()):
            pixels = _augmented(augmentation, images[i], str(i), epoch)
            require_same_pixels(pixels, expected, f"image {i} differs in another order", "keep nothing between images")
    with requirement("workers give the same pixels", results), ThreadPoolExecutor(4) as pool:
        places = list(alone)
        answers = pool.map(lambda place: _augmented(copy, images[place[0]], str(place[0]), place[1]), places)
        for place, pixels in zip(places, answers, strict=True):
            require_same_pixels(pixels, alone[place], f"image {place[0]} differs in a worker", "keep no open files")


def _augmented(augmentation: ImageAugmentation, image: Pixels, image_id: str, epoch: int = 0) -> Pixels:
    return augmentation(image.copy(), stream(_SEED, image_id, epoch))


def _check_batches(augmentation: BatchAugmentation, results: list[CheckResult]) -> None:
    import torch

    images = torch.from_numpy(sample_images(4, (32, 32))).permute(0, 3, 1, 2).float() / 255
    targets = torch.eye(4)

    def augmented(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
        return augmentation(images.clone(), targets.clone(), torch.Generator().manual_seed(seed))

    with requirement("keeps the shapes", results):
        mixed, mixed_targets = augmented(_SEED)
        same = mixed.shape == images.shape and mixed_targets.shape == targets.shape
        found = f"{tuple(mixed.shape)} and {tuple(mixed_targets.shape)}"
        require(same, "the shapes changed", found=found, expected=f"{tuple(images.shape)} and {tuple(targets.shape)}")
    if not results[-1].ok:
        return
    with requirement("images stay within 0 and 1", results):
        low = float(mixed.min())
        high = float(mixed.max())
        require(low >= -1e-5 and high <= 1 + 1e-5, "values lie outside", found=f"{low:.3g} ... {high:.3g}")
    with requirement("targets stay probabilities", results):
        sums = mixed_targets.sum(dim=1)
        fine = bool((mixed_targets >= -1e-6).all()) and bool(torch.allclose(sums, torch.ones_like(sums), atol=1e-4))
        require(fine, "targets are not shares of one", found=f"sums {sums.tolist()}", expected="1 for each image")
    with requirement("the batch is left as it is", results):
        batch = images.clone()
        augmentation(batch, targets.clone(), torch.Generator().manual_seed(_SEED))
        require(bool(torch.equal(batch, images)), "it changed the images that it was given", hint="work on a copy")
    with requirement("the generator decides the result", results):
        again, again_targets = augmented(_SEED)
        same = bool(torch.equal(again, mixed)) and bool(torch.equal(again_targets, mixed_targets))
        require(same, "two calls with equal generators differ", hint=_HINT)
    with requirement("the global random numbers are left alone", results):
        before = torch.random.get_rng_state()
        require_own_randomness(lambda: augmented(_SEED), _HINT)
        unused = bool(torch.equal(before, torch.random.get_rng_state()))
        require(unused, "the global random numbers of torch were used", hint=_HINT)
