"""Fisher vectors (Perronnin, Sanchez and Mensink 2010): how an image's descriptors would move a mixture of Gaussians.

Descriptors x_1 .. x_T go through PCA, and their position in the image is appended to them; a mixture with diagonal
covariances (weights w, means m, deviations s) is fitted to many images' descriptors. With the posteriors g_t(k),

    G_m(k) = 1 / (T sqrt(w_k))   sum_t g_t(k) (x_t - m_k) / s_k
    G_s(k) = 1 / (T sqrt(2 w_k)) sum_t g_t(k) ((x_t - m_k)^2 / s_k^2 - 1)

are the gradients of the mean log-likelihood in m and s, each in units of its own spread. Then come signed square roots
and unit length (the "improved" vector). As in paper 004 there are two kinds of descriptors, gradients and colours, each
with its own mixture; the paper had 16, 64 or 256 centres, on ImageNet.

Descriptors are dense: gradient histograms as in SIFT, and colour statistics, of 4 x 4 cells around every position.
OpenCV's SIFT would go through keypoints one by one, and its cells grow with a keypoint's scale; here the side of a cell
is given in pixels, so that it can suit images of 32, and a batch is described at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shiftbench.errors import DatasetError, MissingExtraError
from shiftbench.extend.options import Count, Positive
from shiftbench.extend.types import Pixels
from shiftbench.hardening.architectures.baselines.classifier import (
    BATCH,
    PART,
    Examples,
    Floats,
    ImageSide,
    check_arrays,
)
from shiftbench.hardening.errors import ArchitectureError

# Descriptors

#: Number of cells along a descriptor's side.
CELLS = 4
ORIENTATIONS = 8
GRADIENT_VALUES = CELLS**2 * ORIENTATIONS
COLOUR_VALUES = CELLS**2 * 3 * 2
#: As in SIFT, no orientation of one cell may dominate a descriptor (Lowe 2004).
_CLIP = 0.2
#: The strength of faint gradients, in grey levels. Their direction is noise, so their descriptors stay near zero.
_FAINT = 1.0
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def centres(size: int, cells: Sequence[int], step: int) -> Floats:
    """(T, 2): the positions of the descriptors' centres, rows first; each side of the image goes from -0.5 to 0.5."""
    grids = []
    for cell in cells:
        along = (np.arange(0, size - CELLS * cell + 1, step) + CELLS * cell / 2) / size - 0.5
        grids.append(np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2))
    return np.concatenate(grids).astype(np.float32)


def gradient_histograms(images: Pixels, cells: Sequence[int], step: int) -> Floats:
    """(N, T, 128): the gradient's strength by direction, in each cell; unit length, clipped, unit length again."""
    down, right = np.gradient(images @ _LUMA, axis=(1, 2))
    integral = _integral(_by_orientation(np.hypot(down, right), np.arctan2(down, right)))
    by_cell = [_descriptors(_cell_sums(integral, cell), cell, step) for cell in cells]
    descriptors = np.concatenate(by_cell, axis=1)
    return _unit(np.minimum(_unit(descriptors, _FAINT), _CLIP), 1e-6)


def colour_statistics(images: Pixels, cells: Sequence[int], step: int) -> Floats:
    """(N, T, 96): mean and standard deviation of each colour in each cell, from 0 to 1."""
    values = images / 255
    integral = _integral(values)
    integral_of_squares = _integral(values**2)
    by_cell = []
    for cell in cells:
        means = _cell_sums(integral, cell) / cell**2
        squares = _cell_sums(integral_of_squares, cell) / cell**2
        spread = np.sqrt(np.maximum(squares - means**2, 0))
        by_cell.append(_descriptors(np.concatenate([means, spread], axis=-1), cell, step))
    return np.concatenate(by_cell, axis=1)


