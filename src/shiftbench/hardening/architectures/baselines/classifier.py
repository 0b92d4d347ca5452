"""A baseline as a classifier: examples to fit on, features, and a linear layer by least squares.

Least squares on features that come in batches keeps only their second moments, whatever the number of images. The
features are centred and scaled to unit variance, from those same moments; then for targets Y of zeros and ones

    W = (X'X / n + strength * I)^-1  X'Y / n

with the scaling folded into the result. So ``strength`` means the same for any number of images and features.

More features than have moments of half a gigabyte are fitted in parts, by block coordinate descent: the weights of one
part at a time, to what the other parts leave of Y. Features are made anew for each part, so that memory holds one part
and one number per image and class.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Protocol, TypeVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from shiftbench import Dataset, Geometry, LabelSpace, Normalisation, Preprocessing
from shiftbench.errors import BadImageError, DatasetError
from shiftbench.extend.classifiers import BatchedClassifier
from shiftbench.extend.io import digest
from shiftbench.extend.options import decode
from shiftbench.extend.types import Pixels
from shiftbench.hardening.errors import ArchitectureError
from shiftbench.jobs import Advance, progress_bar

# Examples

#: Pixels along a side: beyond it the features of one image fill gigabytes.
ImageSide = Annotated[int, Meta(ge=1, le=512)]


def preprocessing_for(size: int) -> Preprocessing:
    """Squares of ``size`` pixels, squashed if needed; values stay 0 to 255."""
    raw = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1, layout="nhwc")
    return Preprocessing(Geometry(resize=size, crop=None, resize_rule="exact"), raw)


class Examples:
    """The labelled images of a dataset; unreadable images are left out."""

    def __init__(self, dataset: Dataset, size: int) -> None:
        self.dataset = dataset
        self._geometry = preprocessing_for(size).geometry
        self._labelled: NDArray[np.int64] = np.flatnonzero(dataset.labels >= 0)
        if not len(self._labelled):
            raise DatasetError(f"{dataset.name!r} has no labelled image", found=f"{len(dataset)} images")

    def __len__(self) -> int:
        return len(self._labelled)

    def batches(self, size: int) -> Iterator[tuple[Pixels, NDArray[np.generic]]]:
        """All images in order, with their labels."""
        for start in range(0, len(self), size):
            indices, images = self._read(self._labelled[start : start + size])
            if images:
                yield np.stack(images), self.dataset.labels[indices]

    def sample(self, count: int, generator: np.random.Generator) -> Pixels:
        """A random selection of ``count`` images, or all if there are fewer."""
        indices = generator.permutation(self._labelled)[:count]
        _, images = self._read(np.sort(indices))
        if not images:
            raise DatasetError(f"no image of {self.dataset.name!r} can be read", found=f"{len(indices)} tried")
        return np.stack(images)

    def _read(self, indices: NDArray[np.int64]) -> tuple[list[int], list[Pixels]]:
        """The indices of the images that can be read, and these images."""
        readable = []
        images = []
        for index in indices.tolist():
            with contextlib.suppress(BadImageError):
                images.append(self._geometry(self.dataset.read(index).pixels))
                readable.append(index)
        return readable, images


# Least squares

Floats = NDArray[np.float32]
#: Number of features that are fitted at once.
PART = 1 << 13
#: Rounds over several parts end when a round changes the residuals by less than this share.
_SMALL_CHANGE = 0.02
_MOST_ROUNDS = 5
#: Number of images whose products are summed at once: the sums are as large as the square of the features.
_ROWS = 512
#: A feature that varies less than this, relative to its size, counts as constant and is left out.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class Linear:
    """features @ weights + bias."""

    weights: Floats
    bias: Floats

    def __call__(self, features: Floats) -> Floats:
        return features @ self.weights + self.bias


class StreamingRidge:
    """Ridge regression: ``add`` takes batches; ``solve`` may be called at any time, for several strengths."""

    def __init__(self, features: int, targets: int) -> None:
        self._count = 0
        self._targets = np.zeros(targets)
        self._total = np.zeros(features)
        self._sums = np.zeros((features, targets))
        self._products = np.zeros((features, features))
        self._origin: NDArray[np.float64] | None = None
        self._waiting: list[tuple[Floats, Floats]] = []

    def add(self, features: Floats, targets: Floats) -> None:
        self._waiting.append((features, targets))
        if sum(len(rows) for rows, _ in self._waiting) >= _ROWS:
            self._take()

    def _take(self) -> None:
        """Adds the waiting batches to the sums."""
        if not self._waiting:
            return
        features, targets = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._waiting.clear()
        if self._origin is None:
            # Moments around a mean that is nearly right lose no digits to the mean.
            self._origin = features.mean(axis=0, dtype=np.float64)
        centred = features - self._origin.astype(np.float32)
        self._count += len(features)
        self._targets += targets.sum(axis=0, dtype=np.float64)
        self._total += centred.sum(axis=0, dtype=np.float64)
        self._sums += centred.T @ targets
        self._products += centred.T @ centred

    def solve(self, strength: float) -> Linear:
        if not self._count and sum(len(rows) for rows, _ in self._waiting) < len(self._total):
            return self._solve_few(strength)
        self._take()
        assert self._origin is not None
        origin = self._origin.astype(np.float32)
        target = self._targets / self._count
        mean = self._total / self._count
        # E[x y] - E[x] E[y] for each feature and class.
        covariance = self._sums / self._count - np.outer(mean, target)
        variance = np.diag(self._products) / self._count - mean**2
        varies = variance > (_CONSTANT * np.maximum(np.abs(origin), _CONSTANT)) ** 2
        scale = np.divide(1.0, np.sqrt(np.maximum(variance, 1e-300)), where=varies, out=np.zeros_like(variance))
        moments = self._products / self._count
        moments -= np.outer(mean, mean)
        moments *= scale[:, None]
        moments *= scale
        moments[np.diag_indices_from(moments)] += strength
        solved = cho_solve(cho_factor(moments, overwrite_a=True, lower=True), scale[:, None] * covariance)
        weights = scale[:, None] * solved
        return Linear(weights.astype(np.float32), (target - (mean + origin) @ weights).astype(np.float32))

    def _solve_few(self, strength: float) -> Linear:
        """For fewer images than features, from a system of their size: W = X' (XX' / n + strength * I)^-1 Y / n."""
        features, targets = (np.concatenate(batches).astype(np.float64) for batches in zip(*self._waiting, strict=True))
        mean = features.mean(axis=0)
        target = targets.mean(axis=0)
        deviation = features.std(axis=0)
        varies = deviation > _CONSTANT * np.maximum(np.abs(mean), _CONSTANT)
        scale = np.divide(1.0, deviation, where=varies, out=np.zeros_like(deviation))
        rows = (features - mean) * scale
        moments = rows @ rows.T / len(rows) + strength * np.eye(len(rows))
        weights = scale[:, None] * (rows.T @ np.linalg.solve(moments, (targets - target) / len(rows)))
        return Linear(weights.astype(np.float32), (target - mean @ weights).astype(np.float32))


# The classifier

T = TypeVar("T")
#: Number of images whose features are computed at once.
BATCH = 32


class FittedFeatures(Protocol):
    """uint8 images (N, size, size, 3) to float32 features (N, count)."""

    #: The name in files, and the classifier's name by default.
    kind: ClassVar[str]

    @property
    def options(self) -> Any:
        """A dataclass with ``size``, ``ridge`` and ``flips``."""

    @property
    def count(self) -> int: ...

    @property
    def arrays(self) -> Mapping[str, Floats]: ...

    def __call__(self, images: Pixels) -> Floats: ...

    def parts(self) -> Sequence[Callable[[Pixels], Floats]]:
        """The same features in the same order, in parts that are fitted one at a time, each of at most ``PART``."""


class FittingOptions(Protocol):
    """The options of a kind of baseline."""

    @property
    def size(self) -> int: ...

    def fit(self, examples: Examples, generator: np.random.Generator) -> FittedFeatures: ...


class BaselineClassifier(BatchedClassifier):
    """Its scores are least-squares estimates of 0 and 1, good for ranking; their softmax is no confidence."""

    def __init__(self, features: FittedFeatures, head: Linear, *, space: LabelSpace, name: str | None = None) -> None:
        super().__init__()
        self.features = features
        self.head = head
        self.space = space
        self.name = name or features.kind
        self.preprocessing = preprocessing_for(features.options.size)
        self.batch_size = BATCH
        self.engine = "numpy"

    @cached_property
    def fingerprint(self) -> str:
        arrays = {**self.features.arrays, "weights": self.head.weights, "bias": self.head.bias}
        contents: list[str | bytes] = []
        for name in sorted(arrays):
            contents += [name, np.ascontiguousarray(arrays[name]).tobytes()]
        return digest(self.features.kind, asdict(self.features.options), *contents)

    def rows(self) -> int:
        """All batches have the same number of rows, because matrix products round differently for other shapes."""
        return self.batch_size

    def forward(self, images: Pixels) -> NDArray[np.float32]:
        if images.shape[1:3] != self.preprocessing.geometry.output:
            raise ArchitectureError(
                f"{self.name} was fitted on images of another size",
                found=images.shape[1:3],
                expected=self.preprocessing.geometry.output,
            )
        return self.head(self.features(images))


def fit_baseline(
    options: FittingOptions, dataset: Dataset, *, seed: int = 0, name: str | None = None, show: bool = False
) -> BaselineClassifier:
    """Least squares on the features of all images and, with ``flips``, of their mirror images."""
    examples = Examples(dataset, options.size)
    features = options.fit(examples, np.random.default_rng(seed))
    return BaselineClassifier(features, _Fit(features, examples, show).head(), space=dataset.space, name=name)


class _Fit:
    """Least squares in one part, or in rounds over several parts.

    Each round fits every part to what the other parts leave of the targets.
    """

    def __init__(self, features: FittedFeatures, examples: Examples, show: bool) -> None:
        self.features = features
        self.examples = examples
        self.show = show
        self.parts = features.parts()
        self.several = len(self.parts) > 1
        self.heads: list[Linear | None] = [None] * len(self.parts)
        #: What the parts leave of the targets, row by row; not needed for one part.
        self.residuals = np.empty((0, len(examples.dataset.space)), np.float32)

    def head(self) -> Linear:
        if self.several:
            self.residuals = np.concatenate([targets for _, _, targets in self._views()])
            self._fit_in_rounds()
        else:
            with progress_bar(f"fitting {self.features.kind}", len(self.examples), show=self.show) as advance:
                self._fit_part(0, advance)
        heads = [head for head in self.heads if head is not None]
        bias = np.stack([head.bias for head in heads]).sum(axis=0)
        return Linear(np.concatenate([head.weights for head in heads]), bias)

    def _fit_in_rounds(self) -> None:
        """Fits all parts again and again, until the residuals change little."""
        # Each part reads all images twice: once to fit, once to update the residuals.
        total = 2 * len(self.examples) * len(self.parts)
        for number in range(1, _MOST_ROUNDS + 1):
            before = self.residuals.copy()
            with progress_bar(f"fitting {self.features.kind}, round {number}", total, show=self.show) as advance:
                for part in range(len(self.parts)):
                    self._fit_part(part, advance)
            if np.linalg.norm(self.residuals - before) <= _SMALL_CHANGE * np.linalg.norm(self.residuals):
                break

    def _fit_part(self, number: int, advance: Advance) -> None:
        """Fit the linear layer of one part of the features by ridge regression.

        With several parts each is fitted to what the others leave unexplained (block coordinate descent): to the
        residuals, with its own earlier predictions added again.
        """
        part = self.parts[number]
        old_head = self.heads[number]
        solver: StreamingRidge | None = None
        seen = np.zeros(self.residuals.shape[1])
        for rows, images, targets in self._views(advance):
            features = part(images)
            seen += targets.sum(axis=0)
            if self.several:
                targets = self.residuals[rows] + (old_head(features) if old_head else 0)
            solver = solver or StreamingRidge(features.shape[1], len(seen))
            solver.add(features, targets)
        if solver is None or (seen > 0).sum() < 2:
            found = f"{int(seen.sum())} images of {int((seen > 0).sum())} classes"
            raise DatasetError("fewer than two classes", found=found, expected="images of two classes or more")
        new_head = solver.solve(self.features.options.ridge)
        self.heads[number] = new_head
        if self.several:
            for rows, images, _ in self._views(advance):
                features = part(images)
                self.residuals[rows] -= new_head(features) - (old_head(features) if old_head else 0)

    def _views(self, advance: Advance = lambda count: None) -> Iterator[tuple[slice, Pixels, Floats]]:
        """Rows, images and targets of all images; with ``flips``, each batch is followed by its mirror images."""
        start = 0
        for images, labels in self.examples.batches(BATCH):
            targets = np.eye(self.residuals.shape[1], dtype=np.float32)[labels]
            views = [images]
            if self.features.options.flips:
                views.append(images[:, :, ::-1])
            for view in views:
                stop = start + len(view)
                yield slice(start, stop), view, targets
                start = stop
            advance(len(images))


def checked_options(kind: type[T], options: Mapping[str, object], title: str) -> T:
    """Options from a recipe or file. Numbers stay as they are written, because they enter the fingerprint."""
    decode(options, kind, title, ArchitectureError)
    return kind(**options)


def check_arrays(kind: str, arrays: Mapping[str, NDArray[np.generic]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raises unless the arrays of a file are float32, finite, and of the shapes that the options ask for."""
    for name, shape in shapes.items():
        array = arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float32 or not np.isfinite(array).all():
            found = "none" if array is None else f"{array.dtype} {array.shape}"
            raise ArchitectureError(
                f"the array {name!r} does not fit {kind}", found=found, expected=f"finite float32 {shape}"
            )
