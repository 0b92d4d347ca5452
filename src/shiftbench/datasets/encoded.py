"""Data sets whose pictures are encoded bytes inside larger files: shards, tables."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.fingerprint import UNREADABLE, ContentDataset, digest_bytes
from shiftbench.datasets.images import decode
from shiftbench.errors import BadImageError


class EncodedDataset(ContentDataset):
    """A subclass gives the bytes of one picture (``_bytes``); reading and fingerprint follow."""

    _metadata: Mapping[str, Sequence[Any]]
    _max_pixels: int

    @abstractmethod
    def _bytes(self, index: int) -> bytes:
        """The encoded picture; raises BadImageError where it can't be had."""

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        return self._metadata

    def read(self, index: int) -> DecodedImage:
        return decode(self._bytes(index), self.ids[index], max_pixels=self._max_pixels)

    def digests(self, indices: Sequence[int]) -> list[bytes]:
        return [self._digest(i) for i in indices]

    def _digest(self, index: int) -> bytes:
        try:
            return digest_bytes(self._bytes(index))
        except BadImageError:
            return UNREADABLE
