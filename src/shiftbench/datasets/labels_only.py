"""A dataset of ids and labels without images, on which existing predictions can be scored."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from shiftbench.datasets.base import Dataset, DecodedImage
from shiftbench.datasets.fingerprint import combine
from shiftbench.datasets.images import bad_image
from shiftbench.errors import DatasetError
from shiftbench.labels.space import LabelSpace


class LabelsOnly(Dataset):
    """Ids and labels without images.

    Its fingerprint differs from that of the dataset with images, so scores on the two never share a column.

    >>> pets = LabelSpace("pets", ("cat", "dog"))
    >>> LabelsOnly("survey", pets, ["a.jpg", "b.jpg"], [1, 0]).name
    'survey (labels only)'
    """

    def __init__(self, name: str, space: LabelSpace, ids: Sequence[str], labels: Sequence[int] | np.ndarray) -> None:
        if len(ids) != len(labels) or len(set(ids)) != len(ids):
            raise DatasetError(
                f"{name!r} needs one label for each of its images",
                found=f"{len(ids)} images, {len(set(ids))} different ones, {len(labels)} labels",
            )
        # Part of the name, so that it appears in every score's provenance.
        self.name, self.space, self.ids = f"{name} (labels only)", space, list(ids)
        self.labels = np.asarray(labels, np.int32)

    @cached_property
    def fingerprint(self) -> str:
        return combine(self.ids, self.labels, self.space, (b"" for _ in self.ids))

    def read(self, index: int) -> DecodedImage:
        raise bad_image(self.ids[index], "only its label is known, not the image")

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "pictures": "none: labels only"}
