"""The registered metrics of confidence: calibration, proper scores and selective prediction, with intervals.

The arithmetic is in ``calibration`` and ``selective``; here predictions come in and scores with an image
bootstrap go out. Calibration errors get the bias-corrected interval of ``bootstrap.corrected_interval``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shiftbench.arrays import BoolArray, FloatArray
from shiftbench.metrics.accuracy import hits as top1_hits
from shiftbench.metrics.arrays import confidences_and_hits, gives_probabilities, log_probabilities
from shiftbench.metrics.base import Needs, Score, metric
from shiftbench.metrics.bootstrap import STATISTIC_RESAMPLES as RESAMPLES
from shiftbench.metrics.bootstrap import draw_counts, resampled, resampled_means, resampled_score, unseen_share
from shiftbench.metrics.calibration import (
    Norm,
    adaptive_error,
    area_weights,
    classwise_gaps,
    equal_width_bins,
    hits_by_confidence,
    sorted_gaps,
    squared_errors,
)
from shiftbench.store.predictions import Predictions

_BIN_SIZE = 100
_BINS = 15
#: Random groups of images that the classwise error resamples in place of single images.
_GROUPS = 200
_SCORES = Needs(top_k=1, confidence=False, scores=True)


@metric("rms_calibration_error", higher_is_better=False)
def rms_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The l2 calibration error over adaptive bins of 100 images; all bins count."""
    return _adaptive_score(predictions, "rms", level)


@metric("rms_calibration_error_published", higher_is_better=False)
def published_rms_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The l2 calibration error as published: the bin of the most confident images is left out."""
    return _adaptive_score(predictions, "rms", level, published=True)


@metric("mad_calibration_error", higher_is_better=False)
def mad_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The mean absolute calibration error over adaptive bins of 100 images."""
    return _adaptive_score(predictions, "mad", level)


@metric("max_calibration_error", higher_is_better=False)
def max_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The largest gap between confidence and accuracy in any adaptive bin of 100 images."""
    return _adaptive_score(predictions, "max", level)


@metric("ece", higher_is_better=False)
def ece_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Expected calibration error: the mean gap over 15 equal-width bins."""
    if not predictions.valid.any():
        return _nothing("ece", predictions, level, higher_is_better=False)
    conf, hits = _confidences(predictions)
    # |b|/n times the bin's gap is the size of one mean over all images, so the resamples are one product.
    columns = np.zeros((len(conf), _BINS))
    columns[np.arange(len(conf)), equal_width_bins(conf, _BINS)] = conf - hits
    value = float(np.abs(columns.mean(axis=0)).sum())
    draws = np.abs(resampled_means(columns, resamples=RESAMPLES)).sum(axis=1)
    return _score("ece", value, draws, predictions, level, higher_is_better=False, only_raised=True)


@metric("classwise_ece", needs=_SCORES, higher_is_better=False)
def classwise_ece_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Classwise ECE: the mean over classes of the calibration error of each class's probability.

    A matrix of images by classes is too much to resample a thousand times, so the images are put into 200
    groups at random and groups are drawn: sums over groups vary as sums over images do.
    """
    if not predictions.valid.any():
        return _nothing("classwise_ece", predictions, level, higher_is_better=False)
    table = np.exp(log_probabilities(predictions, predictions.valid))
    labels = predictions.labels[predictions.valid].astype(np.int64)
    rng = np.random.default_rng(0)
    groups = min(_GROUPS, len(labels))
    group = rng.permutation(len(labels)) % groups
    weights = np.stack([draw_counts(rng, groups) for _ in range(RESAMPLES)]).astype(np.float64)
    drawn_images = weights @ np.bincount(group, minlength=groups)
    value, draws = 0.0, np.zeros(RESAMPLES)
    for places, gaps in classwise_gaps(table, labels, _BINS):
        sums = np.bincount(group * _BINS + places, weights=gaps, minlength=groups * _BINS).reshape(groups, _BINS)
        value += float(np.abs(sums.sum(axis=0)).sum())
        draws += np.abs(weights @ sums).sum(axis=1)
    classes = table.shape[1]
    return _score(
        "classwise_ece", value / len(labels) / classes, draws / drawn_images / classes, predictions, level,
        higher_is_better=False, only_raised=True, method=f"bootstrap of {groups} random groups of images",
    )  # fmt: skip


@metric("brier", needs=_SCORES, unit="", higher_is_better=False)
def brier(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Brier score: the mean squared distance of the probabilities from the truth, 0 to 2."""
    if not predictions.valid.any():
        return _nothing("brier", predictions, level, unit="", higher_is_better=False, most=2.0)
    table = np.exp(log_probabilities(predictions, predictions.valid))
    losses = squared_errors(table, predictions.labels[predictions.valid].astype(np.int64))
    return _mean_score("brier", losses, predictions, level, most=2.0)