def _by_orientation(strength: Floats, angle: Floats) -> Floats:
    """(N, H, W, 8): each gradient shared between the two nearest of eight directions."""
    turn = angle * np.float32(ORIENTATIONS / (2 * np.pi))
    gap = np.abs(turn[..., None] - np.arange(ORIENTATIONS, dtype=np.float32)) % ORIENTATIONS
    gap = np.minimum(gap, ORIENTATIONS - gap)
    return np.asarray(strength[..., None] * np.maximum(1 - gap, 0), np.float32)


def _integral(planes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Sums over all pixels above and to the left, in float64, because differences of these sums are used."""
    return np.pad(planes.cumsum(axis=1, dtype=np.float64).cumsum(axis=2), ((0, 0), (1, 0), (1, 0), (0, 0)))


def _cell_sums(integral: NDArray[np.float64], cell: int) -> NDArray[np.float64]:
    """(N, H, W, C): at every pixel the sums over the cell whose upper left corner it is."""
    rows = integral[:, cell:] - integral[:, :-cell]
    return np.asarray(rows[:, :, cell:] - rows[:, :, :-cell])


def _descriptors(cells: NDArray[np.float64], cell: int, step: int) -> Floats:
    """(N, T, 4 * 4 * C): the values of 4 x 4 cells side by side, at every ``step`` pixels."""
    reach = (CELLS - 1) * cell + 1
    windows = sliding_window_view(cells.astype(np.float32), (reach, reach), axis=(1, 2))
    windows = windows[:, ::step, ::step, :, ::cell, ::cell].transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(len(cells), windows.shape[1] * windows.shape[2], -1)


def _unit(values: Floats, faint: float) -> Floats:
    """Values of unit length; those shorter than ``faint`` stay short."""
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.asarray(values / np.maximum(lengths, np.float32(faint)), np.float32)


# Fisher vectors

#: Number of descriptors per image that PCA and mixture are fitted on, if there are enough images.
_EACH = 40
#: Number of values of descriptors, or of their posteriors, that are held at once.
_AT_ONCE = 1 << 25
#: Number of coordinates appended to each descriptor.
_COORDINATES = 2
#: The arrays of a mixture, by their names in files.
_ARRAYS = ("origin", "projection", "weights", "means", "variances")
#: The function of each kind of descriptor, and its number of values.
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

    @property
    def places(self) -> Floats:
        """The positions of an image's descriptors."""
        return centres(self.size, self.cells, self.step)

    def few(self, images: Pixels) -> list[Pixels]:
        """The images in groups, whose descriptors, or the posteriors of these, fill about a hundred megabytes."""
        values_per_image = len(self.places) * max(GRADIENT_VALUES, self.centres)
        each = min(BATCH, max(1, _AT_ONCE // values_per_image))
        return [images[start : start + each] for start in range(0, len(images), each)]

    def features(self, arrays: Mapping[str, NDArray[Any]]) -> FisherVectors:
        """The features, from the arrays of a file."""
        mixtures = {}
        for name, (_, values) in _KINDS.items():
            gaussians = (self.centres, self.components + _COORDINATES)
            shapes = ((values,), (self.components, values), (self.centres,), gaussians, gaussians)
            named_shapes = {f"{name}_{array}": shape for array, shape in zip(_ARRAYS, shapes, strict=True)}
            check_arrays(FisherVectors.kind, arrays, named_shapes)
            mixtures[name] = Mixture(*(arrays[key] for key in named_shapes))
        return FisherVectors(self, mixtures)

    def fit(self, examples: Examples, generator: np.random.Generator) -> FisherVectors:
        """Fits a mixture for each kind of descriptor."""
        images = examples.sample(math.ceil(self.descriptors / _EACH), generator)
        return FisherVectors(self, {kind: self._mixture(kind, images, generator) for kind in _KINDS})

    def _mixture(self, kind: str, images: Pixels, generator: np.random.Generator) -> Mixture:
        """PCA and mixture by scikit-learn, from the same number of random descriptors of each image."""
        try:
            from sklearn.decomposition import PCA
            from sklearn.mixture import GaussianMixture
        except ImportError as error:
            raise MissingExtraError("scikit-learn", "sklearn", "fitting Fisher vectors") from error
        descriptors, positions = self._random_descriptors(kind, images, generator)
        needed = max(self.components, 2 * self.centres)
        if len(descriptors) < needed:
            raise DatasetError(
                "too few descriptors for the mixture",
                found=f"{len(descriptors)} of {len(images)} images",
                expected=f"{needed} or more",
                hint="take more images, or fewer centres",
            )
        pca = PCA(self.components, svd_solver="covariance_eigh").fit(descriptors)
        settings = {"covariance_type": "diag", "reg_covar": 1e-5, "max_iter": 50, "tol": 1e-2}
        gaussians = GaussianMixture(self.centres, random_state=int(generator.integers(2**31)), **settings)
        gaussians.fit(np.concatenate([pca.transform(descriptors), positions], axis=1))
        arrays = (pca.mean_, pca.components_, gaussians.weights_, gaussians.means_, gaussians.covariances_)
        return Mixture(*(np.ascontiguousarray(array, np.float32) for array in arrays))

    def _random_descriptors(self, kind: str, images: Pixels, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """The same number of descriptors from each image, and their positions."""
        describe, _ = _KINDS[kind]
        places = self.places
        each = min(len(places), math.ceil(self.descriptors / len(images)))
        descriptors = []
        positions = []
        for group in self.few(images):
            for image_descriptors in describe(group, self.cells, self.step):
                indices = generator.choice(len(places), each, replace=False)
                descriptors.append(image_descriptors[indices])
                positions.append(places[indices])
        return np.concatenate(descriptors), np.concatenate(positions)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A projection to ``components`` values, and Gaussians with diagonal covariances of the projected values."""

    origin: Floats
    projection: Floats
    weights: Floats
    means: Floats
    variances: Floats
    #: The terms of the log-likelihood: constant, linear and quadratic.
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
        """(N, T, D) to (N, 2 K D): G_m of all Gaussians, then G_s, not yet "improved"."""
        posteriors = self.posteriors(x).transpose(0, 2, 1)
        count = posteriors.sum(axis=2)[..., None]
        first = posteriors @ x
        second = posteriors @ x**2
        deviations = np.sqrt(self.variances)
        shares = np.sqrt(self.weights)[:, None]
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
    """The features of the fitted mixtures."""

    kind: ClassVar[str] = "fisher-vectors"
    options: FisherVectorOptions
    mixtures: Mapping[str, Mixture]

    @property
    def arrays(self) -> Mapping[str, Floats]:
        arrays = {}
        for name, mixture in self.mixtures.items():
            for array in _ARRAYS:
                arrays[f"{name}_{array}"] = getattr(mixture, array)
        return arrays

    @property
    def count(self) -> int:
        return len(_KINDS) * 2 * self.options.centres * (self.options.components + _COORDINATES)

    def __call__(self, images: Pixels) -> Floats:
        return np.concatenate([self._vectors(kind, images) for kind in self.mixtures], axis=1)

    def _vectors(self, kind: str, images: Pixels) -> Floats:
        """The vectors of one kind, a few images at a time: the descriptors of a large image fill many megabytes."""
        describe, _ = _KINDS[kind]
        mixture = self.mixtures[kind]
        places = self.options.places
        vectors = []
        for group in self.options.few(images):
            x = mixture.project(describe(group, self.options.cells, self.options.step))
            positions = np.broadcast_to(places, (len(x), *places.shape))
            vectors.append(improved(mixture.gradients(np.concatenate([x, positions], axis=-1))))
        return np.concatenate(vectors)

    def parts(self) -> list[Callable[[Pixels], Floats]]:
        values_per_kind = self.count // len(_KINDS)
        starts = range(0, values_per_kind, PART)
        return [partial(self._part, kind, start) for kind, start in product(self.mixtures, starts)]

    def _part(self, kind: str, start: int, images: Pixels) -> Floats:
        return self._vectors(kind, images)[:, start : start + PART]
