"""The demo photographs, read once for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.classifiers.options import Options
from shiftbench.datasets.demo import open_demo
from shiftbench.errors import DatasetError
from shiftbench.labels.space import LabelSpace


class Photographs:
    """Pixels and classes of the 92 ai-benchmark and the 20 foolbox pictures."""

    def __init__(self) -> None:
        dataset = open_demo()
        self.ids = list(dataset.ids)
        self.labels = np.asarray(dataset.labels)
        self.pixels: list[NDArray[np.uint8]] = [dataset.read(i).pixels for i in range(len(dataset))]

    def rows(self, source: str) -> list[int]:
        return [i for i, image in enumerate(self.ids) if image.startswith(source)]


@pytest.fixture(scope="session")
def photographs() -> Photographs:
    try:
        return Photographs()
    except DatasetError as error:
        pytest.skip(f"the demo photographs can't be fetched: {error}")


@pytest.fixture
def pets() -> LabelSpace:
    return LabelSpace("pets", ("cat", "dog", "fish"))


@pytest.fixture
def options() -> Options:
    return Options()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test's own, empty at first."""
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    yield tmp_path / "cache"
