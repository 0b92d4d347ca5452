"""The calibration section: reliability bins and response-rate accuracy curves."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.metrics.base import metrics
from shiftbench.metrics.calibration import reliability_diagram, response_rate_accuracy
from shiftbench.reports.page.payload import Estimate, rounded, score_estimate
from shiftbench.reports.page.sections import Section
from shiftbench.reports.page.sections.corruptions import FamilyScores
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

if TYPE_CHECKING:
    from shiftbench.reports.page.report_data import ReportData

_POINTS = 60
_PLACES = 4


class DiagramBin(TypedDict):
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
    bins: list[DiagramBin]
    #: Response rate and the accuracy on what is answered, most confident first; at most some 60 points.
    curve: list[tuple[float, float]]


def calibration_entries(data: ReportData) -> list[CalibrationEntry]:
    if data.run is None:
        return []
    workspace, cache = data.run.workspace, data.calibration_cache
    chosen = calibrated_results(data.complete, data.families)

    def entry(result: Result) -> CalibrationEntry | None:
        key = (result.key, workspace.predictions_path(result).stat().st_mtime_ns, data.level)
        if key not in cache:
            predictions = workspace.read(result, top_k=1, scores=False)
            cache[key] = calibration_entry(data.titles[result.key], predictions, data.level)
        return cache[key]

    found = []
    with data.bar("calibration", len(chosen)) as advance, ThreadPoolExecutor() as pool:
        for one in pool.map(entry, chosen):
            found.append(one)
            advance(1)
    shown = [one.copy() for one in found if one is not None]
    for one in shown:
        one["setting"] = data.setting_name(one["setting"])
    return shown


def calibrated_results(results: Iterable[Result], families: Iterable[FamilyScores]) -> list[Result]:
    """The results whose calibration is shown: all plain settings; of a family the middle and the worst severity."""
    passed_over = {name for family in families for name in set(family.settings) - family.looked_at_closely()}
    return [result for result in results if result.setting not in passed_over and result.spec.judged_by_image]


def calibration_entry(title: str, predictions: Predictions, level: float) -> CalibrationEntry | None:
    """None where predictions were recorded without confidences, or no image counts."""
    valid = predictions.valid
    confidence = predictions.confidence[valid]
    if not valid.any() or np.isnan(confidence).any():
        return None
    bars = reliability_diagram(confidence, predictions.correct, level=level)
    curve = response_rate_accuracy(confidence, predictions.correct, points=_POINTS, level=level)
    rms, ece, aurra = (
        metrics.get(name)(predictions, level=level) for name in ("rms_calibration_error", "ece", "aurra")
    )
    return {
        "model": title,
        "setting": predictions.setting,
        "n": int(valid.sum()),
        "rms": score_estimate(rms),
        "ece": score_estimate(ece),
        "aurra": score_estimate(aurra),
        "bins": [
            {
                "confidence": round(bar.confidence, _PLACES),
                "accuracy": rounded(bar.accuracy),
                "low": round(bar.low, _PLACES),
                "high": round(bar.high, _PLACES),
                "n": bar.n,
            }
            for bar in bars
            if bar.n
        ],
        "curve": [
            (round(float(rate), _PLACES), round(float(accuracy), _PLACES))
            for rate, accuracy in zip(curve.rate, curve.accuracy, strict=True)
        ],
    }


SECTION = Section("calibration", calibration_entries)
