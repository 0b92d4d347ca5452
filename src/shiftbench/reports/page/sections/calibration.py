"""The calibration section: reliability bins and response-rate accuracy curves."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from shiftbench.metrics.base import metrics
from shiftbench.metrics.calibration import reliability_diagram, response_rate_accuracy
from shiftbench.reports.page.payload import Estimate, rounded, score_estimate
from shiftbench.reports.page.sections import Section
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
    """All plain settings; of a family the middle and the worst severity."""
    if data.run is None:
        return []
    workspace, cache = data.run.workspace, data.calibration_cache
    passed_over = {name for family in data.families for name in {*family.places.values()} - family.looked_at_closely()}
    chosen = [one for one in data.complete if one.setting not in passed_over and one.spec.judged_by_image]

    def entry(result: Result) -> CalibrationEntry | None:
        key = (result.key, workspace.predictions_path(result).stat().st_mtime_ns, data.level)
        if key not in cache:
            predictions = workspace.read(result, top_k=1, scores=False)
            cache[key] = _entry(data.model_name(result.title), predictions, data.level)
        return cache[key]

    _ = data.grid  # once, before the threads ask for names
    shown: list[CalibrationEntry] = []
    with data.bar("calibration", len(chosen)) as advance, ThreadPoolExecutor() as pool:
        for one in pool.map(entry, chosen):
            shown += [] if one is None else [{**one, "setting": data.setting_name(one["setting"])}]
            advance(1)
    return shown


def _entry(title: str, predictions: Predictions, level: float) -> CalibrationEntry | None:
    """None where predictions were recorded without confidences, or no image counts."""
    valid = predictions.valid
    confidence = predictions.confidence[valid]
    if not valid.any() or np.isnan(confidence).any():
        return None
    curve = response_rate_accuracy(confidence, predictions.correct, points=_POINTS, level=level)
    rms, ece, aurra = (
        score_estimate(metrics.get(name)(predictions, level=level))
        for name in ("rms_calibration_error", "ece", "aurra")
    )
    bins: list[DiagramBin] = [
        {"confidence": round(one.confidence, _PLACES), "accuracy": rounded(one.accuracy),
         "low": round(one.low, _PLACES), "high": round(one.high, _PLACES), "n": one.n}
        for one in reliability_diagram(confidence, predictions.correct, level=level) if one.n
    ]  # fmt: skip
    points = [
        (round(float(rate), _PLACES), round(float(accuracy), _PLACES))
        for rate, accuracy in zip(curve.rate, curve.accuracy, strict=True)
    ]
    return {"model": title, "setting": predictions.setting, "n": int(valid.sum()), "rms": rms, "ece": ece,
            "aurra": aurra, "bins": bins, "curve": points}  # fmt: skip


SECTION = Section("calibration", calibration_entries)
