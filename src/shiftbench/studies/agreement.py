"""Do models fail on the same images?

Which images every model fails on (004 appendix B.3.5), how far two models' errors coincide beyond what their
accuracies make likely (error consistency: Cohen's kappa on right or wrong, Geirhos et al. 2020), and dominance:
how seldom the weaker model is right where the stronger is wrong (Mania et al. 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, compress
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import BoolArray
from shiftbench.store.predictions import Predictions
from shiftbench.studies.base import StudyError, as_json, check_unique, numbered
from shiftbench.studies.image_bootstrap import common_hits


@dataclass(frozen=True)
class PairAgreement:
    """Two models on the same images; ``stronger`` has the higher accuracy."""

    stronger: str
    weaker: str
    n: int
    #: Share of images on which both are right or both are wrong.
    observed: float
    #: The same if errors fell independently.
    by_chance: float
    #: (observed - by_chance) / (1 - by_chance); None where chance alone agrees always.
    kappa: float | None
    kappa_low: float | None
    kappa_high: float | None
    #: P(weaker right and stronger wrong): 0 is full dominance.
    dominance: float
    #: The same if errors fell independently.
    dominance_by_chance: float


@dataclass(frozen=True)
class ModelAgreement:
    """All models on the same images."""

    models: tuple[str, ...]
    n: int
    accuracies: tuple[float, ...]
    #: Images that no model, and that every model, gets right.
    all_fail: tuple[str, ...]
    all_right: int
    #: Number of images by how many models fail on them: entry k is for k models.
    failures: tuple[int, ...]
    pairs: tuple[PairAgreement, ...]
    level: float

    def as_dict(self) -> dict[str, Any]:
        return as_json(self)


def agreement(
    hits: ArrayLike, *, models: Sequence[str] | None = None, ids: Sequence[str] | None = None, level: float = 0.95
) -> ModelAgreement:
    """The agreement of models from hits, (models, images) right or wrong."""
    matrix = np.asarray(hits, dtype=np.bool_)
    if matrix.ndim != 2 or matrix.shape[0] < 2 or not matrix.shape[1]:
        raise StudyError("agreement needs two models or more on some images", found=f"hits of shape {matrix.shape}")
    names = numbered(matrix) if models is None else list(models)
    image_ids = list(map(str, range(matrix.shape[1]))) if ids is None else list(ids)
    if matrix.shape != (len(names), len(image_ids)):
        raise StudyError("names do not fit the hits", found=f"{len(names)} and {len(image_ids)} for {matrix.shape}")
    check_unique(names)
    wrong = (~matrix).sum(axis=0)
    failures = np.bincount(wrong, minlength=len(matrix) + 1)
    return ModelAgreement(
        models=tuple(names),
        n=matrix.shape[1],
        accuracies=tuple(matrix.mean(axis=1).tolist()),
        all_fail=tuple(compress(image_ids, wrong == len(matrix))),
        all_right=int(failures[0]),
        failures=tuple(failures.tolist()),
        pairs=tuple(_pairs(matrix, names, level)),
        level=level,
    )


def agreement_of(predictions: Sequence[Predictions], *, level: float = 0.95) -> ModelAgreement:
    """The agreement of stored predictions in one setting, on the images that count for all classifiers."""
    if len(predictions) < 2:
        raise StudyError("agreement needs two models or more", found=len(predictions))
    settings = sorted({entry.setting for entry in predictions})
    if len(settings) > 1:
        raise StudyError("agreement is on one setting", found=", ".join(settings))
    hits, ids = common_hits(predictions)
    return agreement(hits, models=[entry.classifier for entry in predictions], ids=ids, level=level)


def _pairs(hits: BoolArray, names: Sequence[str], level: float) -> list[PairAgreement]:
    """Every pair of models, the more accurate first: how often both are right or wrong, and how often by chance."""
    n = hits.shape[1]
    # Counts of images that two models both get right, for all pairs at once; float32 is exact up to 2^24.
    dense: NDArray[np.floating] = hits.astype(np.float32 if n < 2**24 else np.float64)
    both = np.asarray(dense @ dense.T, dtype=np.float64)
    right = np.diag(both)
    pairs = []
    for i, j in combinations(range(len(names)), 2):
        strong, weak = (i, j) if right[i] >= right[j] else (j, i)
        p = right[strong] / n
        q = right[weak] / n
        observed = (n - right[strong] - right[weak] + 2 * both[i, j]) / n
        by_chance = p * q + (1 - p) * (1 - q)
        kappa = low = high = None
        if by_chance < 1:
            kappa = float((observed - by_chance) / (1 - by_chance))
            low, high = _kappa_interval(kappa, both[i, j], right[strong], right[weak], n, level)
        pair = PairAgreement(
            stronger=names[strong],
            weaker=names[weak],
            n=n,
            observed=float(observed),
            by_chance=float(by_chance),
            kappa=kappa,
            kappa_low=low,
            kappa_high=high,
            dominance=float((right[weak] - both[i, j]) / n),
            dominance_by_chance=float(q * (1 - p)),
        )
        pairs.append(pair)
    return pairs


def _kappa_interval(
    kappa: float, both: float, first: float, second: float, n: int, level: float
) -> tuple[float, float]:
    """Large-sample interval of kappa (Fleiss, Cohen and Everitt 1969), cut to [-1, 1].

    ``first`` and ``second`` are the images that either model gets right, ``both`` those that both get right.
    With cells p_rc, margins p_r. and p_.c, observed o, chance e and kappa k, the variance is
    (sum_r p_rr (1 - (p_r. + p_.r)(1 - k))² + (1 - k)² sum_{r != c} p_rc (p_.r + p_c.)²
    - (k - e (1 - k))²) / (n (1 - e)²).
    """
    from scipy.special import ndtri

    cells = np.array([[both, first - both], [second - both, n - first - second + both]]) / n
    rows = cells.sum(axis=1)
    columns = cells.sum(axis=0)
    chance = first / n * (second / n) + (1 - first / n) * (1 - second / n)
    agree = 0.0
    differ = 0.0
    for r in (0, 1):
        agree += cells[r, r] * (1 - (rows[r] + columns[r]) * (1 - kappa)) ** 2
        differ += cells[r, 1 - r] * (columns[r] + rows[1 - r]) ** 2
    differ *= (1 - kappa) ** 2
    variance = (agree + differ - (kappa - chance * (1 - kappa)) ** 2) / (n * (1 - chance) ** 2)
    half = float(ndtri((1 + level) / 2)) * float(np.sqrt(max(variance, 0.0)))
    return max(-1.0, kappa - half), min(1.0, kappa + half)
