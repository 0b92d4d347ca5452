"""Predictions for every candidate, on ten crops or one view, cached as they are computed.

| field | meaning |
|---|---|
| ``right`` | number of correctly classified views |
| ``most`` | maximum confidence in the true class over the views |
| ``mean`` | its mean over the views |
| ``taken_for`` | the class, other than the true one, with the highest mean confidence |
| ``confidence`` | that confidence |

Confidence is softmax over the classes of the new test set only. Without a true class (-1), ``taken_for`` is simply the
predicted class.

This is separate from ``runs``, which stores one prediction per image: the ten crops need per-crop confidences, and
candidates are no dataset that may be evaluated before the set is frozen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.defences import TenCrop
from shiftbench.classifiers.recorded import RecordedPredictions
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.geometry import Geometry, centre_crop
from shiftbench.errors import ClassifierError
from shiftbench.io.hashing import digest
from shiftbench.jobs.blocks import Computation, ComputeOptions, PerImage, per_image
from shiftbench.labels.space import Labels, LabelSpace
from shiftbench.metrics.arrays import softmax

VIEW = np.dtype(
    [
        ("right", np.uint8),
        ("most", np.float32),
        ("mean", np.float32),
        ("taken_for", np.int32),
        ("confidence", np.float32),
    ]
)
#: Part of the cache key; raised when the rows change.
_VERSION = 1
#: Images per block; ten crops each.
_BLOCK = 32


@dataclass(frozen=True)
class Views:
    """The views of an image that a classifier receives: ten crops, or its own single one."""

    classifier: Classifier
    ten_crop: TenCrop | None
    geometry: Geometry

    @classmethod
    def of(cls, classifier: Classifier, *, ten: bool) -> Views:
        """Ten crops are taken from the whole image, resized as for the classifier but not cropped. If that leaves no
        room, the short side becomes 8/7 of the crop, the ratio of 256 to 224."""
        own = classifier.preprocessing.geometry
        if not ten:
            return cls(classifier, None, own)
        crop = TenCrop.for_input(classifier)
        return cls(classifier, crop, replace(crop.geometry(own), crop=None))

    def __call__(self, image: Pixels) -> Pixels:
        """(views, H, W, 3)."""
        resized = self.geometry(image)
        if self.ten_crop is None:
            return resized[None]
        size = max(resized.shape[0], self.ten_crop.height), max(resized.shape[1], self.ten_crop.width)
        return self.ten_crop(centre_crop(resized, size, self.geometry.fill)[None])

    @property
    def identity(self) -> list[object]:
        crops = None if self.ten_crop is None else self.ten_crop.describe()
        return [self.classifier.fingerprint, self.classifier.preprocessing.describe(), crops]


def look_at(
    dataset: Dataset,
    labels: Labels,
    classifiers: Sequence[Classifier],
    space: LabelSpace,
    options: ComputeOptions | None = None,
    *,
    ten: bool,
) -> list[PerImage]:
    """A ``VIEW`` row per image, for each classifier; ``labels`` are the images' labels in ``space``."""
    computations = [_computation(classifier, labels, space, ten) for classifier in classifiers]
    what = f"{'ten crops' if ten else 'views'} of {dataset.name}"
    return per_image(dataset, computations, options, what=what, size=_BLOCK)


def _computation(classifier: Classifier, labels: Labels, space: LabelSpace, ten: bool) -> Computation:
    if isinstance(classifier, RecordedPredictions):
        raise ClassifierError(
            f"{classifier.name} contains recorded predictions and cannot classify crops", expected="a network"
        )
    views = Views.of(classifier, ten=ten)
    projection = space.projection_from(classifier.space)

    def compute(images: Sequence[Pixels], indices: IntArray) -> NDArray[np.generic]:
        if not images:
            return np.zeros(0, VIEW)
        shown = [views(image) for image in images]
        scores = projection(classifier.scores(np.concatenate(shown)))
        chances = probabilities(scores, classifier).reshape(len(images), -1, len(space))
        return judged(chances, labels[indices])

    return Computation(compute, ["views", _VERSION, views.identity, space.fingerprint, digest(labels.tobytes())])


def judged(chances: FloatArray, labels: Labels) -> NDArray[np.generic]:
    """``VIEW`` rows from (N, views, classes) probabilities and true classes.

    >>> rows = judged(np.array([[[0.1, 0.9, 0.0], [0.2, 0.0, 0.8]]]), np.array([0], np.int32))
    >>> rows["right"].tolist(), rows["taken_for"].tolist()
    ([0], [1])
    """
    count = len(chances)
    known = labels >= 0
    true = np.where(known, labels, 0)
    in_true = np.where(known[:, None], np.take_along_axis(chances, true[:, None, None], axis=2)[:, :, 0], 0)
    mean = chances.mean(axis=1)
    mean[np.flatnonzero(known), true[known]] = -1  # the true class is excluded
    rows = np.zeros(count, VIEW)
    rows["right"] = (chances.argmax(axis=2) == labels[:, None]).sum(axis=1)
    rows["most"], rows["mean"] = in_true.max(axis=1), in_true.mean(axis=1)
    rows["taken_for"] = mean.argmax(axis=1)
    rows["confidence"] = mean.max(axis=1)
    return rows


def probabilities(scores: NDArray[np.float32], classifier: Classifier) -> FloatArray:
    """Probabilities over the remaining classes: softmax of logits, or renormalised probabilities."""
    if classifier.outputs == "logits":
        return softmax(scores)
    totals = scores.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.asarray(scores / np.where(totals > 0, totals, 1))
