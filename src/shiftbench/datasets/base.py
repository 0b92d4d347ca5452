"""A dataset: ordered labelled images with stable ids, a label space and a fingerprint of its content."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.labels.multilabel import LabelSets
from shiftbench.labels.space import Labels, LabelSpace


@dataclass(frozen=True)
class DecodedImage:
    """One decoded image: RGB uint8 (H, W, 3), and the conversion that decoding needed ("" if none)."""

    pixels: Pixels
    converted: str = ""


class Dataset(ABC):
    """Implementations read one image at a time and are picklable, so that workers can open them again."""

    name: str
    space: LabelSpace
    #: Stable, unique names of the images, in order. They do not depend on the location of the data.
    ids: Sequence[str]
    #: For each image its class as an index into ``space``; -1 for images with no label or several.
    labels: Labels

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A hash of the ids, labels and image bytes: equal content, equal fingerprint."""

    @abstractmethod
    def read(self, index: int) -> DecodedImage:
        """Decode one image; raises only BadImageError for an image that can't be used."""

    @property
    def label_sets(self) -> LabelSets | None:
        """For each image all its classes, ascending, where images may have several; None where each has one."""
        return None

    @property
    def metadata(self) -> Mapping[str, Sequence[Any]]:
        """Further columns, one value per image."""
        return {}

    def describe(self) -> dict[str, Any]:
        """JSON-able provenance."""
        return {
            "dataset": self.name,
            "images": len(self),
            "fingerprint": self.fingerprint,
            "labels": self.space.name,
        }

    def __len__(self) -> int:
        return len(self.ids)
