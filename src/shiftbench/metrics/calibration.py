"""Does a confidence of 60 % mean right 60 % of the time? Calibration errors, proper scores, reliability diagram.

Two kinds of bins. Adaptive bins hold a fixed number of images, in order of confidence (Nguyen and O'Connor
2015; the l2 error of "Natural Adversarial Examples" and "The Many Faces of Robustness"). Equal-width bins cut
[0, 1] (Guo et al. 2017). In either, a bin's gap is |mean confidence - accuracy|.

Every binned error is raised by noise: a perfectly calibrated classifier does not get 0. Compare errors at the
same number of images and the same bins only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError, check_integer
from shiftbench.metrics import arrays
from shiftbench.metrics.accuracy import hits as top1_hits
from shiftbench.metrics.base import MetricFunction, Needs, Score, metric
from shiftbench.metrics.bootstrap import (
    EXACT_BOUND,
    draw_counts,
    resampled_blocks,
    resampled_means,
    resampled_score,
    unseen_share,
)
from shiftbench.metrics.bootstrap import STATISTIC_RESAMPLES as RESAMPLES
from shiftbench.metrics.intervals import Interval, clopper_pearson, ratio_interval, share_interval
from shiftbench.store.predictions import Predictions

#: How the gaps of the bins become one number: root mean square, mean, largest.
Norm = Literal["rms", "mad", "max"]


def rms_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bin_size: int = 100, published: bool = False
) -> float:
    """The l2 calibration error, sqrt(sum_b |b|/n gap_b²), over adaptive bins of ``bin_size`` images.

    Images are sorted by confidence, equal ones in the order given (a stable argsort). There are n // bin_size
    bins; the last also takes what is left over. Fewer images than one bin make one bin.

    ``published=True`` repeats the published code, whose loop ends one bin early: the most confident bin is
    never counted, though its images stay in n. It gives 0 where there is one bin only, and can't take fewer
    images than that.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        bin_size: Images per bin.
        published: Whether to follow the papers' code where it differs from the definition.

    Example:
        >>> round(rms_calibration_error([0.8] * 4 + [0.9] * 4, [1, 1, 1, 0, 1, 1, 0, 0], bin_size=4), 4)
        0.285
        >>> round(rms_calibration_error([0.8] * 4 + [0.9] * 4, [1, 1, 1, 0, 1, 1, 0, 0], 4, published=True), 4)
        0.0354
    """
    return adaptive_error(sorted_gaps(confidence, correct), bin_size, "rms", published)


def mad_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bin_size: int = 100, published: bool = False
) -> float:
    """The l1 (mean absolute) calibration error, sum_b |b|/n gap_b, over adaptive bins as in the RMS error.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        bin_size: Images per bin.
        published: Whether to follow the papers' code where it differs from the definition.

    Example:
        >>> round(mad_calibration_error([0.8] * 4 + [0.9] * 4, [1, 1, 1, 0, 1, 1, 0, 0], bin_size=4), 4)
        0.225
    """
    return adaptive_error(sorted_gaps(confidence, correct), bin_size, "mad", published)


def max_calibration_error(
    confidence: ArrayLike, correct: ArrayLike, bin_size: int = 100, published: bool = False
) -> float:
    """The largest gap of any adaptive bin, as in the RMS error.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        bin_size: Images per bin.
        published: Whether to follow the papers' code where it differs from the definition.

    Example:
        >>> round(max_calibration_error([0.8] * 4 + [0.9] * 4, [1, 1, 1, 0, 1, 1, 0, 0], bin_size=4), 4)
        0.4
    """
    return adaptive_error(sorted_gaps(confidence, correct), bin_size, "max", published)


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, bins: int = 15) -> float:
    """ECE: sum_b |b|/n gap_b over ``bins`` equal-width bins (Guo et al. 2017).

    Bin b is ((b-1)/bins, b/bins]: 1.0 lies in the last bin, and 0.0 in the first. Empty bins add nothing.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        bins: Number of bins of equal width.

    Example:
        >>> round(expected_calibration_error([1.0, 1.0, 0.3, 0.3], [1, 0, 0, 0], bins=10), 4)
        0.4
    """
    conf, hits = arrays.confidences_and_hits(confidence, correct)
    sums = np.bincount(equal_width_bins(conf, bins), weights=conf - hits, minlength=bins)
    return float(np.abs(sums).sum() / len(conf))


def classwise_calibration_error(probabilities: ArrayLike, labels: ArrayLike, bins: int = 15) -> float:
    """Classwise ECE: the mean over classes k of the ECE of p_k as a forecast of "it is k" (Kull et al. 2019).

    With many classes nearly all p_k are near 0 and so is the error; compare at the same number of classes.

    Args:
        probabilities: (n, classes), rows that sum to 1.
        labels: Label of each image, as an index of a class.
        bins: Number of bins of equal width.

    Example:
        >>> round(classwise_calibration_error([[0.7, 0.3], [0.7, 0.3]], [0, 1]), 4)
        0.2
    """
    table = arrays.probability_matrix(probabilities)
    true_classes = arrays.class_labels(labels, *table.shape)
    errors = []
    for bin_of_image, gaps in _classwise_gaps(table, true_classes, bins):
        gap_of_bin = np.bincount(bin_of_image, weights=gaps, minlength=bins)
        errors.append(np.abs(gap_of_bin).sum() / len(table))
    return float(np.mean(errors))


def brier_score(probabilities: ArrayLike, labels: ArrayLike) -> float:
    """The mean over images of sum_k (p_k - [k is the label])², from 0 to 2 (Brier 1950).

    Args:
        probabilities: (n, classes), rows that sum to 1.
        labels: Label of each image, as an index of a class.

    Example:
        >>> round(brier_score([[0.7, 0.3], [0.7, 0.3]], [0, 1]), 4)
        0.58
    """
    table = arrays.probability_matrix(probabilities)
    return float(_squared_errors(table, arrays.class_labels(labels, *table.shape)).mean())


def negative_log_likelihood(scores: ArrayLike, labels: ArrayLike, *, logits: bool = False) -> float:
    """The mean over images of -log p(label), in nats.

    ``scores`` are probabilities, or logits with ``logits=True``. A probability of 0 for the label would make the mean
    infinite; it is taken as 2.2e-16, as scikit-learn does. Logits need no such floor.

    Args:
        scores: (n, classes) probabilities, or logits.
        labels: Label of each image, as an index of a class.
        logits: Whether the scores are logits.

    Example:
        >>> round(negative_log_likelihood([[0.5, 0.5], [0.25, 0.75]], [0, 1]), 4)
        0.4904
        >>> negative_log_likelihood([[0.0, 1000.0]], [0], logits=True)
        1000.0
    """
    if logits:
        table = arrays.log_softmax(scores)
    else:
        table = np.log(np.maximum(arrays.probability_matrix(scores), np.finfo(np.float64).eps))
    label_indices = arrays.class_labels(labels, *table.shape)
    return float(-table[np.arange(len(table)), label_indices].mean())


@dataclass(frozen=True)
class ReliabilityBin:
    """One bar of a reliability diagram; nan with interval [0, 1] where no image fell into the bin."""

    #: The bin is (start, stop]; the first also holds its start.
    start: float
    stop: float
    n: int
    confidence: float
    accuracy: float
    low: float
    high: float


def reliability_diagram(
    confidence: ArrayLike, correct: ArrayLike, bins: int = 15, *, bin_size: int | None = None, level: float = 0.95
) -> list[ReliabilityBin]:
    """Accuracy against confidence, bin by bin, each accuracy with its Clopper-Pearson interval.

    Equal-width bins as in ECE; with ``bin_size``, adaptive bins as in the RMS error, which start and stop at
    the confidences of their first and last image.

    Args:
        confidence: Confidence of each prediction, from 0 to 1.
        correct: Whether each prediction is correct.
        bins: Number of bins of equal width.
        bin_size: Images per bin, for adaptive bins in place of equal widths.
        level: Confidence level of the intervals.

    Example:
        >>> [(bar.n, bar.accuracy) for bar in reliability_diagram([0.1, 0.9, 1.0, 1.0], [0, 1, 1, 0], bins=2)]
        [(1, 0.0), (3, 0.6666666666666666)]
    """
    conf, hits = arrays.confidences_and_hits(confidence, correct)
    if bin_size is None:
        bin_of_image = equal_width_bins(conf, bins)
        edges = np.linspace(0.0, 1.0, bins + 1)
        starts = edges[:-1]
        stops = edges[1:]
    else:
        check_integer("bin_size", bin_size)
        order = np.argsort(conf, kind="stable")
        conf = conf[order]
        hits = hits[order]
        first_images = _adaptive_starts(len(conf), bin_size)
        last_images = np.append(first_images[1:], len(conf)) - 1
        bins = len(first_images)
        bin_of_image = np.minimum(np.arange(len(conf)) // bin_size, bins - 1)
        starts = conf[first_images]
        stops = conf[last_images]
    n = np.bincount(bin_of_image, minlength=bins)
    correct_counts = np.bincount(bin_of_image, weights=hits, minlength=bins)
    low, high = clopper_pearson(correct_counts, n, level)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(bin_of_image, weights=conf, minlength=bins) / n
        accuracy = correct_counts / n
    diagram = []
    for i in range(bins):
        reliability = ReliabilityBin(
            start=float(starts[i]),
            stop=float(stops[i]),
            n=int(n[i]),
            confidence=float(mean_confidence[i]),
            accuracy=float(accuracy[i]),
            low=float(low[i]),
            high=float(high[i]),
        )
        diagram.append(reliability)
    return diagram


def sorted_gaps(confidence: ArrayLike, correct: ArrayLike) -> FloatArray:
    """Confidence minus hit of every image, the least confident first; equal ones in the order given."""
    conf, hits = arrays.confidences_and_hits(confidence, correct)
    order = np.argsort(conf, kind="stable")
    return np.asarray((conf - hits)[order])


def adaptive_error(gaps: FloatArray, bin_size: int, norm: Norm, published: bool) -> float:
    """The error of adaptive bins from ``sorted_gaps``."""
    check_integer("bin_size", bin_size)
    # With a single bin, which is left out, the authors' code returns 0, as if the model were perfectly calibrated.
    if published and len(gaps) < 2 * bin_size:
        raise ShiftbenchError(
            "the published calibration error leaves out one bin of images, so it needs two",
            found=f"{len(gaps)} images",
            expected=f"{2 * bin_size} or more",
            hint="use the fixed form (published=False), which takes them as one bin",
        )
    return float(_adaptive_errors(gaps[None], bin_size, norm, published)[0])


def _adaptive_errors(gaps: FloatArray, bin_size: int, norm: Norm, published: bool) -> FloatArray:
    """The errors of many draws at once; each row of ``gaps`` is one draw, sorted as by ``sorted_gaps``."""
    n = gaps.shape[1]
    starts = _adaptive_starts(n, bin_size)
    sums = np.add.reduceat(gaps, starts, axis=1)
    sizes = np.diff(starts, append=n)
    if published:
        sums = sums[:, :-1]
        sizes = sizes[:-1]
    if norm == "rms":
        return np.asarray(np.sqrt((sums**2 / sizes).sum(axis=1) / n))
    if norm == "mad":
        return np.asarray(np.abs(sums).sum(axis=1) / n)
    return np.asarray(np.abs(sums / sizes).max(axis=1, initial=0.0))


def equal_width_bins(values: FloatArray, bins: int) -> IntArray:
    """For each probability the number of its bin (lower, upper]; 0 lies in the first.

    >>> equal_width_bins(np.array([0.0, 0.1, 0.3, 0.5, 1.0]), 10).tolist()
    [0, 0, 2, 4, 9]
    """
    check_integer("bins", bins)
    # Looked up among the edges: ceil(0.7 * 10) would be 8.
    return np.searchsorted(np.linspace(0.0, 1.0, bins + 1)[1:-1], values, side="left")


def _classwise_gaps(probabilities: FloatArray, labels: IntArray, bins: int) -> Iterator[tuple[IntArray, FloatArray]]:
    """For each class: every image's bin, and p_k minus whether it is of the class."""
    for k in range(probabilities.shape[1]):
        column = probabilities[:, k]
        yield equal_width_bins(column, bins), column - (labels == k)


