"""From what a recipe names to images ready for training: opened, checked, decoded, with their copies."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import structs
from rich.console import Console

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.augmentations.copies import in_memory
from shiftbench.hardening.augmentations.network_training import NEEDS, network_for
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe
from shiftbench.hardening.training.data import (
    ImagesInMemory,
    Pictures,
    check_classes,
    evaluation_geometry,
    load_pictures,
    open_in_space,
    open_training_set,
)
from shiftbench.io.atomic import write_atomically
from shiftbench.io.cache import cache_folder
from shiftbench.io.hashing import digest
from shiftbench.jobs.blocks import save_array
from shiftbench.labels.space import LabelSpace


class PreparedTraining(NamedTuple):
    pictures: Pictures
    #: The recipe, in which every augmentation knows its networks.
    recipe: Recipe


def prepare_training(
    recipe: Recipe, data: str | Dataset | None = None, *, show: bool = False, console: Console | None = None
) -> PreparedTraining:
    """The training images of a recipe, with the copies that it wants."""
    dataset = open_training_set(data if data is not None else recipe.data.train, recipe.data)
    geometry = None if recipe.data.uncropped else evaluation_geometry(recipe.data)
    pictures = load_pictures(dataset, recipe.data, geometry, show=show, console=console)
    _check_labels(recipe, dataset)
    check_classes(dataset, pictures.targets, empty_allowed=recipe.data.empty_classes)
    recipe = _with_networks(recipe, dataset, show)
    copies = [_copy(part, pictures, recipe, show, console) for part in recipe.copies]
    for spec in recipe.data.extra:
        extra = open_in_space(spec, pictures.space)
        copies.append(load_pictures(extra, recipe.data, geometry, show=show, console=console))
    return PreparedTraining(pictures.joined(copies) if copies else pictures, recipe)


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
) -> Pictures | None:
    """The images that are looked at after every epoch, over the classes of training; None where there are none."""
    spec = data if data is not None else recipe.data.validation
    if not isinstance(spec, Dataset) and not spec:
        if recipe.train.keep == "best":
            raise TrainingError(
                "train.keep is 'best', without validation data", hint="--validation FOLDER, or keep the last"
            )
        return None
    dataset = open_in_space(spec, space)
    return load_pictures(dataset, recipe.data, evaluation_geometry(recipe.data), show=show, console=console)


def _copy(part: Part, pictures: Pictures, recipe: Recipe, show: bool, console: Console | None) -> Pictures:
    """All images augmented once: made at the first use, then kept in the cache, the same for every seed."""
    if pictures.pixels is None:
        raise TrainingError(
            "copies are made of images in memory",
            found="data.uncropped, or more than data.memory_gb",
            hint="write them to disk by `shiftbench harden augment`, and name the folders in data.extra",
        )
    options = {
        key: Path(value).name if key in NEEDS.get(part.name, ()) else value for key, value in part.options.items()
    }
    key = digest("copy", part.name, options, pictures.fingerprint, recipe.data.size, recipe.data.resize)
    path = cache_folder("hardening", "copies") / f"{part.name}-{key}.npy"
    pixels = _read_copy(path, pictures.pixels.shape)
    if pixels is None:
        pixels = _augmented(part, pictures, show, console)
        made = pixels
        write_atomically(path, lambda temporary: save_array(temporary, made))
    return replace(pictures, picture=ImagesInMemory(pixels))


def _read_copy(path: Path, shape: Sequence[int]) -> Pixels | None:
    with contextlib.suppress(OSError, ValueError, EOFError):
        kept: Pixels = np.load(path, allow_pickle=False)
        return kept if kept.shape == tuple(shape) and kept.dtype == np.uint8 else None
    return None


def _augmented(part: Part, pictures: Pictures, show: bool, console: Console | None) -> Pixels:
    assert pictures.pixels is not None
    augment = make_image_augmentation(part.name, **part.options)

    def augmented(index: int) -> Pixels:
        return augment(pictures.picture(index), stream(0, "copy", part.name, pictures.ids[index]))

    return in_memory(augmented, pictures.pixels.shape, f"copies by {part.name}", show=show, console=console)
