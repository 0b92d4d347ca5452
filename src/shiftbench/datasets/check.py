"""Conformance checks for datasets: what the rest of the package relies on, for third parties to run on their own."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.errors import BadImageError


class CheckResult(NamedTuple):
    """One requirement, whether it is met, and what was found."""

    name: str
    ok: bool
    message: str


class _FailedError(Exception):
    pass


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
    chosen = sorted({int(i) for i in np.linspace(0, max(len(dataset) - 1, 0), images)}) if len(dataset) else []
    results: list[CheckResult] = []
    _check_description(dataset, results)
    _check_reading(dataset, chosen, results)
    with requirement("can be pickled", results) as notes:
        stored = pickle.dumps(dataset)
        copy: Dataset = pickle.loads(stored)
        _require_same(dataset, copy, "after pickling")
        for index in chosen[:4]:
            require(_equal(_read(copy, index), _read(dataset, index)), f"image {index} differs after pickling")
        notes.append(f"{len(stored)} bytes")
    if reopen is not None:
        with requirement("opens again as the same", results):
            _require_same(dataset, reopen(), "when opened again")
    return results


def _check_description(dataset: Dataset, results: list[CheckResult]) -> None:
    with requirement("has images", results) as notes:
        require(len(dataset) > 0, "the dataset is empty")
        require(isinstance(dataset.name, str) and bool(dataset.name), "the dataset has no name")
        notes.append(f"{len(dataset)} images")
    with requirement("ids are unique text", results):
        ids = list(dataset.ids)
        wrong = [i for i in ids if not isinstance(i, str) or not i]
        require(not wrong, f"{len(wrong)} ids are not text, such as {wrong[:1]!r}")
        require(len(set(ids)) == len(ids), f"{len(ids) - len(set(ids))} ids occur more than once")
        "".join(ids).encode("utf-8")  # they are stored as UTF-8
        absolute = [i for i in ids if i.startswith("/") or i[1:3] == ":\\"]
        require(not absolute, f"ids depend on where the data lies: {absolute[:1]!r}")
    with requirement("labels fit the label space", results) as notes:
        labels, classes = np.asarray(dataset.labels), len(dataset.space)
        require(labels.shape == (len(dataset),), f"labels have shape {labels.shape}, not ({len(dataset)},)")
        require(labels.dtype == np.int32, f"labels are {labels.dtype}, not int32")
        low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
        require(low >= -1 and high < classes, f"labels {low} to {high}, but {classes} classes")
        notes.append(f"{len(np.unique(labels[labels >= 0]))} of {classes} classes")
    with requirement("metadata has one value per image", results):
        for column, values in dataset.metadata.items():
            require(len(values) == len(dataset), f"column {column!r} has {len(values)} values")
    with requirement("fingerprint is stable text", results) as notes:
        first, second = dataset.fingerprint, dataset.fingerprint
        require(isinstance(first, str) and len(first) >= 16, f"{first!r} is not a hash")
        require(first == second, "it changes from one call to the next")
        notes.append(first)
    with requirement("describes itself in JSON", results):
        described = json.loads(json.dumps(dataset.describe()))
        for key in ("dataset", "images", "fingerprint"):
            require(key in described, f"describe() lacks {key!r}")


def _check_reading(dataset: Dataset, chosen: Sequence[int], results: list[CheckResult]) -> None:
    with requirement("images are uint8 (H, W, 3)", results) as notes:
        read = {index: _read(dataset, index) for index in chosen}
        good = {index: image.pixels for index, image in read.items() if isinstance(image, DecodedImage)}
        for index, pixels in good.items():
            require(isinstance(pixels, np.ndarray), f"image {index} is a {type(pixels).__name__}")
            shape, kind = pixels.shape, pixels.dtype
            require(kind == np.uint8 and pixels.ndim == 3 and shape[2] == 3, f"image {index} is {kind} {shape}")
            require(min(shape[:2]) > 0, f"image {index} has no pixels")
        require(bool(good) or not chosen, "no image could be read")
        if bad := len(chosen) - len(good):
            notes.append(f"{bad} of {len(chosen)} can't be used")
    with requirement("two reads are equal", results):
        for index in chosen:
            require(_equal(_read(dataset, index), _read(dataset, index)), f"image {index} differs between two reads")
    with requirement("reads do not share memory", results):
        for index in chosen[:4]:
            image = _read(dataset, index)
            if isinstance(image, DecodedImage) and image.pixels.flags.writeable:
                before = DecodedImage(image.pixels.copy(), image.converted)
                image.pixels[...] = 255 - image.pixels
                require(_equal(_read(dataset, index), before), "a caller can change the data")
    with requirement("threads may read at once", results):
        alone = [_read(dataset, i) for i in chosen]
        with ThreadPoolExecutor(8) as pool:
            together = list(pool.map(lambda i: _read(dataset, i), list(chosen) * 4))
        for i, image in enumerate(together):
            require(_equal(image, alone[i % len(alone)]), f"image {chosen[i % len(chosen)]} differs under threads")
    with requirement("an index out of range is an error", results):
        try:
            dataset.read(len(dataset))
        except Exception:
            pass
        else:
            raise _FailedError(f"read({len(dataset)}) returns an image, but there are only {len(dataset)}")


@contextmanager
def requirement(name: str, results: list[CheckResult]) -> Iterator[list[str]]:
    """Add the outcome of the checks inside, with the notes that they append to the yielded list."""
    notes: list[str] = []
    try:
        yield notes
    except Exception as error:  # a third party's code can fail in any way; each is a finding
        found = str(error) if isinstance(error, _FailedError) else f"{type(error).__name__}: {error}"
        results.append(CheckResult(name, False, found))
    else:
        results.append(CheckResult(name, True, "".join(notes)))


def require(condition: bool, message: str) -> None:
    if not condition:
        raise _FailedError(message)


def _require_same(dataset: Dataset, other: Dataset, when: str) -> None:
    require(list(other.ids) == list(dataset.ids), f"ids differ {when}")
    require(np.array_equal(other.labels, dataset.labels), f"labels differ {when}")
    require(other.fingerprint == dataset.fingerprint, f"the fingerprint differs {when}")


def _read(dataset: Dataset, index: int) -> DecodedImage | str:
    """The image, or the text of its error: bad images are allowed, if every read fails."""
    try:
        return dataset.read(index)
    except BadImageError as error:
        return str(error)


def _equal(one: DecodedImage | str, other: DecodedImage | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return isinstance(one, str) and isinstance(other, str)
    return np.array_equal(one.pixels, other.pixels) and one.converted == other.converted
