"""Which interventions help against which shifts: mean effective and relative robustness by category (001 section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from shiftbench.studies.base import StudyError, whole
from shiftbench.studies.study import ShiftAxes, Study


@dataclass(frozen=True)
class GroupMean:
    """The mean of a measure over the models of a category on one shift, with a t interval over models."""

    shift: str
    group: str
    #: "rho" or "tau".
    measure: str
    n: int
    mean: float
    low: float
    high: float


def group_means(
    study: Study, shifts: Mapping[str, ShiftAxes], *, by: str = "category", scale: str = "logit", level: float = 0.95
) -> list[GroupMean]:
    """Mean rho and tau in percentage points over the models of each group, for every shift, the baseline included.

    Models whose rho or tau is unknown do not count. The interval is for the mean over models like these:
    mean +- t(n - 1) s / sqrt(n); of a single model there is none.

    Args:
        study: The accuracies, and the table of the models.
        shifts: By name, as from ``Study.shift``.
        by: Column of the table of models that makes the groups.
        scale: ``"logit"``, ``"probit"`` or ``"linear"``.
        level: Confidence level of the intervals.
    """
    if study.models is None:
        raise StudyError("the categories of the models are unknown", hint="give a table of models (--models FILE)")
    groups: dict[str, list[str]] = {}
    for name in study.results.models:
        groups.setdefault(study.models.column(name, by), []).append(name)
    groups.pop("", None)
    groups = dict(sorted(groups.items(), key=lambda group: (group[0] != study.category, group[0])))
    if not groups:
        raise StudyError(f"no model has a value in the column {by!r} of the table of models")
    found, points = [], 100.0 / whole(study.results.unit)
    for shift, one in shifts.items():
        rho = study.effective(one.x, one.y, min_x=one.min_x, pivot=one.pivot, scale=scale, resamples=0).rho
        tau = study.relative(one.y).tau if study.models.bases else {}
        for group, names in groups.items():
            for measure, values in (("rho", rho), ("tau", tau)):
                known = points * np.array([values[name] for name in names if name in values])
                if len(known):
                    found.append(GroupMean(shift, group, measure, len(known), *_mean(known, level)))
    return found


def _mean(values: np.ndarray[tuple[int], np.dtype[np.float64]], level: float) -> tuple[float, float, float]:
    from scipy.stats import t

    mean, n = float(values.mean()), len(values)
    if n < 2:
        return mean, float("nan"), float("nan")
    half = float(t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
