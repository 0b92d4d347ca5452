"""Predictions: the per-image result of one classifier in one setting. Every number is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.labels.space import Labels, LabelSpace, Scores

SKIPPED = -1


@dataclass(frozen=True)
class Predictions:
    """Row i is the i-th image of the setting; a skipped picture has class -1 and confidence nan."""

    classifier: str
    setting: str
    space: LabelSpace
    ids: Sequence[str]
    labels: Labels
    #: (N, k) classes, best first, as indices into ``space``.
    top: NDArray[np.int32]
    #: The softmax probability of ``top[:, 0]``, over ``space``.
    confidence: NDArray[np.float32]
    #: All that decided these numbers: data set, classifier, preprocessing, shift, seed, versions.
    spec: dict[str, Any]
    #: (N, classes) over ``space``, when the run was asked to keep them.
    scores: Scores | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Rows that count: the picture could be read and has a label in the setting's space."""
        counts: NDArray[np.bool_] = (self.top[:, 0] != SKIPPED) & (self.labels >= 0)
        return counts

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Top-1 hits of the rows that count."""
        hits: NDArray[np.bool_] = self.top[self.valid, 0] == self.labels[self.valid]
        return hits

    @property
    def provenance(self) -> str:
        """One line for people; two results are comparable when these lines agree."""
        return str(self.spec.get("provenance", ""))
