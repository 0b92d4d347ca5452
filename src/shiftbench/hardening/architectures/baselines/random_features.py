"""Random features (Coates, Lee and Ng 2011): one layer of filters that are patches of the images themselves.

For every patch of 6 x 6 pixels:

    q = (p - mean(p)) / sqrt(variance(p) + 10)          contrast, in grey levels of 0 to 255
    z = W (q - m),  W = V (L + 0.1)^-1/2 V'             ZCA whitening; m and V L V' are the patches' mean and covariance
    r = D z                                             D: whitened patches of unit length, drawn by chance
    max(0, r - 0.25), max(0, -r - 0.25)                 both signs, rectified

and the means of these over the four quadrants of the image are the features. Paper 004 had up to 256,000 filters
and pools of 15 every 6 pixels (``pool=15, stride=6``); as many as fit into the memory of one machine are some 4,000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError
from shiftbench.hardening.architectures.baselines.classifier import (
    BaselineClassifier,
    Examples,
    Floats,
    ImageSide,
    check_arrays,
    fit_classifier,
)
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count, Positive
from shiftbench.labels.space import LabelSpace

#: Filters whose answers are held at once.
_CHUNK = 256
#: Images that the patches come from.
_IMAGES = 2000
#: Whitened patches shorter than this are flat: scaled to unit length they would be noise.
_FLAT = 1e-3


@dataclass(frozen=True)
class RandomFeatureOptions:
    """``patches``: how many the whitening is estimated from. ``ridge``: see ``ridge``. ``flips``: mirrored ones too."""

    filters: Count = 256
    patch: Annotated[int, Meta(ge=2)] = 6
    pool: Count = 14
    stride: Count = 13
    threshold: Positive = 0.25
    contrast: Positive = 10.0
    whitening: Positive = 0.1
    patches: Count = 20_000
    ridge: Positive = 0.1
    flips: bool = False
    size: ImageSide = 32

    def __post_init__(self) -> None:
        if self.pool > self.places:
            raise ArchitectureError(
                "the pool is larger than what it pools",
                found=f"pool {self.pool}",
                expected=f"at most {self.places}: {self.size} pixels hold {self.places} patches of {self.patch}",
            )

    @property
    def places(self) -> int:
        """Patches along one side."""
        return self.size - self.patch + 1

    @property
    def pools(self) -> list[slice]:
        """Along one side."""
        return [slice(start, start + self.pool) for start in range(0, self.places - self.pool + 1, self.stride)]


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """``filters`` are D W, ``offset`` is D W m: whitening and filter in one product."""

    kind: ClassVar[str] = "random-features"
    options: RandomFeatureOptions
    filters: Floats
    offset: Floats

    @classmethod
    def from_arrays(cls, options: RandomFeatureOptions, arrays: Mapping[str, NDArray[Any]]) -> RandomFeatures:
        shapes = {"filters": (options.filters, 3 * options.patch**2), "offset": (options.filters,)}
        check_arrays(cls.kind, arrays, shapes)
        return cls(options, arrays["filters"], arrays["offset"])

    @property
    def arrays(self) -> Mapping[str, Floats]:
        return {"filters": self.filters, "offset": self.offset}

    @property
    def count(self) -> int:
        return 2 * self.options.filters * len(self.options.pools) ** 2

    def __call__(self, images: Pixels) -> Floats:
        patches = contrasted(all_patches(images, self.options.patch), self.options.contrast)
        parts = [self._pooled(patches, slice(start, start + _CHUNK)) for start in range(0, len(self.filters), _CHUNK)]
        return np.concatenate(parts, axis=1)

    def _pooled(self, patches: Floats, chunk: slice) -> Floats:
        answers = patches @ self.filters[chunk].T - self.offset[chunk]
        pooled = [pool for sign in (1, -1) for pool in self._pools(np.maximum(sign * answers - self._threshold, 0))]
        return np.concatenate(pooled, axis=1)

    def _pools(self, answers: Floats) -> Iterator[Floats]:
        for rows in self.options.pools:
            for columns in self.options.pools:
                yield answers[:, rows, columns].mean(axis=(1, 2))

    @property
    def _threshold(self) -> np.float32:
        return np.float32(self.options.threshold)


def all_patches(images: Pixels, side: int) -> NDArray[np.uint8]:
    """(N, places, places, values), a view as long as it can be; the values of a patch are (rows, columns, colours)."""
    windows = sliding_window_view(images, (side, side), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(*windows.shape[:3], -1)


def contrasted(patches: NDArray[np.generic], contrast: float) -> Floats:
    values = patches.astype(np.float32)
    values -= values.mean(axis=-1, keepdims=True)
    values /= np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + np.float32(contrast))
    return values


def whitening(patches: Floats, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The patches' mean, and the symmetric matrix that makes their covariance (nearly) the identity."""
    mean = patches.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(np.cov(patches.astype(np.float64), rowvar=False))
    return mean, vectors / np.sqrt(np.maximum(values, 0) + epsilon) @ vectors.T


def fit_features(examples: Examples, options: RandomFeatureOptions, generator: np.random.Generator) -> RandomFeatures:
    patches = contrasted(_some_patches(examples, options, generator), options.contrast)
    mean, whiten = whitening(patches, options.whitening)
    whitened = (patches - mean) @ whiten
    lengths = np.linalg.norm(whitened, axis=1)
    usable = np.flatnonzero(lengths > _FLAT)
    if len(usable) < options.filters:
        raise DatasetError(
            "the images have too few different patches",
            found=f"{len(usable)} of {len(patches)} that are not flat",
            expected=f"{options.filters}, one per filter",
            hint="take fewer filters, or more patches",
        )
    chosen = generator.choice(usable, options.filters, replace=False)
    filters = whitened[chosen] / lengths[chosen, None] @ whiten
    return RandomFeatures(options, filters.astype(np.float32), (filters @ mean).astype(np.float32))


def _some_patches(
    examples: Examples, options: RandomFeatureOptions, generator: np.random.Generator
) -> NDArray[np.uint8]:
    """Equally many from each of some images, from random places."""
    images = examples.sample(_IMAGES, generator)
    owners = np.resize(np.arange(len(images)), options.patches)
    rows, columns = generator.integers(options.places, size=(2, options.patches))
    side = range(options.patch)
    picked = images[
        owners[:, None, None], rows[:, None, None] + np.array(side)[:, None], columns[:, None, None] + np.array(side)
    ]
    flat: NDArray[np.uint8] = picked.reshape(options.patches, -1)
    return flat


def fit_random_features(
    data: Dataset | Pixels,
    labels: Sequence[int] | NDArray[np.generic] | None = None,
    space: LabelSpace | None = None,
    *,
    seed: int = 0,
    options: RandomFeatureOptions | None = None,
    name: str | None = None,
    show: bool = False,
) -> BaselineClassifier:
    """A classifier from a dataset, or from images (N, H, W, 3) with their labels and classes."""
    options = options or RandomFeatureOptions()
    examples = Examples.of(data, labels, space, options.size)
    features = fit_features(examples, options, np.random.default_rng(seed))
    return fit_classifier(features, examples, name=name, show=show)
