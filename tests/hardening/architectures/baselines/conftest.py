"""Real images: the test set of CIFAR-10, of which the first ones are learnt and the last ones asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.labels.space import LabelSpace


class Split(NamedTuple):
    images: Pixels
    labels: NDArray[Any]
    asked: Pixels
    answers: NDArray[Any]
    space: LabelSpace

    @property
    def data(self) -> Dataset:
        return ArrayDataset("learnt", self.space, self.images, self.labels)


@pytest.fixture(scope="session")
def cifar() -> Callable[[int, int], Split]:
    """So many to learn from, so many to be asked about."""
    dataset: Any = open_named("cifar-10-test")
    images = np.asarray(dataset.array)
    labels = dataset.labels
    return lambda learnt, asked: Split(
        images[:learnt], labels[:learnt], images[-asked:], labels[-asked:], dataset.space
    )
