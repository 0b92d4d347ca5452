"""The images of an examination, and a model's scores of them under any preprocessing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.description import flat_description, given_or_changed, preprocessing_values
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.base import Dataset, Decoding
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.images import ALPHA_DROPPED, EXIF_IGNORED, conversion_kinds
from shiftbench.diagnosis.wiring import AS_READ, VIEWS, ImageFacts, Wiring, rounded
from shiftbench.errors import BadImageError, ClassifierError, DatasetError, LabelError, argument
from shiftbench.jobs.progress import Advance
from shiftbench.jobs.threads import worker_count
from shiftbench.labels.catalogue import LabelsArgument, find_label_space
from shiftbench.labels.space import Scores
from shiftbench.runs.arguments import ModelKeywords
from shiftbench.runs.execute import load_classifiers, open_inputs
from shiftbench.settings.base import SuiteOptions, build_suite
from shiftbench.settings.roles import Data, Selection, data_name

#: Bytes of decoded images that are kept; others are decoded again when they are needed.
_KEPT_BYTES = 600_000_000
#: Fewer cannot show anything but the crudest fault.
LEAST_IMAGES = 40


class LoadingOptions(ModelKeywords, total=False):
    """Options of a model, as those of ``evaluate``."""

    labels: LabelsArgument


def admit(
    models: Sequence[object],
    data: Data,
    *,
    sample: int | None,
    seed: int,
    least: int = LEAST_IMAGES,
    **loading: Unpack[LoadingOptions],
) -> tuple[list[Classifier], Images]:
    """Load models and a sample of the data as ``evaluate`` does; an error for what cannot be examined."""
    options: dict[str, Any] = {**loading, "threads": loading.get("threads") or worker_count(None)}
    labels = options.pop("labels", None)
    inputs = open_inputs(
        build_suite("clean", SuiteOptions(data_name=data_name(data))),
        data,
        find_label_space(labels),
        partial(load_classifiers, list(models), **options),
    )
    if not inputs.datasets:
        raise DatasetError("no data", hint=argument("data", "FOLDER"))
    classifiers = list(inputs.classifiers.values())
    dataset = next(iter(inputs.datasets.values()))
    for classifier in classifiers:
        if classifier.recorded is not None:
            raise ClassifierError(
                f"{classifier.name} is a file of predictions, which cannot be run again", expected="a model"
            )
    if sample is not None:
        sample = min(sample, len(dataset))
    images = Images(Selection(sample=sample, seed=seed).of(dataset))
    if len(images.rows) < least:
        raise DatasetError(
            "too few images",
            found=f"{len(images.rows)} readable images in {dataset.name}",
            expected=f"at least {least}, better a few hundred",
        )
    return classifiers, images


class Images:
    """Readable images of a dataset, decoded once as far as memory allows."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        #: By row and decoding.
        self._kept: dict[tuple[int, Decoding], Pixels] = {}
        self._bytes = 0
        #: Rows of the images that a decoding other than the usual one changes.
        self._turned: set[int] = set()
        self._transparent: set[int] = set()
        self._pool = ThreadPoolExecutor(worker_count(None))
        shapes = list(self._pool.map(self._read_shape, range(len(dataset))))
        self.rows: IntArray = np.array([row for row, shape in enumerate(shapes) if shape is not None], np.int64)
        self.unreadable = [dataset.ids[row] for row, shape in enumerate(shapes) if shape is None]
        #: Distinct (width, height).
        self.sizes = frozenset((shape[1], shape[0]) for shape in shapes if shape is not None)

    @property
    def labels(self) -> IntArray:
        return np.asarray(self.dataset.labels, np.int64)

    def check_labels(self) -> None:
        """Accuracy needs one label per image, of at least two classes."""
        labels = self.labels[self.rows]
        hint = f"name the classes by folders, a manifest or {argument('labels')}"
        if self.dataset.label_sets is not None:
            raise LabelError(f"{self.dataset.name} is multi-label", expected="one label per image")
        if (labels < 0).any():
            count = int((labels < 0).sum())
            raise LabelError(f"{count} of {len(labels)} images have no label", expected="labelled images", hint=hint)
        if len(np.unique(labels)) < 2:
            raise LabelError(
                "all images are of one class, so any model that always answers it would look right",
                found=self.dataset.space.names[labels[0]],
                expected="images of at least two classes, better of all",
            )

    def facts(self, rows: Sequence[int]) -> ImageFacts:
        """Sizes of all images; mean and deviation of some of their pixels."""
        # The mean of every fourth pixel each way, of a hundred images, hardly differs from that of all.
        sampled = []
        for row in rows[:100]:
            image = self.pixels(row, Decoding())
            sampled.append(image[::4, ::4].reshape(-1, 3))
        pixels = np.concatenate(sampled) / 255
        mean = rounded(pixels.mean(axis=0))
        deviation = rounded(np.maximum(pixels.std(axis=0), 0.01))
        return ImageFacts(self.sizes, mean, deviation, bool(self._turned), bool(self._transparent))

    def pixels(self, row: int, decoding: Decoding) -> Pixels:
        """An image, decoded as asked for, and kept in memory while there is room."""
        # An image that is the same in several decodings is kept once.
        if row not in self._turned:
            decoding = replace(decoding, exif="ignore")
        if row not in self._transparent:
            decoding = replace(decoding, alpha="drop")
        pixels = self._kept.get((row, decoding))
        if pixels is None:
            pixels = self.dataset.decoded_as(decoding).read(row).pixels
            self._keep(row, decoding, pixels)
        return pixels

    def prepared(self, geometry: Geometry, rows: Sequence[int], image: str = AS_READ) -> list[Pixels]:
        """Resized and cropped; ``image`` is one of ``VIEWS``."""
        return list(self._pool.map(lambda row: geometry(VIEWS[image](self.pixels(row, geometry.decoding))), rows))

    def _read_shape(self, row: int) -> tuple[int, int] | None:
        """(height, width), or None if the image cannot be read; the pixels are kept while there is room."""
        try:
            image = self.dataset.read(row)
        except BadImageError:
            return None
        kinds = conversion_kinds(image.converted)
        if EXIF_IGNORED in kinds:
            self._turned.add(row)
        if ALPHA_DROPPED in kinds:
            self._transparent.add(row)
        self._keep(row, Decoding(), image.pixels)
        return cast(tuple[int, int], image.pixels.shape[:2])

    def _keep(self, row: int, decoding: Decoding, pixels: Pixels) -> None:
        if self._bytes + pixels.nbytes <= _KEPT_BYTES:
            self._bytes += pixels.nbytes
            self._kept[row, decoding] = pixels


