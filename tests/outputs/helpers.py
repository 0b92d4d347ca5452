"""Small sources to corrupt, and plain ways to look at what was written."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

#: Class folders as people name them.
ODD_CLASSES = ("100 % wool", "Äpfel & Birnen", "a.b", "cat", "n01440764")


def scene(seed: int, height: int = 48, width: int = 56) -> NDArray[np.uint8]:
    """Smooth colours with some noise: neither flat nor white noise."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[0:height, 0:width] / 20
    waves = [np.sin(rows * rng.uniform(0.3, 2) + columns * rng.uniform(0.3, 2) + seed) for _ in range(3)]
    values = 128 + 80 * np.stack(waves, axis=-1) + rng.normal(0, 8, (height, width, 3))
    return np.clip(values, 0, 255).astype(np.uint8)


def picture_folder(root: Path, per_class: int = 2, classes: tuple[str, ...] = ODD_CLASSES) -> Path:
    """Class folders with JPEG and PNG files of several sizes, whose suffixes vary as in the wild."""
    suffixes = (".JPEG", ".jpg", ".png", ".bmp")
    for c, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i in range(per_class):
            number = c * per_class + i
            image = Image.fromarray(scene(number, 40 + number % 9, 44 + number % 13))
            image.save(root / name / f"img {number:02d}{suffixes[number % 4]}")
    return root


def bytes_below(root: Path) -> dict[str, str]:
    """A hash of every file, hidden ones included, by its relative path."""
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def cifar_like(root: Path, count: int = 40) -> Path:
    """``images.npy`` and ``labels.npy`` of the ten classes of CIFAR-10."""
    root.mkdir(parents=True, exist_ok=True)
    np.save(root / "images.npy", np.stack([scene(i, 32, 32) for i in range(count)]))
    np.save(root / "labels.npy", np.arange(count) % 10)
    return root / "images.npy"


def opened(path: Path) -> NDArray[np.uint8]:
    """A picture as anyone would read it."""
    return np.asarray(Image.open(path).convert("RGB"))
