"""Training images from what a recipe names: opened, checked, decoded into memory where they fit, with copies."""

from __future__ import annotations

import contextlib
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, overload

import numpy as np
from msgspec import structs
from numpy.typing import NDArray
from rich.console import Console

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.stored import identity
from shiftbench.datasets.subset import of_classes, per_class, sample
from shiftbench.errors import BadImageError, LabelError, listed
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.copies import in_memory
from shiftbench.hardening.augmentations.networks import NEEDS, network_for
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe, TrainingData
from shiftbench.io.atomic import write_atomically
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest
from shiftbench.jobs.blocks import save_array
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import on_threads
from shiftbench.labels.catalogue import find_label_space
from shiftbench.labels.space import LabelSpace

if TYPE_CHECKING:
    from rich.console import Console


Targets = NDArray[np.int32] | NDArray[np.uint8]


class ImageSource(Protocol):
    """One image by number; raises BadImageError where it cannot be read. Sources are picklable, for workers."""

    def __call__(self, index: int) -> Pixels: ...


@dataclass(frozen=True)
class ImagesInMemory:
    pixels: Pixels

    def __call__(self, index: int) -> Pixels:
        read: Pixels = self.pixels[index]
        return read


@dataclass(frozen=True)
class DatasetImages:
    dataset: Dataset
    geometry: Geometry | None

    def __call__(self, index: int) -> Pixels:
        pixels = self.dataset.read(index).pixels
        return pixels if self.geometry is None else self.geometry(pixels)


@dataclass(frozen=True)
class JoinedImages:
    """Several one after the other."""

    parts: tuple[ImageSource, ...]
    #: Where each begins.
    starts: tuple[int, ...]

    def __call__(self, index: int) -> Pixels:
        which = bisect_right(self.starts, index) - 1
        return self.parts[which](index - self.starts[which])


@dataclass(frozen=True)
class JoinedIds(Sequence[str]):
    """Names of images and of their copies (``name@1``), made when they are asked for."""

    parts: tuple[Sequence[str], ...]
    starts: tuple[int, ...]

    def __len__(self) -> int:
        return self.starts[-1] + len(self.parts[-1])

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[place] for place in range(len(self))[index]]
        which = bisect_right(self.starts, index) - 1
        name = self.parts[which][index - self.starts[which]]
        return f"{name}@{which}" if which else name


@dataclass(frozen=True)
class LoadedImages:
    """Labelled images ready for training."""

    name: str
    space: LabelSpace
    fingerprint: str
    ids: Sequence[str]
    #: Class indices (N,); zeros and ones (N, classes) for multi-label images.
    targets: Targets
    read: ImageSource
    #: Of the ids, how many are no copies of others.
    originals: int

    @property
    def pixels(self) -> Pixels | None:
        """All of them, where they are in memory."""
        return self.read.pixels if isinstance(self.read, ImagesInMemory) else None

    def __len__(self) -> int:
        return len(self.ids)

    def describe(self) -> dict[str, object]:
        """JSON-able provenance."""
        return {
            "dataset": self.name,
            "images": self.originals,
            "with_copies": len(self),
            "fingerprint": self.fingerprint,
            "labels": self.space.name,
        }

    def joined(self, copies: Sequence[LoadedImages]) -> LoadedImages:
        """With copies below; the ids of theirs say which copy they are."""
        parts = [self, *copies]
        starts = tuple(np.cumsum([0, *(len(part) for part in parts[:-1])]).tolist())
        ids = JoinedIds(tuple(part.ids for part in parts), starts)
        source = JoinedImages(tuple(part.read for part in parts), starts)
        return replace(self, ids=ids, targets=np.concatenate([part.targets for part in parts]), read=source)


def evaluation_geometry(data: TrainingData) -> Geometry:
    """What the trained classifier does to an image of any size."""
    if data.resize:
        return Geometry(resize=data.resize, crop=data.size)
    return Geometry(resize=data.size, resize_rule="exact", crop=None)