@metric("nll", needs=_SCORES, unit="", higher_is_better=False)
def nll(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Negative log-likelihood of the labels, in nats."""
    if not predictions.valid.any():
        return _nothing("nll", predictions, level, unit="", higher_is_better=False, most=float("inf"))
    table = log_probabilities(predictions, predictions.valid)
    labels = predictions.labels[predictions.valid]
    # A classifier that gives probabilities may give 0; see negative_log_likelihood.
    floor = np.log(np.finfo(np.float64).eps) if gives_probabilities(predictions) else -np.inf
    losses = -np.maximum(table[np.arange(len(labels)), labels], floor)
    return _mean_score("nll", losses, predictions, level, most=float("inf"))


@metric("aurra")
def aurra_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Area under the response-rate accuracy curve: accuracy on the most confident images, over all rates."""
    if not predictions.valid.any():
        return _nothing("aurra", predictions, level)
    hits = hits_by_confidence(*_confidences(predictions)).astype(np.float64)
    weights = area_weights(len(hits))
    # einsum, not @: starting BLAS threads costs more than adding up one vector.
    draws = resampled(lambda counts: float(np.einsum("i,i", np.repeat(hits, counts), weights)), len(hits))
    # A share q of unseen errors costs most if they are the most confident ones: q + q log(1/q) of the area.
    q = unseen_share(len(hits), level)
    return _score("aurra", float(hits @ weights), draws, predictions, level, reach=q - q * float(np.log(q)))


@metric("soft_f1")
def soft_f1_score(predictions: Predictions, *, level: float = 0.95) -> Score:
    """F1 of finding one's own errors, 1 - confidence being a soft verdict "wrong"."""
    if not predictions.valid.any():
        return _nothing("soft_f1", predictions, level)
    conf, hits = _confidences(predictions)
    doubt, wrong = 1.0 - conf, (~hits).astype(np.float64)
    parts = np.stack([2.0 * doubt * wrong, doubt + wrong], axis=1)
    with np.errstate(invalid="ignore"):
        top, bottom = parts.mean(axis=0)
        value = float(np.divide(top, bottom))
        drawn = resampled_means(parts, resamples=RESAMPLES)
        return _score("soft_f1", value, drawn[:, 0] / drawn[:, 1], predictions, level)


def _adaptive_score(predictions: Predictions, norm: Norm, level: float, *, published: bool = False) -> Score:
    name = f"{norm}_calibration_error"
    if not predictions.valid.any():
        return _nothing(name, predictions, level, higher_is_better=False)
    gaps = sorted_gaps(*_confidences(predictions))
    value = adaptive_error(gaps, _BIN_SIZE, norm, published)
    draws = resampled(lambda counts: adaptive_error(np.repeat(gaps, counts), _BIN_SIZE, norm, published), len(gaps))
    return _score(name, value, draws, predictions, level, higher_is_better=False, only_raised=True)


def _confidences(predictions: Predictions) -> tuple[FloatArray, BoolArray]:
    return confidences_and_hits(predictions.confidence[predictions.valid], top1_hits(predictions))


def _mean_score(name: str, losses: FloatArray, predictions: Predictions, level: float, *, most: float) -> Score:
    draws = resampled_means(losses[:, None], resamples=RESAMPLES)[:, 0]
    value = float(losses.mean())
    return _score(name, value, draws, predictions, level, unit="", higher_is_better=False, most=most)


def _score(name: str, value: float, draws: FloatArray, predictions: Predictions, level: float, **options: Any) -> Score:
    """``options`` are those of ``resampled_score``."""
    n = int(predictions.valid.sum())
    return resampled_score(name, value, draws, n, level=level, provenance=predictions.provenance, **options)


def _nothing(name: str, predictions: Predictions, level: float, **options: Any) -> Score:
    """No image counts: no value, and the widest interval."""
    return _score(name, float("nan"), np.empty(0), predictions, level, **options)
