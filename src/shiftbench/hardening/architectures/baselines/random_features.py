"""Random features (Coates, Lee and Ng 2011): one layer of filters that are patches of the images themselves.

For every patch of 6 x 6 pixels:

    q = (p - mean(p)) / sqrt(variance(p) + 10)          contrast, in grey levels of 0 to 255
    z = W (q - m),  W = V (L + 0.1)^-1/2 V'             ZCA whitening; m and V L V' are the patches' mean and covariance
    r = D z                                             D: whitened patches of unit length, drawn at random
    max(0, r - 0.25), max(0, -r - 0.25)                 both signs, rectified

and the means of these over the four quadrants of the image are the features. Paper 004 had 32,000 and 256,000 filters
and pools of 15 every 6 pixels (``pool=15, stride=6``). More than a few thousand filters are fitted in parts, which
takes time instead of memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shiftbench.errors import DatasetError
from shiftbench.extend.options import Count, Positive
from shiftbench.extend.types import Pixels
from shiftbench.hardening.architectures.baselines.classifier import PART, Examples, Floats, ImageSide, check_arrays
from shiftbench.hardening.errors import ArchitectureError

#: Number of filters whose responses are held at once.
_CHUNK = 256
#: Number of images that the patches come from.
_IMAGES = 2000
#: Whitened patches shorter than this are flat: scaled to unit length, they would be noise.
_FLAT = 1e-3


@dataclass(frozen=True)
class RandomFeatureOptions:
    """``patches``: their number for the whitening. ``ridge``: the strength of least squares. ``flips``: mirror, too."""

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
        """The number of patches along one side."""
        return self.size - self.patch + 1

    @property
    def pools(self) -> list[slice]:
        """The pools along one side."""
        return [slice(start, start + self.pool) for start in range(0, self.places - self.pool + 1, self.stride)]

    def features(self, arrays: Mapping[str, NDArray[Any]]) -> RandomFeatures:
        """The features, from the arrays of a file."""
        shapes = {"filters": (self.filters, 3 * self.patch**2), "offset": (self.filters,)}
        check_arrays(RandomFeatures.kind, arrays, shapes)
        return RandomFeatures(self, arrays["filters"], arrays["offset"])

    def fit(self, examples: Examples, generator: np.random.Generator) -> RandomFeatures:
        """Draws the filters from patches, the same number from each of some images, at random positions."""
        images = examples.sample(_IMAGES, generator)
        image_numbers = np.resize(np.arange(len(images)), self.patches)[:, None, None]
        rows, columns = generator.integers(self.places, size=(2, self.patches))[:, :, None, None]
        side = np.arange(self.patch)
        pixels = images[image_numbers, rows + side[:, None], columns + side].reshape(self.patches, -1)
        patches = contrasted(pixels, self.contrast)
        mean, whiten = whitening(patches, self.whitening)
        whitened = (patches - mean) @ whiten
        lengths = np.linalg.norm(whitened, axis=1)
        usable = np.flatnonzero(lengths > _FLAT)
        if len(usable) < self.filters:
            raise DatasetError(
                "the images have too few different patches",
                found=f"{len(usable)} of {len(patches)} that are not flat",
                expected=f"{self.filters}, one per filter",
                hint="take fewer filters, or more patches",
            )
        indices = generator.choice(usable, self.filters, replace=False)
        filters = whitened[indices] / lengths[indices, None] @ whiten
        return RandomFeatures(self, filters.astype(np.float32), (filters @ mean).astype(np.float32))


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """``filters`` are D W and ``offset`` is D W m, so that one product whitens and filters."""

    kind: ClassVar[str] = "random-features"
    options: RandomFeatureOptions
    filters: Floats
    offset: Floats

    @property
    def arrays(self) -> Mapping[str, Floats]:
        return {"filters": self.filters, "offset": self.offset}

    @property
    def count(self) -> int:
        return len(self.filters) * self._values_per_filter

    @property
    def _values_per_filter(self) -> int:
        return 2 * len(self.options.pools) ** 2

    def parts(self) -> list[RandomFeatures]:
        """The features in parts that are whole chunks, so that their features follow each other as in one piece."""
        size = max(1, PART // self._values_per_filter // _CHUNK) * _CHUNK
        parts = []
        for start in range(0, len(self.filters), size):
            filters = slice(start, start + size)
            parts.append(replace(self, filters=self.filters[filters], offset=self.offset[filters]))
        return parts

    def __call__(self, images: Pixels) -> Floats:
        side = self.options.patch
        # (N, places, places, values): the values of a patch are (rows, columns, colours).
        windows = sliding_window_view(images, (side, side), axis=(1, 2)).transpose(0, 1, 2, 4, 5, 3)
        patches = contrasted(windows.reshape(*windows.shape[:3], -1), self.options.contrast)
        pooled = []
        for start in range(0, len(self.filters), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            responses = patches @ self.filters[chunk].T - self.offset[chunk]
            for sign in (1, -1):
                rectified = np.maximum(sign * responses - np.float32(self.options.threshold), 0)
                for rows, columns in product(self.options.pools, self.options.pools):
                    pooled.append(rectified[:, rows, columns].mean(axis=(1, 2)))
        return np.concatenate(pooled, axis=1)


def contrasted(patches: NDArray[np.generic], contrast: float) -> Floats:
    """Patches with mean zero and about unit variance; ``contrast`` keeps flat patches small."""
    values = patches.astype(np.float32)
    values -= values.mean(axis=-1, keepdims=True)
    values /= np.sqrt(np.square(values).mean(axis=-1, keepdims=True) + np.float32(contrast))
    return values


def whitening(patches: Floats, epsilon: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The patches' mean, and the symmetric matrix that makes their covariance (nearly) the identity."""
    mean = patches.mean(axis=0, dtype=np.float64)
    values, vectors = np.linalg.eigh(np.cov(patches.astype(np.float64), rowvar=False))
    return mean, vectors / np.sqrt(np.maximum(values, 0) + epsilon) @ vectors.T
