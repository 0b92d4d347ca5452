"""Training images from what a recipe names: opened, checked, decoded into memory where they fit, with copies."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.overlap import TrainedOn
from shiftbench.datasets.stored import identity
from shiftbench.datasets.subset import of_classes, per_class, sample
from shiftbench.errors import BadImageError, LabelError, argument, listed
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.networks import NEEDS, network_for
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe, TrainingData
from shiftbench.io.atomic import write_atomically
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest
from shiftbench.jobs.blocks import save_array
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import on_threads, one_torch_thread
from shiftbench.labels.catalogue import find_label_space
from shiftbench.labels.space import LabelSpace

Targets = NDArray[np.int32] | NDArray[np.uint8]


@dataclass(frozen=True)
class TrainingImages:
    """Labelled images ready for training, and behind them the copies of them. Picklable, for workers."""

    name: str
    space: LabelSpace
    fingerprint: str
    ids: Sequence[str]
    #: Class indices (N,); zeros and ones (N, classes) for multi-label images. Those of copies follow.
    targets: Targets
    #: Decoded images, or where they are read from and what is done to them.
    source: Pixels | tuple[Dataset, Geometry | None]
    copies: tuple[TrainingImages, ...] = ()
    #: For the trained classifier: which images these are, with those that the recipe adds.
    trained_on: TrainedOn | None = None

    @property
    def pixels(self) -> Pixels | None:
        """All of them, where they are in memory."""
        return self.source if not self.copies and isinstance(self.source, np.ndarray) else None

    def __len__(self) -> int:
        return len(self.targets)

    def read(self, index: int) -> Pixels:
        """One image by number; raises BadImageError where it cannot be read."""
        part, number, _ = self._place(index)
        if isinstance(part.source, np.ndarray):
            return part.source[number]  # type: ignore[no-any-return]
        dataset, geometry = part.source
        pixels = dataset.read(number).pixels
        return pixels if geometry is None else geometry(pixels)

    def image_id(self, index: int) -> str:
        """The name of an image; those of copies have the copy's number (``name@1``)."""
        part, number, which = self._place(index)
        return f"{part.ids[number]}@{which}" if which else part.ids[number]

    def _place(self, index: int) -> tuple[TrainingImages, int, int]:
        for which, part in enumerate((self, *self.copies)):
            if index < len(part.ids):
                return part, index, which
            index -= len(part.ids)
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


def evaluation_geometry(data: TrainingData) -> Geometry:
    """What the trained classifier does to an image of any size."""
    if data.resize:
        return Geometry(resize=data.resize, crop=data.size)
    return Geometry(resize=data.size, resize_rule="exact", crop=None)


def open_training_set(spec: str | Dataset, data: TrainingData) -> Dataset:
    """The dataset that a recipe names, or a smaller part of it, chosen alike for every seed."""
    if not isinstance(spec, Dataset) and not spec:
        hint = f"{argument('data', 'FOLDER')}, or [data] train in the recipe"
        raise TrainingError("nothing to train on", expected="data", hint=hint)
    opened = _open_in_space(spec, find_label_space(data.labels or None))
    opened = per_class(opened, data.per_class) if data.per_class else opened
    opened = sample(opened, data.sample) if data.sample else opened
    if not len(opened):
        raise TrainingError(f"{opened.name!r} has no image")
    return opened


def _open_in_space(spec: str | Dataset, space: LabelSpace | str | None) -> Dataset:
    """A dataset over these classes; of one that has more, the images that fit: ImageNet's of 200 classes."""
    try:
        opened = open_dataset(spec, space=space)
    except LabelError as error:
        if not isinstance(space, LabelSpace):
            raise
        try:
            opened = open_dataset(spec)
        except LabelError:  # classes of one's own, of which some are not in the space
            hint = "data.labels=folders takes the classes of the training data; validation data may have no others"
            raise LabelError(error.message, found=error.found, expected=error.expected, hint=hint) from None
    return of_classes(opened, space) if isinstance(space, LabelSpace) and opened.space.keys != space.keys else opened


