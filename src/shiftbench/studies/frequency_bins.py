"""Accuracy by selection frequency from the predictions of a workspace (004 appendix C.4.7)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError, check_unique, count_of
from shiftbench.studies.frequencies import matched_frequencies
from shiftbench.studies.image_bootstrap import common_hits
from shiftbench.studies.reproducibility import FREQUENCY_EDGES, FrequencyBin, accuracy_by_frequency


@dataclass(frozen=True)
class BinnedAccuracies:
    """The bins of every model, on the same images, and of their mean."""

    by_model: dict[str, list[FrequencyBin]]
    mean: list[FrequencyBin]
    notes: tuple[str, ...] = ()

    def with_mean(self) -> list[tuple[str, list[FrequencyBin]]]:
        """(name, bins), the mean of several models first."""
        several = len(self.by_model) > 1
        rows = [(f"mean of {count_of(len(self.by_model), 'model')}", self.mean)] if several else []
        return [*rows, *self.by_model.items()]


def bins_of(
    predictions: Sequence[Predictions],
    frequencies: Mapping[str, float],
    *,
    edges: Sequence[float] = FREQUENCY_EDGES,
    level: float = 0.95,
) -> BinnedAccuracies:
    """Of predictions in one setting, on the images that count for all of them and have a frequency."""
    check_edges(edges)
    names = [one.classifier for one in predictions]
    check_unique(names)
    hits, ids = common_hits(predictions)
    here, shares, notes = matched_frequencies(frequencies, ids)
    hits = hits[:, here]
    by_model = {
        name: accuracy_by_frequency(row, shares, edges=edges, level=level)
        for name, row in zip(names, hits, strict=True)
    }
    return BinnedAccuracies(by_model, accuracy_by_frequency(hits, shares, edges=edges, level=level), tuple(notes))


def check_edges(edges: Sequence[float]) -> None:
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if len(edges) < 2 or not rising or edges[0] != 0.0 or edges[-1] != 1.0:
        raise StudyError(
            "impossible bins of selection frequency",
            found=", ".join(f"{edge:g}" for edge in edges),
            expected="ends that rise from 0 to 1, such as 0, 0.2, 0.4, 0.6, 0.8, 1",
        )