def _squared_errors(probabilities: FloatArray, labels: IntArray) -> FloatArray:
    """Every image's sum_k (p_k - [k is the label])²."""
    label_probabilities = probabilities[np.arange(len(labels)), labels]
    squares = np.einsum("nk,nk->n", probabilities, probabilities)
    return np.asarray(squares - 2.0 * label_probabilities + 1.0)


def _adaptive_starts(n: int, bin_size: int) -> IntArray:
    return np.arange(max(1, n // bin_size)) * bin_size


# Answering only when confident: images by descending confidence, the later first among equals (003, appendix D).


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
    hits = _hits_by_confidence(confidence, correct)
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
    right = np.cumsum(_hits_by_confidence(confidence, correct))
    counts = np.arange(1, len(right) + 1)
    if points is not None:
        check_integer("points", points)
        # The last point is the usual accuracy and always shown.
        evenly_spaced = np.linspace(0, len(right) - 1, min(points, len(right)) + 1)
        positions = np.unique(evenly_spaced.round().astype(int)[1:])
        right = right[positions]
        counts = counts[positions]
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
    conf, hits = arrays.confidences_and_hits(confidence, correct)
    doubt = 1.0 - conf
    wrong = (~hits).astype(np.float64)
    denominator = float((doubt + wrong).sum())
    if not denominator:
        return float("nan")
    return float(2.0 * (doubt * wrong).sum() / denominator)


def _hits_by_confidence(confidence: ArrayLike, correct: ArrayLike) -> BoolArray:
    conf, hits = arrays.confidences_and_hits(confidence, correct, probability=False)
    return hits[np.argsort(conf, kind="stable")[::-1]]


# The registered metrics of confidence: predictions come in, scores with an image bootstrap go out.

#: Images per adaptive bin.
_BIN_SIZE = 100
#: Number of equal-width bins.
_BINS = 15
#: Random groups of images that the classwise error resamples in place of single images.
_GROUPS = 200
_SCORES = Needs(top_k=1, confidence=False, scores=True)


class _Resampled(NamedTuple):
    """A value, its values under resampling, and the options of ``resampled_score`` that depend on the predictions."""

    value: float
    draws: FloatArray
    options: dict[str, Any]


def _resampled_metric(
    name: str, *, needs: Needs | None = None, unit: str = "%", higher_is_better: bool = False, most: float = 1.0
) -> Callable[[Callable[[Predictions, float], _Resampled]], MetricFunction]:
    """Register a function of predictions and level. Where no image counts, the score is nan in the widest interval."""

    def register(function: Callable[[Predictions, float], _Resampled]) -> MetricFunction:
        def score(predictions: Predictions, *, level: float = 0.95) -> Score:
            n = int(predictions.valid.sum())
            if n:
                resampled = function(predictions, level)
            else:
                resampled = _Resampled(float("nan"), np.empty(0), {})
            return resampled_score(
                name,
                resampled.value,
                resampled.draws,
                n,
                level=level,
                provenance=predictions.provenance,
                unit=unit,
                higher_is_better=higher_is_better,
                most=most,
                **resampled.options,
            )

        score.__doc__ = function.__doc__
        return metric(name, needs=needs, unit=unit, higher_is_better=higher_is_better)(score)

    return register


def mean_gap_limit(gaps: FloatArray, level: float = 0.95) -> float:
    """The lower limit of the distance between mean confidence and accuracy, which no calibration error is below.

    >>> gaps = np.concatenate([np.full(90, 0.2), np.full(10, -0.8)])
    >>> round(mean_gap_limit(gaps), 3)
    0.04
    """
    from scipy.special import stdtrit

    n = len(gaps)
    if n < 2:
        return 0.0
    error = float(gaps.std(ddof=1)) / math.sqrt(n)
    return max(0.0, abs(float(gaps.mean())) - float(stdtrit(n - 1, (1 + level) / 2)) * error)


def _confidences(predictions: Predictions) -> tuple[FloatArray, BoolArray]:
    return arrays.confidences_and_hits(predictions.confidence[predictions.valid], top1_hits(predictions))


def _drawn(values: FloatArray, counts: IntArray) -> FloatArray:
    """(draws, images): the values of the images of each draw, in order, each as often as it was drawn."""
    repeated = np.repeat(np.tile(values, len(counts)), counts.ravel())
    return repeated.reshape(counts.shape)


def _register_adaptive(name: str, norm: Norm, description: str, *, published: bool = False) -> None:
    """Register the error of adaptive bins under a norm; the description is what ``list metrics`` shows."""

    def error(predictions: Predictions, level: float) -> _Resampled:
        gaps = sorted_gaps(*_confidences(predictions))
        value = adaptive_error(gaps, _BIN_SIZE, norm, published)

        def drawn_errors(counts: IntArray) -> FloatArray:
            return _adaptive_errors(_drawn(gaps, counts), _BIN_SIZE, norm, published)

        draws = resampled_blocks(drawn_errors, len(gaps))
        # Without the last bin, the published error may be below the mean gap.
        at_least = 0.0 if published else mean_gap_limit(gaps, level)
        return _Resampled(value, draws, {"only_raised": True, "at_least": at_least})

    error.__doc__ = description
    _resampled_metric(name)(error)


_register_adaptive(
    "rms_calibration_error", "rms", "The l2 calibration error over adaptive bins of 100 images; all bins count."
)
_register_adaptive(
    "rms_calibration_error_published",
    "rms",
    "The l2 calibration error as published: the bin of the most confident images is left out.",
    published=True,
)
_register_adaptive(
    "mad_calibration_error", "mad", "The mean absolute calibration error over adaptive bins of 100 images."
)
_register_adaptive(
    "max_calibration_error",
    "max",
    "The largest gap between confidence and accuracy in any adaptive bin of 100 images.",
)


@_resampled_metric("ece")
def _ece(predictions: Predictions, level: float) -> _Resampled:
    """Expected calibration error: the mean gap over 15 equal-width bins."""
    conf, hits = _confidences(predictions)
    # |b|/n times the bin's gap is the size of one mean over all images, so the resamples are one product.
    columns = np.zeros((len(conf), _BINS))
    columns[np.arange(len(conf)), equal_width_bins(conf, _BINS)] = conf - hits
    draws = np.abs(resampled_means(columns, resamples=RESAMPLES)).sum(axis=1)
    options = {"only_raised": True, "at_least": mean_gap_limit(conf - hits, level)}
    return _Resampled(float(np.abs(columns.mean(axis=0)).sum()), draws, options)


@_resampled_metric("classwise_ece", needs=_SCORES)
def _classwise_ece(predictions: Predictions, level: float) -> _Resampled:
    """Classwise ECE: the mean over classes of the calibration error of each class's probability.

    A matrix of images by classes is too much to resample a thousand times, so the images are put into 200
    groups at random and groups are drawn: sums over groups vary as sums over images do.
    """
    table = np.exp(arrays.log_probabilities(predictions, predictions.valid))
    labels = predictions.labels[predictions.valid].astype(np.int64)
    rng = np.random.default_rng(0)
    groups = min(_GROUPS, len(labels))
    group = rng.permutation(len(labels)) % groups
    weights = np.stack([draw_counts(rng, groups) for _ in range(RESAMPLES)]).astype(np.float64)
    drawn_images = weights @ np.bincount(group, minlength=groups)
    classes = table.shape[1]
    value = 0.0
    draws = np.zeros(RESAMPLES)
    for bin_of_image, gaps in _classwise_gaps(table, labels, _BINS):
        flat_sums = np.bincount(group * _BINS + bin_of_image, weights=gaps, minlength=groups * _BINS)
        sums = flat_sums.reshape(groups, _BINS)
        value += float(np.abs(sums.sum(axis=0)).sum())
        draws += np.abs(weights @ sums).sum(axis=1)
    options = {"only_raised": True, "method": f"bootstrap of {groups} random groups of images"}
    return _Resampled(value / len(labels) / classes, draws / drawn_images / classes, options)


@_resampled_metric("brier", needs=_SCORES, unit="", most=2.0)
def _brier(predictions: Predictions, level: float) -> _Resampled:
    """Brier score: the mean squared distance of the probabilities from the truth, 0 to 2."""
    table = np.exp(arrays.log_probabilities(predictions, predictions.valid))
    return _mean(_squared_errors(table, predictions.labels[predictions.valid].astype(np.int64)))


@_resampled_metric("nll", needs=_SCORES, unit="", most=float("inf"))
def _nll(predictions: Predictions, level: float) -> _Resampled:
    """Negative log-likelihood of the labels, in nats."""
    table = arrays.log_probabilities(predictions, predictions.valid)
    labels = predictions.labels[predictions.valid]
    # A classifier that gives probabilities may give 0; see negative_log_likelihood.
    floor = -np.inf
    if arrays.gives_probabilities(predictions):
        floor = np.log(np.finfo(np.float64).eps)
    return _mean(-np.maximum(table[np.arange(len(labels)), labels], floor))


def _mean(losses: FloatArray) -> _Resampled:
    draws = resampled_means(losses[:, None], resamples=RESAMPLES)[:, 0]
    return _Resampled(float(losses.mean()), draws, {})


@metric("aurra", unit="%", higher_is_better=True)
def _aurra(predictions: Predictions, *, level: float = 0.95) -> Score:
    """Area under the response-rate accuracy curve: accuracy on the most confident images, over all rates."""
    if not predictions.valid.any():
        return _score("aurra", math.nan, Interval(0.0, 1.0), predictions, level)
    hits = _hits_by_confidence(*_confidences(predictions)).astype(np.float64)
    n = len(hits)
    if hits.min() == hits.max():
        value = float(hits[0])
        # A share q of unseen errors costs most if they are the most confident ones: q + q log(1/q) of the area.
        share = unseen_share(n, level)
        reach = share - share * math.log(share)
        bound = Interval(max(0.0, value - reach), min(1.0, value + reach))
        return _score("aurra", value, bound, predictions, level, EXACT_BOUND)
    inverse_ranks = 1.0 / np.arange(1, n + 1)
    accuracies = np.cumsum(hits) * inverse_ranks
    # An image changes the accuracy at every rate at which it is answered, and the rates of the less confident ones.
    by_answer = hits * np.cumsum(inverse_ranks[::-1])[::-1]
    by_rate = np.cumsum((accuracies * inverse_ranks)[::-1])[::-1]
    value = float(accuracies.mean())
    return _score("aurra", value, share_interval(value, by_answer - by_rate, level), predictions, level)


@metric("soft_f1", unit="%", higher_is_better=True)
def _soft_f1(predictions: Predictions, *, level: float = 0.95) -> Score:
    """F1 of finding one's own errors, 1 - confidence being a soft verdict "wrong"."""
    if not predictions.valid.any():
        return _score("soft_f1", math.nan, Interval(0.0, 1.0), predictions, level)
    confidence, hits = _confidences(predictions)
    doubt = 1.0 - confidence
    wrong = (~hits).astype(np.float64)
    numerators = 2.0 * doubt * wrong
    denominators = doubt + wrong
    total = float(denominators.sum())
    if total <= 0:
        return _score("soft_f1", math.nan, Interval(0.0, 1.0), predictions, level)
    # One more image is most likely wrong where the doubts are.
    typical_doubt = float(doubt @ doubt) / max(float(doubt.sum()), 1e-12)
    ends = ratio_interval(numerators, denominators, typical_doubt, level)
    return _score("soft_f1", float(numerators.sum()) / total, ends, predictions, level)


def _score(
    name: str,
    value: float,
    ends: Interval,
    predictions: Predictions,
    level: float,
    method: str = "Student's over images, on the logit scale",
) -> Score:
    """A score whose interval does not come from resampling."""
    n = int(predictions.valid.sum())
    return Score(name, value, *ends, n, level, method, predictions.provenance, higher_is_better=True)
