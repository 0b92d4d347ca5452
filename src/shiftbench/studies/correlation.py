"""Does robustness to one shift go with robustness to another? (001 section 4.2 and appendix I)

Pearson's r and Spearman's rank correlation over models, each with an interval on Fisher's z = artanh(r):
r: z ± z_level / sqrt(n - 3); rank: z ± z_level sqrt((1 + rank²/2) / (n - 3)) (Bonett and Wright 2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.errors import listed
from shiftbench.metrics.intervals import Interval
from shiftbench.studies.base import Accuracies, StudyError, count_of, named_values
from shiftbench.studies.fits import baseline_mask


@dataclass(frozen=True)
class Correlation:
    """Of two measures over n models; an interval is None where n is too small for one.

    Attributes:
        n: Number of models.
        pearson: Pearson's r.
        pearson_interval: Its interval.
        pearson_p: Its p-value.
        spearman: Spearman's rank correlation.
        spearman_interval: Its interval.
        spearman_p: Its p-value.
        level: Confidence level of the intervals.
        models: The models that have both values.
        notes: What a reader must know about the numbers.
    """

    n: int
    pearson: float
    pearson_interval: Interval | None
    pearson_p: float
    spearman: float
    spearman_interval: Interval | None
    spearman_p: float
    level: float
    models: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        data = asdict(self)
        for key in ("pearson_interval", "spearman_interval"):
            data[key] = list(data[key]) if data[key] else None
        return {**data, "models": list(self.models), "notes": list(self.notes)}


def correlate(
    x: Accuracies,
    y: Accuracies,
    *,
    models: Sequence[str] | None = None,
    over: Sequence[bool] | Sequence[str] | None = None,
    level: float = 0.95,
) -> Correlation:
    """Pearson and Spearman over the models that have both values.

    For effective robustness pass two ``.rho`` mappings and ``over``, the non-standard models (a mask or names):
    the standard ones lie on both lines by construction and would only blur the answer.

    Args:
        x: One measure: an array, or a mapping from model to value.
        y: The other measure, likewise.
        models: Names of the models, if the accuracies are not given by name.
        over: Only these models: one boolean per model, or names.
        level: Confidence level of the intervals.

    Example:
        >>> result = correlate([1.0, 2.0, 3.0, 4.0, 6.0], [1.1, 1.9, 3.2, 3.9, 4.1])
        >>> round(result.pearson, 3), round(result.spearman, 3), result.n
        (0.926, 1.0, 5)
    """
    from scipy.stats import pearsonr, spearmanr

    names, (xs, ys) = named_values([x, y], models)
    chosen = _over(names, over)
    known = chosen & np.isfinite(xs) & np.isfinite(ys)
    notes = []
    lost = [name for name, out in zip(names, chosen & ~known, strict=True) if out]
    if lost:
        notes.append(f"left out, a value is missing: {count_of(len(lost), 'model')} ({listed(lost)})")
    a, b = xs[known], ys[known]
    _check(a, b, notes)
    r, rank = pearsonr(a, b), spearmanr(a, b)
    rank_value = float(np.clip(rank.statistic, -1.0, 1.0))
    if len(a) < 4:
        notes.append("no interval: it needs four models or more")
    return Correlation(
        n=len(a), pearson=float(r.statistic), pearson_interval=fisher_interval(float(r.statistic), len(a), level),
        pearson_p=float(r.pvalue), spearman=rank_value,
        spearman_interval=fisher_interval(rank_value, len(a), level, spread=1.0 + rank_value**2 / 2.0),
        spearman_p=float(rank.pvalue) if len(a) > 2 else 1.0, level=level,
        models=tuple(name for name, here in zip(names, known, strict=True) if here), notes=tuple(notes),
    )  # fmt: skip


def fisher_interval(r: float, n: int, level: float, *, spread: float = 1.0) -> Interval | None:
    """tanh(artanh(r) ± z sqrt(spread / (n - 3))); [r, r] at r = ±1, None for n < 4.

    >>> [round(end, 3) for end in fisher_interval(0.5, 50, 0.95)]
    [0.257, 0.683]
    """
    from scipy.special import ndtri

    if n < 4:
        return None
    if abs(r) >= 1.0:
        return Interval(r, r)
    half = float(ndtri((1.0 + level) / 2.0)) * np.sqrt(spread / (n - 3))
    return Interval(float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half)))


def _over(names: Sequence[str], over: Sequence[bool] | Sequence[str] | None) -> BoolArray:
    if over is not None and np.asarray(over).dtype != np.bool_:
        over = [name for name in names if name in over]
    return baseline_mask(names, over)


def _check(a: FloatArray, b: FloatArray, notes: Sequence[str]) -> None:
    if len(a) < 2:
        raise StudyError(
            "a correlation needs at least two models with both values",
            found="; ".join([count_of(len(a), "model"), *notes]),
        )
    for name, values in (("first", a), ("second", b)):
        if np.ptp(values) == 0:
            raise StudyError(
                f"the {name} measure is the same for all models: no correlation is defined",
                found=f"{values[0]:g} for {count_of(len(values), 'model')}",
            )