class Examination:
    """Scores of one model on the images under any wiring, each computed once."""

    def __init__(self, classifier: Classifier, images: Images) -> None:
        self.classifier = classifier
        self.images = images
        self.forward_passes = 0
        self.advance: Advance = lambda count: None
        #: By wiring and row; None for a wiring that the model does not accept.
        self._scores: dict[Wiring, dict[int, Scores] | None] = {}
        #: Pixels by row, of the geometry and view that were used last: pixels are large.
        self._pixels: dict[int, Pixels] = {}
        self._pixels_of: tuple[Geometry, str] | None = None

    def scores(self, wiring: Wiring, rows: Sequence[int]) -> Scores | None:
        """One row per image, with the columns as the model has them, or None where it does not accept this input."""
        # The order of the columns does not change what the model gets.
        fed = Wiring(wiring.preprocessing, wiring.image)
        scores = self._scores.setdefault(fed, {})
        if scores is None:
            return None
        missing = [row for row in rows if row not in scores]
        if missing:
            try:
                scores.update(zip(missing, self._run(fed, missing), strict=True))
            except Exception:
                if fed == Wiring(self.classifier.preprocessing):
                    raise
                self._scores[fed] = None
                return None
        self.advance(len(missing))
        return np.stack([scores[row] for row in rows])

    def _run(self, wiring: Wiring, rows: Sequence[int]) -> Iterator[Scores]:
        preprocessing = wiring.preprocessing
        geometry = preprocessing.geometry
        pixels = self._prepared(geometry, wiring.image, rows)
        first_id = self.images.dataset.ids[rows[0]]
        model = with_preprocessing(self.classifier, preprocessing)
        try:
            first = finite_scores(model, pixels[:2], first_id)
        except Exception:
            # An engine's graph may have a fixed input; the module that it was made from seldom has.
            if geometry.output == self.classifier.preprocessing.geometry.output or self._twin is None:
                raise
            model = with_preprocessing(self._twin, preprocessing)
            first = finite_scores(model, pixels[:2], first_id)
        self.forward_passes += len(rows)
        return iter(np.concatenate([first, finite_scores(model, pixels[2:])]))

    @cached_property
    def _twin(self) -> Classifier | None:
        from shiftbench.classifiers.torch_ import torch_twin

        try:
            return torch_twin(self.classifier)
        except Exception:  # no torch module behind it, or no torch
            return None

    def _prepared(self, geometry: Geometry, image: str, rows: Sequence[int]) -> list[Pixels]:
        if self._pixels_of != (geometry, image):
            self._pixels_of = (geometry, image)
            self._pixels = {}
        missing = [row for row in rows if row not in self._pixels]
        self._pixels.update(zip(missing, self.images.prepared(geometry, missing, image), strict=True))
        return [self._pixels[row] for row in rows]


