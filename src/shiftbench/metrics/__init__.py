"""From predictions to scores: accuracy, corruption error, calibration, detection, flips, intervals, paired tests.

Plain functions on arrays, in fractions, that need nothing else of this package; they are imported when used:

>>> from shiftbench.metrics import aurra, clopper_pearson, rms_calibration_error
>>> aurra(confidence=[0.9, 0.6], correct=[True, True])
1.0
"""

import importlib
from typing import TYPE_CHECKING

from shiftbench.metrics.base import Metric, Needs, Score, metric, metrics
from shiftbench.metrics.intervals import clopper_pearson, images_needed

if TYPE_CHECKING:
    from shiftbench.metrics.anomaly import anomaly_scores
    from shiftbench.metrics.calibration import (
        brier_score,
        classwise_calibration_error,
        expected_calibration_error,
        mad_calibration_error,
        max_calibration_error,
        negative_log_likelihood,
        reliability_diagram,
        rms_calibration_error,
    )
    from shiftbench.metrics.detection import aupr, auroc, detect, detection_scores, fpr95
    from shiftbench.metrics.groups import group_accuracy, per_group, worst_group, worst_group_accuracy
    from shiftbench.metrics.multilabel import (
        average_precisions,
        mean_average_precision,
        mean_average_precision_score,
    )
    from shiftbench.metrics.probabilities import log_softmax, softmax
    from shiftbench.metrics.selective import aurra, response_rate_accuracy, soft_f1
    from shiftbench.metrics.temperature import apply_temperature, calibrate, fit_temperature, with_temperature
    from shiftbench.metrics.video import pm_k, pm_k_score

__all__ = [
    "Metric",
    "Needs",
    "Score",
    "anomaly_scores",
    "apply_temperature",
    "aupr",
    "auroc",
    "aurra",
    "average_precisions",
    "brier_score",
    "calibrate",
    "classwise_calibration_error",
    "clopper_pearson",
    "detect",
    "detection_scores",
    "expected_calibration_error",
    "fit_temperature",
    "fpr95",
    "group_accuracy",
    "images_needed",
    "log_softmax",
    "mad_calibration_error",
    "max_calibration_error",
    "mean_average_precision",
    "mean_average_precision_score",
    "metric",
    "metrics",
    "negative_log_likelihood",
    "per_group",
    "pm_k",
    "pm_k_score",
    "reliability_diagram",
    "response_rate_accuracy",
    "rms_calibration_error",
    "soft_f1",
    "softmax",
    "with_temperature",
    "worst_group",
    "worst_group_accuracy",
]

#: Where each plain function lives; the module is imported on first use.
_HOMES = {
    "anomaly": ["anomaly_scores"],
    "calibration": [
        "brier_score",
        "classwise_calibration_error",
        "expected_calibration_error",
        "mad_calibration_error",
        "max_calibration_error",
        "negative_log_likelihood",
        "reliability_diagram",
        "rms_calibration_error",
    ],
    "detection": ["aupr", "auroc", "detect", "detection_scores", "fpr95"],
    "groups": ["group_accuracy", "per_group", "worst_group", "worst_group_accuracy"],
    "multilabel": ["average_precisions", "mean_average_precision", "mean_average_precision_score"],
    "probabilities": ["log_softmax", "softmax"],
    "selective": ["aurra", "response_rate_accuracy", "soft_f1"],
    "temperature": ["apply_temperature", "calibrate", "fit_temperature", "with_temperature"],
    "video": ["pm_k", "pm_k_score"],
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # a type checker reads the imports above, and then knows a misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