def open_training_set(spec: str | Dataset, data: TrainingData) -> Dataset:
    """The dataset that a recipe names, or a smaller part of it, chosen alike for every seed."""
    if not isinstance(spec, Dataset) and not spec:
        raise TrainingError("nothing to train on", expected="data", hint="--data FOLDER, or [data] train in the recipe")
    opened = open_in_space(spec, find_label_space(data.labels or None))
    opened = per_class(opened, data.per_class) if data.per_class else opened
    opened = sample(opened, data.sample) if data.sample else opened
    if not len(opened):
        raise TrainingError(f"{opened.name!r} has no image")
    return opened


def open_in_space(spec: str | Dataset, space: LabelSpace | str | None) -> Dataset:
    """A dataset over these classes; of one that has more, the images that fit: ImageNet's of 200 classes."""
    try:
        opened = open_dataset(spec, space=space)
    except LabelError:
        if not isinstance(space, LabelSpace):
            raise
        opened = open_dataset(spec)
    return of_classes(opened, space) if isinstance(space, LabelSpace) and opened.space.keys != space.keys else opened


def check_classes(dataset: Dataset, targets: Targets, *, empty_allowed: bool) -> None:
    """Each class has images: none is an error, one is a warning."""
    counts = targets.sum(axis=0) if targets.ndim == 2 else np.bincount(targets, minlength=len(dataset.space))
    empty = [dataset.space.names[i] for i in np.flatnonzero(counts == 0)]
    single = [dataset.space.names[i] for i in np.flatnonzero(counts == 1)]
    if empty and not empty_allowed:
        raise TrainingError(
            f"{len(empty)} of {len(dataset.space)} classes of {dataset.space.name!r} have no training image",
            found=listed(empty),
            hint="data.labels=folders if only the classes that are there are meant, or data.empty_classes=true",
        )
    if single:
        warnings.warn(f"classes with one training image: {listed(single)}; little can be learnt of them", stacklevel=2)


def load_images(
    dataset: Dataset,
    data: TrainingData,
    geometry: Geometry | None,
    *,
    show: bool = False,
    console: Console | None = None,
) -> LoadedImages:
    """Decoded into memory if all have the size that ``geometry`` gives and the recipe's bound allows it."""
    targets, read = _targets(dataset), DatasetImages(dataset, geometry)
    kept = LoadedImages(dataset.name, dataset.space, identity(dataset), dataset.ids, targets, read, len(dataset))
    side = data.size
    if geometry is None or len(dataset) * side * side * 3 > data.memory_gb * 1e9:
        return kept
    pixels = np.empty((len(dataset), side, side, 3), np.uint8)
    bad: list[str] = []

    def decode(index: int) -> bool:
        try:
            pixels[index] = read(index)
        except BadImageError as error:
            bad.append(f"{dataset.ids[index]}: {error.message}")
            return False
        return True

    with progress_bar(f"reading {dataset.name}", len(dataset), show=show, console=console) as advance:
        good = np.array(on_threads(decode, range(len(dataset)), advance=advance), bool)
    if bad:
        warnings.warn(f"{len(bad)} images cannot be read and are left out: {listed(sorted(bad))}", stacklevel=2)
        ids = [one for one, fine in zip(dataset.ids, good, strict=True) if fine]
        kept, pixels = replace(kept, ids=ids, targets=targets[good], originals=len(ids)), pixels[good]
    return replace(kept, read=ImagesInMemory(pixels))


def _targets(dataset: Dataset) -> Targets:
    if dataset.label_sets is not None:
        targets = np.zeros((len(dataset), len(dataset.space)), np.uint8)
        for row, classes in zip(targets, dataset.label_sets, strict=True):
            row[list(classes)] = 1
        return targets
    unknown = np.flatnonzero(dataset.labels < 0)
    if len(unknown):
        raise TrainingError(
            f"{len(unknown)} of {len(dataset)} images of {dataset.name!r} have no label",
            found=dataset.ids[int(unknown[0])],
            expected="a class for every training image",
        )
    return dataset.labels


# What a recipe names


class PreparedTraining(NamedTuple):
    loaded: LoadedImages
    #: The recipe, in which every augmentation knows its networks.
    recipe: Recipe


