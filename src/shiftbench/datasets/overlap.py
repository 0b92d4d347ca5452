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

#: The first 8 bytes of a hash of each image, sorted and unique where they are stored. Among a million training images
#: and 50,000 others, the expected number of accidental matches is 3e-9.
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
        """The images of several datasets: the first is the training set, the others were added to it.

        Keys are made of the images' content. They are made of the names if that is not known, or if a dataset has more
        images than ``identity`` hashes.
        """
        hashed = [dataset for dataset in datasets if isinstance(dataset, ContentDataset) and len(dataset) <= HASHED]
        by: Literal["content", "names"]
        if len(hashed) == len(datasets):
            by = "content"
            image_keys = [_content_keys(dataset) for dataset in hashed]
        else:
            by = "names"
            image_keys = [_name_keys(dataset) for dataset in datasets]
        keys = np.setdiff1d(np.concatenate(image_keys), _keys([UNREADABLE]))
        return cls(identity(datasets[0]), len(datasets[0]), keys, by)

    def among(self, dataset: Dataset) -> NDArray[np.bool_]:
        """For each image of the dataset, whether it is one of them."""
        if self.keys is None:
            return np.full(len(dataset), self._is_part(dataset))
        if self.by == "names":
            return np.isin(_name_keys(dataset), self.keys)
        if isinstance(dataset, ContentDataset):
            return np.isin(_content_keys(dataset), self.keys)
        return np.zeros(len(dataset), bool)

    def _is_part(self, dataset: Dataset | None) -> bool:
        """Whether a dataset, or one that it is a part of, is the training set."""
        while dataset is not None:
            # A smaller dataset can't be the training set, and its fingerprint could take minutes.
            if len(dataset) >= self.images and identity(dataset) == self.fingerprint:
                return True
            dataset = getattr(dataset, "base", None)
        return False


def _content_keys(dataset: ContentDataset) -> ImageKeys:
    return _keys(dataset.digests(range(len(dataset))))


def _name_keys(dataset: Dataset) -> ImageKeys:
    names = (image_id.encode("utf-8", "surrogateescape") for image_id in dataset.ids)
    return _keys(hashlib.blake2b(name, digest_size=8).digest() for name in names)


def _keys(digests: Iterable[bytes]) -> ImageKeys:
    return np.frombuffer(b"".join(digest[:8] for digest in digests), "<u8")
