"""Softmax, and the logits, probabilities and confidences that predictions hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError, argument
from shiftbench.metrics.arrays import real_matrix
from shiftbench.store.predictions import Predictions


def softmax(logits: ArrayLike) -> FloatArray:
    """Rows of logits to rows of probabilities, exp(z_k) / sum_j exp(z_j).

    Args:
        logits: (n, classes) scores before softmax.

    Example:
        >>> softmax([[0.0, 0.0], [1000.0, 0.0]]).tolist()
        [[0.5, 0.5], [1.0, 0.0]]
    """
    return np.asarray(np.exp(log_softmax(logits)))


def log_softmax(logits: ArrayLike) -> FloatArray:
    """The logarithm of the softmax; exact where a probability itself would round to 0 or 1.

    Args:
        logits: (n, classes) scores before softmax.

    Example:
        >>> log_softmax([[1000.0, 0.0]]).tolist()
        [[0.0, -1000.0]]
    """
    rows = real_matrix("logits", logits)
    shifted = rows - rows.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def gives_probabilities(predictions: Predictions) -> bool:
    """Whether the kept scores are probabilities; logits if the run did not record it."""
    return predictions.spec.classifier.outputs == "probabilities"


def log_probabilities(predictions: Predictions, rows: NDArray[np.bool_]) -> FloatArray:
    """(rows, classes): log p over the setting's label space; -inf where a classifier gives 0 itself."""
    scores = kept_scores(predictions)[rows].astype(np.float64)
    if not len(scores):
        return scores
    if not gives_probabilities(predictions):
        return log_softmax(scores)
    # Probabilities over fewer classes than the classifier knows are shared out anew, as the run does.
    with np.errstate(divide="ignore", invalid="ignore"):
        table = np.log(scores) - np.log(scores.sum(axis=1, keepdims=True))
    return real_matrix("probabilities", table)


def kept_scores(predictions: Predictions) -> NDArray[np.float32]:
    """The scores of all classes; an error if the run did not keep them."""
    if predictions.scores is None:
        raise ShiftbenchError(
            f"{predictions.classifier!r} in {predictions.setting!r} has no scores of all classes",
            found="the best classes and the confidence only",
            hint=f"evaluate again with {argument('keep_scores', True)}",
        )
    return predictions.scores
