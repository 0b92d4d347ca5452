"""The calibration section: reliability bins and response-rate accuracy curves."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.errors import listed
from shiftbench.metrics.base import metrics
from shiftbench.metrics.calibration import ReliabilityBin, reliability_diagram, response_rate_accuracy
from shiftbench.reports.page.payload import Estimate, rounded, score_estimate
from shiftbench.reports.page.sections import Section, settings_with_room
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

_POINTS = 60
#: Diagrams on the page, each of about 1.6 kB; of more, whole settings are left out.
_MOST_DIAGRAMS = 400
_PLACES = 4


class CalibrationEntry(TypedDict):
    model: str
    setting: str
    n: int
    rms: Estimate | None
    ece: Estimate | None
    aurra: Estimate | None
    #: Bins without images are left out.
    bins: list[ReliabilityBin]
    #: Response rate and the accuracy on the images that are answered, most confident first; about 60 points.
    curve: list[tuple[float, float]]


def calibration_entries(data: ReportData) -> list[CalibrationEntry]:
    """All plain settings, and of each corruption family the middle and the worst severity."""
    if data.run is None:
        return []
    workspace = data.run.workspace
    cache = data.calibration_cache
    skipped_settings: set[str] = set()
    for family in data.families:
        skipped_settings |= set(family.places.values()) - family.looked_at_closely()
    judged = [result for result in data.complete if result.spec.judged_by_image]
    results = _shown([result for result in judged if result.setting not in skipped_settings], data.warnings)

    def entry(result: Result) -> CalibrationEntry | None:
        key = (result.key, workspace.predictions_path(result).stat().st_mtime_ns, data.level)
        if key not in cache:
            predictions = workspace.read(result, top_k=1, scores=False)
            cache[key] = _entry(data.model_name(result.title), predictions, data.level)
        return cache[key]

    _ = data.names  # Computed once, before several threads ask for it.
    entries: list[CalibrationEntry] = []
    with data.bar("calibration", len(results)) as advance, ThreadPoolExecutor() as pool:
        for computed in pool.map(entry, results):
            if computed is not None:
                entries.append({**computed, "setting": data.setting_name(computed["setting"])})
            advance(1)
    return entries


def _shown(results: Sequence[Result], notes: list[str]) -> list[Result]:
    """The results that get a diagram: as many settings as the page has room for."""
    shown = settings_with_room(results, _MOST_DIAGRAMS)
    settings = {result.setting for result in results}
    if len(shown) < len(settings):
        notes.append(
            f"calibration is shown for {len(shown)} of {len(settings)} settings ({listed(shown, 3)}), to keep the page "
            "small: --classifier or --setting selects others"
        )
    return [result for result in results if result.setting in shown]


def _entry(title: str, predictions: Predictions, level: float) -> CalibrationEntry | None:
    """None where predictions were recorded without confidences, or no image counts."""
    valid = predictions.valid
    confidence = predictions.confidence[valid]
    if not valid.any() or np.isnan(confidence).any():
        return None
    bins = reliability_diagram(confidence, predictions.correct, level=level)
    curve = response_rate_accuracy(confidence, predictions.correct, points=_POINTS, level=level)
    rates = np.round(curve.rate, _PLACES).tolist()
    accuracies = np.round(curve.accuracy, _PLACES).tolist()

    def estimate(metric: str) -> Estimate | None:
        return score_estimate(metrics.get(metric)(predictions, level=level))

    return {
        "model": title,
        "setting": predictions.setting,
        "n": int(valid.sum()),
        "rms": estimate("rms_calibration_error"),
        "ece": estimate("ece"),
        "aurra": estimate("aurra"),
        "bins": [_short(filled) for filled in bins if filled.n],
        "curve": list(zip(rates, accuracies, strict=True)),
    }


def _short(filled: ReliabilityBin) -> ReliabilityBin:
    """The bin with fewer digits, so that the file stays small."""
    return replace(
        filled,
        start=round(filled.start, _PLACES),
        stop=round(filled.stop, _PLACES),
        confidence=round(filled.confidence, _PLACES),
        accuracy=rounded(filled.accuracy),
        low=round(filled.low, _PLACES),
        high=round(filled.high, _PLACES),
    )


SECTION = Section("calibration", calibration_entries)
