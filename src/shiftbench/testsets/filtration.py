"""Adversarial filtration: select candidates that fool models, by the recipes of ImageNet-A and ImageNet-O (003, 3).

ImageNet-A: an image is kept if no crop is classified correctly by any model, and no crop gives the true class more than
15 % confidence. Each confusion (label, predicted class) then keeps at most 15 images, so that none dominates the set.
The paper's two ResNet-50s predict 200 of ImageNet's classes; pass those as ``space``.

ImageNet-O: candidates come from classes that the model was not trained on (ImageNet-22K without ImageNet-1K). Images
are kept if they fool the usual out-of-distribution detector: the maximum softmax probability over the classes of the
new test set is high. In both, people choose from the rest.

This is separate from ``runs``, which stores one prediction per image: the ten crops need per-crop confidences, and
candidates may not be evaluated as a dataset before the set is frozen.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shiftbench import Classifier, Dataset, Geometry, LabelSpace, ShiftbenchError
from shiftbench.datasets import Subset, of_classes, take
from shiftbench.errors import ClassifierError, StoreError
from shiftbench.extend.classifiers import RecordedPredictions, TenCrop
from shiftbench.extend.datasets import centre_crop
from shiftbench.extend.errors import listed
from shiftbench.extend.io import digest
from shiftbench.extend.jobs import Computation, ComputeOptions, PerImage, per_image
from shiftbench.extend.outputs import OutputFile, OutputRecord, write_files
from shiftbench.extend.tables import Column, Table
from shiftbench.extend.types import FloatArray, IntArray, Labels, Pixels
from shiftbench.metrics import softmax
from shiftbench.testsets.pool.sources import Offer, dataset_offers

#: ImageNet-A keeps images whose true class gets at most this confidence in every crop.
MAX_CONFIDENCE = 0.15
#: ImageNet-A keeps at most this many images of one confusion (label, predicted class).
PER_CONFUSION = 15
#: The paper gives no limit for ImageNet-O: above one half, a class is more likely than all others.
MIN_CONFIDENCE = 0.5
#: Images per block, with ten crops each.
_BLOCK_SIZE = 32
#: Rows of the review list shown in a terminal.
_ROWS_IN_TERMINAL = 30
#: One row per image and model. Confidence is softmax over the classes of the new test set only.
VIEW = np.dtype(
    [
        ("right", np.uint8),  # number of correctly classified views
        ("most", np.float32),  # maximum confidence in the true class over the views
        ("mean", np.float32),  # its mean over the views
        ("taken_for", np.int32),  # the class, other than the true one, with the highest mean confidence
        ("confidence", np.float32),  # that confidence
    ]
)
#: What a folder of images was made from.
RECORD = "shortlist.json"
#: Part of the cache key; raised when the rows change.
_VERSION = 1


@dataclass(frozen=True)
class FunnelStep:
    """A step of the filtration, and how many candidates are left after it."""

    name: str
    left: int


class Funnel(Table):
    """How many candidates each step leaves: 81,413 -> 8,925 -> 1,452 -> 80 for the dragonflies of ImageNet-A.

    >>> print(Funnel([FunnelStep("found", 81_413), FunnelStep("basic filter", 8_925)]).line)
    81,413 -> 8,925
    """

    def __init__(self, steps: Sequence[FunnelStep], *, title: str = "Funnel", notes: Sequence[str] = ()) -> None:
        for before, after in itertools.pairwise(steps):
            if not 0 <= after.left <= before.left:
                raise ShiftbenchError(
                    f"invalid count after the step {after.name!r}",
                    found=after.left,
                    expected=f"0 to {before.left}, the count after {before.name!r}",
                )
        self.steps = list(steps)
        self.line = " -> ".join(f"{step.left:,}" for step in steps)
        rows = []
        for i, step in enumerate(steps):
            total = steps[0].left
            previous = steps[max(i - 1, 0)].left
            rows.append(
                {
                    "step": step.name,
                    "left": step.left,
                    "removed": previous - step.left,
                    "of_previous": step.left / previous if previous else None,
                    "of_all": step.left / total if total else None,
                }
            )
        columns = [
            Column("step", "step"),
            Column("left", "left", "count"),
            Column("removed", "removed", "count"),
            Column("of_previous", "of the last step %", "number", times=100),
            Column("of_all", "of all %", "number", times=100),
        ]
        super().__init__(columns, rows, title=title, lead=[self.line], notes=notes)


@dataclass(frozen=True)
class Shortlisted:
    """A candidate that passed all steps."""

    image: str
    index: int
    #: Its labelled class, and the class that the first model predicts.
    label: str
    taken_for: str
    #: Confidence of the first model in that prediction, averaged over views.
    confidence: float
    #: The highest confidence in the true class over all views and models.
    true_confidence: float


@dataclass(frozen=True)
class Filtration:
    """The remaining candidates in the order in which they were chosen."""

    #: All candidates; ``index`` of the shortlist refers to it.
    pool: Dataset
    funnel: Funnel
    shortlist: tuple[Shortlisted, ...]
    #: (image, reason) of unreadable images.
    unreadable: tuple[tuple[str, str], ...] = ()

    def subset(self, name: str | None = None) -> Subset:
        """The shortlisted images as a dataset, in the order of the pool."""
        indices = sorted(image.index for image in self.shortlist)
        return Subset(self.pool, indices, name=name or f"{self.pool.name} filtered")

    def review_list(self) -> Table:
        """The shortlist with the predictions of the models, in the order of the shortlist."""
        rows: list[dict[str, object]] = []
        for rank, image in enumerate(self.shortlist, start=1):
            rows.append({"rank": rank, **asdict(image)})
        columns = [
            Column("rank", "", "count"),
            Column("image", "image"),
            Column("label", "label"),
            Column("taken_for", "taken for"),
            Column("confidence", "confidence %", "number", times=100, places=1),
            Column("true_confidence", "in the label %", "number", times=100, places=1, optional=True),
        ]
        return Table(columns, rows, most=_ROWS_IN_TERMINAL, title="To review", lead=[self.funnel.line])

    def write(self, folder: str | Path) -> Path:
        """Write the shortlist into a folder; returns that of the images.

        ``images/<class>/...`` are the images as they came: this folder is imported, and has no predictions.
        ``funnel.json`` counts what each step left. ``review.csv`` lists the models' predictions for the report, not
        for reviewers. After an interruption, the same call continues; ``shortlist.json`` records what was written, and
        another shortlist is refused.
        """
        folder = Path(folder)
        subset = self.subset()
        recipe = {"dataset": self.pool.fingerprint, "shortlist": digest(*subset.ids)}
        record = OutputRecord(folder, RECORD, "Images chosen by adversarial filtration.", recipe)
        if not record.path.exists() and (folder / "images").exists():
            raise StoreError(f"{folder} holds other images", hint="choose a new folder, or delete this one")
        files = (_image_file(number, offer) for number, offer in enumerate(dataset_offers(subset)))
        write_files(record, files)
        self.review_list().write(folder / "review.csv")
        self.funnel.write(folder / "funnel.json")
        return folder / "images"


def _image_file(number: int, offer: Offer) -> OutputFile:
    """The path of a shortlisted image, and what writes it."""
    # Only the last part of the id is used, without unsafe characters; the number keeps equal names apart.
    safe_name = re.sub(r"[^A-Za-z0-9._-]", "_", offer.id.rsplit("/", 1)[-1]).lstrip(".")
    name = f"{number:06d}-{safe_name}"
    if not Path(safe_name).suffix:
        name += ".png"
    data = offer.data
    file = f"images/{offer.class_key or 'unlabelled'}/{name}"
    return file, lambda path: path.write_bytes(data() if callable(data) else data)


def filter_adversarially(
    dataset: Dataset,
    classifiers: Sequence[Classifier],
    *,
    space: LabelSpace | None = None,
    max_confidence: float = MAX_CONFIDENCE,
    per_confusion: int | None = PER_CONFUSION,
    ten_crop: bool = True,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> Filtration:
    """The images that fool all ``classifiers``, for human review.

    ``space``: the classes of the new test set (default: those of the dataset); images of other classes are dropped.
    The most confident crop is compared with ``max_confidence``: the paper does not specify it, and the mean over crops
    would be less strict. A confusion with more than ``per_confusion`` images (None: no limit) keeps those with the
    lowest confidence in the true class; the first classifier determines the predicted class. ``folder`` caches results,
    so that an interrupted filtration resumes.
    """
    _check(classifiers, max_confidence)
    if per_confusion is not None and per_confusion < 1:
        raise ShiftbenchError("invalid per_confusion", found=per_confusion, expected="1 or more, or None")
    space = space or dataset.space
    pool = of_classes(dataset, space)
    options = ComputeOptions(folder, workers, show=show)
    views = look_at(pool, pool.labels, classifiers, space, options, ten=ten_crop)
    readable = views[0].readable
    never_right = np.logical_and.reduce([view.rows["right"] == 0 for view in views])
    wrong = readable & never_right
    true_confidence = np.max([view.rows["most"] for view in views], axis=0)
    unsure = wrong & (true_confidence <= max_confidence)
    # Ids break ties, so that the order of the pool does not matter.
    ranked = sorted(np.flatnonzero(unsure).tolist(), key=lambda i: (true_confidence[i], pool.ids[i]))
    steps = [
        FunnelStep("candidates", len(dataset)),
        FunnelStep(f"readable, in a class of {space.name}", int(readable.sum())),
        FunnelStep("no crop correct" if ten_crop else "not correct", int(wrong.sum())),
        FunnelStep(f"confidence in the true class at most {max_confidence:.0%}", int(unsure.sum())),
    ]
    indices = ranked
    if per_confusion is not None:
        indices = _limit_confusions(ranked, pool.labels, views[0].rows["taken_for"], per_confusion)
        steps.append(FunnelStep(f"at most {per_confusion} per confusion", len(indices)))
    labels = [space.names[pool.labels[i]] for i in indices]
    notes = _empty_classes(space, labels)
    funnel = _funnel("Adversarial filtration", steps, classifiers, space, notes)
    return Filtration(pool, funnel, _shortlist(pool, indices, labels, views, space), _unreadable(pool, views))


def _empty_classes(space: LabelSpace, labels: Sequence[str]) -> list[str]:
    """A note on the classes that no remaining image belongs to, which need more candidates."""
    empty = [name for name in space.names if name not in set(labels)]
    if not empty:
        return []
    return [f"{len(empty)} of {len(space):,} classes have no image left: {listed(empty, 5)}"]


def _limit_confusions(
    ranked: Sequence[int], labels: Labels, taken_for: NDArray[np.generic], per_confusion: int
) -> list[int]:
    """The first images of each confusion (label, predicted class), in the same order."""
    confusions: Counter[tuple[int, int]] = Counter()
    indices = []
    for i in ranked:
        confusion = (int(labels[i]), int(taken_for[i]))
        confusions[confusion] += 1
        if confusions[confusion] <= per_confusion:
            indices.append(i)
    return indices


def filter_out_of_distribution(
    dataset: Dataset,
    classifiers: Sequence[Classifier],
    *,
    space: LabelSpace | None = None,
    known: LabelSpace | None = None,
    min_confidence: float = MIN_CONFIDENCE,
    folder: str | Path | None = None,
    workers: int | None = None,
    show: bool = False,
) -> Filtration:
    """The out-of-distribution images that all ``classifiers`` are confident on, the most confident first.

    ``space``: the classes for the confidence (200 for ImageNet-O; default: all of the first classifier). ``known``: the
    classes that candidates must not belong to (default: all of the first classifier), judged by their labels or the
    groups of these; images without a label are accepted.
    """
    _check(classifiers, min_confidence)
    space = space or classifiers[0].space
    known = known or classifiers[0].space
    class_is_known = known.relabel_from(dataset.space) >= 0
    # An image without a label has the label -1, which indexes the last element: it is in no known class.
    in_distribution = np.append(class_is_known, False)[dataset.labels]
    pool = take(dataset, np.flatnonzero(~in_distribution).tolist())
    options = ComputeOptions(folder, workers, show=show)
    no_labels = np.full(len(pool), -1, np.int32)
    views = look_at(pool, no_labels, classifiers, space, options, ten=False)
    readable = views[0].readable
    least_confidence = np.min([view.rows["confidence"] for view in views], axis=0)
    confident = np.flatnonzero(readable & (least_confidence >= min_confidence)).tolist()
    indices = sorted(confident, key=lambda i: (-least_confidence[i], pool.ids[i]))
    steps = [
        FunnelStep("candidates", len(dataset)),
        FunnelStep(f"readable, in no class of {known.name}", int(readable.sum())),
        FunnelStep(f"confidence at least {min_confidence:.0%}", len(confident)),
    ]
    notes = []
    unlabelled = int((dataset.labels < 0).sum())
    if unlabelled:
        notes.append(f"{unlabelled:,} candidates have no label and are assumed to be out of distribution")
    labels = [_class_name(pool.labels[i], dataset.space) for i in indices]
    funnel = _funnel("Out-of-distribution filtration", steps, classifiers, space, notes)
    return Filtration(pool, funnel, _shortlist(pool, indices, labels, views, space), _unreadable(pool, views))


def _class_name(label: int, space: LabelSpace) -> str:
    """The name of a class; empty for an image without a label."""
    return space.names[label] if label >= 0 else ""


def _funnel(
    title: str,
    steps: Sequence[FunnelStep],
    classifiers: Sequence[Classifier],
    space: LabelSpace,
    notes: Sequence[str] = (),
) -> Funnel:
    """The funnel of a filtration, with a note that names the models."""
    names = ", ".join(classifier.name for classifier in classifiers)
    models = f"models: {names}; confidence over the classes of {space.name}"
    return Funnel(steps, title=title, notes=[models, *notes])


def _shortlist(
    pool: Dataset, indices: Sequence[int], labels: Sequence[str], views: Sequence[PerImage], space: LabelSpace
) -> tuple[Shortlisted, ...]:
    """These images of the pool, with the predictions of the first model."""
    true_confidence = np.max([view.rows["most"] for view in views], axis=0)
    first = views[0].rows
    shortlist = []
    for i, label in zip(indices, labels, strict=True):
        taken_for = space.names[first["taken_for"][i]]
        confidence = float(first["confidence"][i])
        shortlist.append(Shortlisted(pool.ids[i], i, label, taken_for, confidence, float(true_confidence[i])))
    return tuple(shortlist)


def _unreadable(pool: Dataset, views: Sequence[PerImage]) -> tuple[tuple[str, str], ...]:
    return tuple((pool.ids[i], reason) for i, reason in sorted(views[0].problems.items()))


def _check(classifiers: Sequence[Classifier], confidence: float) -> None:
    if not classifiers:
        raise ShiftbenchError("no models to filter against", expected="at least one")
    if not 0 <= confidence <= 1:
        raise ShiftbenchError("invalid confidence", found=confidence, expected="0 to 1", hint="15 % is 0.15")


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
        geometry = classifier.preprocessing.geometry
        if not ten:
            return cls(classifier, None, geometry)
        crop = TenCrop.for_input(classifier)
        return cls(classifier, crop, replace(crop.geometry(geometry), crop=None))

    def __call__(self, image: Pixels) -> Pixels:
        """The views of one image, stacked: (views, H, W, 3)."""
        resized = self.geometry(image)
        if self.ten_crop is None:
            return resized[None]
        # An image that is smaller than the crop is padded to its size.
        height = max(resized.shape[0], self.ten_crop.height)
        width = max(resized.shape[1], self.ten_crop.width)
        return self.ten_crop(centre_crop(resized, (height, width), self.geometry.fill)[None])

    @property
    def identity(self) -> list[object]:
        """Everything that determines the views, for the cache key."""
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
    """A ``VIEW`` row per image, for each classifier; ``labels`` are the images' labels in ``space``, -1 for none."""
    computations = [_computation(classifier, labels, space, ten) for classifier in classifiers]
    what = f"{'ten crops' if ten else 'views'} of {dataset.name}"
    return per_image(dataset, computations, options, what=what, size=_BLOCK_SIZE)


