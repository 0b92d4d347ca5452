"""Does confidence mean what it says? Reliability bins and response-rate accuracy curves of the page."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from shiftbench.metrics.base import metrics
from shiftbench.metrics.calibration import reliability_diagram
from shiftbench.metrics.selective import response_rate_accuracy
from shiftbench.reports.page.corruptions import Family
from shiftbench.reports.page.own import judged_by_image
from shiftbench.reports.page.payload import CalibrationEntry, rounded, score_estimate
from shiftbench.store.predictions import Predictions
from shiftbench.store.workspace import Result

_POINTS = 60
_PLACES = 4


def calibrated_results(results: Iterable[Result], families: Iterable[Family]) -> list[Result]:
    """The results whose calibration is shown: all plain settings; of a family the middle and the worst severity."""
    passed_over = {name for family in families for name in set(family.settings) - family.looked_at_closely()}
    return [result for result in results if result.setting not in passed_over and judged_by_image(result)]


def calibration_entry(title: str, predictions: Predictions, level: float) -> CalibrationEntry | None:
    """None where predictions were recorded without confidences, or no picture counts."""
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
