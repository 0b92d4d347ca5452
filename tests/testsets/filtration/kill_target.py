"""A filtration that reports when ``BLOCKS`` blocks are done and then waits to be killed: FOLDER."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.testsets.filtration import Filtration, filter_adversarially

IMAGES = 640
BLOCKS = 3
#: Environment variables: a file with one byte per crop seen, and whether to stall. A function that is read by its state
#: would otherwise be another version of the model after it was called.
SEEN = "FILTRATION_SEEN"
STALL = "FILTRATION_STALL"


def brightest_corner(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A poor but quick classifier of ten classes. Ten crops per image, 32 images per block."""
    seen = Path(os.environ[SEEN])
    with seen.open("ab") as file:
        file.write(bytes(len(images)))
    if os.environ.get(STALL) and seen.stat().st_size > BLOCKS * 320:
        print("stalled", flush=True)
        sys.stdin.read()
    blocks = images[:, :30, :32].reshape(len(images), 10, 3, -1).astype(np.float32).mean(axis=(2, 3))
    return np.asarray(blocks / 25, np.float32)


def pool() -> Dataset:
    return take(open_named("cifar-10-test"), range(IMAGES))


def run(folder: Path | None) -> Filtration:
    geometry = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    corner = sb.load_classifier(brightest_corner, labels="cifar-10", name="corner", preprocessing=geometry)
    return filter_adversarially(pool(), [corner], max_confidence=0.2, per_confusion=5, folder=folder, workers=1)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
