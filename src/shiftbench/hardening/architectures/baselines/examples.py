"""Labelled pictures to fit a baseline on, brought to one size and read as they are needed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.preprocessing import Geometry, Normalisation, Preprocessing
from shiftbench.datasets.arrays import ArrayDataset, InMemory
from shiftbench.datasets.base import Dataset
from shiftbench.errors import BadImageError, DatasetError
from shiftbench.labels.space import LabelSpace

#: Pixels along a side: beyond it the features of one image fill gigabytes.
ImageSide = Annotated[int, Meta(ge=1, le=512)]


def preprocessing_for(size: int) -> Preprocessing:
    """Squares of ``size`` pixels, squashed if need be; values stay 0 to 255."""
    raw = Normalisation(mean=(0, 0, 0), std=(1, 1, 1), scale=1, layout="nhwc")
    return Preprocessing(Geometry(resize=size, crop=None, resize_rule="exact"), raw)


class Examples:
    """The labelled images of a data set; those that can't be read are left out."""

    def __init__(self, dataset: Dataset, size: int) -> None:
        self.dataset, self._geometry = dataset, preprocessing_for(size).geometry
        self._labelled: NDArray[np.int64] = np.flatnonzero(dataset.labels >= 0)
        if not len(self._labelled):
            raise DatasetError(f"{dataset.name!r} has no labelled image", found=f"{len(dataset)} images")

    @classmethod
    def of(
        cls,
        data: Dataset | Pixels,
        labels: Sequence[int] | NDArray[Any] | None,
        space: LabelSpace | None,
        size: int,
    ) -> Examples:
        """A data set brings its labels and classes; an array of pictures needs both."""
        if isinstance(data, Dataset):
            if labels is not None or space is not None:
                raise DatasetError(f"{data.name!r} has labels of its own", hint="pass images as an array with others")
            return cls(data, size)
        if labels is None or space is None:
            raise DatasetError("an array of pictures says nothing about classes", hint="pass labels and space too")
        return cls(ArrayDataset("pictures", space, InMemory(np.asarray(data)), labels), size)

    def __len__(self) -> int:
        return len(self._labelled)

    def batches(self, size: int) -> Iterator[tuple[Pixels, NDArray[Any]]]:
        """All of them in order, with their labels."""
        for start in range(0, len(self), size):
            indices, pictures = self._read(self._labelled[start : start + size])
            if pictures:
                yield np.stack(pictures), self.dataset.labels[indices]

    def sample(self, count: int, generator: np.random.Generator) -> Pixels:
        """So many of them, or all if there are fewer, by chance."""
        chosen = generator.permutation(self._labelled)[:count]
        _, pictures = self._read(np.sort(chosen))
        if not pictures:
            raise DatasetError(f"no image of {self.dataset.name!r} can be read", found=f"{len(chosen)} tried")
        return np.stack(pictures)

    def _read(self, indices: NDArray[np.int64]) -> tuple[list[int], list[Pixels]]:
        read, pictures = [], []
        for index in indices.tolist():
            try:
                pictures.append(self._geometry(self.dataset.read(index).pixels))
            except BadImageError:
                continue
            read.append(index)
        return read, pictures
