"""Out-of-distribution detection: AUPR, AUROC and FPR95 of anomaly scores.

TWO CONVENTIONS, THE SAME EVERYWHERE HERE:
  * scores are anomaly scores: HIGHER IS MORE ANOMALOUS (minus the max softmax, not the max softmax);
  * the out-of-distribution images are the POSITIVES, and ``out_scores`` the second argument.

"Natural Adversarial Examples" sets the 2,000 images of ImageNet-O against the 10,000 ImageNet validation images
of the same 200 classes, the softmax taken over those 200. AUPR depends on that ratio: chance is 2000/12000.

An anomaly score is how little an image looks like the classes that a model knows; HIGHER IS MORE ANOMALOUS:

max_softmax   -max_k p_k                       Hendrycks and Gimpel 2017; the score of "Natural Adversarial Examples"
max_logit     -max_k z_k                       Hendrycks et al. 2022
energy        -T log sum_k exp(z_k / T)        Liu et al. 2020
entropy       -sum_k p_k log p_k
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import BoolArray, FloatArray, IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics import arrays
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import EXACT_BOUND, draw_counts, resampled_score, unseen_share
from shiftbench.metrics.bootstrap import STATISTIC_RESAMPLES as RESAMPLES
from shiftbench.metrics.intervals import Interval, clopper_pearson
from shiftbench.store.predictions import Predictions

_RECALL = 0.95
#: Fewer resamples give no standard deviation.
_FEWEST_DRAWS = 2
#: On the logit scale, an area nearer to 0 or 1 than this share of an image counts as this near.
_LEAST_SHARE = 0.5


def aupr(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """Area under the precision-recall curve, out-of-distribution images being the positives.

    Average precision, sum_i (R_i - R_{i-1}) P_i over the distinct scores from the highest down, without
    interpolation: scikit-learn's ``average_precision_score``, which the published code calls. Higher scores
    mean more anomalous. Chance is the share of out-images.

    Args:
        in_scores: Anomaly scores of the images of known classes.
        out_scores: Anomaly scores of the images of other classes.

    Example:
        >>> aupr(in_scores=[0.1, 0.2, 0.6], out_scores=[0.9, 0.5])  # 1/2 * 1 + 1/2 * 2/3
        0.8333333333333333
    """
    return _Ranking.of(in_scores, out_scores).values(published=False)[0]


def auroc(in_scores: ArrayLike, out_scores: ArrayLike) -> float:
    """The chance that an out-image scores higher than an in-image, ties counting one half.

    Higher scores mean more anomalous; out-images are the positives. Chance is 1/2.

    Args:
        in_scores: Anomaly scores of the images of known classes.
        out_scores: Anomaly scores of the images of other classes.

    Example:
        >>> auroc(in_scores=[0.1, 0.2, 0.6], out_scores=[0.9, 0.5])  # 5 of 6 pairs
        0.8333333333333334
    """
    return _Ranking.of(in_scores, out_scores).values(published=False)[1]


def fpr95(in_scores: ArrayLike, out_scores: ArrayLike, published: bool = False) -> float:
    """The share of in-images called anomalous by a threshold that finds 95 % of the out-images.

    Higher scores mean more anomalous; out-images are the positives. The threshold is the highest one with a
    recall of at least 0.95.

    ``published=True`` does what the published code does: of all thresholds it takes the one whose recall is
    nearest to 0.95, also from below, and of several with that recall the lowest one, that is the largest
    share. (As shipped that code stops at an undefined name; this is what it computes with it defined.)

    Args:
        in_scores: Anomaly scores of the images of known classes.
        out_scores: Anomaly scores of the images of other classes.
        published: Whether to follow the papers' code where it differs from the definition.

    Example:
        >>> fpr95(in_scores=[0.1, 0.2, 0.6, 0.7], out_scores=[0.9, 0.5])
        0.5
    """
    return _Ranking.of(in_scores, out_scores).values(published)[2]


@dataclass(frozen=True)
class Detection:
    """How well anomaly scores separate an out-set from an in-set."""

    aupr: Score
    auroc: Score
    fpr95: Score
    in_images: int
    out_images: int

    @property
    def chance_aupr(self) -> float:
        """The AUPR of uninformative scores."""
        return self.out_images / (self.in_images + self.out_images)

    def scores(self) -> list[Score]:
        return [self.aupr, self.auroc, self.fpr95]


def detection_scores(
    in_scores: ArrayLike,
    out_scores: ArrayLike,
    *,
    published: bool = False,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
    provenance: str = "",
) -> Detection:
    """AUPR, AUROC and FPR95 with intervals; ``published`` concerns FPR95 only.

    The interval of FPR95 is exact for its threshold, a quantile of few out-images, and for the share above it. The
    others have Student's interval on the logit scale, with the standard error of a bootstrap that draws in- and
    out-images separately, each set at its own size: their ratio is the benchmark's choice, not chance. Percentiles of
    the bootstrap would cover 85 to 93 % with 20 out-images.

    Args:
        in_scores: Anomaly scores of the images of known classes.
        out_scores: Anomaly scores of the images of other classes.
        published: Whether to follow the papers' code where it differs from the definition.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of all random numbers.
        provenance: Where the numbers come from; one line that is kept with the score.

    Example:
        >>> found = detection_scores([0.1, 0.2, 0.6, 0.3], [0.9, 0.5, 0.8], resamples=200)
        >>> round(found.auroc.value, 3), round(found.auroc.high, 3), round(found.chance_aupr, 3)
        (0.917, 0.998, 0.429)
    """
    ranking = _Ranking.of(in_scores, out_scores)
    outs = int(ranking.is_out.sum())
    ins = len(ranking.is_out) - outs
    rng = np.random.default_rng(seed)
    values = ranking.values(published)
    draws = np.array([ranking.values(published, rng) for _ in range(resamples)]).reshape(resamples, 3)
    # Where the sets lie wholly apart: how much a share of in-images not seen yet could cost.
    share = unseen_share(ins, level)
    in_vector = arrays.real_vector("in_scores", in_scores)
    rate = _rate_interval(values[2], in_vector, np.sort(arrays.real_vector("out_scores", out_scores)), level)
    ranks = np.arange(1, outs + 1)
    aupr_reach = float((1 - ranks / (ranks + share * ins)).mean())
    auroc_reach = unseen_share(min(ins, outs), level)

    def score(column: int, name: str, reach: float, higher_is_better: bool = True) -> Score:
        of_bootstrap = resampled_score(
            name,
            values[column],
            draws[:, column],
            ins + outs,
            level=level,
            provenance=provenance,
            higher_is_better=higher_is_better,
            reach=reach,
            method="image bootstrap, in- and out-set apart",
        )
        if of_bootstrap.method == EXACT_BOUND or len(draws) < _FEWEST_DRAWS:
            return of_bootstrap
        low, high = _logit_interval(values[column], draws[:, column], min(ins, outs), level)
        method = f"Student's on the logit scale, {len(draws):,} resamples of in- and out-set apart"
        return replace(of_bootstrap, low=low, high=high, method=method)

    return Detection(
        score(0, "aupr", aupr_reach),
        score(1, "auroc", auroc_reach),
        Score(
            "fpr95",
            values[2],
            *rate,
            ins + outs,
            level,
            "exact for the threshold and for the in-images above it",
            provenance,
            higher_is_better=False,
        ),
        ins,
        outs,
    )


def _logit_interval(value: float, draws: FloatArray, n: int, level: float) -> Interval:
    """Student's interval on the logit scale, with the standard deviation of the draws; n images of the smaller set."""
    from scipy.special import expit, logit, stdtrit

    error = float(draws.std(ddof=1)) * math.sqrt(n / max(n - 1, 1))
    inside = min(max(value, _LEAST_SHARE / n), 1 - _LEAST_SHARE / n)
    half_width = float(stdtrit(max(n - 1, 1), (1 + level) / 2)) * error / (inside * (1 - inside))
    low = float(expit(logit(inside) - half_width))
    high = float(expit(logit(inside) + half_width))
    return Interval(min(low, value), max(high, value))


