"""Descriptors: images as vectors, so that near-duplicates are close in l2.

| name | row | distance |
|---|---|---|
| ``pixels`` | the image resized to 32 x 32, uint8 | root mean square difference in grey levels |
| ``pixels-normalised`` | resized to 16 x 16, brightness and contrast removed | the same in standard deviations |
| ``features:NAME`` | penultimate layer of model NAME, normalised to length 1 | 0 (same direction) to 2 |
| ``scores:NAME`` | its scores, if its last layer cannot be removed | 0 to 2 |
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError, ShiftbenchError
from shiftbench.jobs.blocks import Computation, ComputeOptions, PerImage, per_image
from shiftbench.testsets.near_duplicates.penultimate import Layer, features_of
from shiftbench.testsets.near_duplicates.search import pair_squares

Rows = NDArray[np.generic]
#: Side of the resized image that SSIM and alignment also compare.
SIDE = 32


class Descriptor(ABC):
    """Maps images to rows; ``scale`` times the l2 distance of rows is the reported distance."""

    name: str
    scale: float = 1.0

    @property
    @abstractmethod
    def identity(self) -> list[object]:
        """JSON-serialisable: everything that determines the rows."""

    @abstractmethod
    def __call__(self, images: Sequence[Pixels]) -> Rows:
        """(N, D), uint8 or float32."""


@dataclass(frozen=True)
class PixelDescriptor(Descriptor):
    """The image resized to a small square, which ignores its aspect ratio.

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

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        return squashed(images, self.side).reshape(len(images), 3 * self.side**2)


#: Byte levels per standard deviation: the range is four standard deviations in either direction.
_LEVELS = 31.75
#: Grey levels added to the standard deviation, so that the noise of a flat image is not amplified.
_FLOOR = 8.0


@dataclass(frozen=True)
class NormalisedPixelDescriptor(Descriptor):
    """Each channel minus its mean, divided by the common standard deviation: ignores exposure and contrast."""

    side: int = 16
    name = "pixels-normalised"

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", 1 / (_LEVELS * np.sqrt(3 * self.side**2)))

    @property
    def identity(self) -> list[object]:
        return [self.name, self.side, _LEVELS, _FLOOR]

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        values = squashed(images, self.side).astype(np.float64)
        values -= values.mean(axis=(1, 2), keepdims=True)
        values /= values.std(axis=(1, 2, 3), keepdims=True) + _FLOOR
        levels = np.clip(np.rint(values * _LEVELS + 128), 0, 255).astype(np.uint8)
        return levels.reshape(len(images), 3 * self.side**2)


class FeatureDescriptor(Descriptor):
    """Features of a classifier, normalised to length 1."""

    def __init__(self, classifier: Classifier, layer: Layer = "auto") -> None:
        self.features = features_of(classifier, layer)
        kind = "features" if self.features.layer == "penultimate" else "scores"
        self.name = f"{kind}:{classifier.name}"

    @property
    def identity(self) -> list[object]:
        network = self.features.network
        return ["features", network.fingerprint, network.preprocessing.describe()]

    def __call__(self, images: Sequence[Pixels]) -> Rows:
        network = self.features.network
        if not images:
            return np.empty((0, self.features.size), np.float32)
        rows = network.scores(np.stack([network.preprocessing.geometry(image) for image in images]))
        rows = rows.astype(np.float64)
        if not np.isfinite(rows).all():
            raise ClassifierError(f"{network.name} returned nan or inf")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.asarray(rows / np.where(lengths > 0, lengths, 1), np.float32)


@dataclass(frozen=True)
class _Described:
    """A descriptor as a computation that can be pickled for remote workers."""

    by: Descriptor
    mirrored: bool

    def __call__(self, images: Sequence[Pixels], indices: IntArray) -> Rows:
        return self.by([image[:, ::-1] for image in images] if self.mirrored else images)

    def computation(self) -> Computation:
        return Computation(self, [*self.by.identity, self.mirrored])


def describe(
    dataset: Dataset,
    descriptors: Sequence[Descriptor],
    options: ComputeOptions | None = None,
    *,
    mirrored: bool = False,
) -> list[PerImage]:
    """The rows of a dataset, or of its mirror images, for each descriptor; cached if there is a folder."""
    what = f"describing {dataset.name}" + (" mirrored" if mirrored else "")
    computations = [_Described(one, mirrored).computation() for one in descriptors]
    return per_image(dataset, computations, options, what=what)


def pair_distances(a: Rows, b: Rows, first: IntArray, second: IntArray) -> FloatArray:
    """l2 between pairs of rows; multiply by the descriptor's ``scale`` to get its distance."""
    squares = np.empty(len(first))
    # Sorted by the second row, so that a memory-mapped reference set is read sequentially.
    order = np.argsort(second, kind="stable")
    pair_squares(a, b, first[order], second[order], squares)
    distances = np.empty(len(first))
    distances[order] = np.sqrt(squares)
    return distances


def squashed(images: Sequence[Pixels], side: int) -> Pixels:
    """(N, side, side, 3): whole images, resized without keeping their aspect ratio."""
    geometry = Geometry(resize=side, crop=None, resize_rule="exact", interpolation="bilinear")
    return np.stack([geometry(image) for image in images]) if images else np.empty((0, side, side, 3), np.uint8)


def descriptor(spec: str | Classifier | Descriptor) -> Descriptor:
    """A descriptor by name ("pixels", "pixels-normalised"), or the features of a classifier or model spec.

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
            f"unknown descriptor {spec!r}",
            found=error.message,
            expected=f"{', '.join(plain)}, or a model such as demo:squeezenet1_1",
        ) from error
