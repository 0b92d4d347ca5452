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
#: The source of a setting that the workspace evaluated.
OWN = "own"

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
    #: One severity of one corruption: tables show it on request, because a mean over severities stands for it.
    detail: bool


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
    #: A line is drawn through at least this many models: an interval from resampling fewer is too rough.
    least_line_models: int
    level: float


class DatasetFact(TypedDict):
    name: str
    images: int
    #: The folder, file or URL that the run recorded; "" where it recorded none.
    path: str


class About(TypedDict):
    """Where the numbers of a page come from. Times are UTC, such as "2026-11-18 13:29"."""

    datasets: list[DatasetFact]
    #: Number of settings that were evaluated or published; means over several are not counted.
    settings: int
    #: The name of the published table on the page; "" if there is none.
    published: str
    #: When the first and the last result were computed; "" where that was not recorded.
    first_result: str
    last_result: str
    #: Versions of shiftbench that computed the results.
    versions: list[str]
    #: When the page was made.
    written: str
    #: Number of images that were converted before a model saw them, and that could not be used.
    converted: int
    skipped: int


class Answer(TypedDict):
    """The sentence that the page opens with."""

    #: Is it robustness, or just accuracy? Then the numbers behind the verdict.
    verdict: str
    evidence: str
    #: The corruption or setting with the lowest accuracy; "" if nothing shifted was evaluated.
    worst: str
    #: What to do next, and the command for it; "" if there is none.
    next: str
    command: str


class Progress(TypedDict):
    """Progress of a run that is not complete, or what the live viewer waits for."""

    results_done: int
    results_total: int | None
    text: str


class Page(TypedDict):
    format: int
    title: str
    version: str
    about: About
    answer: Answer | None
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
    if math.isfinite(low) and math.isfinite(high):
        return rounded(value), round(low, _END_PLACES), round(high, _END_PLACES), _image_count(n)
    return rounded(value), None, None, _image_count(n)


def _image_count(n: float) -> float | None:
    """The number as JSON should show it: whole where it is whole, null where it is unknown."""
    if not math.isfinite(n):
        return None
    if n == int(n):
        return int(n)
    return float(n)


def score_estimate(score: Score | None) -> Estimate | None:
    if score is None:
        return None
    return estimate(score.value, score.low, score.high, score.n)


def setting_entry(
    name: str,
    *,
    metric: str = "accuracy",
    unit: str = "%",
    higher_is_better: bool = True,
    source: str = OWN,
    reference: str | None = None,
    note: str = "",
    provenance: str = "",
    detail: bool = False,
) -> SettingEntry:
    """A setting of the workspace that is measured by accuracy, unless stated otherwise."""
    return {
        "name": name,
        "reference": reference,
        "metric": metric,
        "unit": unit,
        "higher_is_better": higher_is_better,
        "source": source,
        "note": note,
        "provenance": provenance,
        "detail": detail,
    }


def rounded(value: float) -> float:
    """Round as ``estimate`` does, so that a threshold and a value that were equal stay equal."""
    return float(f"{value:.{_DIGITS}g}")
