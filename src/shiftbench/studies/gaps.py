"""The three parts of every model's gap between two test sets, from a table of results (004 section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shiftbench.arrays import FloatArray
from shiftbench.errors import listed
from shiftbench.studies.base import StudyError, count_of, whole
from shiftbench.studies.reproducibility import GapParts, decompose_gap
from shiftbench.studies.results import Results


@dataclass(frozen=True)
class ModelGap:
    """One model's gap; accuracies are fractions."""

    model: str
    original: float
    new: float
    fresh: float | None
    parts: GapParts

    def as_dict(self) -> dict[str, Any]:
        parts = self.parts
        row: dict[str, Any] = {
            "model": self.model, "original": self.original, "new": self.new, "fresh": self.fresh, "gap": parts.total,
            "chance_alone": parts.chance_alone, "adaptivity": parts.adaptivity, "distribution": parts.distribution,
        }  # fmt: skip
        for name in ("generalisation", "systematic", "adaptivity_interval", "distribution_interval"):
            ends = getattr(parts, name)
            short = name.removesuffix("_interval")
            row |= {f"{short}_low": ends.low if ends else None, f"{short}_high": ends.high if ends else None}
        return row


@dataclass(frozen=True)
class Gaps:
    """All models, the largest gap first."""

    rows: tuple[ModelGap, ...]
    level: float
    notes: tuple[str, ...] = ()


def decompose_gaps(results: Results, original: str, new: str, *, fresh: str | None = None, level: float = 0.95) -> Gaps:
    """``decompose_gap`` of every model with both accuracies.

    ``fresh`` is a setting with new images of the original distribution: with it, adaptivity and distribution are
    told apart, for the models that have it. The table must know the numbers of images.
    """
    sides = [_side(results, name) for name in (original, new, *([fresh] if fresh else []))]
    rows, lost = [], []
    for i, model in enumerate(results.models):
        known = [(float(values[i]), int(n[i])) for values, n in sides if np.isfinite(values[i]) and np.isfinite(n[i])]
        if len(known) < len(sides):
            lost.append(model)
            continue
        (old, n_old), (young, n_new) = known[:2]
        third, n_third = known[2] if fresh else (None, None)
        parts = decompose_gap(old, young, n_original=n_old, n_new=n_new, fresh=third, n_fresh=n_third, level=level)
        rows.append(ModelGap(model, old, young, third, parts))
    notes = [f"left out, a value is missing: {count_of(len(lost), 'model')} ({listed(lost)})"] if lost else []
    if not rows:
        raise StudyError("no model has both accuracies", found="; ".join(notes))
    return Gaps(tuple(sorted(rows, key=lambda row: -row.parts.total)), level, tuple(notes))


def _side(results: Results, setting: str) -> tuple[FloatArray, FloatArray]:
    """The models' accuracies in a setting as fractions, and the numbers of images behind them."""
    values = results.column(setting) / whole(results.unit)
    known = results.size(setting)
    if known is None:
        raise StudyError(
            f"the number of images behind {setting!r} is not known",
            hint="say it: --n-x, --n-y, --n-fresh, or a column n in a long table",
        )
    return values, np.asarray(np.broadcast_to(known, values.shape), dtype=np.float64)