def _load(dataset: Dataset, data: TrainingData, geometry: Geometry | None, *, show: bool) -> TrainingImages:
    """Decoded into memory if all have the size that ``geometry`` gives and the recipe's bound allows it."""
    if dataset.label_sets is not None:
        targets: Targets = np.zeros((len(dataset), len(dataset.space)), np.uint8)
        for row, classes in zip(targets, dataset.label_sets, strict=True):
            row[list(classes)] = 1
    else:
        targets, unknown = dataset.labels, np.flatnonzero(dataset.labels < 0)
        if len(unknown):
            raise TrainingError(
                f"{len(unknown)} of {len(dataset)} images of {dataset.name!r} have no label",
                found=dataset.ids[int(unknown[0])],
                expected="a class for every training image",
            )
    images = TrainingImages(dataset.name, dataset.space, identity(dataset), dataset.ids, targets, (dataset, geometry))
    if geometry is None or len(dataset) * data.size**2 * 3 > data.memory_gb * 1e9:
        return images
    pixels = np.empty((len(dataset), data.size, data.size, 3), np.uint8)

    def decode(index: int) -> str:
        try:
            pixels[index] = images.read(index)
        except BadImageError as error:
            return f"{dataset.ids[index]}: {error.message}"
        return ""

    with progress_bar(f"reading {dataset.name}", len(dataset), show=show) as advance:
        troubles = on_threads(decode, range(len(dataset)), advance=advance)
    if bad := list(filter(None, troubles)):
        warnings.warn(f"{len(bad)} images cannot be read and are left out: {listed(bad)}", stacklevel=2)
        good = np.array([not trouble for trouble in troubles])
        ids = [one for one, fine in zip(dataset.ids, good, strict=True) if fine]
        return replace(images, ids=ids, targets=targets[good], source=pixels[good])
    return replace(images, source=pixels)


# What a recipe names


class PreparedTraining(NamedTuple):
    images: TrainingImages
    #: The recipe, in which every augmentation knows its networks.
    recipe: Recipe


def prepare_training(recipe: Recipe, data: str | Dataset | None = None, *, show: bool = False) -> PreparedTraining:
    """The training images of a recipe, with the copies that it wants."""
    dataset = open_training_set(data if data is not None else recipe.data.train, recipe.data)
    geometry = None if recipe.data.uncropped else evaluation_geometry(recipe.data)
    images = _load(dataset, recipe.data, geometry, show=show)
    fitting = "cross-entropy" if dataset.label_sets is None else "binary"
    if recipe.loss.name != fitting:
        labels = "one label each" if dataset.label_sets is None else "several labels"
        found = f"loss.name = {recipe.loss.name!r}"
        raise TrainingError(f"images of {dataset.name!r} have {labels}", found=found, hint=f'loss.name="{fitting}"')
    if fitting == "cross-entropy" and len(images.space) == 1:
        raise TrainingError("there is only one class, so that there is nothing to learn", found=images.space.names[0])
    _check_classes(images, empty_allowed=recipe.data.empty_classes)

    def with_networks(part: Part) -> Part:
        """Networks that no option names are trained on the data, once; the cache keeps them."""
        if part.name not in NEEDS or any(option in part.options for option in NEEDS[part.name]):
            return part
        found = network_for(part.name, train_on=dataset, steps=recipe.data.network_steps, show=show)
        return Part(part.name, {**part.options, **found})

    lists = ("augmentations", "views", "copies")
    ready = structs.replace(recipe, **{key: tuple(map(with_networks, getattr(recipe, key))) for key in lists})
    copies = [_copy(part, images, ready, show) for part in ready.copies]
    extra = [_open_in_space(spec, images.space) for spec in recipe.data.extra]
    copies += [_load(one, recipe.data, geometry, show=show) for one in extra]
    if copies:
        targets = np.concatenate([part.targets for part in (images, *copies)])
        images = replace(images, targets=targets, copies=tuple(copies))
    if (size := recipe.train.batch_size) > (count := len(images)):
        found = f"train.batch_size = {size}, but there are {count} training images: an epoch is a single step"
        warnings.warn(f"{found}; try train.batch_size={max(2, count // 10)}", stacklevel=2)
    return PreparedTraining(replace(images, trained_on=TrainedOn.of([dataset, *extra])), ready)


