"""Batches: the order of an epoch, and the views of every image, made here or ahead of time in worker processes.

The order comes from (seed, epoch), an image's augmentation from (seed, epoch, image id): neither the number of workers
and devices nor a stop and a restart in the middle of an epoch changes a pixel. Workers are processes, because most of
the augmentation of small images is Python code, which threads do not speed up.

A spawned worker unpickles its dataset. With 1.28 million images, every worker would hold a copy of all ids and labels.
So ``save_mapped`` writes each such list or array to a file, and ``load_mapped`` maps it: all workers of a machine read
the same pages.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, get_worker_info

from shiftbench import ShiftbenchError
from shiftbench.errors import BadImageError
from shiftbench.extend.datasets import StorageGroups
from shiftbench.extend.types import Pixels
from shiftbench.hardening.augmentations.base import ImageAugmentation, make_image_augmentation, stream
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, Recipe
from shiftbench.hardening.training.data import TrainingImages

#: Number of neighbouring images that are read one after the other if data.window is set.
_CHUNK = 1024
_VALIDATION_BATCH = 256


class Batch(NamedTuple):
    """A batch, or the part of it that is computed at once."""

    #: One uint8 (N, H, W, 3) tensor for each view.
    views: list[torch.Tensor]
    #: Class indices (N,), or zeros and ones (N, classes).
    targets: torch.Tensor
    #: Images that could not be read, each with the reason.
    left_out: list[str]
    #: This part's share of the images of the whole batch.
    share: float = 1.0


class PartIndex(NamedTuple):
    """The images of a part of a batch, by their numbers."""

    epoch: int
    images: Sequence[int]
    #: This part's share of the images of the whole batch.
    share: float


class Order:
    """The images of each batch of the next epoch, and the parts of it that this rank computes."""

    def __init__(
        self,
        count: int,
        images: int,
        recipe: Recipe,
        rank: int,
        world: int,
        *,
        shuffled: bool,
        storage_groups: Callable[[], StorageGroups | None] = lambda: None,
    ) -> None:
        self.count = count
        #: Asked when an epoch begins, because the workers, which have an order too, need no list of all images.
        self.storage_groups = storage_groups
        self.images = images
        self.recipe = recipe
        self.shuffled = shuffled
        if shuffled:
            self.size = recipe.train.batch_size
            self.splits = recipe.train.splits
        else:
            self.size = _VALIDATION_BATCH * world
            self.splits = world
        self.parts = self.splits // world
        self.mine = slice(rank * self.parts, (rank + 1) * self.parts)
        self.epoch = 0
        self.start = 0
        largest = min(images, self.size)
        if shuffled and largest < self.splits:
            raise TrainingError(
                "a batch has fewer images than parts",
                found=f"train.splits = {self.splits}, batches of {largest}",
                expected=f"at most {largest} parts",
                hint="a smaller train.splits, or fewer devices",
            )
        self.batches = math.ceil(images / self.size)
        # Batch norm cannot learn from a single image, so a last batch that is too small is left out.
        if shuffled and 0 < images % self.size < 2 * self.splits:
            self.batches -= 1
        self.batches = max(1, self.batches)

    def __len__(self) -> int:
        return (self.batches - self.start) * self.parts

    def __iter__(self) -> Iterator[PartIndex]:
        order = self.indices() if self.shuffled else np.arange(self.images)
        for i in range(self.start, self.batches):
            rows = order[i * self.size : (i + 1) * self.size]
            for part in np.array_split(rows, self.splits)[self.mine]:
                yield PartIndex(self.epoch, part.tolist(), len(part) / len(rows))

    def indices(self) -> NDArray[np.int64]:
        """All images in the order of the epoch; a further appearance of image i is ``i + count``, ``i + 2 * count``."""
        generator = stream(self.recipe.train.seed, "order", self.epoch)
        window = self.recipe.data.window
        repeats = self.recipe.train.repeats
        groups = self.storage_groups()
        if groups is not None:
            order = within_groups(groups, window or self.count, generator)
        elif window:
            order = self._within_windows(window, generator)
        else:
            order = generator.permutation(self.count)
        if repeats > 1:
            order = (order[:, None] + self.count * np.arange(repeats)).ravel()
        return order[: self.images]

    def _within_windows(self, window: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Chunks of neighbouring images in random order, and images shuffled within each window of that order."""
        chunks = [np.arange(i, min(i + _CHUNK, self.count)) for i in range(0, self.count, _CHUNK)]
        order = np.concatenate([chunks[i] for i in generator.permutation(len(chunks))])
        return np.concatenate([generator.permutation(order[i : i + window]) for i in range(0, self.count, window)])


