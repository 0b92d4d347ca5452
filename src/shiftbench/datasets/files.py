"""Datasets of encoded images: files below one folder, or bytes inside larger files such as shards and tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.fingerprint import UNREADABLE, StoredDataset, digest_bytes, digest_files
from shiftbench.datasets.images import MAX_PIXELS, decode, read_file
from shiftbench.errors import BadImageError
from shiftbench.io.paths import Location
from shiftbench.labels.space import LabelSets, LabelSpace


class EncodedDataset(StoredDataset):
    """A subclass provides the bytes of one image (``_bytes``); reading and fingerprint follow from them."""

    _metadata: Mapping[str, Sequence[Any]]
    _max_pixels: int

    @abstractmethod
    def _bytes(self, index: int) -> bytes:
        """The encoded image; raises BadImageError if it is not available."""

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        return self._metadata

    def read(self, index: int) -> DecodedImage:
        return decode(self._unchanged(index, self._bytes), self.ids[index], max_pixels=self._max_pixels)

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return [self._digest(i) for i in indices]

    def _digest(self, index: int) -> bytes:
        try:
            return digest_bytes(self._bytes(index))
        except BadImageError:
            return UNREADABLE


class FileDataset(EncodedDataset):
    """Each image is a file ``root / path``; the ids are the paths with ``/``, unless given."""

    def __init__(
        self,
        name: str,
        space: LabelSpace,
        root: Location,
        paths: Sequence[str],
        labels: Sequence[int],
        *,
        ids: Sequence[str] | None = None,
        label_sets: LabelSets | None = None,
        metadata: Mapping[str, Sequence[Any]] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.name, self.space, self.root = name, space, root
        self.paths = list(paths)
        self.ids = [p if p.isascii() else _text(p) for p in self.paths] if ids is None else list(ids)
        self.labels = np.asarray(labels, dtype=np.int32)
        self._label_sets = label_sets
        self._metadata = dict(metadata or {})
        self._max_pixels = max_pixels

    @property
    def label_sets(self) -> LabelSets | None:
        return self._label_sets

    def _bytes(self, index: int) -> bytes:
        return read_file(self.root / self.paths[index], self.ids[index])

    def _hash(self, indices: Sequence[int]) -> list[bytes]:
        return digest_files(self.root, [self.paths[i] for i in indices])


def _text(path: str) -> str:
    """A file name need not be valid text, but an id must be, to be stored."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
