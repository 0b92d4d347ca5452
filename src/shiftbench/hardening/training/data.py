"""Training images of a recipe: opened, checked, decoded into memory if they fit, and with their copies."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from shiftbench import Dataset, Geometry, LabelSpace, Normalisation, Preprocessing, open_dataset
from shiftbench.datasets import of_classes, per_class, sample
from shiftbench.errors import BadImageError, DatasetError, LabelError
from shiftbench.extend.classifiers import read_description
from shiftbench.extend.datasets import StorageGroups, TrainedOn, find_label_space, identity
from shiftbench.extend.errors import argument, listed
from shiftbench.extend.io import cache_folder, cached_array, digest
from shiftbench.extend.jobs import on_threads, one_torch_thread
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.copies import is_folder_of_copies, open_copies
from shiftbench.hardening.augmentations.networks import NEEDS, network_for
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe, TrainingData
from shiftbench.jobs import progress_bar

Targets = NDArray[np.int32] | NDArray[np.uint8]


@dataclass(frozen=True)
class TrainingImages:
    """Labelled images ready for training, followed by their copies. Workers receive them as a pickle."""

    name: str
    space: LabelSpace
    fingerprint: str
    ids: Sequence[str]
    #: Class indices (N,); zeros and ones (N, classes) for multi-label images. The targets of the copies follow.
    targets: Targets
    #: Decoded images, or the dataset that they are read from and the geometry that is applied to them.
    source: Pixels | tuple[Dataset, Geometry | None]
    copies: tuple[TrainingImages, ...] = ()
    #: Which images these are, for the trained classifier, with those that the recipe adds.
    trained_on: TrainedOn | None = None

    @property
    def pixels(self) -> Pixels | None:
        """All images, if they are in memory and have no copies."""
        if self.copies or not isinstance(self.source, np.ndarray):
            return None
        return self.source

    def __len__(self) -> int:
        return len(self.targets)

    def read(self, index: int) -> Pixels:
        """The image with this number; raises BadImageError if it cannot be read."""
        position = self._locate(index)
        source = position.images.source
        if isinstance(source, np.ndarray):
            return source[position.number]  # type: ignore[no-any-return]
        dataset, geometry = source
        pixels = dataset.read(position.number).pixels
        return pixels if geometry is None else geometry(pixels)

    def storage_groups(self) -> StorageGroups | None:
        """How images share storage that is read as a whole; None if they are in memory or read one by one."""
        if self.copies or isinstance(self.source, np.ndarray):
            return None
        dataset, _ = self.source
        return dataset.storage_groups()

    def image_id(self, index: int) -> str:
        """The name of an image; the name in a copy ends in the copy's number (``name@1``)."""
        position = self._locate(index)
        image_id = position.images.ids[position.number]
        if position.copy == 0:
            return image_id
        return f"{image_id}@{position.copy}"

    def _locate(self, index: int) -> _Place:
        """Where the image with an index is: among the originals, or in one of their copies."""
        for copy, images in enumerate((self, *self.copies)):
            if index < len(images.ids):
                return _Place(images, index, copy)
            index -= len(images.ids)
        raise IndexError(index)

    def describe(self) -> dict[str, object]:
        """JSON-able provenance."""
        return {
            "dataset": self.name,
            "images": len(self.ids),
            "with_copies": len(self),
            "fingerprint": self.fingerprint,
            "labels": self.space.name,
        }


class _Place(NamedTuple):
    """Where an image of a training set is."""

    images: TrainingImages
    number: int
    #: The number of the copy; 0 is the original.
    copy: int


def evaluation_preprocessing(data: TrainingData) -> Preprocessing:
    """The preprocessing of the trained classifier."""
    if data.preprocessing:
        return read_description(data.preprocessing, "data.preprocessing").over(Preprocessing())
    return Preprocessing(evaluation_geometry(data), Normalisation(mean=data.mean, std=data.std))


def evaluation_geometry(data: TrainingData) -> Geometry:
    """The geometry that the trained classifier applies to an image of any size."""
    if data.preprocessing:
        return evaluation_preprocessing(data).geometry
    if data.resize:
        return Geometry(resize=data.resize, crop=data.size)
    return Geometry(resize=data.size, resize_rule="exact", crop=None)


