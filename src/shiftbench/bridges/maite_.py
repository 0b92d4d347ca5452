"""The protocols of MAITE for image classification, both ways.

MAITE's objects are recognised by what they do, as its protocols intend; the library itself is not needed. Images are
arrays (C, H, W), targets one number per class, and each datum has metadata with an id.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from shiftbench import Classifier, Dataset, Predictions, load_classifier
from shiftbench.bridges.torch_data import from_torch_dataset
from shiftbench.errors import ClassifierError, DatasetError
from shiftbench.extend.types import FloatArray, Pixels
from shiftbench.metrics import clopper_pearson, softmax
from shiftbench.shifts import Shift

#: A batch as MAITE passes it: images, targets, metadata.
Batch = tuple[Sequence[NDArray[np.generic]], Sequence[NDArray[np.generic]], Sequence["Datum"]]


class Datum(TypedDict):
    """Metadata of one image."""

    id: str


class Named(TypedDict, total=False):
    """Metadata of a dataset, model, metric or augmentation."""

    id: str
    index2label: dict[int, str]


class MaiteDatasetLike(Protocol):
    """A dataset of MAITE."""

    @property
    def metadata(self) -> Mapping[str, object]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> tuple[object, object, Mapping[str, Hashable]]: ...


class MaiteModelLike(Protocol):
    """A model of MAITE."""

    @property
    def metadata(self) -> Mapping[str, object]: ...
    def __call__(self, batch: Sequence[NDArray[np.generic]]) -> Sequence[object]: ...


class MaiteMetricLike(Protocol):
    """A metric of MAITE."""

    def reset(self) -> None: ...
    def update(
        self,
        pred_batch: Sequence[FloatArray],
        target_batch: Sequence[FloatArray],
        metadata_batch: Sequence[Mapping[str, Hashable]],
    ) -> None: ...
    def compute(self) -> Mapping[str, object]: ...


def as_maite(thing: Dataset | Classifier | Shift, *, seed: int = 0) -> MaiteDataset | MaiteModel | MaiteAugmentation:
    """A dataset, model or shift as MAITE's Dataset, Model or Augmentation, for ``maite.tasks.evaluate``.

    Args:
        thing: What MAITE is to use.
        seed: Seed of a shift, as in ``evaluate``.
    """
    if isinstance(thing, Dataset):
        return MaiteDataset(thing)
    if isinstance(thing, Classifier):
        return MaiteModel(thing)
    return MaiteAugmentation(thing, seed)


class MaiteDataset:
    """A dataset of ours: uint8 images (3, H, W), one-hot targets, the id of each image.

    Args:
        dataset: The dataset.
        model: A model whose geometry (resize, crop) the images get, so that an augmentation comes after it, as in
            ``evaluate``; None leaves the images as they are.
    """

    def __init__(self, dataset: Dataset, model: Classifier | None = None) -> None:
        self._geometry = None
        if model is not None:
            self._geometry = model.preprocessing.geometry
            dataset = dataset.decoded_as(self._geometry.decoding)
        self._dataset = dataset
        self.metadata: Named = {"id": dataset.name, "index2label": dict(enumerate(dataset.space.names))}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> tuple[Pixels, FloatArray, Datum]:
        index = range(len(self))[index]
        pixels = self._dataset.read(index).pixels
        if self._geometry is not None:
            pixels = self._geometry(pixels)
        target = np.zeros(len(self._dataset.space))
        label = int(self._dataset.labels[index])
        if label >= 0:
            target[label] = 1.0
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)), target, {"id": self._dataset.ids[index]}


class MaiteModel:
    """A model of ours: from uint8 images (3, H, W) to the probability of each class.

    Images of the size of the model's input are taken as they are; others are resized and cropped first.

    Args:
        classifier: The model.
    """

    def __init__(self, classifier: Classifier) -> None:
        self._classifier = classifier
        self.metadata: Named = {"id": classifier.name, "index2label": dict(enumerate(classifier.space.names))}

    def __call__(self, batch: Sequence[NDArray[np.generic]]) -> list[FloatArray]:
        geometry = self._classifier.preprocessing.geometry
        images = []
        for entry in batch:
            pixels = _uint8(np.asarray(entry)).transpose(1, 2, 0)
            if pixels.shape[:2] != geometry.output:
                pixels = geometry(np.ascontiguousarray(pixels))
            images.append(pixels)
        scores = self._classifier.scores(np.stack(images))
        if self._classifier.outputs == "logits":
            return list(softmax(scores))
        return list(scores.astype(np.float64))


class MaiteAugmentation:
    """A shift of ours; the id of a datum decides its random numbers, as in ``evaluate``.

    Args:
        shift: The shift, such as ``Corruption("fog", 3)``.
        seed: Seed of the random numbers.
    """

    def __init__(self, shift: Shift, seed: int = 0) -> None:
        self._shift = shift
        self._seed = seed
        self.metadata: Named = {"id": f"{shift.name}, seed {seed}"}

    def __call__(self, batch: Batch) -> Batch:
        images, targets, metadata = batch
        shifted = []
        for image, datum in zip(images, metadata, strict=True):
            pixels = np.ascontiguousarray(_uint8(np.asarray(image)).transpose(1, 2, 0))
            changed = self._shift(pixels, image_id=str(datum["id"]), seed=self._seed)
            shifted.append(np.ascontiguousarray(changed.transpose(2, 0, 1)))
        return shifted, targets, metadata


class MaiteTop1:
    """Top-1 accuracy as a metric of MAITE, with its 95 % interval and the number of images."""

    def __init__(self) -> None:
        self.metadata: Named = {"id": "top1"}
        self._right = 0
        self._count = 0

    def reset(self) -> None:
        """Forget what was counted."""
        self._right = 0
        self._count = 0

    def update(self, pred_batch: Sequence[object], target_batch: Sequence[object], metadata_batch: object) -> None:
        """Count a batch."""
        for predicted, target in zip(pred_batch, target_batch, strict=True):
            self._right += int(np.argmax(np.asarray(predicted)) == np.argmax(np.asarray(target)))
            self._count += 1

    def compute(self) -> dict[str, float]:
        """The accuracy, its interval and the number of images."""
        low, high = clopper_pearson(self._right, self._count)
        return {"top1": self._right / self._count, "low": float(low), "high": float(high), "n": self._count}


def _uint8(image: NDArray[np.generic]) -> Pixels:
    """The pixels of an image (3, H, W) that is uint8, or floats on [0, 1] with 8 bits."""
    if image.ndim != 3 or image.shape[0] != 3:
        raise ClassifierError("not an image of MAITE", found=f"shape {image.shape}", expected="(3, H, W)")
    if image.dtype == np.uint8:
        return cast("Pixels", image)
    levels = np.asarray(image, np.float64) * 255
    rounded = np.rint(levels)
    if levels.min() < -0.5 or levels.max() > 255.5 or np.abs(levels - rounded).max() > 0.01:
        raise ClassifierError(
            "an image of MAITE is neither uint8 nor 8 bits as floats",
            found=f"{image.dtype} from {levels.min() / 255:.3g} to {levels.max() / 255:.3g}",
            expected="uint8, or multiples of 1/255 in [0, 1]",
        )
    return cast("Pixels", rounded.astype(np.uint8))


@dataclass(frozen=True)
class _Items:
    """The items of a dataset of MAITE as pairs of an image and a class number."""

    source: MaiteDatasetLike

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> tuple[NDArray[np.generic], int]:
        image, target, _ = self.source[index]
        array = np.asarray(image)
        if array.ndim == 3 and array.shape[0] in (1, 3):
            array = array.transpose(1, 2, 0)
        return array, _class_of(np.asarray(target), index)


def _class_of(target: NDArray[np.generic], index: int) -> int:
    """The class of a target; -1 if no class has a share."""
    values = np.asarray(target, np.float64)
    if values.ndim != 1 or not len(values):
        raise DatasetError(
            f"the target of datum {index} has no number per class", found=f"shape {values.shape}", expected="(classes,)"
        )
    if not values.any():
        return -1
    largest = np.flatnonzero(values == values.max())
    if len(largest) > 1:
        raise DatasetError(
            f"the target of datum {index} is not of one class", found=values.tolist(), expected="one largest number"
        )
    return int(largest[0])


def from_maite_dataset(dataset: MaiteDatasetLike, *, name: str | None = None) -> Dataset:
    """A dataset of MAITE as data of ``evaluate``: its ids, its classes (``index2label``), the largest of each target.

    Args:
        dataset: The dataset.
        name: The name in tables; default: its id.
    """
    labels = _class_names(dataset.metadata)
    if labels is None and len(dataset):
        labels = [str(number) for number in range(len(np.asarray(dataset[0][1])))]
    converted = from_torch_dataset(_Items(dataset), labels=labels, name=name or str(dataset.metadata["id"]))
    ids = [str(dataset[index][2]["id"]) for index in range(len(dataset))]
    if len(set(ids)) != len(ids):
        raise DatasetError("ids of the dataset are repeated", found=f"{len(set(ids))} of {len(ids)} are different")
    converted.ids = ids
    return converted


def from_maite_model(
    model: MaiteModelLike,
    *,
    pixels: Literal["uint8", "unit"] = "uint8",
    preprocessing: object = None,
    name: str | None = None,
    batch_size: int | None = None,
) -> Classifier:
    """A model of MAITE as a model of ``evaluate``.

    Args:
        model: The model.
        pixels: What it takes: uint8 values, or floats on [0, 1] (``"unit"``); MAITE leaves this open.
        preprocessing: How images are resized for it, as in ``evaluate``.
        name: The name in tables; default: its id.
        batch_size: Images per call.
    """
    factor = np.float32(1 / 255)

    def scores(images: Pixels) -> FloatArray:
        batch: list[NDArray[np.generic]] = []
        for image in images:
            channels_first = np.ascontiguousarray(image.transpose(2, 0, 1))
            batch.append(channels_first if pixels == "uint8" else channels_first * factor)
        rows = []
        for row in model(batch):
            values = row.detach().cpu() if hasattr(row, "detach") else row
            rows.append(np.asarray(values, np.float64))
        return np.stack(rows)

    return load_classifier(
        scores,
        labels=_class_names(model.metadata),
        name=name or str(model.metadata["id"]),
        preprocessing=preprocessing,
        batch_size=batch_size,
    )


def _class_names(metadata: Mapping[str, object]) -> list[str] | None:
    """The names of the classes in order; None if the metadata does not name them all."""
    names = metadata.get("index2label")
    if not isinstance(names, Mapping) or sorted(names) != list(range(len(names))):
        return None
    return [str(names[number]) for number in range(len(names))]


def score_by_maite(predictions: Predictions, metric: MaiteMetricLike) -> Mapping[str, object]:
    """The value of a metric of MAITE for stored predictions: their scores where a run kept them, else one-hot.

    Args:
        predictions: The predictions of one result: ``run.predictions(...)``.
        metric: The metric; it is reset first.
    """
    classes = len(predictions.space)
    metric.reset()
    for row, image_id in enumerate(predictions.ids):
        target = np.zeros(classes)
        label = int(predictions.labels[row])
        if label >= 0:
            target[label] = 1.0
        predicted = np.zeros(classes)
        if predictions.scores is not None:
            predicted = np.asarray(predictions.scores[row], np.float64)
        elif predictions.top[row, 0] >= 0:
            predicted[predictions.top[row, 0]] = 1.0
        metric.update([predicted], [target], [{"id": image_id}])
    return metric.compute()
