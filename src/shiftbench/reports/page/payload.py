"""The data of the report page: one JSON value, built by Python and read by the page's scripts.

Every accuracy and every confidence is a fraction. An undefined number is null, never nan. The types below are
written once: ``scripts/payload_types.py`` translates them to ``assets/payload.d.ts``, which the scripts are checked
against.
"""

from __future__ import annotations

import math
from typing import NotRequired, TypedDict

from shiftbench.metrics.base import Score

FORMAT = 1
#: Significant digits of a value: lines through accuracies near 0 then agree with Python's to four digits.
_DIGITS = 7
_END_PLACES = 5

#: value, low, high, n. The interval and n are null where a published table has none.
Estimate = tuple[float, float | None, float | None, float | None]


class SettingEntry(TypedDict):
    name: str
    #: The in-distribution side, by name; null for a clean setting.
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
    #: "standard", "robustness_intervention", "more_data", or the user's own word; "" when not known.
    category: str
    base_model: str
    #: One of the workspace's own classifiers: drawn on top, named in the plot.
    own: bool
    #: Whether the line may go through it.
    fitted: bool


class ShiftEntry(TypedDict):
    """A pair of axes worth looking at first."""

    name: str
    x: str
    y: str
    min_x: float | None
    pivot: float | None


class Results(TypedDict):
    settings: list[SettingEntry]
    models: list[ModelEntry]
    #: cells[model][setting]
    cells: list[list[Estimate | None]]
    shifts: list[ShiftEntry]
    #: What the page must say about the grid: missing cells, models left out, percent recognised, ...
    notes: list[str]
    #: The category of the models that the line goes through; "" means all.
    baseline: str
    level: float


class CorruptionRow(TypedDict):
    model: str
    mce: Estimate | None
    relative_mce: Estimate | None
    #: One a corruption: the corruption error, as a fraction of the baseline's; the plain error without a baseline.
    ce: list[Estimate | None]
    #: accuracy[corruption][severity]
    accuracy: list[list[Estimate | None]]
    clean: Estimate | None


class CorruptionFamily(TypedDict):
    #: "imagenet-c", "demo-c", ...
    prefix: str
    corruptions: list[str]
    #: noise, blur, weather, digital, extra: one a corruption.
    groups: list[str]
    severities: list[float]
    #: Who the errors are divided by: "AlexNet (published)", a classifier, or "" for plain mean errors.
    baseline: str
    rows: list[CorruptionRow]
    notes: list[str]


class ReliabilityBin(TypedDict):
    confidence: float
    accuracy: float
    low: float
    high: float
    n: int


class CalibrationEntry(TypedDict):
    model: str
    setting: str
    n: int
    rms: Estimate | None
    ece: Estimate | None
    aurra: Estimate | None
    bins: list[ReliabilityBin]
    #: Response rate and the accuracy on what is answered, most confident first; at most some 60 points.
    curve: list[tuple[float, float]]


class Failure(TypedDict):
    id: str
    label: str
    prediction: str
    confidence: float | None
    #: Indices into ``Page.pictures``: the whole picture, and what the classifier saw of it, resized, cropped and
    #: shifted. Null where there is no such picture.
    original: int | None
    shifted: int | None
    #: How many of the workspace's classifiers are wrong on this image, and of how many.
    wrong: int
    of: int


class FailureList(TypedDict):
    model: str
    setting: str
    total: int
    images: list[Failure]


class TrainingCurve(TypedDict):
    """The log of one training run."""

    name: str
    steps: list[float]
    series: dict[str, list[float | None]]


class Section(TypedDict):
    heading: str
    paragraphs: list[str]
    items: NotRequired[list[str]]


class Progress(TypedDict):
    """Of a run that is still going on, or what is waited for; the live viewer only."""

    cells_done: int
    cells_total: int | None
    text: str


class Page(TypedDict):
    format: int
    title: str
    version: str
    results: Results | None
    corruptions: list[CorruptionFamily]
    calibration: list[CalibrationEntry]
    failures: list[FailureList]
    #: data: URLs of small WebP pictures; in the live viewer addresses relative to the page.
    pictures: list[str]
    training: list[TrainingCurve]
    methods: list[Section]
    #: Pictures that were skipped or converted, wrong-label warnings, settings left out.
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
    return rounded(value), *ends, _count(n)


def score_estimate(score: Score | None) -> Estimate | None:
    return None if score is None else estimate(score.value, score.low, score.high, score.n)


def rounded(value: float) -> float:
    """Round as ``estimate`` does, so that a threshold and a value that were equal stay equal."""
    return float(f"{value:.{_DIGITS}g}")


def _count(n: float) -> float | None:
    if not math.isfinite(n):
        return None
    return int(n) if n == int(n) else float(n)
