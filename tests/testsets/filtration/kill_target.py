"""A filtration that reports when ``BLOCKS`` blocks are done and then waits to be killed: FOLDER."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.testsets.filtration import Filtration, filter_adversarially

IMAGES, BLOCKS = 640, 3
_seen = 0


def brightest_corner(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A poor but quick classifier of ten classes."""
    blocks = images[:, :30, :32].reshape(len(images), 10, 3, -1).astype(np.float32).mean(axis=(2, 3))
    return np.asarray(blocks / 25, np.float32)


def stalling(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Ten crops per image, 32 images per block."""
    global _seen
    _seen += len(images)
    if _seen > BLOCKS * 320:
        print("stalled", flush=True)
        sys.stdin.read()
    return brightest_corner(images)


def pool() -> Dataset:
    return take(open_named("cifar-10-test"), range(IMAGES))


def classifier(function: object) -> Classifier:
    geometry = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    return sb.load_classifier(function, labels="cifar-10", name="corner", preprocessing=geometry)


def run(folder: Path | None, function: object = stalling) -> Filtration:
    return filter_adversarially(
        pool(), [classifier(function)], max_confidence=0.2, per_confusion=5, folder=folder, workers=1
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]))
