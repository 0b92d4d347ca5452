"""Real pictures for the tests of near-duplicates."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named


@pytest.fixture(scope="session")
def small_pictures(cifar: ArrayDataset) -> NDArray[np.uint8]:
    """2,000 real pictures of 32 x 32."""
    return np.ascontiguousarray(cifar.array[:2000])


@pytest.fixture(scope="session")
def photographs() -> Dataset:
    return open_named("demo")
