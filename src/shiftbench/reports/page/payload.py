"""The data of the report page: one JSON value, built by Python and read by the page's scripts.

Every accuracy and every confidence is a fraction. An undefined number is null, never nan. The types below are
written once: ``scripts/payload_types.py`` translates them to ``assets/payload.d.ts``, which the scripts are checked
against.
"""

from __future__ import annotations

import math
from typing import TypedDict

from shiftbench.metrics.base import Score

FORMAT = 1
#: Significant digits of a value: lines through accuracies near 0 then agree with Python's to four digits.
_DIGITS = 7
_END_PLACES = 5

#: value, low, high, n. The interval and n are null where a published table has none.
Estimate = tuple[float, float | None, float | None, float | None]
#: The parts of the sections by name (see ``sections``); one that would be empty is left out.
Sections = dict[str, object]


class SettingEntry(TypedDict):
    name: str
    #: The setting without shift, by name; null for a clean setting.
    reference: str | None
    metric: str
    #: "%": values are fractions that are shown times 100. "": shown as they are.
    unit: str
    higher_is_better: bool
    #: "own" for what the workspace evaluated, otherwise the name of the results file.
    source: str
    note: str
    provenance: str


class ModelEntry(TypedDict):
    name: str
    #: ``name@hash`` of an own model: its weights, preprocessing and engine; "" for published ones.
    id: str
    #: Facts about an own model that nobody gave and no file states.
    assumed: list[str]
    #: How many images of which datasets it was trained on.
    training_images: list[str]
    #: "standard", "robustness_intervention", "more_data", or a category of the user; "" if unknown.
    category: str
    base_model: str
    #: Evaluated in the workspace: drawn on top and labelled in the plot.
    own: bool
    #: Whether the line may go through it.
    fitted: bool


class ShiftEntry(TypedDict):
    """A pair of axes that the page offers."""

    name: str
    x: str
    y: str
    min_x: float | None
    pivot: float | None
    #: The scale that the line was published on; null: logit.
    scale: str | None


class ResultGrid(TypedDict):
    settings: list[SettingEntry]
    models: list[ModelEntry]
    #: estimates[model][setting]
    estimates: list[list[Estimate | None]]
    shifts: list[ShiftEntry]
    #: Shown below the grid: missing results, models left out, the unit that was recognised, ...
    notes: list[str]
    #: The category of the models that the line goes through; "" means all.
    baseline: str
    level: float


class Progress(TypedDict):
    """Progress of a run that is not complete, or what the live viewer waits for."""

    results_done: int
    results_total: int | None
    text: str


class Page(TypedDict):
    format: int
    title: str
    version: str
    sections: Sections
    #: Images that were skipped or converted, signs of wrong labels, settings left out.
    warnings: list[str]
    progress: Progress | None


def estimate(value: float, low: float = math.nan, high: float = math.nan, n: float = math.nan) -> Estimate | None:
    """Round a number so that the file stays small; None if the value is undefined.

    >>> estimate(0.76134567, 0.7575, 0.7651, 50_000), estimate(0.5), estimate(float("nan"))
    ((0.7613457, 0.7575, 0.7651, 50000), (0.5, None, None, None), None)
    """
    if not math.isfinite(value):
        return None
    both = math.isfinite(low) and math.isfinite(high)
    ends = (round(low, _END_PLACES), round(high, _END_PLACES)) if both else (None, None)
    size = None if not math.isfinite(n) else int(n) if n == int(n) else float(n)
    return rounded(value), *ends, size


def score_estimate(score: Score | None) -> Estimate | None:
    return None if score is None else estimate(score.value, score.low, score.high, score.n)


def rounded(value: float) -> float:
    """Round as ``estimate`` does, so that a threshold and a value that were equal stay equal."""
    return float(f"{value:.{_DIGITS}g}")
