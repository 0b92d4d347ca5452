"""Conformance checks for shifts and corruptions: what the rest of the package relies on, for authors to run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.conformance import (
    CheckResult,
    require,
    require_own_randomness,
    require_same_pixels,
    require_unwrapped,
    requirement,
)
from shiftbench.datasets.samples import sample_images
from shiftbench.shifts.base import SequenceShift, Shift, rebuild_shift
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS

#: Sides of the images that are tried besides square ones: odd, and wider or higher.
_ODD_SIZES = ((37, 53), (61, 32))
_SEVERITIES = (1, 2, 3, 4, 5)
#: The share by which the distance from the clean images may fall from one severity to the next. The published
#: severities of a few corruptions are not quite in order on every image.
_MOST_RELAPSE = 0.1
_SEED = 7


def check_shift(shift: Shift, images: Pixels | None = None) -> list[CheckResult]:
    """Run every check on a shift; a failing one explains itself, and none stops the others.

    A shift of single images is applied to images of several shapes; a sequence makes its frames. A shift that depends
    on the model, such as an attack, is only asked for its records (``check_attack`` does the rest).

    Args:
        shift: The shift.
        images: uint8 (N, H, W, 3) images to apply it to; default: built-in ones.

    Example:
        >>> from shiftbench.shifts.compose import Greyscale
        >>> all(result.ok for result in check_shift(Greyscale()))
        True
    """
    if images is None:
        images = sample_images(3, (64, 64))
    results: list[CheckResult] = []
    _check_records(shift, results)
    if shift.per_image:
        with requirement("shifts an image", results):
            shift(images[0].copy(), image_id="0", seed=_SEED)
        if results[-1].ok:
            _check_images(shift, images, results)
    elif isinstance(shift, SequenceShift):
        _check_frames(shift, images, results)
    return results


def check_corruption(
    name: str, options: Mapping[str, object] | None = None, images: Pixels | None = None
) -> list[CheckResult]:
    """Run every check on a registered corruption, at all severities.

    Args:
        name: The name under which it is registered.
        options: Its options, such as ``frost_textures``.
        images: uint8 (N, H, W, 3) images to apply it to; default: built-in ones.

    Example:
        >>> all(result.ok for result in check_corruption("brightness"))
        True
    """
    if images is None:
        images = sample_images(6, (64, 64))
    options = options or {}
    results: list[CheckResult] = []
    with requirement("is registered", results) as notes:
        group = CORRUPTIONS.get(name).group
        require(bool(group), "the corruption has no group", expected="noise, blur, weather, digital, or another")
        notes.append(f"group {group}")
    if not results[-1].ok:
        return results
    with requirement("takes every severity from 1 to 5", results):
        for severity in (*_SEVERITIES, 2.5):
            Corruption(name, severity, options)(images[0].copy(), image_id="0", seed=_SEED)
    if not results[-1].ok:
        return results
    strongest = Corruption(name, 5, options)
    results += check_shift(strongest, images)
    _check_greyscale(strongest, images, results)
    _check_noise(strongest, images, results)
    _check_severities(name, options, images, results)
    return results


def _check_records(shift: Shift, results: list[CheckResult]) -> None:
    """Check what settings, tables and stored results know of a shift."""
    with requirement("has a name", results) as notes:
        require(isinstance(shift.name, str) and bool(shift.name), "the shift has no name", found=repr(shift.name))
        notes.append(shift.name)
    with requirement("describes itself in JSON", results):
        first = json.dumps(shift.describe(), sort_keys=True)
        second = json.dumps(shift.describe(), sort_keys=True)
        require(first == second, "two descriptions differ", found=second, expected=first)
        kind = shift.describe().get("shift")
        require(
            isinstance(kind, str) and bool(kind),
            "describe() does not say what kind of shift it is",
            found=repr(kind),
            expected="an entry 'shift' with the kind that it is registered under",
        )
    with requirement("can be rebuilt from its record", results):
        record = json.loads(json.dumps(shift.record()))
        copy = rebuild_shift(record)
        expected = json.dumps(shift.describe(), sort_keys=True)
        description = json.dumps(copy.describe(), sort_keys=True)
        require(
            description == expected,
            "the rebuilt shift is another",
            found=description,
            expected=expected,
            hint="record() must hold every argument; register its builder with shift_kinds.register(KIND)",
        )
    with requirement("can be pickled", results):
        copy = pickle.loads(pickle.dumps(shift))
        require(copy.describe() == shift.describe(), "the copy describes itself differently")


def _check_images(shift: Shift, images: Pixels, results: list[CheckResult]) -> None:
    _check_shapes(shift, images, results)
    _check_determinism(shift, images, results)
    _check_independence(shift, images, results)
    with requirement("values do not wrap around", results) as notes:
        require_unwrapped(lambda image: _shifted(shift, image))
        notes.append("256 uniform images")


def _check_shapes(shift: Shift, images: Pixels, results: list[CheckResult]) -> None:
    with requirement("gives uint8 images of the same shape", results) as notes:
        shapes = [images[0].shape[:2], *_ODD_SIZES]
        for height, width in shapes:
            image = sample_images(1, (height, width))[0]
            _require_image(_shifted(shift, image), image.shape)
        notes.append("at " + ", ".join(f"{height} x {width}" for height, width in shapes))
    with requirement("the image is left as it is", results):
        image = images[0].copy()
        shift(image, image_id="0", seed=_SEED)
        hint = "work on a copy: image.copy(), or an expression that makes a new array"
        require(np.array_equal(image, images[0]), "the shift changed the pixels that it was given", hint=hint)
    with requirement("read-only images are accepted", results):
        read_only = images[0].copy()
        read_only.flags.writeable = False
        shift(read_only, image_id="0", seed=_SEED)


def _check_determinism(shift: Shift, images: Pixels, results: list[CheckResult]) -> None:
    hint = "draw every random number from the draws of the call, never from a generator of its own"
    with requirement("the same seed and id give the same pixels", results):
        first = _shifted(shift, images[0])
        second = _shifted(shift, images[0])
        require_same_pixels(second, first, "two calls with one seed and one id differ", hint)
    with requirement("the global random numbers are left alone", results):
        require_own_randomness(lambda: _shifted(shift, images[0]), hint)
    with requirement("a pickled copy gives the same pixels", results):
        copy = pickle.loads(pickle.dumps(shift))
        require_same_pixels(_shifted(copy, images[0]), _shifted(shift, images[0]), "the copy's pixels differ")


def _check_independence(shift: Shift, images: Pixels, results: list[CheckResult]) -> None:
    """Check that neither the batch, nor the order, nor other threads change an image."""
    ids = [str(i) for i in range(len(images))]
    alone = [_shifted(shift, image, image_id) for image, image_id in zip(images, ids, strict=True)]
    hint = "nothing may be kept from one image to the next"
    with requirement("a batch gives the same pixels as single images", results):
        batch = shift.batch(images.copy(), image_ids=ids, seed=_SEED)
        for i, expected in enumerate(alone):
            require_same_pixels(batch[i], expected, f"image {i} differs in a batch", hint)
    with requirement("the order of the images does not matter", results):
        for i in reversed(range(len(images))):
            require_same_pixels(
                _shifted(shift, images[i], ids[i]), alone[i], f"image {i} differs in another order", hint
            )
    with requirement("threads may shift at once", results), ThreadPoolExecutor(4) as pool:
        numbers = list(range(len(images))) * 4
        together = pool.map(lambda i: _shifted(shift, images[i], ids[i]), numbers)
        for i, pixels in zip(numbers, together, strict=True):
            require_same_pixels(pixels, alone[i], f"image {i} differs under threads", hint)


def _check_frames(shift: SequenceShift, images: Pixels, results: list[CheckResult]) -> None:
    """Check the frames of a sequence, which are made together from the uncropped image."""
    crop = 48
    with requirement("gives uint8 frames of the asked size", results) as notes:
        frames = shift.frames(images[0].copy(), image_id="0", seed=_SEED, crop=crop)
        require(
            frames.dtype == np.uint8 and frames.shape[1:] == (crop, crop, 3),
            "the frames are of another kind",
            found=f"{frames.dtype} {frames.shape}",
            expected=f"uint8 (frames, {crop}, {crop}, 3)",
        )
        require(0 <= shift.index < len(frames), "no such frame", found=shift.index, expected=f"below {len(frames)}")
        notes.append(f"{len(frames)} frames")
    with requirement("the same seed and id give the same frames", results):
        first = shift.frames(images[0].copy(), image_id="0", seed=_SEED, crop=crop)
        second = shift.frames(images[0].copy(), image_id="0", seed=_SEED, crop=crop)
        require_same_pixels(second, first, "two calls with one seed and one id differ")


def _check_greyscale(corruption: Corruption, images: Pixels, results: list[CheckResult]) -> None:
    with requirement("greyscale images stay greyscale", results):
        grey = images[0][..., 1].copy()
        pixels = corruption(grey, image_id="0", seed=_SEED)
        require(pixels.shape == grey.shape, "the shape changed", found=pixels.shape, expected=grey.shape)


def _check_noise(corruption: Corruption, images: Pixels, results: list[CheckResult]) -> None:
    """Check that a corruption with random numbers has other ones for other images and other seeds."""
    with requirement("noise differs between images and between seeds", results) as notes:
        draws = corruption.draws(_SEED, "0")
        corruption.apply(images[0].copy(), draws)
        if not draws.used:
            notes.append("draws no random number")
            return
        first = _shifted(corruption, images[0], "0")
        message = "random numbers are drawn, but the pixels are the same"
        hint = "each call must use the numbers that it draws"
        other_id = not np.array_equal(first, _shifted(corruption, images[0], "1"))
        require(other_id, message, found="one result for two ids", hint=hint)
        other_seed = corruption(images[0].copy(), image_id="0", seed=_SEED + 1)
        require(not np.array_equal(first, other_seed), message, found="one result for two seeds", hint=hint)


def _check_severities(name: str, options: Mapping[str, object], images: Pixels, results: list[CheckResult]) -> None:
    distances = []
    with requirement("severity 1 changes the image", results):
        for severity in _SEVERITIES:
            shift = Corruption(name, severity, options)
            gaps = [_distance(_shifted(shift, image, str(i)), image) for i, image in enumerate(images)]
            distances.append(float(np.mean(gaps)))
        require(distances[0] > 0, "the pixels are unchanged", hint="leave the shift out for clean images")
    with requirement("a higher severity is farther from the image", results) as notes:
        text = ", ".join(f"{distance:.3g}" for distance in distances)
        falls = [after < (1 - _MOST_RELAPSE) * before for before, after in pairwise(distances)]
        require(
            not any(falls) and distances[-1] > distances[0],
            "the mean distance in grey levels does not grow with the severity",
            found=text,
            expected=f"growing from 1 to 5; a step may fall by {_MOST_RELAPSE:.0%}",
        )
        notes.append(f"mean distances {text} grey levels")


def _shifted(shift: Shift, image: Pixels, image_id: str = "0") -> Pixels:
    return shift(image.copy(), image_id=image_id, seed=_SEED)


def _distance(first: Pixels, second: Pixels) -> float:
    """The mean absolute difference in grey levels."""
    return float(np.abs(first.astype(np.int16) - second.astype(np.int16)).mean())


def _require_image(pixels: object, shape: tuple[int, ...]) -> None:
    is_image = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8 and pixels.shape == shape
    found = f"{type(pixels).__name__} {getattr(pixels, 'dtype', '')} {getattr(pixels, 'shape', '')}"
    require(is_image, "the result is not such an image", found=found, expected=f"a uint8 array {shape}")
