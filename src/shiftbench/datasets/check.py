"""Conformance checks for datasets: what the rest of the package relies on, for third parties to run on their own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.conformance import CheckResult, require, require_own_randomness, requirement
from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.errors import BadImageError


def check_dataset(
    dataset: Dataset, *, images: int = 16, reopen: Callable[[], Dataset] | None = None
) -> list[CheckResult]:
    """Run every check on up to ``images`` images spread evenly over the dataset.

    ``reopen`` opens the same data again; with it, ids and fingerprint are compared between the two.

    Args:
        dataset: The dataset.
        images: Number of images to read.
        reopen: Opens the dataset again, to compare.
    """
    indices: list[int] = []
    if len(dataset):
        indices = sorted({int(i) for i in np.linspace(0, len(dataset) - 1, images)})
    results: list[CheckResult] = []
    _check_ids(dataset, results)
    _check_labels(dataset, results)
    _check_provenance(dataset, results)
    _check_pixels(dataset, indices, results)
    _check_access(dataset, indices, results)
    with requirement("can be pickled", results) as notes:
        stored = pickle.dumps(dataset)
        copy: Dataset = pickle.loads(stored)
        _require_same(dataset, copy, "after pickling")
        for index in indices[:4]:
            require(_equal(_read(copy, index), _read(dataset, index)), f"image {index} differs after pickling")
        notes.append(f"{len(stored)} bytes")
    if reopen is not None:
        with requirement("opens again as the same", results):
            _require_same(dataset, reopen(), "when opened again")
    return results


def _is_absolute(image_id: str) -> bool:
    """Whether an id is a path from the root of a disk, on any system: ``/data/0.png``, ``C:\\data\\0.png``."""
    return image_id.startswith("/") or image_id[1:3] == ":\\"


def _check_ids(dataset: Dataset, results: list[CheckResult]) -> None:
    with requirement("has images", results) as notes:
        require(len(dataset) > 0, "the dataset is empty")
        require(isinstance(dataset.name, str) and bool(dataset.name), "the dataset has no name")
        notes.append(f"{len(dataset)} images")
    with requirement("ids are unique text", results):
        ids = list(dataset.ids)
        wrong = [image_id for image_id in ids if not isinstance(image_id, str) or not image_id]
        require(not wrong, f"{len(wrong)} ids are not text, such as {wrong[:1]!r}")
        require(len(set(ids)) == len(ids), f"{len(ids) - len(set(ids))} ids occur more than once")
        "".join(ids).encode("utf-8")  # they are stored as UTF-8
        absolute = [image_id for image_id in ids if _is_absolute(image_id)]
        require(not absolute, f"ids depend on where the data lies: {absolute[:1]!r}")


def _check_labels(dataset: Dataset, results: list[CheckResult]) -> None:
    with requirement("labels fit the label space", results) as notes:
        labels = np.asarray(dataset.labels)
        classes = len(dataset.space)
        require(labels.shape == (len(dataset),), f"labels have shape {labels.shape}, not ({len(dataset)},)")
        require(labels.dtype == np.int32, f"labels are {labels.dtype}, not int32")
        low = 0
        high = 0
        if len(labels):
            low = int(labels.min())
            high = int(labels.max())
        require(low >= -1 and high < classes, f"labels {low} to {high}, but {classes} classes")
        notes.append(f"{len(np.unique(labels[labels >= 0]))} of {classes} classes")
    with requirement("metadata has one value per image", results):
        for column, values in dataset.metadata.items():
            require(len(values) == len(dataset), f"column {column!r} has {len(values)} values")


def _check_provenance(dataset: Dataset, results: list[CheckResult]) -> None:
    with requirement("fingerprint is stable text", results) as notes:
        fingerprint = dataset.fingerprint
        require(isinstance(fingerprint, str) and len(fingerprint) >= 16, f"{fingerprint!r} is not a hash")
        require(fingerprint == dataset.fingerprint, "it changes from one call to the next")
        notes.append(fingerprint)
    with requirement("describes itself in JSON", results):
        description = json.loads(json.dumps(dataset.describe()))
        for key in ("dataset", "images", "fingerprint"):
            require(key in description, f"describe() lacks {key!r}")


def _check_pixels(dataset: Dataset, indices: Sequence[int], results: list[CheckResult]) -> None:
    """Check that the images at these indices are images, and the same in every read."""
    with requirement("images are uint8 (H, W, 3)", results) as notes:
        images = {index: _read(dataset, index) for index in indices}
        bad = 0
        for index, image in images.items():
            if isinstance(image, DecodedImage):
                _require_rgb(index, image.pixels)
            else:
                bad += 1
        require(bad < len(indices) or not indices, "no image could be read")
        if bad:
            notes.append(f"{bad} of {len(indices)} can't be used")
    with requirement("two reads are equal", results):
        for index in indices:
            require(_equal(_read(dataset, index), _read(dataset, index)), f"image {index} differs between two reads")
    with requirement("the global random numbers are left alone", results):
        hint = "a generator of its own with a fixed seed: np.random.default_rng(0)"
        for index in indices[:4]:
            require_own_randomness(partial(_read, dataset, index), hint)


def _check_access(dataset: Dataset, indices: Sequence[int], results: list[CheckResult]) -> None:
    """Check that callers and threads can't disturb each other, and that there are no images past the end."""
    with requirement("reads do not share memory", results):
        for index in indices[:4]:
            image = _read(dataset, index)
            if isinstance(image, DecodedImage) and image.pixels.flags.writeable:
                before = DecodedImage(image.pixels.copy(), image.converted)
                image.pixels[...] = 255 - image.pixels
                require(_equal(_read(dataset, index), before), "a caller can change the data")
    with requirement("threads may read at once", results):
        alone = {index: _read(dataset, index) for index in indices}
        repeated = list(indices) * 4
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda index: _read(dataset, index), repeated))
        for index, image in zip(repeated, together, strict=True):
            require(_equal(image, alone[index]), f"image {index} differs under threads")
    with requirement("an index out of range is an error", results):
        message = f"read({len(dataset)}) returns an image, but there are only {len(dataset)}"
        require(_refuses(dataset, len(dataset)), message, expected="IndexError")


def _require_rgb(index: int, pixels: Pixels) -> None:
    require(isinstance(pixels, np.ndarray), f"image {index} is a {type(pixels).__name__}")
    shape = pixels.shape
    is_rgb = pixels.dtype == np.uint8 and pixels.ndim == 3 and shape[2] == 3
    require(is_rgb, f"image {index} is {pixels.dtype} {shape}")
    require(min(shape[:2]) > 0, f"image {index} has no pixels")


def _require_same(dataset: Dataset, copy: Dataset, when: str) -> None:
    require(list(copy.ids) == list(dataset.ids), f"ids differ {when}")
    require(np.array_equal(copy.labels, dataset.labels), f"labels differ {when}")
    require(copy.fingerprint == dataset.fingerprint, f"the fingerprint differs {when}")


def _read(dataset: Dataset, index: int) -> DecodedImage | str:
    """The image, or the text of its error: bad images are allowed, if every read fails."""
    try:
        return dataset.read(index)
    except BadImageError as error:
        return str(error)


def _refuses(dataset: Dataset, index: int) -> bool:
    """Whether reading this index is an error, of any kind."""
    try:
        dataset.read(index)
    except Exception:
        return True
    return False


def _equal(first: DecodedImage | str, second: DecodedImage | str) -> bool:
    """Whether two reads of an image agree: both are errors, or both give the same pixels and notes."""
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str)
    return np.array_equal(first.pixels, second.pixels) and first.converted == second.converted