def _rate_interval(rate: float, in_scores: FloatArray, out_scores: FloatArray, level: float) -> Interval:
    """The interval of FPR95: of the threshold by order statistics, of the share above it by Clopper and Pearson.

    The threshold is the 5 % quantile of the out-images' scores, which are sorted. Fewer than 72 of them may all be
    above it with a probability of more than 2.5 %: the upper end is then 1.
    """
    from scipy.special import bdtr

    count = len(out_scores)
    tail = (1 - level) / 2
    below = np.asarray(bdtr(np.arange(count + 1), count, 1 - _RECALL))
    fewest = int(np.searchsorted(below, tail, side="right"))
    most = int(np.searchsorted(below, 1 - tail, side="left"))
    highest_rate = 1.0
    if fewest:
        highest_rate = float(np.mean(in_scores >= out_scores[fewest - 1]))
    lowest_rate = 0.0
    if most < count:
        lowest_rate = float(np.mean(in_scores >= out_scores[most]))
    exact = clopper_pearson(rate * len(in_scores), len(in_scores), level)
    by_threshold_below = max(0.0, rate - lowest_rate)
    by_threshold_above = max(0.0, highest_rate - rate)
    return Interval(
        max(0.0, rate - math.hypot(rate - exact.low, by_threshold_below)),
        min(1.0, rate + math.hypot(exact.high - rate, by_threshold_above)),
    )


