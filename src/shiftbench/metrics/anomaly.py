"""Anomaly scores: how little an image looks like the classes a classifier knows. HIGHER IS MORE ANOMALOUS.

max_softmax   -max_k p_k                       Hendrycks and Gimpel 2017; the score of "Natural Adversarial Examples"
max_logit     -max_k z_k                       Hendrycks et al. 2022
energy        -T log sum_k exp(z_k / T)        Liu et al. 2020
entropy       -sum_k p_k log p_k
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.arrays import real_matrix
from shiftbench.metrics.probabilities import gives_probabilities, kept_scores, log_probabilities, log_softmax
from shiftbench.store.predictions import Predictions

AnomalyScore = Literal["max_softmax", "max_logit", "energy", "entropy"]
ANOMALY_SCORES: tuple[AnomalyScore, ...] = get_args(AnomalyScore)


def anomaly_scores(logits: ArrayLike, score: AnomalyScore = "max_softmax", *, temperature: float = 1.0) -> FloatArray:
    """One anomaly score an image from (n, classes) of logits; higher is more anomalous.

    ``temperature`` divides the logits first (and multiplies the energy).

    >>> anomaly_scores([[2.0, 0.0], [0.0, 0.0]]).round(3).tolist()
    [-0.881, -0.5]
    >>> anomaly_scores([[2.0, 0.0], [0.0, 0.0]], "entropy").round(3).tolist()
    [0.365, 0.693]
    """
    _check(score)
    if not temperature > 0:
        raise ShiftbenchError("bad temperature", found=temperature, expected="more than 0")
    rows = real_matrix("logits", logits) / temperature
    if score == "max_logit":
        return np.asarray(-rows.max(axis=1))
    if score == "energy":
        top = rows.max(axis=1)
        return np.asarray(-temperature * (top + np.log(np.exp(rows - top[:, None]).sum(axis=1))))
    return _from_log_probabilities(log_softmax(rows), score)


def anomaly_scores_of(
    predictions: Predictions, rows: NDArray[np.bool_], score: AnomalyScore = "max_softmax"
) -> FloatArray:
    """Anomaly scores of some rows of predictions. Max softmax needs the confidence only, the others all scores."""
    _check(score)
    if score == "max_softmax":
        return np.asarray(-predictions.confidence[rows].astype(np.float64))
    if not gives_probabilities(predictions):
        return anomaly_scores(kept_scores(predictions)[rows], score)
    if score == "entropy":
        return _from_log_probabilities(log_probabilities(predictions, rows), score)
    raise ShiftbenchError(
        f"{predictions.classifier!r} gives probabilities, and {score!r} needs logits",
        hint='use "max_softmax" or "entropy", or a classifier that gives logits',
    )


def _from_log_probabilities(table: FloatArray, score: AnomalyScore) -> FloatArray:
    if score == "max_softmax":
        return np.asarray(-np.exp(table.max(axis=1)))
    p = np.exp(table)
    return np.asarray(-np.where(p > 0, p * np.where(p > 0, table, 0.0), 0.0).sum(axis=1))


def _check(score: str) -> None:
    if score not in ANOMALY_SCORES:
        raise ShiftbenchError("unknown anomaly score", found=score, expected=", ".join(ANOMALY_SCORES))