def open_training_set(spec: str | Dataset, data: TrainingData) -> Dataset:
    """The dataset that a recipe names, or a smaller part of it, which is the same for every seed."""
    if not isinstance(spec, Dataset) and not spec:
        hint = f"{argument('data', 'FOLDER')}, or [data] train in the recipe"
        raise TrainingError("nothing to train on", expected="data", hint=hint)
    dataset = _open_in_space(spec, find_label_space(data.labels or None))
    if data.per_class:
        dataset = per_class(dataset, data.per_class)
    if data.sample:
        dataset = sample(dataset, data.sample)
    if not len(dataset):
        raise TrainingError(f"{dataset.name!r} has no image")
    return dataset


def _open_in_space(spec: str | Dataset, space: LabelSpace | str | None) -> Dataset:
    """A dataset over these classes. If it has more classes, only the images of these: ImageNet's of 200 classes."""
    try:
        dataset = open_dataset(spec, space=space)
    except LabelError as error:
        if not isinstance(space, LabelSpace):
            raise
        try:
            dataset = open_dataset(spec)
        except LabelError:  # The user's own classes, some of which are not in the space.
            hint = "data.labels=folders takes the classes of the training data; validation data may have no others"
            raise LabelError(error.message, found=error.found, expected=error.expected, hint=hint) from None
    if isinstance(space, LabelSpace) and dataset.space.keys != space.keys:
        return of_classes(dataset, space)
    return dataset


def _open_extra(spec: str, dataset: Dataset) -> Dataset:
    """Further images to train on: copies of the dataset that `harden augment` wrote, or another dataset."""
    if is_folder_of_copies(spec):
        copies = open_copies(spec, dataset)
        if copies is not None:
            return copies
    try:
        return _open_in_space(spec, dataset.space)
    except DatasetError as error:
        if ":" in spec or Path(spec).exists():
            raise
        raise TrainingError(
            f"data.extra: there is no folder or dataset {spec!r}",
            found=f"the working folder {Path.cwd().name!r}",
            expected="training data, or copies that `shiftbench harden augment` wrote, as the recipe's comment says",
        ) from error


def _load(dataset: Dataset, data: TrainingData, geometry: Geometry | None, *, show: bool) -> TrainingImages:
    """The images, decoded into memory if ``geometry`` gives them one size and the recipe's limit allows it."""
    targets = _targets(dataset)
    source = dataset.decoded_as(evaluation_geometry(data).decoding)
    images = TrainingImages(dataset.name, dataset.space, identity(dataset), dataset.ids, targets, (source, geometry))
    if geometry is None or len(dataset) * data.size**2 * 3 > data.memory_gb * 1e9:
        return images
    pixels = np.empty((len(dataset), data.size, data.size, 3), np.uint8)

    def decode(index: int) -> str:
        """Decodes an image; returns a message if it cannot be read."""
        try:
            pixels[index] = images.read(index)
        except BadImageError as error:
            return f"{dataset.ids[index]}: {error.message}"
        return ""

    with progress_bar(f"reading {dataset.name}", len(dataset), show=show) as advance:
        messages = on_threads(decode, range(len(dataset)), advance=advance)
    unreadable = [message for message in messages if message]
    if not unreadable:
        return replace(images, source=pixels)
    warnings.warn(f"{len(unreadable)} images cannot be read and are left out: {listed(unreadable)}", stacklevel=2)
    readable = np.array([not message for message in messages])
    ids = [dataset.ids[i] for i in np.flatnonzero(readable).tolist()]
    return replace(images, ids=ids, targets=targets[readable], source=pixels[readable])


def _targets(dataset: Dataset) -> Targets:
    """Class indices, or zeros and ones for multi-label images; raises if an image has no label."""
    if dataset.label_sets is not None:
        targets = np.zeros((len(dataset), len(dataset.space)), np.uint8)
        for row, classes in zip(targets, dataset.label_sets, strict=True):
            row[list(classes)] = 1
        return targets
    unlabelled = np.flatnonzero(dataset.labels < 0)
    if len(unlabelled):
        raise TrainingError(
            f"{len(unlabelled)} of {len(dataset)} images of {dataset.name!r} have no label",
            found=dataset.ids[int(unlabelled[0])],
            expected="a class for every training image",
        )
    return dataset.labels


