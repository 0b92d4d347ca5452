"""Images with several labels: mean average precision, as DeepFashion Remixed takes it and as the plain mean.

"The Many Faces of Robustness" reports as mAP the area under each class's precision-recall curve by the
trapezoid rule, WEIGHTED BY HOW MANY LABELS THE CLASS HAS. Frequent classes decide it; the plain mean gives
every class one vote. The two are not comparable, nor is either with average precision without interpolation
(``step=True``), which is what scikit-learn and most libraries call mAP.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.arrays import kept_scores, real_matrix, truths
from shiftbench.metrics.base import Needs, Score, metric
from shiftbench.metrics.bootstrap import resampled_blocks, resampled_score
from shiftbench.store.predictions import Predictions

#: The metric of settings whose images may have several labels.
MEAN_PRECISION = "mean_average_precision"
#: Thirteen classes of 10,000 images, five hundred times, take about a second.
RESAMPLES = 500


def mean_average_precision(scores: ArrayLike, labels: ArrayLike, weighted: bool = True, *, step: bool = False) -> float:
    """mAP of (n, classes) of scores against labels of the same shape, 1 where an image has the class.

    ``weighted`` (DeepFashion Remixed): sum_k f_k AP_k, f_k the class's share of all labels, so that a class
    without an image adds 0. Otherwise the plain mean of AP_k over the classes that have an image. AP_k is the
    trapezoid area under the precision-recall curve, which starts at recall 0 and precision 1; with ``step``
    the sum of (R_i - R_{i-1}) P_i.

    Args:
        scores: (n, classes).
        labels: (n, classes), 1 where an image has the class.
        weighted: Weight classes by their share of all labels.
        step: Sum of (R_i - R_{i-1}) P_i in place of the trapezoid area.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.7], [0.1, 0.6]]
        >>> labels = [[1, 0], [0, 1], [1, 0]]
        >>> round(mean_average_precision(scores, labels), 4)  # (2 * 0.7917 + 1 * 1) / 3
        0.8611
        >>> round(mean_average_precision(scores, labels, weighted=False), 4)
        0.8958
    """
    table, truth = _checked(scores, labels)
    return _mean(average_precisions(table, truth, step=step), truth.sum(axis=0), weighted)


def average_precisions(scores: ArrayLike, labels: ArrayLike, *, step: bool = False) -> FloatArray:
    """AP of every class; nan for a class that no image has.

    Args:
        scores: (n, classes).
        labels: (n, classes), 1 where an image has the class.
        step: Sum of (R_i - R_{i-1}) P_i in place of the trapezoid area.

    Example:
        >>> average_precisions([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [1, 0]]).tolist()
        [1.0, nan]
    """
    table, truth = _checked(scores, labels, labelled=False)
    every_image_once = np.ones((1, len(table)), dtype=np.int64)
    precisions = np.empty(table.shape[1])
    for k in range(table.shape[1]):
        ranking = _ClassRanking.of(table[:, k], truth[:, k])
        precisions[k] = ranking.precision(every_image_once, step)[0]
    return precisions


def mean_average_precision_score(
    scores: ArrayLike,
    labels: ArrayLike,
    weighted: bool = True,
    *,
    step: bool = False,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    provenance: str = "",
) -> Score:
    """mAP with an image bootstrap; frequencies are those of each resample, as the images drawn have them.

    From some hundred images on the interval has its nominal coverage; of 30 images a 95 % interval covers about 80 %,
    because so few images overstate the precision itself.

    Args:
        scores: (n, classes).
        labels: (n, classes), 1 where an image has the class.
        weighted: Weight classes by their share of all labels.
        step: Sum of (R_i - R_{i-1}) P_i in place of the trapezoid area.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of all random numbers.
        provenance: Where the numbers come from; one line that is kept with the score.
    """
    table, truth = _checked(scores, labels)
    present = truth.any(axis=0)  # the others count nothing, in a resample either
    table = table[:, present]
    truth = truth[:, present]
    draws = resampled_precisions(table, truth, weighted, step=step, resamples=resamples, seed=seed)
    value = mean_average_precision(table, truth, weighted, step=step)
    name = "frequency-weighted mAP" if weighted else "mAP"
    return resampled_score(name, value, draws, len(table), level=level, provenance=provenance)


def resampled_precisions(
    scores: FloatArray,
    labels: BoolArray,
    weighted: bool = True,
    *,
    step: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> FloatArray:
    """mAP under draws of the images; models on the same images have the same draws: differences are paired."""
    rankings = [_ClassRanking.of(column, truth) for column, truth in zip(scores.T, labels.T, strict=True)]

    def precisions(counts: IntArray) -> list[float]:
        by_class = np.stack([ranking.precision(counts, step) for ranking in rankings], axis=1)
        frequencies = counts @ labels
        return [_mean(row, frequency, weighted) for row, frequency in zip(by_class, frequencies, strict=True)]

    return resampled_blocks(precisions, len(scores), resamples=resamples, seed=seed)


@dataclass(frozen=True)
class _ClassRanking:
    """The images by their scores for one class, from the highest down, sorted once for all resamples.

    Equal scores are one threshold. The curve gains area only at thresholds where an image of the class is
    found, so that only those are looked at: where each begins and ends among all images and among the class's.
    """

    #: All images, by descending score.
    order: IntArray
    #: The images of the class, by descending score.
    members: IntArray
    #: Where each threshold begins and ends in ``order``, and where it ends in ``members``.
    start: IntArray
    stop: IntArray
    member_stop: IntArray

    @classmethod
    def of(cls, scores: FloatArray, truth: BoolArray) -> _ClassRanking:
        order = np.argsort(-scores, kind="stable")
        ordered = scores[order]
        stops = np.append(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1, len(order))
        member_stops = np.cumsum(truth[order])[stops - 1]
        gaining = np.diff(member_stops, prepend=0) > 0
        starts = np.concatenate([[0], stops[:-1]])
        return cls(order, order[truth[order]], starts[gaining], stops[gaining], member_stops[gaining])

    def precision(self, counts: IntArray, step: bool) -> FloatArray:
        """The area under each row of counts, where image i counts ``counts[row, i]`` times.

        It is nan if no image of the class is counted.
        """
        if not len(self.members):
            return np.full(len(counts), np.nan)
        # Images of the class, and all images, at or above each threshold.
        true_positives = np.cumsum(counts.take(self.members, 1), axis=1).take(self.member_stop - 1, 1)
        positives = np.pad(np.cumsum(counts.take(self.order, 1), axis=1), ((0, 0), (1, 0)))
        positives_at = positives.take(self.stop, 1)
        gained = np.diff(true_positives, axis=1, prepend=0)
        area = gained * true_positives / np.maximum(positives_at, 1)
        if not step:
            positives_above = positives.take(self.start, 1)
            precision_above = (true_positives - gained) / np.maximum(positives_above, 1)
            # The curve begins at precision 1, before any image is called.
            area = (area + gained * np.where(positives_above, precision_above, 1.0)) / 2
        with np.errstate(invalid="ignore"):
            return np.asarray(area.sum(axis=1) / true_positives[:, -1])


def _mean(precisions: FloatArray, frequency: IntArray, weighted: bool) -> float:
    """The mean over classes, weighted by their number of labels or plain over those with a label."""
    if not frequency.any():
        return float("nan")
    if weighted:
        return float(np.nan_to_num(precisions) @ (frequency / frequency.sum()))
    return float(precisions[frequency > 0].mean())


def _checked(scores: ArrayLike, labels: ArrayLike, *, labelled: bool = True) -> tuple[FloatArray, BoolArray]:
    table = real_matrix("scores", scores)
    truth = truths("a label", labels)
    if table.shape != truth.shape:
        raise ShiftbenchError(
            "scores and labels differ in shape",
            found=f"{table.shape} and {truth.shape}",
            expected="(n, classes), 1 where the image has the class",
        )
    if labelled and not truth.any():
        raise ShiftbenchError("no image has a label: precision is undefined", found=f"{len(table)} images")
    return table, truth


# The registered metrics. Scores are ranked class by class as the model gives them, logits or probabilities: a sigmoid
# would not change their order. Images of one label count too, so that any dataset can be scored so.

_SCORES = Needs(top_k=1, confidence=False, scores=True)


@metric(MEAN_PRECISION, needs=_SCORES, beside=("mean_average_precision_plain",))
def weighted(predictions: Predictions, *, level: float = 0.95) -> Score:
    """mAP as DeepFashion Remixed takes it: each class weighted by how many labels it has."""
    return _score(predictions, level, weighted=True)


@metric("mean_average_precision_plain", needs=_SCORES)
def plain(predictions: Predictions, *, level: float = 0.95) -> Score:
    """mAP as the plain mean over the classes that have an image."""
    return _score(predictions, level, weighted=False)


def labelled_rows(predictions: Predictions) -> BoolArray:
    """The images that could be read and have a label."""
    return np.asarray(predictions.readable & predictions.multi_hot.any(axis=1))


def _score(predictions: Predictions, level: float, *, weighted: bool) -> Score:
    rows = labelled_rows(predictions)
    if not rows.any():
        return Score("mAP", float("nan"), 0.0, 1.0, 0, level, "no images", predictions.provenance)
    return mean_average_precision_score(
        kept_scores(predictions)[rows],
        predictions.multi_hot[rows],
        weighted,
        level=level,
        provenance=predictions.provenance,
    )
