"""A whole data set augmented once, in memory: for small pictures that are trained on for many epochs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from rich.console import Console

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Dataset
from shiftbench.errors import DatasetError
from shiftbench.hardening.augmentations.base import ImageAugmentation
from shiftbench.hardening.augmentations.streams import stream
from shiftbench.jobs.progress import progress_bar
from shiftbench.jobs.threads import worker_count


def precompute(
    dataset: Dataset,
    augmentation: ImageAugmentation,
    seed: int = 0,
    *,
    copy: int = 0,
    workers: int | None = None,
    show: bool = True,
) -> Pixels:
    """(N, H, W, 3): each picture augmented as `shiftbench harden augment` would, with any number of workers."""
    if not len(dataset):
        raise DatasetError(f"{dataset.name} has no pictures to augment")
    shape = dataset.read(0).pixels.shape

    def augmented(index: int) -> Pixels:
        image = dataset.read(index).pixels
        if image.shape != shape:
            raise DatasetError(
                f"the pictures of {dataset.name} differ in size",
                found=f"{image.shape[1]} x {image.shape[0]} ({dataset.ids[index]})",
                expected=f"{shape[1]} x {shape[0]}, as the first one",
                hint="write them to a folder by `shiftbench harden augment`",
            )
        return augmentation(image, stream(seed, "augment", dataset.ids[index], copy))

    return in_memory(augmented, (len(dataset), *shape), f"augmenting {dataset.name}", workers=workers, show=show)


def in_memory(
    picture: Callable[[int], Pixels],
    shape: tuple[int, ...],
    what: str,
    *,
    workers: int | None = None,
    show: bool = True,
    console: Console | None = None,
) -> Pixels:
    """``picture`` of every index as one array of the given shape, made side by side."""
    pixels = np.empty(shape, np.uint8)

    def one(index: int) -> None:
        pixels[index] = picture(index)

    # A worker that is a thread should not start threads of its own for each small convolution.
    pool = ThreadPoolExecutor(worker_count(workers), initializer=torch.set_num_threads, initargs=(1,))
    with pool, progress_bar(what, len(pixels), show=show, console=console) as advance:
        for _ in pool.map(one, range(len(pixels))):
            advance(1)
    return pixels
