"""Small data sets on disk for the tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tests.datasets.odd_pictures import encoded

CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def pixels(seed: int, height: int = 12, width: int = 16) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(seed: int) -> bytes:
    return encoded(Image.fromarray(pixels(seed)), "PNG")


def class_folders(root: Path, classes: Iterable[str], each: int = 2) -> Path:
    for c, name in enumerate(classes):
        folder = root / name
        folder.mkdir(parents=True)
        for i in range(each):
            (folder / f"{i}.png").write_bytes(png(100 * c + i))
    return root


def small_images(count: int, seed: int = 0) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)


def planes(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """CIFAR's rows: all red values, then all green, then all blue."""
    rows: NDArray[np.uint8] = np.stack([np.concatenate([im[:, :, c].ravel() for c in range(3)]) for im in images])
    return rows


def assert_conforms(dataset: Any, reopen: Any = None) -> None:
    from shiftbench.datasets.check import check_dataset

    failed = [check for check in check_dataset(dataset, reopen=reopen) if not check.ok]
    assert failed == []
