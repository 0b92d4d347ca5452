"""Fisher vectors (Perronnin, Sanchez and Mensink 2010): how an image's descriptors would move a mixture of Gaussians.

Descriptors x_1 .. x_T go through PCA, and their place in the image is put behind them; a mixture with diagonal
covariances (weights w, means m, deviations s) is fitted to many images' descriptors. With the posteriors g_t(k),

    G_m(k) = 1 / (T sqrt(w_k))   sum_t g_t(k) (x_t - m_k) / s_k
    G_s(k) = 1 / (T sqrt(2 w_k)) sum_t g_t(k) ((x_t - m_k)^2 / s_k^2 - 1)

are the gradients of the mean log-likelihood in m and s, each in units of its own spread. Then signed square roots and
unit length (the "improved" vector). As in paper 004 there are two kinds of descriptors, gradients and colours, each
with its own mixture; the paper had 16, 64 or 256 centres, on ImageNet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError, MissingExtraError
from shiftbench.hardening.architectures.baselines.classifier import (
    BATCH,
    BaselineClassifier,
    Examples,
    Floats,
    ImageSide,
    check_arrays,
    fit_classifier,
)
from shiftbench.hardening.architectures.baselines.descriptors import (
    CELLS,
    COLOUR_VALUES,
    GRADIENT_VALUES,
    centres,
    colour_statistics,
    gradient_histograms,
)
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.io.schema import Count, Positive
from shiftbench.labels.space import LabelSpace

#: Descriptors of one image that PCA and mixture are fitted on, if there are images enough.
_EACH = 40
#: Coordinates put behind each descriptor.
_PLACE = 2
#: Each kind of descriptor and how many values it has.
_KINDS: Mapping[str, tuple[Callable[[Pixels, Sequence[int], int], Floats], int]] = {
    "gradients": (gradient_histograms, GRADIENT_VALUES),
    "colours": (colour_statistics, COLOUR_VALUES),
}


@dataclass(frozen=True)
class FisherVectorOptions:
    """``cells``: their sides in pixels, one per scale. ``descriptors``: how many the mixture is fitted on."""

    centres: Count = 32
    components: Annotated[int, Meta(ge=1, le=COLOUR_VALUES)] = 32
    cells: tuple[Count, ...] = (2, 3, 4)
    step: Count = 2
    descriptors: Count = 40_000
    ridge: Positive = 1.0
    flips: bool = False
    size: ImageSide = 32

    def __post_init__(self) -> None:
        object.__setattr__(self, "cells", tuple(self.cells))
        if not self.cells or any(CELLS * cell > self.size for cell in self.cells):
            raise ArchitectureError(
                "descriptors of four cells do not fit the image",
                found=f"cells of {', '.join(map(str, self.cells)) or 'no'} pixels",
                expected=f"1 to {self.size // CELLS} pixels for images of {self.size}",
            )


@dataclass(frozen=True, eq=False)
class Mixture:
    """A projection to ``components`` values, and Gaussians with diagonal covariances behind it."""

    origin: Floats
    projection: Floats
    weights: Floats
    means: Floats
    variances: Floats
    _terms: tuple[Floats, Floats, Floats] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.variances <= 0).any() or (self.weights <= 0).any():
            raise ArchitectureError("weights and variances of a mixture are positive")
        constant = np.log(self.weights) - 0.5 * (
            np.log(2 * np.pi * self.variances) + self.means**2 / self.variances
        ).sum(axis=1)
        object.__setattr__(self, "_terms", (constant, self.means / self.variances, -0.5 / self.variances))

    def project(self, descriptors: Floats) -> Floats:
        return np.asarray((descriptors - self.origin) @ self.projection.T, np.float32)

    def posteriors(self, x: Floats) -> Floats:
        constant, linear, square = self._terms
        logs = x @ linear.T + x**2 @ square.T + constant
        shares = np.exp(logs - logs.max(axis=-1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=-1, keepdims=True), np.float32)

    def gradients(self, x: Floats) -> Floats:
        """(N, T, D) to (N, 2 K D): G_m of all Gaussians, then G_s, as they are."""
        posteriors = self.posteriors(x).transpose(0, 2, 1)
        count = posteriors.sum(axis=2)[..., None]
        first, second = posteriors @ x, posteriors @ x**2
        deviations, shares = np.sqrt(self.variances), np.sqrt(self.weights)[:, None]
        by_mean = (first - self.means * count) / deviations / shares
        centred = second - 2 * self.means * first + self.means**2 * count
        by_deviation = (centred / self.variances - count) / (np.sqrt(np.float32(2)) * shares)
        both = np.stack([by_mean, by_deviation], axis=1) / np.float32(x.shape[1])
        return np.asarray(both.reshape(len(x), -1), np.float32)


def improved(vectors: Floats) -> Floats:
    """Signed square roots, then unit length."""
    roots = np.sign(vectors) * np.sqrt(np.abs(vectors))
    return np.asarray(roots / np.maximum(np.linalg.norm(roots, axis=1, keepdims=True), 1e-12), np.float32)


@dataclass(frozen=True, eq=False)
class FisherVectors:
    kind: ClassVar[str] = "fisher-vectors"
    options: FisherVectorOptions
    mixtures: Mapping[str, Mixture]

    @classmethod
    def from_arrays(cls, options: FisherVectorOptions, arrays: Mapping[str, NDArray[Any]]) -> FisherVectors:
        components, dimensions = options.components, options.components + _PLACE
        mixtures = {}
        for name, (_, values) in _KINDS.items():
            shapes = {
                "origin": (values,),
                "projection": (components, values),
                "weights": (options.centres,),
                "means": (options.centres, dimensions),
                "variances": (options.centres, dimensions),
            }
            check_arrays(cls.kind, arrays, {f"{name}_{part}": shape for part, shape in shapes.items()})
            mixtures[name] = Mixture(**{part: arrays[f"{name}_{part}"] for part in shapes})
        return cls(options, mixtures)

    @property
    def arrays(self) -> Mapping[str, Floats]:
        parts = ("origin", "projection", "weights", "means", "variances")
        return {f"{name}_{part}": getattr(m, part) for name, m in self.mixtures.items() for part in parts}

    @property
    def count(self) -> int:
        return len(_KINDS) * 2 * self.options.centres * (self.options.components + _PLACE)

    def __call__(self, images: Pixels) -> Floats:
        parts, places = [], centres(self.options.size, self.options.cells, self.options.step)
        for name, mixture in self.mixtures.items():
            describe, _ = _KINDS[name]
            x = mixture.project(describe(images, self.options.cells, self.options.step))
            placed = np.broadcast_to(places, (len(x), *places.shape))
            parts.append(improved(mixture.gradients(np.concatenate([x, placed], axis=-1))))
        return np.concatenate(parts, axis=1)


def fit_mixture(kind: str, images: Pixels, options: FisherVectorOptions, generator: np.random.Generator) -> Mixture:
    """PCA and mixture by scikit-learn."""
    try:
        from sklearn.decomposition import PCA
        from sklearn.mixture import GaussianMixture
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "sklearn", "fitting Fisher vectors") from error
    descriptors, places = _some_descriptors(kind, images, options, generator)
    needed = max(options.components, 2 * options.centres)
    if len(descriptors) < needed:
        raise DatasetError(
            "too few descriptors for the mixture",
            found=f"{len(descriptors)} of {len(images)} images",
            expected=f"{needed} or more",
            hint="take more images, or fewer centres",
        )
    pca = PCA(options.components, svd_solver="covariance_eigh").fit(descriptors)
    gaussians = GaussianMixture(
        options.centres,
        covariance_type="diag",
        reg_covar=1e-5,
        max_iter=50,
        tol=1e-2,
        random_state=int(generator.integers(2**31)),
    ).fit(np.concatenate([pca.transform(descriptors), places], axis=1))
    parts = (pca.mean_, pca.components_, gaussians.weights_, gaussians.means_, gaussians.covariances_)
    return Mixture(*(np.ascontiguousarray(part, np.float32) for part in parts))


def _some_descriptors(
    kind: str, images: Pixels, options: FisherVectorOptions, generator: np.random.Generator
) -> tuple[Floats, Floats]:
    """Equally many of each image, by chance, and their places."""
    (describe, _), places = _KINDS[kind], centres(options.size, options.cells, options.step)
    each = min(len(places), -(-options.descriptors // len(images)))
    found, found_places = [], []
    for start in range(0, len(images), BATCH):
        for descriptors in describe(images[start : start + BATCH], options.cells, options.step):
            chosen = generator.choice(len(places), each, replace=False)
            found.append(descriptors[chosen])
            found_places.append(places[chosen])
    return np.concatenate(found), np.concatenate(found_places)


def fit_features(examples: Examples, options: FisherVectorOptions, generator: np.random.Generator) -> FisherVectors:
    images = examples.sample(-(-options.descriptors // _EACH), generator)
    return FisherVectors(options, {kind: fit_mixture(kind, images, options, generator) for kind in _KINDS})


def fit_fisher_vectors(
    data: Dataset | Pixels,
    labels: Sequence[int] | NDArray[np.generic] | None = None,
    space: LabelSpace | None = None,
    *,
    seed: int = 0,
    options: FisherVectorOptions | None = None,
    name: str | None = None,
    show: bool = False,
) -> BaselineClassifier:
    """A classifier from a dataset, or from images (N, H, W, 3) with their labels and classes."""
    options = options or FisherVectorOptions()
    examples = Examples.of(data, labels, space, options.size)
    features = fit_features(examples, options, np.random.default_rng(seed))
    return fit_classifier(features, examples, name=name, show=show)
