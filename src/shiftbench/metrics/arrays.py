"""Checks of the arguments of metrics: confidences, hits, scores, labels. A nan never becomes a number silently."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError, argument
from shiftbench.store.predictions import Predictions


def confidences_and_hits(
    confidence: ArrayLike, correct: ArrayLike, *, probability: bool = True
) -> tuple[FloatArray, BoolArray]:
    """One confidence and one hit (true or false, 1 or 0) per image; a probability lies in [0, 1]."""
    values = real_vector("confidence", confidence)
    hits = truths("correct", correct)
    if values.shape != hits.shape:
        raise ShiftbenchError(
            "confidences and hits differ in number",
            found=f"{len(values)} and {len(hits)}",
            expected="one of each per image",
        )
    if probability and not ((values >= 0) & (values <= 1)).all():
        raise ShiftbenchError(
            "confidences outside [0, 1]",
            found=f"values from {values.min():g} to {values.max():g}",
            expected="0 to 1",
            hint="take the softmax of logits first; divide percentages by 100",
        )
    return values, hits


def real_vector(argument_name: str, values: ArrayLike) -> FloatArray:
    """One number per image, none of them nan, at least one image."""
    return _real(argument_name, values, 1, "one number per image", "(n,)")


def real_matrix(argument_name: str, values: ArrayLike) -> FloatArray:
    """One row per image, one column per class, no nan."""
    return _real(argument_name, values, 2, "one row per image", "(n, classes)")


def probability_matrix(values: ArrayLike) -> FloatArray:
    """(n, classes) whose rows are probabilities: not negative, summing to one."""
    array = real_matrix("probabilities", values)
    sums = array.sum(axis=1)
    # Half-precision softmax outputs add up to one only to three digits.
    if (array < 0).any() or not np.allclose(sums, 1.0, atol=5e-3):
        raise ShiftbenchError(
            "rows are not probabilities",
            found=f"values from {array.min():g} to {array.max():g}, rows summing to {sums.min():g} to {sums.max():g}",
            expected="values of 0 to 1, rows summing to 1",
            hint="take the softmax of logits first (shiftbench.metrics.softmax)",
        )
    return array


def class_labels(labels: ArrayLike, rows: int, classes: int) -> IntArray:
    """One class index per image, in range."""
    array = np.asarray(labels)
    if array.shape != (rows,) or not np.issubdtype(array.dtype, np.integer):
        raise ShiftbenchError(
            "labels must be class indices, one per image",
            found=f"{array.dtype} of shape {array.shape}",
            expected=f"integers of shape ({rows},)",
        )
    if array.min() < 0 or array.max() >= classes:
        raise ShiftbenchError(
            "label out of range", found=f"{array.min()} to {array.max()}", expected=f"0 to {classes - 1}"
        )
    return array.astype(np.int64)


def truths(argument_name: str, values: ArrayLike) -> BoolArray:
    """True and false, or 1 and 0, of any shape."""
    array: NDArray[Any] = np.asarray(values)
    if array.dtype == np.bool_:
        return array
    if not np.isin(array, (0, 1)).all():
        odd = array[~np.isin(array, (0, 1))].ravel()[0]
        raise ShiftbenchError(
            f"{argument_name} must be true or false for each image", found=odd, expected="True, False, 1 or 0"
        )
    return array.astype(bool)


def _real(argument_name: str, values: ArrayLike, axes: int, content: str, shape: str) -> FloatArray:
    """The values as float64; an error says what content and shape were expected, and where a nan is."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != axes or not array.size:
        raise ShiftbenchError(f"{argument_name}: expected {content}", found=f"shape {array.shape}", expected=shape)
    has_nan = np.isnan(array).reshape(len(array), -1).any(axis=1)
    if has_nan.any():
        first = int(np.flatnonzero(has_nan)[0])
        raise ShiftbenchError(
            f"{argument_name} contains nan",
            found=f"nan for {int(has_nan.sum())} of {len(array)} images, the first in row {first}",
            expected="a number for each image",
            hint="leave out images that could not be read; predictions recorded without confidences have none",
        )
    return array


# Softmax, and the logits, probabilities and confidences that predictions hold.


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
