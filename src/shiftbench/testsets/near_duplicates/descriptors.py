"""Descriptors: a picture as one row of numbers, so that near-duplicates are near in l2.

| name | a row | its distance |
|---|---|---|
| ``pixels`` | the picture squashed to 32 x 32, uint8 | root mean square difference in grey levels |
| ``pixels-normalised`` | squashed to 16 x 16, brightness and contrast removed | the same in standard deviations |
| ``features:NAME`` | what classifier NAME has before its last layer, at length 1 | 0 (same direction) to 2 |
| ``scores:NAME`` | its scores, where it can't be cut | 0 to 2 |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.preprocessing import Geometry
from shiftbench.datasets.base import Dataset
from shiftbench.errors import ClassifierError, ShiftbenchError
from shiftbench.jobs.base import Executor
from shiftbench.jobs.blocks import Computation, PerImage, per_image
from shiftbench.testsets.near_duplicates.kernels import pair_squares
from shiftbench.testsets.near_duplicates.penultimate import Layer, features_of

Rows = NDArray[Any]
#: Side of the squashed picture, which SSIM and alignment compare too.
SIDE = 32


class Descriptor(ABC):
    """Pictures to rows; ``scale`` times l2 between rows is the distance that people read."""

    name: str
    scale: float = 1.0

    @property
    @abstractmethod
    def identity(self) -> list[object]:
        """JSON-able: all that decides the rows."""

    @abstractmethod
    def __call__(self, pictures: Sequence[Pixels]) -> Rows:
        """(N, D), uint8 or float32."""


@dataclass(frozen=True)
class PixelDescriptor(Descriptor):
    """The picture as it is, squashed into a small square: a stretch drops out.

    >>> PixelDescriptor()([np.zeros((48, 64, 3), np.uint8)]).shape
    (1, 3072)
    """

    side: int = SIDE
    name = "pixels"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", 1 / np.sqrt(3 * self.side**2))

    @property
    def identity(self) -> list[object]:
        return [self.name, self.side]

    def __call__(self, pictures: Sequence[Pixels]) -> Rows:
        return squashed(pictures, self.side).reshape(len(pictures), 3 * self.side**2)


#: Levels of a byte for one standard deviation: four of them to either side fit.
_LEVELS = 31.75
#: Grey levels added to the standard deviation, so that the noise of a flat picture is not blown up.
_FLOOR = 8.0


@dataclass(frozen=True)
class NormalisedPixelDescriptor(Descriptor):
    """Each colour minus its mean, all divided by their common standard deviation: exposure and contrast drop out."""

    side: int = 16
    name = "pixels-normalised"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", 1 / (_LEVELS * np.sqrt(3 * self.side**2)))

    @property
    def identity(self) -> list[object]:
        return [self.name, self.side, _LEVELS, _FLOOR]

    def __call__(self, pictures: Sequence[Pixels]) -> Rows:
        values = squashed(pictures, self.side).astype(np.float64)
        values -= values.mean(axis=(1, 2), keepdims=True)
        values /= values.std(axis=(1, 2, 3), keepdims=True) + _FLOOR
        levels = np.clip(np.rint(values * _LEVELS + 128), 0, 255).astype(np.uint8)
        return levels.reshape(len(pictures), 3 * self.side**2)


class FeatureDescriptor(Descriptor):
    """What a classifier sees, as a direction: rows have length 1."""

    def __init__(self, classifier: Classifier, layer: Layer = "auto") -> None:
        self.features = features_of(classifier, layer)
        kind = "features" if self.features.layer == "penultimate" else "scores"
        self.name = f"{kind}:{classifier.name}"

    @property
    def identity(self) -> list[object]:
        network = self.features.network
        return ["features", network.fingerprint, network.preprocessing.describe()]

    def __call__(self, pictures: Sequence[Pixels]) -> Rows:
        network = self.features.network
        if not pictures:
            return np.empty((0, self.features.size), np.float32)
        rows = network.scores(np.stack([network.preprocessing.geometry(picture) for picture in pictures]))
        rows = rows.astype(np.float64)
        if not np.isfinite(rows).all():
            raise ClassifierError(f"{network.name} returned nan or inf")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


@dataclass(frozen=True)
class _Described:
    """A descriptor as a computation; picklable, so that workers elsewhere can have it."""

    by: Descriptor
    mirrored: bool

    def __call__(self, pictures: Sequence[Pixels], indices: NDArray[np.int64]) -> Rows:
        return self.by([picture[:, ::-1] for picture in pictures] if self.mirrored else pictures)

    def computation(self) -> Computation:
        return Computation(self, [*self.by.identity, self.mirrored])


def describe(
    dataset: Dataset,
    descriptors: Sequence[Descriptor],
    *,
    mirrored: bool = False,
    folder: Path | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    show: bool = False,
) -> list[PerImage]:
    """The rows of a whole data set, or of its mirror images, by each descriptor; kept in ``folder``, if given."""
    what = f"describing {dataset.name}" + (" mirrored" if mirrored else "")
    computations = [_Described(one, mirrored).computation() for one in descriptors]
    return per_image(dataset, computations, what=what, folder=folder, workers=workers, executor=executor, show=show)


def pair_distances(a: Rows, b: Rows, first: NDArray[np.int64], second: NDArray[np.int64]) -> FloatArray:
    """l2 between given pairs of rows; a descriptor's ``scale`` makes it the distance that people read."""
    squares = np.empty(len(first))
    # Sorted by the second row: a memory-mapped reference set is then read from front to back.
    order = np.argsort(second, kind="stable")
    pair_squares(a, b, first[order], second[order], squares)
    distances = np.empty(len(first))
    distances[order] = np.sqrt(squares)
    return distances


def squashed(pictures: Sequence[Pixels], side: int) -> Pixels:
    """(N, side, side, 3): all of each picture, its proportions given up."""
    geometry = Geometry(resize=side, crop=None, resize_rule="exact", interpolation="bilinear")
    return np.stack([geometry(picture) for picture in pictures]) if pictures else np.empty((0, side, side, 3), np.uint8)


def descriptor(spec: str | Classifier | Descriptor) -> Descriptor:
    """By name ("pixels", "pixels-normalised"), or the features of a classifier or of its spec.

    >>> descriptor("pixels").name
    'pixels'
    """
    if isinstance(spec, Descriptor):
        return spec
    plain: dict[str, type[PixelDescriptor | NormalisedPixelDescriptor]] = {
        kind.name: kind for kind in (PixelDescriptor, NormalisedPixelDescriptor)
    }
    if isinstance(spec, str) and spec in plain:
        return plain[spec]()
    if isinstance(spec, Classifier):
        return FeatureDescriptor(spec)
    from shiftbench.classifiers.loading import load_classifier

    try:
        return FeatureDescriptor(load_classifier(spec))
    except ClassifierError as error:
        raise ShiftbenchError(
            f"{spec!r} describes no pictures",
            found=error.message,
            expected=f"{', '.join(plain)}, or a classifier such as demo:squeezenet1_1",
        ) from error
