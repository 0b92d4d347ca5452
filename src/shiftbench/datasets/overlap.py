"""Which images of a dataset a model was trained on: the whole set, a sample of it, or one that overlaps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.stored import HASHED, UNREADABLE, ContentDataset, identity

#: Sorted and unique: the first 8 bytes of a hash of each image. Among a million training images and 50,000 others,
#: the expected number of accidental matches is 3e-9.
ImageKeys = NDArray[np.uint64]


@dataclass(frozen=True)
class TrainedOn:
    """The images that a model was trained on.

    Attributes:
        fingerprint: ``identity`` of the training set.
        images: Number of its images.
        keys: Their keys; None if the model was saved without.
        by: What the keys are made of.
    """

    fingerprint: str
    images: int
    keys: ImageKeys | None = None
    by: Literal["content", "names"] = "content"

    @classmethod
    def of(cls, datasets: Sequence[Dataset]) -> TrainedOn:
        """The first is the training set, the others are added to it. The keys of more images than ``identity`` hashes
        are those of their names."""
        hashed = all(isinstance(one, ContentDataset) and len(one) <= HASHED for one in datasets)
        parts = [_content(one) if hashed and isinstance(one, ContentDataset) else _names(one) for one in datasets]
        keys = np.setdiff1d(np.concatenate(parts), _first_bytes([UNREADABLE]))
        return cls(identity(datasets[0]), len(datasets[0]), keys, "content" if hashed else "names")

    def among(self, dataset: Dataset) -> NDArray[np.bool_]:
        """For each image of the dataset, whether it is one of them."""
        if self.keys is None:
            return np.full(len(dataset), self._is_part(dataset))
        if self.by == "names":
            return np.isin(_names(dataset), self.keys)
        if isinstance(dataset, ContentDataset):
            return np.isin(_content(dataset), self.keys)
        return np.zeros(len(dataset), bool)

    def _is_part(self, dataset: Dataset | None) -> bool:
        """Whether a dataset, or one that it is a part of, is the training set."""
        while dataset is not None:
            # Only of what may be it: the fingerprint of the whole of a subset can take minutes.
            if len(dataset) >= self.images and identity(dataset) == self.fingerprint:
                return True
            dataset = getattr(dataset, "base", None)
        return False


def _content(dataset: ContentDataset) -> ImageKeys:
    return _first_bytes(dataset.digests(range(len(dataset))))


def _names(dataset: Dataset) -> ImageKeys:
    names = (image.encode("utf-8", "surrogateescape") for image in dataset.ids)
    return _first_bytes(hashlib.blake2b(name, digest_size=8).digest() for name in names)


def _first_bytes(digests: Iterable[bytes]) -> ImageKeys:
    return np.frombuffer(b"".join(one[:8] for one in digests), "<u8")