def within_groups(groups: StorageGroups, window: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Whole groups of neighbouring images in random order, and images shuffled within buffers of whole groups.

    A buffer has no more groups than the dataset keeps in memory, so each group is read once in an epoch.

    Args:
        groups: The groups of all images.
        window: A buffer has at most this many images, or a single group.
        generator: Draws both orders.
    """
    starts = np.flatnonzero(np.diff(groups.numbers)) + 1
    chunks = np.split(np.arange(len(groups.numbers)), starts)
    buffers: list[list[NDArray[np.int64]]] = []
    images = 0
    for number in generator.permutation(len(chunks)):
        chunk = chunks[number]
        if not buffers or len(buffers[-1]) == groups.kept or images + len(chunk) > window:
            buffers.append([])
            images = 0
        buffers[-1].append(chunk)
        images += len(chunk)
    return np.concatenate([generator.permutation(np.concatenate(buffer)) for buffer in buffers])


class Batches(Dataset[Batch | ShiftbenchError]):
    """All batches of all epochs: (epoch, image numbers) to views and targets. Validation data are not shuffled."""

    def __init__(
        self,
        images: TrainingImages,
        recipe: Recipe,
        views: int,
        *,
        rank: int = 0,
        world: int = 1,
        shuffled: bool = True,
    ) -> None:
        self.images = images
        self.recipe = recipe
        self.views = views
        self.rank = rank
        self.world = world
        self.shuffled = shuffled
        self.seed = recipe.train.seed
        self.side = recipe.data.size
        #: Augmentations of the first view; validation data have none.
        self._first = _make_augmentations(recipe.augmentations) if shuffled else []
        #: Augmentations that make a further view of the first one.
        self._further = _make_augmentations(recipe.views)
        images_per_epoch = len(images.ids) if recipe.train.equal_steps else len(images)
        self.order = Order(
            len(images),
            images_per_epoch,
            recipe,
            rank,
            world,
            shuffled=shuffled,
            storage_groups=images.storage_groups,
        )
        self._loader: DataLoader[Batch | ShiftbenchError] | None = None
        self._shared: tempfile.TemporaryDirectory[str] | None = None

    @property
    def count(self) -> int:
        """The number of batches of an epoch."""
        return self.order.batches

    def epoch(self, number: int, start: int = 0, *, workers: int = 0) -> Iterator[Batch]:
        """This rank's parts of all batches from the ``start``-th on; workers live from the first epoch to the last."""
        workers = min(workers, self.count * self.order.parts)
        if self._loader is None or self._loader.num_workers != workers:
            self._loader = DataLoader(
                self,
                batch_size=None,
                sampler=self.order,
                num_workers=workers,
                persistent_workers=workers > 0,
                prefetch_factor=4 if workers else None,
                pin_memory=torch.cuda.is_available(),
                multiprocessing_context="spawn" if workers else None,
                worker_init_fn=_exit_as_a_fork,
            )
        self.order.epoch = number
        self.order.start = start
        for batch in self._loader:
            if isinstance(batch, ShiftbenchError):
                raise batch
            for message in batch.left_out:
                warnings.warn(f"left out: {message}", stacklevel=2)
            yield batch

    def close(self) -> int | None:
        """Ends the workers, which torch would otherwise report as killed.

        Returns the exit code of a worker that has failed, such as -9, and None if none has.
        """
        iterator: Any = None if self._loader is None else self._loader._iterator
        self._loader = None
        if iterator is None:  # there are no workers
            return None
        codes = [worker.exitcode for worker in iterator._workers if worker.exitcode]
        iterator._shutdown_workers()
        return codes[0] if codes else None

    def __getitem__(self, part: PartIndex) -> Batch | ShiftbenchError:
        # An error that a worker raises reaches the main process as the text of a traceback; an error that it returns
        # arrives as an object.
        try:
            batch = self._batch(part)
        except ShiftbenchError as error:
            return error
        if get_worker_info() is None:
            return batch
        try:
            # The thread that sends a batch would lose an error, so tensors are moved to shared memory here.
            for tensor in (*batch.views, batch.targets):
                if len(tensor):
                    tensor.share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            hint = "fewer workers, or a larger /dev/shm (docker run --shm-size=8g)"
            return TrainingError("no shared memory for a batch", found=str(error), hint=hint)
        return batch

    def _batch(self, part: PartIndex) -> Batch:
        """Make one part of a batch: the views of its images and their targets, without images that cannot be read."""
        rows = []
        kept = []
        left_out = []
        for index in part.images:
            image = index % len(self.images)
            try:
                rows.append(self._views(part.epoch, index))
                kept.append(image)
            except BadImageError as error:
                left_out.append(f"{self.images.image_id(image)}: {error.message}")
        if left_out and not rows:
            raise TrainingError("no image of a batch can be read", found=left_out[0])
        views = [torch.empty(0, dtype=torch.uint8)] * self.views
        if rows:
            views = [torch.from_numpy(np.stack(images)) for images in zip(*rows, strict=True)]
        targets = torch.from_numpy(self.images.targets[kept])
        if targets.ndim == 1:
            targets = targets.long()
        return Batch(views, targets, left_out, part.share)

    def _views(self, epoch: int, index: int) -> list[Pixels]:
        """The first view of an image, and the views that the further augmentations make of it."""
        repeat, image_index = divmod(index, len(self.images))
        entropy: list[str | int] = ["augment", epoch, self.images.image_id(image_index)]
        if repeat:
            entropy.append(repeat)
        generator = stream(self.seed, *entropy)
        first = self._augmented(self.images.read(image_index), self._first, generator)
        further = [self._augmented(first, self._further, generator) for _ in range(self.views - 1)]
        return [first, *further]

    def _augmented(
        self, image: Pixels, augmentations: Sequence[ImageAugmentation], generator: np.random.Generator
    ) -> Pixels:
        for augment in augmentations:
            image = augment(image, generator)
        if image.shape != (self.side, self.side, 3):
            raise TrainingError(
                "an augmented image has another size than the network's input",
                found=" x ".join(map(str, image.shape[:2])),
                expected=f"{self.side} x {self.side}",
                hint='with data.uncropped the first augmentation is "resized-crop" with that size',
            )
        return image

    def __reduce__(self) -> tuple[object, ...]:
        # Augmentations are closures, which cannot be pickled, so a worker makes its own. Names, labels and pixels are
        # mapped into its memory.
        if self._shared is None:
            self._shared = tempfile.TemporaryDirectory(prefix="shiftbench-")
            save_mapped(Path(self._shared.name), self.images)
        return _in_worker, (self._shared.name, self.recipe, self.views, self.rank, self.world, self.shuffled)


def _in_worker(folder: str, recipe: Recipe, views: int, rank: int, world: int, shuffled: bool) -> Batches:
    return Batches(load_mapped(Path(folder)), recipe, views, rank=rank, world=world, shuffled=shuffled)


def _make_augmentations(parts: Sequence[Part]) -> list[ImageAugmentation]:
    return [make_image_augmentation(part.name, **part.options) for part in parts]


def _exit_as_a_fork(worker: int) -> None:
    """Makes a spawned worker end as a forked one does, without finalising the interpreter.

    A thread that still sends batches, as after a stop within an epoch, would otherwise abort the worker inside torch.
    """

    def leave() -> None:
        if sys.exc_info()[0] is None:
            sys.stdout.flush()
            os._exit(0)

    Finalize(None, leave, exitpriority=-100)


def to_pixels(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) to float (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).float() / 255


# Data that workers share

#: Lists with no more entries than this are pickled as they are.
_MAX_PICKLED_ENTRIES = 10_000
#: Arrays with no more bytes than this are pickled as they are.
_MAX_PICKLED_BYTES = 1 << 16


class Strings(Sequence[str]):
    """A list of strings as one array of bytes and the positions at which each string begins.

    pyarrow's arrays are the same, but every worker would have to import it, which takes 28 MB of memory.

    >>> names = Strings.of(["a", "bc", ""])
    >>> names[1], names[-1], list(names[:2]), len(names)
    ('bc', '', ['a', 'bc'], 3)
    """

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self.text = text
        self.starts = starts

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        encoded = [string.encode("utf-8", "surrogateescape") for string in strings]
        starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        positions = range(len(self))[index]
        if not isinstance(positions, int):
            return [self[position] for position in positions]
        encoded = self.text[self.starts[positions] : self.starts[positions + 1]]
        return encoded.tobytes().decode("utf-8", "surrogateescape")


def save_mapped(folder: Path, content: object) -> None:
    """Writes a pickle, with long lists of strings and large arrays in files beside it."""
    written: dict[int, tuple[str, ...]] = {}

    def files_of(value: object) -> tuple[str, ...] | None:
        """The names of the files that hold a value; None if it is pickled like any other."""
        if id(value) in written:
            return written[id(value)]
        arrays = _mappable_arrays(value)
        if not arrays:
            return None
        names = tuple(f"{len(written)}-{number}.npy" for number in range(len(arrays)))
        written[id(value)] = names
        for name, array in zip(names, arrays, strict=True):
            np.save(folder / name, array, allow_pickle=False)
        return names

    with (folder / "content.pkl").open("wb") as file:
        pickler = pickle.Pickler(file)
        pickler.persistent_id = files_of  # type: ignore[method-assign]
        pickler.dump(content)


def _mappable_arrays(value: Any) -> list[NDArray[np.generic]]:
    """The arrays that replace a large value in the pickle: one for an array, two for a list of strings."""
    if isinstance(value, np.ndarray) and value.nbytes > _MAX_PICKLED_BYTES and value.dtype.kind in "biuf":
        return [value]
    if type(value) is list and len(value) > _MAX_PICKLED_ENTRIES and all(type(entry) is str for entry in value):
        strings = Strings.of(value)
        return [strings.text, strings.starts]
    return []


def load_mapped(folder: Path) -> Any:
    """Reads only what ``save_mapped`` of this process's parent has just written, because a pickle can run code."""

    def mapped(names: Sequence[str]) -> object:
        arrays = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in names]
        if len(arrays) == 2:
            return Strings(*arrays)
        return arrays[0]

    with (folder / "content.pkl").open("rb") as file:
        unpickler = pickle.Unpickler(file)
        unpickler.persistent_load = mapped  # type: ignore[method-assign]
        return unpickler.load()
