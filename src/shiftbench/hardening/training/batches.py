"""Batches: the order of an epoch, and the views of every image, made here or ahead of time in worker processes.

The order comes from (seed, epoch), an image's augmentation from (seed, epoch, image id): neither the number of workers
and devices nor a stop and a fresh start in the middle of an epoch changes a pixel. Workers are processes, because
augmentations of small images are Python for the most part, which threads do not speed up.

A spawned worker unpickles its dataset. At 1.28 million images that would be a copy of every id and label per worker; so
``save_mapped`` writes each such list or array to a file, and ``load_mapped`` maps it: all workers of a machine read the
same pages.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset, get_worker_info

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, ShiftbenchError
from shiftbench.hardening.augmentations.base import make_image_augmentation, stream
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Recipe
from shiftbench.hardening.training.data import TrainingImages

#: Neighbouring images that are read one after the other where data.window is set.
_CHUNK = 1024
_VALIDATION_BATCH = 256


class Batch(NamedTuple):
    """A batch, or the part of it that is computed at once."""

    #: One uint8 (N, H, W, 3) tensor for each view.
    views: list[torch.Tensor]
    #: Class indices (N,), or zeros and ones (N, classes).
    targets: torch.Tensor
    #: Images that could not be read, and why.
    left_out: list[str]
    #: Of the images of the whole batch.
    share: float = 1.0


class Order:
    """Which images make up which batch of the epoch that is to come next, and which parts of it are this rank's."""

    def __init__(self, count: int, images: int, recipe: Recipe, rank: int, world: int, *, shuffled: bool) -> None:
        train = recipe.train
        self.count, self.images, self.recipe, self.shuffled = count, images, recipe, shuffled
        self.size, self.splits = (train.batch_size, train.splits) if shuffled else (_VALIDATION_BATCH * world, world)
        self.parts = self.splits // world
        self.mine = slice(rank * self.parts, (rank + 1) * self.parts)
        self.epoch = self.start = 0
        if shuffled and (most := min(images, self.size)) < self.splits:
            found, expected = f"train.splits = {self.splits}, batches of {most}", f"at most {most} parts"
            hint = "a smaller train.splits, or fewer devices"
            raise TrainingError("a batch has fewer images than parts", found=found, expected=expected, hint=hint)
        # Batch norm cannot learn from a single image: a last batch that is too small is left out.
        too_few = shuffled and 0 < images % self.size < 2 * self.splits
        self.batches = max(1, -(-images // self.size) - too_few)

    def __len__(self) -> int:
        return (self.batches - self.start) * self.parts

    def __iter__(self) -> Iterator[tuple[int, list[int], float]]:
        order = self.indices() if self.shuffled else np.arange(self.images)
        for i in range(self.start, self.batches):
            rows = order[i * self.size : (i + 1) * self.size]
            for part in np.array_split(rows, self.splits)[self.mine]:
                yield self.epoch, part.tolist(), len(part) / len(rows)

    def indices(self) -> NDArray[np.int64]:
        """All images in the order of the epoch; a further appearance of image i is ``i + count``, ``i + 2 * count``."""
        numbers = stream(self.recipe.train.seed, "order", self.epoch)
        window, repeats = self.recipe.data.window, self.recipe.train.repeats
        if window:
            chunks = [np.arange(i, min(i + _CHUNK, self.count)) for i in range(0, self.count, _CHUNK)]
            order = np.concatenate([chunks[i] for i in numbers.permutation(len(chunks))])
            order = np.concatenate([numbers.permutation(order[i : i + window]) for i in range(0, self.count, window)])
        else:
            order = numbers.permutation(self.count)
        if repeats > 1:
            order = (order[:, None] + self.count * np.arange(repeats)).ravel()
        return order[: self.images]


class Batches(Dataset[Batch | ShiftbenchError]):
    """All batches of all epochs: (epoch, image numbers) to views and targets. Not shuffled: for validation."""

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
        self.images, self.recipe, self.views = images, recipe, views
        self.seed, self.side = recipe.train.seed, recipe.data.size
        self._first, self._further = (
            [make_image_augmentation(part.name, **part.options) for part in parts]
            for parts in (recipe.augmentations if shuffled else (), recipe.views)
        )
        seen = len(images.ids) if recipe.train.equal_steps else len(images)
        self.order = Order(len(images), seen, recipe, rank, world, shuffled=shuffled)
        self._made = (views, rank, world, shuffled)
        self._loader: DataLoader[Batch | ShiftbenchError] | None = None
        self._shared: tempfile.TemporaryDirectory[str] | None = None

    @property
    def count(self) -> int:
        """Batches of an epoch."""
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
        self.order.epoch, self.order.start = number, start
        for batch in self._loader:
            if isinstance(batch, ShiftbenchError):
                raise batch
            for trouble in batch.left_out:
                warnings.warn(f"left out: {trouble}", stacklevel=2)
            yield batch

    def close(self) -> int | None:
        """End the workers, which torch else reports as killed; the exit code of one that has failed, such as -9."""
        running: Any = None if self._loader is None else self._loader._iterator
        self._loader = None
        if running is None:  # there are no workers
            return None
        codes = [worker.exitcode for worker in running._workers if worker.exitcode]
        running._shutdown_workers()
        return codes[0] if codes else None

    def __getitem__(self, which: tuple[int, Sequence[int], float]) -> Batch | ShiftbenchError:
        # What a worker raises reaches the main process as the text of a traceback; what it returns, as it is.
        try:
            batch = self._batch(*which)
        except ShiftbenchError as error:
            return error
        try:
            # Shared here, where a failure can be reported: in the thread that sends a batch it would be lost.
            for tensor in (*batch.views, batch.targets) if get_worker_info() else ():
                if len(tensor):
                    tensor.share_memory_()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            hint = "fewer workers, or a larger /dev/shm (docker run --shm-size=8g)"
            return TrainingError("no shared memory for a batch", found=str(error), hint=hint)
        return batch

    def _batch(self, epoch: int, indices: Sequence[int], share: float) -> Batch:
        rows, kept, left_out = [], [], []
        for index in indices:
            try:
                rows.append(self._views(epoch, index))
                kept.append(index % len(self.images))
            except BadImageError as error:
                left_out.append(f"{self.images.image_id(index % len(self.images))}: {error.message}")
        if left_out and not rows:
            raise TrainingError("no image of a batch can be read", found=left_out[0])
        stacked = [
            torch.from_numpy(np.stack([row[view] for row in rows])) if rows else torch.empty(0, dtype=torch.uint8)
            for view in range(self.views)
        ]
        targets = torch.from_numpy(self.images.targets[kept])
        return Batch(stacked, targets.long() if targets.ndim == 1 else targets, left_out, share)

    def _views(self, epoch: int, index: int) -> list[Pixels]:
        """The first view, and what the further augmentations make of it."""
        again, index = divmod(index, len(self.images))
        generator = stream(self.seed, "augment", epoch, self.images.image_id(index), *([again] if again else []))
        views: list[Pixels] = []
        for chain in (self._first, *[self._further] * (self.views - 1)):
            image = views[0] if views else self.images.read(index)
            for augment in chain:
                image = augment(image, generator)
            if image.shape != (self.side, self.side, 3):
                raise TrainingError(
                    "an augmented image has another size than the network's input",
                    found=" x ".join(map(str, image.shape[:2])),
                    expected=f"{self.side} x {self.side}",
                    hint='with data.uncropped the first augmentation is "resized-crop" with that size',
                )
            views.append(image)
        return views

    def __reduce__(self) -> tuple[object, ...]:
        # Augmentations are closures: a worker makes its own. Names, labels and pixels are mapped into its memory.
        if self._shared is None:
            self._shared = tempfile.TemporaryDirectory(prefix="shiftbench-")
            save_mapped(Path(self._shared.name), self.images)
        return _in_worker, (self._shared.name, self.recipe, *self._made)


def _in_worker(folder: str, recipe: Recipe, views: int, rank: int, world: int, shuffled: bool) -> Batches:
    return Batches(load_mapped(Path(folder)), recipe, views, rank=rank, world=world, shuffled=shuffled)


def _exit_as_a_fork(worker: int) -> None:
    """Let a spawned worker end as a forked one does, without finalising the interpreter.

    A thread that still sends batches, as after a stop within an epoch, would abort the worker there, from within torch.
    """

    def leave() -> None:
        if sys.exc_info()[0] is None:
            sys.stdout.flush()
            os._exit(0)

    Finalize(None, leave, exitpriority=-100)


def to_pixels(images: torch.Tensor) -> torch.Tensor:
    """uint8 (N, H, W, 3) to float (N, 3, H, W) in [0, 1]."""
    return images.permute(0, 3, 1, 2).float() / 255


# What workers share

#: Shorter lists and smaller arrays are pickled as they are.
_ENTRIES, _BYTES = 10_000, 1 << 16


class Strings(Sequence[str]):
    """A list of strings as one array of bytes and the places where each begins.

    >>> names = Strings.of(["a", "bc", ""])
    >>> names[1], names[-1], list(names[:2]), len(names)
    ('bc', '', ['a', 'bc'], 3)
    """

    def __init__(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        self.text, self.starts = text, starts

    @classmethod
    def of(cls, strings: Sequence[str]) -> Strings:
        encoded = [one.encode("utf-8", "surrogateescape") for one in strings]
        starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
        return cls(np.frombuffer(b"".join(encoded), np.uint8), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        places = range(len(self))[index]
        if not isinstance(places, int):
            return [self[place] for place in places]
        return self.text[self.starts[places] : self.starts[places + 1]].tobytes().decode("utf-8", "surrogateescape")


def save_mapped(folder: Path, content: object) -> None:
    """As a pickle, with long lists of strings and large arrays in files beside it."""
    written = dict[int, tuple[str, ...]]()

    def beside(found: object) -> tuple[str, ...] | None:
        if id(found) in written:
            return written[id(found)]
        arrays: list[NDArray[np.generic]] = []
        if isinstance(found, np.ndarray) and found.nbytes > _BYTES and found.dtype.kind in "biuf":
            arrays = [found]
        elif type(found) is list and len(found) > _ENTRIES and all(type(one) is str for one in found):
            strings = Strings.of(found)
            arrays = [strings.text, strings.starts]
        if not arrays:
            return None
        names = written[id(found)] = tuple(f"{len(written)}-{part}.npy" for part in range(len(arrays)))
        for name, array in zip(names, arrays, strict=True):
            np.save(folder / name, array, allow_pickle=False)
        return names

    with (folder / "content.pkl").open("wb") as file:
        pickler = pickle.Pickler(file)
        pickler.persistent_id = beside  # type: ignore[method-assign]
        pickler.dump(content)


def load_mapped(folder: Path) -> Any:
    """Only what ``save_mapped`` of this process's parent has just written: it is a pickle."""

    def mapped(names: Sequence[str]) -> object:
        arrays = [np.load(folder / name, mmap_mode="r", allow_pickle=False) for name in names]
        return Strings(*arrays) if len(arrays) == 2 else arrays[0]

    with (folder / "content.pkl").open("rb") as file:
        unpickler = pickle.Unpickler(file)
        unpickler.persistent_load = mapped  # type: ignore[method-assign]
        return unpickler.load()
