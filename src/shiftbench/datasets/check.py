"""Conformance checks for datasets: what the rest of the package relies on, for third parties to run on their own.

from shiftbench.datasets import check_dataset
for result in check_dataset(MyDataset(...)):
    assert result.ok, result.message
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    results = []
    for name, check in _checks(dataset, chosen, reopen):
        try:
            results.append(CheckResult(name, True, check() or ""))
        except _FailedError as failure:
            results.append(CheckResult(name, False, str(failure)))
        except Exception as error:  # a third party's code can fail in any way; each is a finding
            results.append(CheckResult(name, False, f"raised {type(error).__name__}: {error}"))
    return results


def _checks(
    dataset: Dataset, chosen: Sequence[int], reopen: Callable[[], Dataset] | None
) -> Iterator[tuple[str, Callable[[], str | None]]]:
    yield "has images", lambda: _has_images(dataset)
    yield "ids are unique text", lambda: _ids(dataset)
    yield "labels fit the label space", lambda: _labels(dataset)
    yield "metadata has one value per image", lambda: _metadata(dataset)
    yield "images are uint8 (H, W, 3)", lambda: _images(dataset, chosen)
    yield "two reads are equal", lambda: _same_reads(dataset, chosen)
    yield "reads do not share memory", lambda: _fresh_reads(dataset, chosen)
    yield "threads may read at once", lambda: _threads(dataset, chosen)
    yield "an index out of range is an error", lambda: _outside(dataset)
    yield "fingerprint is stable text", lambda: _fingerprint(dataset)
    yield "can be pickled", lambda: _pickled(dataset, chosen)
    yield "describes itself in JSON", lambda: _describes(dataset)
    if reopen is not None:
        yield "opens again as the same", lambda: _reopened(dataset, reopen)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise _FailedError(message)


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


def _has_images(dataset: Dataset) -> str:
    _require(len(dataset) > 0, "the dataset is empty")
    _require(isinstance(dataset.name, str) and bool(dataset.name), "the dataset has no name")
    return f"{len(dataset)} images"


def _ids(dataset: Dataset) -> None:
    ids = list(dataset.ids)
    wrong = [i for i in ids if not isinstance(i, str) or not i]
    _require(not wrong, f"{len(wrong)} ids are not text, such as {wrong[:1]!r}")
    _require(len(set(ids)) == len(ids), f"{len(ids) - len(set(ids))} ids occur more than once")
    for image_id in ids:
        image_id.encode("utf-8")  # they are stored as UTF-8
    absolute = [i for i in ids if i.startswith("/") or i[1:3] == ":\\"]
    _require(not absolute, f"ids depend on where the data lies: {absolute[:1]!r}")


def _labels(dataset: Dataset) -> str:
    labels = np.asarray(dataset.labels)
    _require(labels.shape == (len(dataset),), f"labels have shape {labels.shape}, not ({len(dataset)},)")
    _require(labels.dtype == np.int32, f"labels are {labels.dtype}, not int32")
    low, high = (int(labels.min()), int(labels.max())) if len(labels) else (0, 0)
    _require(low >= -1 and high < len(dataset.space), f"labels {low} to {high}, but {len(dataset.space)} classes")
    return f"{len(np.unique(labels[labels >= 0]))} of {len(dataset.space)} classes"


def _metadata(dataset: Dataset) -> None:
    for column, values in dataset.metadata.items():
        _require(len(values) == len(dataset), f"column {column!r} has {len(values)} values")


def _images(dataset: Dataset, chosen: Sequence[int]) -> str:
    bad = 0
    for index in chosen:
        image = _read(dataset, index)
        if isinstance(image, str):
            bad += 1
            continue
        pixels = image.pixels
        _require(isinstance(pixels, np.ndarray), f"image {index} is a {type(pixels).__name__}")
        shape, kind = pixels.shape, pixels.dtype
        _require(kind == np.uint8 and pixels.ndim == 3 and shape[2] == 3, f"image {index} is {kind} {shape}")
        _require(min(shape[:2]) > 0, f"image {index} has no pixels")
    _require(bad < len(chosen) or not chosen, "no image could be read")
    return f"{bad} of {len(chosen)} can't be used" if bad else ""


def _same_reads(dataset: Dataset, chosen: Sequence[int]) -> None:
    for index in chosen:
        _require(_equal(_read(dataset, index), _read(dataset, index)), f"image {index} differs between two reads")


def _fresh_reads(dataset: Dataset, chosen: Sequence[int]) -> None:
    for index in chosen[:4]:
        image = _read(dataset, index)
        if isinstance(image, DecodedImage) and image.pixels.flags.writeable:
            again = image.pixels.copy()
            image.pixels[...] = 255 - image.pixels
            kept = _read(dataset, index)
            _require(
                isinstance(kept, DecodedImage) and np.array_equal(kept.pixels, again), "a caller can change the data"
            )


def _threads(dataset: Dataset, chosen: Sequence[int]) -> None:
    alone = [_read(dataset, i) for i in chosen]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda i: _read(dataset, i), list(chosen) * 4))
    for i, image in enumerate(together):
        _require(_equal(image, alone[i % len(alone)]), f"image {chosen[i % len(chosen)]} differs under threads")


def _outside(dataset: Dataset) -> None:
    try:
        dataset.read(len(dataset))
    except Exception:
        return
    raise _FailedError(f"read({len(dataset)}) returns an image, but there are only {len(dataset)}")


def _fingerprint(dataset: Dataset) -> str:
    first, second = dataset.fingerprint, dataset.fingerprint
    _require(isinstance(first, str) and len(first) >= 16, f"{first!r} is not a hash")
    _require(first == second, "it changes from one call to the next")
    return first


def _pickled(dataset: Dataset, chosen: Sequence[int]) -> str:
    stored = pickle.dumps(dataset)
    copy: Dataset = pickle.loads(stored)
    _require(list(copy.ids) == list(dataset.ids), "ids differ after pickling")
    _require(np.array_equal(copy.labels, dataset.labels), "labels differ after pickling")
    _require(copy.fingerprint == dataset.fingerprint, "the fingerprint differs after pickling")
    for index in chosen[:4]:
        _require(_equal(_read(copy, index), _read(dataset, index)), f"image {index} differs after pickling")
    return f"{len(stored)} bytes"


def _describes(dataset: Dataset) -> None:
    described = json.loads(json.dumps(dataset.describe()))
    for key in ("dataset", "images", "fingerprint"):
        _require(key in described, f"describe() lacks {key!r}")


def _reopened(dataset: Dataset, reopen: Callable[[], Dataset]) -> None:
    again = reopen()
    _require(list(again.ids) == list(dataset.ids), "ids differ when opened again")
    _require(again.fingerprint == dataset.fingerprint, "the fingerprint differs when opened again")