def detect(
    inside: Predictions,
    outside: Predictions,
    score: AnomalyScore = "max_softmax",
    *,
    published: bool = False,
    level: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Detection:
    """How well one classifier separates the images of ``outside`` from those of ``inside``.

    Both must be over the same label space: for ImageNet-O the 200 classes, not 1,000. In-images count that
    could be read and have a label in the space; out-images that could be read, since they have no true label.

    Args:
        inside: Predictions on images of known classes.
        outside: Predictions on images of other classes.
        score: Name of the anomaly score.
        published: Whether to follow the papers' code where it differs from the definition.
        level: Confidence level of the intervals.
        resamples: Number of bootstrap resamples.
        seed: Seed of all random numbers.
    """
    in_space = inside.space
    out_space = outside.space
    if inside.classifier != outside.classifier:
        raise ShiftbenchError(
            "the in-set and the out-set are of different models",
            found=f"{inside.classifier!r} and {outside.classifier!r}",
            expected="the same",
        )
    if in_space.keys != out_space.keys:
        raise ShiftbenchError(
            "the in-set and the out-set have different label spaces",
            found=f"'{in_space.name} ({len(in_space)})' and '{out_space.name} ({len(out_space)})'",
            expected="the same",
            hint="evaluate both over the same classes: 200 for ImageNet-O and the validation images of those",
        )
    return detection_scores(
        anomaly_scores_of(inside, inside.valid, score),
        anomaly_scores_of(outside, outside.readable, score),
        published=published,
        level=level,
        resamples=resamples,
        seed=seed,
        provenance=f"{score}; in: {inside.provenance or inside.setting}; out: {outside.provenance or outside.setting}",
    )


@dataclass(frozen=True)
class _Ranking:
    """All images from the most anomalous down, sorted once for all resamples."""

    #: Positions of the images, in-images first, in descending order of score.
    order: IntArray
    is_out: BoolArray
    #: The last image of every distinct score: thresholds do not cut through ties.
    last_of_tie: IntArray

    @classmethod
    def of(cls, in_scores: ArrayLike, out_scores: ArrayLike) -> _Ranking:
        ins = arrays.real_vector("in_scores", in_scores)
        outs = arrays.real_vector("out_scores", out_scores)
        scores = np.concatenate([ins, outs])
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        last_of_tie = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)
        return cls(order, order >= len(ins), last_of_tie)

    def values(self, published: bool, rng: np.random.Generator | None = None) -> tuple[float, float, float]:
        """AUPR, AUROC and FPR95 of the images, or with ``rng`` of a resample of them."""
        weights = np.ones(len(self.order), dtype=np.int64)
        if rng is not None:
            outs = int(self.is_out.sum())
            drawn = np.concatenate([draw_counts(rng, len(self.order) - outs), draw_counts(rng, outs)])
            weights = drawn[self.order]
        # Out-images (true positives) and in-images (false positives) at or above every threshold.
        true_positives = np.cumsum(np.where(self.is_out, weights, 0))[self.last_of_tie]
        false_positives = np.cumsum(weights)[self.last_of_tie] - true_positives
        outs_drawn = true_positives[-1]
        ins_drawn = false_positives[-1]
        # A resample may have no image at the highest scores; the divisor 1 then only avoids 0 / 0.
        precision = true_positives / np.maximum(true_positives + false_positives, 1)
        aupr = float((np.diff(true_positives, prepend=0) * precision).sum() / outs_drawn)
        # An in-image wins against the out-images above it, and half against those of the same score.
        true_positives_above = np.concatenate([[0], true_positives[:-1]])
        pairs: FloatArray = np.diff(false_positives, prepend=0) * ((true_positives + true_positives_above) / 2.0)
        auroc = float(pairs.sum() / outs_drawn / ins_drawn)
        recall = true_positives / outs_drawn
        if published:
            # From the first threshold of full recall up, the first of the nearest: also the lowest of equals.
            downward = slice(int(np.argmax(true_positives == outs_drawn)), None, -1)
            at_recall = false_positives[downward][np.argmin(np.abs(recall[downward] - _RECALL))]
        else:
            at_recall = false_positives[np.argmax(recall >= _RECALL)]
        return aupr, auroc, float(at_recall / ins_drawn)


