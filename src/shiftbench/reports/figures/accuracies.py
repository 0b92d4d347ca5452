"""Accuracies of a setting with their intervals, as figures draw them: fractions, and never without ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.studies.base import FRACTION, whole
from shiftbench.studies.results import Results
from shiftbench.studies.robustness import accuracy_interval


@dataclass(frozen=True)
class Accuracies:
    """One value a model; nan where a model was not evaluated."""

    value: FloatArray
    low: FloatArray
    high: FloatArray

    def where(self, chosen: BoolArray) -> Accuracies:
        return Accuracies(self.value[chosen], self.low[chosen], self.high[chosen])

    @property
    def every(self) -> FloatArray:
        """Values and ends together, for the limits of an axis."""
        return np.concatenate([self.value, self.low, self.high])


def accuracies(results: Results, setting: str, level: float) -> Accuracies:
    """Clopper-Pearson intervals; where the number of images is not known both ends are the value itself."""
    values = results.column(setting) / whole(results.unit)
    known = results.size(setting)
    n = np.broadcast_to(np.asarray(np.nan if known is None else known, dtype=np.float64), values.shape)
    low, high = accuracy_interval(values, n, FRACTION, level)
    return Accuracies(values, np.where(np.isnan(low), values, low), np.where(np.isnan(high), values, high))
