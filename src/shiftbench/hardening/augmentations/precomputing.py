"""A whole data set augmented once, in memory: for small pictures that are trained on for many epochs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from shiftbench.datasets.base import Dataset, Pixels
from shiftbench.errors import DatasetError
from shiftbench.hardening.augmentations.base import ImageAugmentation
from shiftbench.hardening.augmentations.streams import stream
from shiftbench.working import progress_bar, worker_count


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
    pixels = np.empty((len(dataset), *dataset.read(0).pixels.shape), np.uint8)

    def one(index: int) -> None:
        image = dataset.read(index).pixels
        if image.shape != pixels.shape[1:]:
            raise DatasetError(
                f"the pictures of {dataset.name} differ in size",
                found=f"{image.shape[1]} x {image.shape[0]} ({dataset.ids[index]})",
                expected=f"{pixels.shape[2]} x {pixels.shape[1]}, as the first one",
                hint="write them to a folder by `shiftbench harden augment`",
            )
        pixels[index] = augmentation(image, stream(seed, "augment", dataset.ids[index], copy))

    # A worker that is a thread should not start threads of its own for each small convolution.
    pool = ThreadPoolExecutor(worker_count(workers), initializer=torch.set_num_threads, initargs=(1,))
    with pool, progress_bar(f"augmenting {dataset.name}", len(dataset), show=show) as advance:
        for _ in pool.map(one, range(len(dataset))):
            advance(1)
    return pixels