AnomalyScore = Literal["max_softmax", "max_logit", "energy", "entropy"]
ANOMALY_SCORES: tuple[AnomalyScore, ...] = get_args(AnomalyScore)


def anomaly_scores(logits: ArrayLike, score: AnomalyScore = "max_softmax", *, temperature: float = 1.0) -> FloatArray:
    """One anomaly score per image from (n, classes) of logits; higher is more anomalous.

    ``temperature`` divides the logits first (and multiplies the energy).

    Args:
        logits: (n, classes) scores before softmax.
        score: Name of the anomaly score.
        temperature: Divides the logits first, and multiplies the energy.

    Example:
        >>> anomaly_scores([[2.0, 0.0], [0.0, 0.0]]).round(3).tolist()
        [-0.881, -0.5]
        >>> anomaly_scores([[2.0, 0.0], [0.0, 0.0]], "entropy").round(3).tolist()
        [0.365, 0.693]
    """
    _check(score)
    if not temperature > 0:
        raise ShiftbenchError("invalid temperature", found=temperature, expected="more than 0")
    rows = arrays.real_matrix("logits", logits) / temperature
    if score == "max_logit":
        return np.asarray(-rows.max(axis=1))
    if score == "energy":
        top = rows.max(axis=1)
        return np.asarray(-temperature * (top + np.log(np.exp(rows - top[:, None]).sum(axis=1))))
    return _from_log_probabilities(arrays.log_softmax(rows), score)


def anomaly_scores_of(
    predictions: Predictions, rows: NDArray[np.bool_], score: AnomalyScore = "max_softmax"
) -> FloatArray:
    """Anomaly scores of some rows of predictions. Max softmax needs the confidence only, the others all scores."""
    _check(score)
    if score == "max_softmax":
        return np.asarray(-predictions.confidence[rows].astype(np.float64))
    if not arrays.gives_probabilities(predictions):
        return anomaly_scores(arrays.kept_scores(predictions)[rows], score)
    if score == "entropy":
        return _from_log_probabilities(arrays.log_probabilities(predictions, rows), score)
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
