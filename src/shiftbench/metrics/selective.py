"""Answering only when confident: the response-rate accuracy curve, its area, and soft F1.

Hendrycks, Zhao, Basart, Steinhardt and Song, "Natural Adversarial Examples", appendix D. Images are ordered by
descending confidence. Among equal confidences the later image comes first: that is what the published code's
reversed argsort does, made certain here by a stable sort.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.metrics.arrays import confidences_and_hits, positive_whole
from shiftbench.metrics.intervals import clopper_pearson


class ResponseCurve(NamedTuple):
    """Accuracy on the most confident share ``rate`` of the images, with pointwise Clopper-Pearson ends."""

    rate: FloatArray
    accuracy: FloatArray
    low: FloatArray
    high: FloatArray


def aurra(confidence: ArrayLike, correct: ArrayLike) -> float:
    """The area under the response-rate accuracy curve: the mean over k = 1..n of the accuracy of the first k.

    ``confidence`` may be any number that rises with certainty, not only a probability.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.

    Example:
        >>> aurra([0.9, 0.8, 0.1], [True, True, False])  # (1 + 1 + 2/3) / 3
        0.8888888888888888
    """
    hits = hits_by_confidence(confidence, correct)
    return float((np.cumsum(hits) / np.arange(1, len(hits) + 1)).mean())


def response_rate_accuracy(
    confidence: ArrayLike, correct: ArrayLike, *, points: int | None = None, level: float = 0.95
) -> ResponseCurve:
    """The response-rate accuracy curve for plotting, at every rate k/n or at about ``points`` of them.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        points: About how many points of the curve; default: all.
        level: Confidence level of the intervals.

    Example:
        >>> curve = response_rate_accuracy([0.9, 0.8, 0.1, 0.0], [True, True, False, True])
        >>> curve.rate.tolist(), curve.accuracy.round(2).tolist()
        ([0.25, 0.5, 0.75, 1.0], [1.0, 1.0, 0.67, 0.75])
    """
    right = np.cumsum(hits_by_confidence(confidence, correct))
    counts = np.arange(1, len(right) + 1)
    if points is not None:
        positive_whole("number of points", points)
        # The last point is the usual accuracy and always shown.
        shown = np.unique(np.linspace(0, len(right) - 1, min(points, len(right)) + 1).round().astype(int)[1:])
        right, counts = right[shown], counts[shown]
    low, high = clopper_pearson(right, counts, level)
    return ResponseCurve(counts / counts[-1], right / counts, low, high)


def soft_f1(confidence: ArrayLike, correct: ArrayLike) -> float:
    """F1 of finding one's own errors, with 1 - confidence as a soft verdict "wrong".

    2 sum((1 - c) w) / sum(1 - c + w), w = 1 for a wrong image. nan where no image is wrong and none is doubted.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.

    Example:
        >>> soft_f1([1.0, 0.0], [True, False])
        1.0
    """
    conf, hits = confidences_and_hits(confidence, correct)
    doubt, wrong = 1.0 - conf, (~hits).astype(np.float64)
    whole = float((doubt + wrong).sum())
    return float(2.0 * (doubt * wrong).sum() / whole) if whole else float("nan")


def hits_by_confidence(confidence: ArrayLike, correct: ArrayLike) -> BoolArray:
    """The hits, most confident image first."""
    conf, hits = confidences_and_hits(confidence, correct, probability=False)
    return hits[np.argsort(conf, kind="stable")[::-1]]


def area_weights(n: int) -> FloatArray:
    """What the i-th most confident image adds to AURRA if it is right: (1/i + 1/(i+1) + ... + 1/n) / n.

    >>> (area_weights(2) * 4).tolist()  # (1 + 1/2) / 2 and (1/2) / 2
    [3.0, 1.0]
    """
    return np.ascontiguousarray(np.cumsum(1.0 / np.arange(n, 0, -1))[::-1]) / n
