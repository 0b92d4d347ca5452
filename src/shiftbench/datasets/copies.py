"""Images that a dataset holds more than once, byte for byte."""

from __future__ import annotations

from collections import Counter

import numpy as np

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.fingerprint import UNREADABLE, ContentDataset
from shiftbench.datasets.subset import Subset


def copy_remarks(dataset: Dataset) -> list[str]:
    """How many images repeat others, and how many have several classes; nothing for images that were asked for twice.

    Copies make intervals too narrow, as they are not independent; an image in two classes is wrong in one of them.
    """
    if not isinstance(dataset, ContentDataset):
        return []
    rows = range(len(dataset))
    if isinstance(dataset, Subset):
        rows = np.sort(np.unique(dataset.indices, return_index=True)[1]).tolist()
    digests = dataset.digests(rows)
    counts = Counter(digests)
    repeated = {digest for digest, count in counts.items() if count > 1 and digest != UNREADABLE}
    if not repeated:
        return []
    groups: dict[bytes, list[int]] = {}
    for row, digest in zip(rows, digests, strict=True):
        if digest in repeated:
            groups.setdefault(digest, []).append(row)
    found = [
        _remark(dataset, "images are exact copies of others", sum(map(len, groups.values())) - len(groups), groups)
    ]
    labels = dataset.labels
    mixed = {digest: group for digest, group in groups.items() if len(set(labels[group].tolist()) - {-1}) > 1}
    if mixed:
        found.append(_remark(dataset, "images appear in several classes", len(mixed), mixed))
    return found


def _remark(dataset: Dataset, what: str, count: int, groups: dict[bytes, list[int]]) -> str:
    first = next(iter(groups.values()))
    return f"{count} {what}, such as {dataset.ids[first[0]]} and {dataset.ids[first[-1]]}"