# Preparation of the data that a recipe names


class PreparedTraining(NamedTuple):
    """The images to train on, and the recipe to train by."""

    images: TrainingImages
    #: The recipe, in which every augmentation names the files of its networks.
    recipe: Recipe


def prepare_training(recipe: Recipe, data: str | Dataset | None = None, *, show: bool = False) -> PreparedTraining:
    """The training images of a recipe, with the copies that it asks for."""
    dataset = open_training_set(recipe.data.train if data is None else data, recipe.data)
    geometry = None if recipe.data.uncropped else evaluation_geometry(recipe.data)
    images = _load(dataset, recipe.data, geometry, show=show)
    _check_loss(recipe, dataset)
    _check_classes(images, empty_allowed=recipe.data.empty_classes)

    def with_networks(parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(_with_networks(part, dataset, recipe.data.network_steps, show) for part in parts)

    ready = structs.replace(
        recipe,
        augmentations=with_networks(recipe.augmentations),
        views=with_networks(recipe.views),
        copies=with_networks(recipe.copies),
    )
    copies = [_copy(part, images, ready, show) for part in ready.copies]
    extra = [_open_extra(spec, dataset) for spec in recipe.data.extra]
    copies += [_load(extra_dataset, recipe.data, geometry, show=show) for extra_dataset in extra]
    if copies:
        targets = np.concatenate([part.targets for part in (images, *copies)])
        images = replace(images, targets=targets, copies=tuple(copies))
    count = len(images)
    if recipe.train.batch_size > count:
        found = (
            f"train.batch_size = {recipe.train.batch_size}, but there are {count} training images: "
            "an epoch is a single step"
        )
        warnings.warn(f"{found}; try train.batch_size={max(2, count // 10)}", stacklevel=2)
    return PreparedTraining(replace(images, trained_on=TrainedOn.of([dataset, *extra])), ready)


def check_training_data(recipe: Recipe, data: str | Dataset | None = None) -> LabelSpace:
    """Opens all data that a recipe names, without reading an image; returns the classes of the training.

    Raises whatever ``prepare_training`` and ``prepare_validation`` would raise about missing data and label spaces.
    """
    dataset = open_training_set(recipe.data.train if data is None else data, recipe.data)
    _check_loss(recipe, dataset)
    _targets(dataset)
    _check_selection(recipe, recipe.data.validation)
    if recipe.data.validation:
        _open_in_space(recipe.data.validation, dataset.space)
    for spec in recipe.data.extra:
        _open_extra(spec, dataset)
    return dataset.space


def _check_loss(recipe: Recipe, dataset: Dataset) -> None:
    """Raises if the loss does not fit the labels, or there is only one class."""
    if dataset.label_sets is None:
        labels = "one label each"
        fitting = "cross-entropy"
    else:
        labels = "several labels"
        fitting = "binary"
    if recipe.loss.name != fitting:
        found = f"loss.name = {recipe.loss.name!r}"
        raise TrainingError(f"images of {dataset.name!r} have {labels}", found=found, hint=f'loss.name="{fitting}"')
    if fitting == "cross-entropy" and len(dataset.space) == 1:
        raise TrainingError("there is only one class, so that there is nothing to learn", found=dataset.space.names[0])


def _with_networks(part: Part, dataset: Dataset, steps: int, show: bool) -> Part:
    """The augmentation with its networks. Those that no option names are trained on the data, once, and cached."""
    if part.name not in NEEDS or any(option in part.options for option in NEEDS[part.name]):
        return part
    networks = network_for(part.name, train_on=dataset, steps=steps, show=show)
    return Part(part.name, {**part.options, **networks})


def _classes_with(images: TrainingImages, count: int) -> list[str]:
    """The names of the classes that have this many images."""
    if images.targets.ndim == 2:
        counts = images.targets.sum(axis=0)
    else:
        counts = np.bincount(images.targets, minlength=len(images.space))
    return [images.space.names[i] for i in np.flatnonzero(counts == count)]


def _check_classes(images: TrainingImages, *, empty_allowed: bool) -> None:
    """Raises if a class has no image, unless that is allowed; warns if a class has one image."""
    space = images.space
    empty = _classes_with(images, 0)
    if empty and not empty_allowed:
        raise TrainingError(
            f"{len(empty)} of {len(space)} classes of {space.name!r} have no training image",
            found=listed(empty),
            hint="data.labels=folders if only the classes that are there are meant, or data.empty_classes=true",
        )
    single = _classes_with(images, 1)
    if single:
        warnings.warn(f"classes with one training image: {listed(single)}; little can be learnt of them", stacklevel=3)


def _check_selection(recipe: Recipe, validation: str | Dataset) -> None:
    """Raises if the best epochs are to be kept and there are no validation data to choose them by."""
    has_validation = isinstance(validation, Dataset) or bool(validation)
    if not has_validation and (recipe.train.keep == "best" or recipe.train.top):
        raise TrainingError(
            "the best epochs are chosen on validation data, and none is given",
            found=f"train.keep = {recipe.train.keep!r}, train.top = {recipe.train.top}",
            hint=f"{argument('validation', 'FOLDER')}, or keep the last",
        )


def prepare_validation(
    recipe: Recipe, data: str | Dataset | None, space: LabelSpace, *, show: bool = False
) -> TrainingImages | None:
    """The images that are evaluated after every epoch, over the classes of training; None if there are none."""
    spec = recipe.data.validation if data is None else data
    _check_selection(recipe, spec)
    if not isinstance(spec, Dataset) and not spec:
        return None
    try:
        dataset = _open_in_space(spec, space)
    except LabelError as error:
        if data is not None:
            raise
        # The validation data of a recipe belong to its own training data, which others have replaced.
        raise LabelError(
            f"the recipe's validation data do not fit: {error.message}",
            found=error.found,
            expected=error.expected,
            hint=f"{argument('validation', 'FOLDER')}, or without validation "
            + argument("changes", {"data.validation": ""}, flag="--set"),
        ) from error
    images = _load(dataset, recipe.data, evaluation_geometry(recipe.data), show=show)
    missing = _classes_with(images, 0)
    if missing:
        warnings.warn(f"classes without a validation image: {listed(missing)}", stacklevel=2)
    return images


def _copy(part: Part, images: TrainingImages, recipe: Recipe, show: bool) -> TrainingImages:
    """All images augmented once. The copy is the same for every seed, so the cache keeps it after the first use."""
    if images.pixels is None:
        raise TrainingError(
            "copies are made of images in memory",
            found="data.uncropped, or more than data.memory_gb",
            hint="write them to disk by `shiftbench harden augment`, and name the folders in data.extra",
        )
    options = dict(part.options)
    for key in NEEDS.get(part.name, ()):
        # In the key of the cache, a network counts by the name of its file, wherever the file is.
        if key in options:
            options[key] = Path(options[key]).name
    pixels_key: list[object] = [images.fingerprint, recipe.data.size, recipe.data.resize]
    if recipe.data.preprocessing:
        pixels_key.append(evaluation_geometry(recipe.data).describe())
    key = digest("copy", part.name, options, *pixels_key)
    path = cache_folder("hardening", "copies") / f"{part.name}-{key}.npz"
    return replace(images, source=cached_array(path, lambda: _augmented(part, images, show)))


def _augmented(part: Part, images: TrainingImages, show: bool) -> Pixels:
    """The pixels of all images, augmented."""
    pixels = np.empty_like(images.pixels)
    augment = make_image_augmentation(part.name, **part.options)

    def augment_one(index: int) -> None:
        with one_torch_thread():
            pixels[index] = augment(images.read(index), stream(0, "copy", part.name, images.ids[index]))

    with progress_bar(f"copies by {part.name}", len(pixels), show=show) as advance:
        on_threads(augment_one, range(len(pixels)), None, advance)
    return pixels