def _classes_with(images: TrainingImages, count: int) -> list[str]:
    """The names of classes that have this many images."""
    space, targets = images.space, images.targets
    counts = targets.sum(axis=0) if targets.ndim == 2 else np.bincount(targets, minlength=len(space))
    return [space.names[i] for i in np.flatnonzero(counts == count)]


def _check_classes(images: TrainingImages, *, empty_allowed: bool) -> None:
    """Each class has images: none is an error, one is a warning."""
    space, empty, single = images.space, _classes_with(images, 0), _classes_with(images, 1)
    if empty and not empty_allowed:
        raise TrainingError(
            f"{len(empty)} of {len(space)} classes of {space.name!r} have no training image",
            found=listed(empty),
            hint="data.labels=folders if only the classes that are there are meant, or data.empty_classes=true",
        )
    if single:
        warnings.warn(f"classes with one training image: {listed(single)}; little can be learnt of them", stacklevel=3)


def prepare_validation(
    recipe: Recipe, data: str | Dataset | None, space: LabelSpace, *, show: bool = False
) -> TrainingImages | None:
    """The images that are looked at after every epoch, over the classes of training; None where there are none."""
    spec = data if data is not None else recipe.data.validation
    if not isinstance(spec, Dataset) and not spec:
        if recipe.train.keep == "best" or recipe.train.top:
            raise TrainingError(
                "the best epochs are chosen on validation data, and none is given",
                found=f"train.keep = {recipe.train.keep!r}, train.top = {recipe.train.top}",
                hint=f"{argument('validation', 'FOLDER')}, or keep the last",
            )
        return None
    geometry = evaluation_geometry(recipe.data)
    found = _load(_open_in_space(spec, space), recipe.data, geometry, show=show)
    if missing := _classes_with(found, 0):
        warnings.warn(f"classes without a validation image: {listed(missing)}", stacklevel=2)
    return found


def _copy(part: Part, images: TrainingImages, recipe: Recipe, show: bool) -> TrainingImages:
    """All images augmented once: made at the first use, then kept in the cache, the same for every seed."""
    if images.pixels is None:
        raise TrainingError(
            "copies are made of images in memory",
            found="data.uncropped, or more than data.memory_gb",
            hint="write them to disk by `shiftbench harden augment`, and name the folders in data.extra",
        )
    files = NEEDS.get(part.name, ())
    options = {key: Path(value).name if key in files else value for key, value in part.options.items()}
    key = digest("copy", part.name, options, images.fingerprint, recipe.data.size, recipe.data.resize)
    path = cache_folder("hardening", "copies") / f"{part.name}-{key}.npy"
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept: Pixels = np.load(path, allow_pickle=False)
        if kept.shape == images.pixels.shape and kept.dtype == np.uint8:
            return replace(images, source=kept)
    pixels, augment = np.empty_like(images.pixels), make_image_augmentation(part.name, **part.options)

    def augmented(index: int) -> None:
        with one_torch_thread():
            pixels[index] = augment(images.read(index), stream(0, "copy", part.name, images.ids[index]))

    with progress_bar(f"copies by {part.name}", len(pixels), show=show) as advance:
        on_threads(augmented, range(len(pixels)), None, advance)
    write_atomically(path, lambda temporary: save_array(temporary, pixels))
    return replace(images, source=pixels)