def _computation(classifier: Classifier, labels: Labels, space: LabelSpace, ten: bool) -> Computation:
    """What computes the ``VIEW`` rows of a block of images with one classifier."""
    if isinstance(classifier, RecordedPredictions):
        raise ClassifierError(
            f"{classifier.name} contains recorded predictions and cannot classify crops", expected="a network"
        )
    views = Views.of(classifier, ten=ten)
    projection = space.projection_from(classifier.space)

    def compute(images: Sequence[Pixels], indices: IntArray) -> NDArray[np.generic]:
        if not images:
            return np.zeros(0, VIEW)
        scores = projection(classifier.scores(np.concatenate([views(image) for image in images])))
        if classifier.outputs == "logits":
            probabilities = softmax(scores)
        else:
            # The projection dropped classes, so the probabilities of the others no longer sum to 1.
            totals = scores.sum(axis=1, keepdims=True, dtype=np.float64)
            probabilities = np.asarray(scores / np.where(totals > 0, totals, 1))
        return _judged(probabilities.reshape(len(images), -1, len(space)), labels[indices])

    return Computation(compute, ["views", _VERSION, views.identity, space.fingerprint, digest(labels.tobytes())])


def _judged(probabilities: FloatArray, labels: Labels) -> NDArray[np.generic]:
    """``VIEW`` rows from (N, views, classes) probabilities and true classes."""
    labelled = labels >= 0
    true_class = np.where(labelled, labels, 0)
    in_true_class = np.take_along_axis(probabilities, true_class[:, None, None], axis=2)[:, :, 0]
    true_confidence = np.where(labelled[:, None], in_true_class, 0)
    mean = probabilities.mean(axis=1)
    # With a negative confidence, the true class is never the one that the image is taken for.
    mean[np.flatnonzero(labelled), true_class[labelled]] = -1
    rows = np.zeros(len(probabilities), VIEW)
    rows["right"] = (probabilities.argmax(axis=2) == labels[:, None]).sum(axis=1)
    rows["most"] = true_confidence.max(axis=1)
    rows["mean"] = true_confidence.mean(axis=1)
    rows["taken_for"] = mean.argmax(axis=1)
    rows["confidence"] = mean.max(axis=1)
    return rows
