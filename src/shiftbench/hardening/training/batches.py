"""Batches: the order of an epoch, and the views of every image, made here or ahead of time in worker processes.

The order comes from (seed, epoch), an image's augmentation from (seed, epoch, image id): neither the number of workers
nor a stop and a fresh start in the middle of an epoch changes a pixel. Workers are processes, because augmentations of
small images are Python for the most part, which threads do not speed up.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError
from shiftbench.hardening.augmentations.base import Chain, make_image_augmentation, stream
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe
from shiftbench.hardening.training.data import Pictures


class Batch(NamedTuple):
    #: One uint8 (N, H, W, 3) tensor for each view.
    views: list[torch.Tensor]
    #: (N, classes)
    targets: torch.Tensor
    #: Images that could not be read, and why.
    left_out: list[str]


class Order:
    """Which images make up which batch of the epoch that is to come next."""

    def __init__(self, count: int, images: int, size: int, seed: int) -> None:
        self.count, self.images, self.size, self.seed = count, images, size, seed
        self.epoch = self.start = 0
        # Batch norm cannot learn from a single image: a last batch of one is left out.
        self.batches = max(1, -(-images // size) - (images % size == 1))

    def __len__(self) -> int:
        return self.batches - self.start

    def __iter__(self) -> Iterator[tuple[int, list[int]]]:
        order = stream(self.seed, "order", self.epoch).permutation(self.count)[: self.images]
        for i in range(self.start, self.batches):
            yield self.epoch, order[i * self.size : (i + 1) * self.size].tolist()


class Batches(Dataset[Batch]):
    """All batches of all epochs: (epoch, image numbers) to views and targets."""

    def __init__(self, pictures: Pictures, recipe: Recipe, views: int) -> None:
        self.pictures, self.recipe, self.views = pictures, recipe, views
        self.seed, self.side = recipe.train.seed, recipe.data.size
        self._first, self._further = _chain(recipe.augmentations), _chain(recipe.views)
        images = pictures.originals if recipe.train.equal_steps else len(pictures)
        self.order = Order(len(pictures), images, recipe.train.batch_size, self.seed)
        self._loader: DataLoader[Batch] | None = None

    @property
    def count(self) -> int:
        """Batches of an epoch."""
        return self.order.batches

    def epoch(self, number: int, start: int = 0, *, workers: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from the ``start``-th on; workers live from the first epoch to the last."""
        if self._loader is None or self._loader.num_workers != workers:
            self._loader = DataLoader(
                self,
                batch_size=None,
                sampler=self.order,
                num_workers=workers,
                persistent_workers=workers > 0,
                multiprocessing_context="spawn" if workers else None,
                collate_fn=_as_it_is,
            )
        self.order.epoch, self.order.start = number, start
        for batch in self._loader:
            for trouble in batch.left_out:
                warnings.warn(f"left out: {trouble}", stacklevel=2)
            yield batch

    def __getitem__(self, which: tuple[int, Sequence[int]]) -> Batch:
        epoch, indices = which
        rows, kept, left_out = [], [], []
        for index in indices:
            try:
                rows.append(self.views_of(epoch, index))
                kept.append(index)
            except BadImageError as error:
                left_out.append(f"{self.pictures.ids[index]}: {error.message}")
        if not rows:
            raise TrainingError("no image of a batch can be read", found=left_out[0])
        stacked = [torch.from_numpy(np.stack([row[view] for row in rows])) for view in range(self.views)]
        return Batch(stacked, torch.from_numpy(self.pictures.targets[kept]), left_out)

    def views_of(self, epoch: int, index: int) -> list[Pixels]:
        """The first view, and what the further augmentations make of it."""
        generator = stream(self.seed, "augment", epoch, self.pictures.ids[index])
        first = self._sized(self._first(self.pictures.picture(index), generator))
        return [first, *(self._sized(self._further(first, generator)) for _ in range(self.views - 1))]

    def _sized(self, image: Pixels) -> Pixels:
        if image.shape != (self.side, self.side, 3):
            raise TrainingError(
                "an augmented image has another size than the network's input",
                found=" x ".join(map(str, image.shape[:2])),
                expected=f"{self.side} x {self.side}",
                hint='with data.uncropped the first augmentation is "resized-crop" with that size',
            )
        return image

    def __reduce__(self) -> tuple[object, ...]:
        # Augmentations are closures: a worker makes its own.
        return Batches, (self.pictures, self.recipe, self.views)


def _chain(parts: Sequence[Part]) -> Chain:
    return Chain([make_image_augmentation(part.name, **part.options) for part in parts])


def _as_it_is(batch: object) -> object:
    return batch


def to_pixels(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) to float (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).float() / 255