def with_preprocessing(classifier: Classifier, preprocessing: Preprocessing, *, copy: bool = False) -> Classifier:
    """The same network (not a copy of it) with another preprocessing; itself where that is its own."""
    if preprocessing == classifier.preprocessing and not copy:
        return classifier
    twin = object.__new__(type(classifier))
    twin.__dict__.update(classifier.__dict__)
    twin.preprocessing = preprocessing
    return twin


def fixed_classifier(classifier: Classifier, preprocessing: Preprocessing) -> Classifier:
    """A copy with a preprocessing that was found to be right; the facts that differ are no longer assumptions."""
    fixed = with_preprocessing(classifier, preprocessing, copy=True)
    changed = changed_facts(classifier.preprocessing, preprocessing)
    fixed.sources = {**classifier.sources, **dict.fromkeys(changed, "measured")}
    return fixed


def fixing_description(classifier: Classifier, better: Preprocessing) -> dict[str, object]:
    """The value of ``preprocessing`` that leads from a classifier's preprocessing to a better one.

    It repeats what the caller states and adds what was found; what nobody has stated stays an assumption.
    """
    flat = flat_description(better, pixels=classifier.takes_pixels)
    return given_or_changed(flat, classifier.sources, changed_facts(classifier.preprocessing, better))


def changed_facts(present: Preprocessing, better: Preprocessing) -> frozenset[str]:
    """Names of the facts in which two preprocessings differ."""
    values = preprocessing_values(present)
    return frozenset(fact for fact, value in preprocessing_values(better).items() if value != values[fact])


def finite_scores(classifier: Classifier, pixels: Sequence[Pixels], first_id: str = "") -> Scores:
    """Scores of images that may differ in size; refuses NaN and infinity."""
    if not pixels:
        return np.empty((0, len(classifier.space)), np.float32)
    if len({image.shape for image in pixels}) == 1:
        batches = [np.stack(pixels)]
    else:
        batches = [image[None] for image in pixels]
    scores = np.concatenate([classifier.scores(batch) for batch in batches])
    bad: NDArray[np.bool_] = ~np.isfinite(scores).all(axis=1)
    if bad.any():
        count = f"NaN or infinity for {int(bad.sum())} of {len(scores)} images"
        if first_id and bad[0]:
            count += f", such as {first_id}"
        raise ClassifierError(
            f"{classifier.name} gives scores that are not numbers",
            found=count,
            expected="finite scores",
            hint="check the weights, the value range of the input, and overflow in half precision",
        )
    return scores
