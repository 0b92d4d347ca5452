"""Least squares on features that come in batches: only their second moments are kept, whatever the number of images.

The features are centred and scaled to unit variance, from those same moments; then for targets Y of zeros and ones

    W = (X'X / n + strength * I)^-1  X'Y / n

with the scaling folded into what is given back. So ``strength`` means the same for any number of images and features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from shiftbench.errors import DatasetError
from shiftbench.hardening.errors import ArchitectureError

Floats = NDArray[np.float32]
#: Their moments fill 8 GiB.
MOST_FEATURES = 1 << 15
#: What varies less than this, beside its size, is taken as constant and left out.
_CONSTANT = 1e-6


@dataclass(frozen=True)
class Linear:
    """features @ weights + bias."""

    weights: Floats
    bias: Floats

    def __call__(self, features: Floats) -> Floats:
        return features @ self.weights + self.bias


class StreamingRidge:
    """Told batches by ``add``; ``solve`` may be asked at any time, for several strengths."""

    def __init__(self, features: int, classes: int) -> None:
        if features > MOST_FEATURES:
            raise ArchitectureError(
                "so many features can't be solved in memory",
                found=f"{features} features, whose moments need {8 * features**2 / 2**30:.0f} GiB",
                expected=f"at most {MOST_FEATURES}",
                hint="take fewer filters or centres",
            )
        self.classes = classes
        self._count = np.zeros(classes)
        self._sums = np.zeros((features, classes))
        self._products = np.zeros((features, features))
        self._origin: NDArray[np.float64] | None = None

    def add(self, features: Floats, labels: NDArray[Any]) -> None:
        if self._origin is None:
            # Moments around a mean that is nearly right lose no digits to it.
            self._origin = features.mean(axis=0, dtype=np.float64)
        centred = features - self._origin.astype(np.float32)
        targets = np.eye(self.classes, dtype=np.float32)[labels]
        self._count += targets.sum(axis=0)
        self._sums += centred.T @ targets
        self._products += centred.T @ centred

    def solve(self, strength: float) -> Linear:
        count = self._count.sum()
        if self._origin is None or (self._count > 0).sum() < 2:
            raise DatasetError(
                "there is nothing to tell apart",
                found=f"{int(count)} images of {int((self._count > 0).sum())} classes",
                expected="images of two classes or more",
            )
        origin, shares = self._origin.astype(np.float32), self._count / count
        mean = self._sums.sum(axis=1) / count
        # E[x y] - E[x] E[y] for each feature and class
        towards = self._sums / count - np.outer(mean, shares)
        variance = np.diag(self._products) / count - mean**2
        varies = variance > (_CONSTANT * np.maximum(np.abs(origin), _CONSTANT)) ** 2
        scale = np.divide(1.0, np.sqrt(np.maximum(variance, 1e-300)), where=varies, out=np.zeros_like(variance))
        moments = self._products / count
        moments -= np.outer(mean, mean)
        moments *= scale[:, None]
        moments *= scale
        moments[np.diag_indices_from(moments)] += strength
        solved = cho_solve(cho_factor(moments, overwrite_a=True, lower=True), scale[:, None] * towards)
        weights = scale[:, None] * solved
        return Linear(weights.astype(np.float32), (shares - (mean + origin) @ weights).astype(np.float32))
