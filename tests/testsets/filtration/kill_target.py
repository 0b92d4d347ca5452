"""One filtration as a process of its own, so that a test can kill it: FOLDER."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.testsets.filtration import Filtration, filter_adversarially

IMAGES = 640


def brightest_corner(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """A poor but quick classifier of ten classes."""
    blocks = images[:, :30, :32].reshape(len(images), 10, 3, -1).astype(np.float32).mean(axis=(2, 3))
    return np.asarray(blocks / 25, np.float32)


def slowly(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    time.sleep(0.0001 * len(images))
    return brightest_corner(images)


def pool() -> Dataset:
    return take(open_named("cifar-10-test"), range(IMAGES))


def classifier(function: object) -> Classifier:
    geometry = sb.Preprocessing(sb.Geometry(resize=36, crop=32))
    return sb.load_classifier(function, labels="cifar-10", name="corner", preprocessing=geometry)


def run(folder: Path | None, function: object = slowly) -> Filtration:
    return filter_adversarially(
        pool(), [classifier(function)], max_confidence=0.2, per_confusion=5, folder=folder, workers=1
    )


if __name__ == "__main__":
    run(Path(sys.argv[1]))