def prepare_training(
    recipe: Recipe, data: str | Dataset | None = None, *, show: bool = False, console: Console | None = None
) -> PreparedTraining:
    """The training images of a recipe, with the copies that it wants."""
    dataset = open_training_set(data if data is not None else recipe.data.train, recipe.data)
    geometry = None if recipe.data.uncropped else evaluation_geometry(recipe.data)
    loaded = load_images(dataset, recipe.data, geometry, show=show, console=console)
    _check_labels(recipe, dataset)
    check_classes(dataset, loaded.targets, empty_allowed=recipe.data.empty_classes)
    recipe = _with_networks(recipe, dataset, show)
    copies = [_copy(part, loaded, recipe, show, console) for part in recipe.copies]
    for spec in recipe.data.extra:
        extra = open_in_space(spec, loaded.space)
        copies.append(load_images(extra, recipe.data, geometry, show=show, console=console))
    return PreparedTraining(loaded.joined(copies) if copies else loaded, recipe)


def _with_networks(recipe: Recipe, dataset: Dataset, show: bool) -> Recipe:
    """Networks that no option names are trained on the data, once; the cache keeps them."""

    def complete(part: Part) -> Part:
        if part.name not in NEEDS or any(option in part.options for option in NEEDS[part.name]):
            return part
        found = network_for(part.name, train_on=dataset, steps=recipe.data.network_steps, show=show)
        return Part(part.name, {**part.options, **found})

    return structs.replace(
        recipe,
        augmentations=tuple(map(complete, recipe.augmentations)),
        views=tuple(map(complete, recipe.views)),
        copies=tuple(map(complete, recipe.copies)),
    )


def _check_labels(recipe: Recipe, dataset: Dataset) -> None:
    if dataset.label_sets is not None and recipe.loss.name != "binary":
        raise TrainingError(
            f"images of {dataset.name!r} have several labels", found="loss.name = 'cross-entropy'",
            hint='loss.name="binary"',
        )  # fmt: skip


def prepare_validation(
    recipe: Recipe,
    data: str | Dataset | None,
    space: LabelSpace,
    *,
    show: bool = False,
    console: Console | None = None,
) -> LoadedImages | None:
    """The images that are looked at after every epoch, over the classes of training; None where there are none."""
    spec = data if data is not None else recipe.data.validation
    if not isinstance(spec, Dataset) and not spec:
        if recipe.train.keep == "best":
            raise TrainingError(
                "train.keep is 'best', without validation data", hint="--validation FOLDER, or keep the last"
            )
        return None
    dataset = open_in_space(spec, space)
    return load_images(dataset, recipe.data, evaluation_geometry(recipe.data), show=show, console=console)


def _copy(part: Part, loaded: LoadedImages, recipe: Recipe, show: bool, console: Console | None) -> LoadedImages:
    """All images augmented once: made at the first use, then kept in the cache, the same for every seed."""
    if loaded.pixels is None:
        raise TrainingError(
            "copies are made of images in memory",
            found="data.uncropped, or more than data.memory_gb",
            hint="write them to disk by `shiftbench harden augment`, and name the folders in data.extra",
        )
    options = {
        key: Path(value).name if key in NEEDS.get(part.name, ()) else value for key, value in part.options.items()
    }
    key = digest("copy", part.name, options, loaded.fingerprint, recipe.data.size, recipe.data.resize)
    path = cache_folder("hardening", "copies") / f"{part.name}-{key}.npy"
    pixels = _read_copy(path, loaded.pixels.shape)
    if pixels is None:
        pixels = _augmented(part, loaded, show, console)
        made = pixels
        write_atomically(path, lambda temporary: save_array(temporary, made))
    return replace(loaded, read=ImagesInMemory(pixels))


def _read_copy(path: Path, shape: Sequence[int]) -> Pixels | None:
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept: Pixels = np.load(path, allow_pickle=False)
        return kept if kept.shape == tuple(shape) and kept.dtype == np.uint8 else None
    return None


def _augmented(part: Part, loaded: LoadedImages, show: bool, console: Console | None) -> Pixels:
    assert loaded.pixels is not None
    augment = make_image_augmentation(part.name, **part.options)

    def augmented(index: int) -> Pixels:
        return augment(loaded.read(index), stream(0, "copy", part.name, loaded.ids[index]))

    return in_memory(augmented, loaded.pixels.shape, f"copies by {part.name}", show=show, console=console)
