"""Two classifiers on the same images: exact McNemar test, Holm's correction, difference with interval.

Comparing two intervals ignores the pairing. Only images that exactly one of the two gets right show which is
better; how often they favour the first is Binomial(b + c, 1/2) if neither is (McNemar 1947).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError
from shiftbench.grouping import by_key
from shiftbench.metrics.arrays import kept_scores
from shiftbench.metrics.bootstrap import percentile_interval
from shiftbench.metrics.intervals import clopper_pearson, paired_difference_interval
from shiftbench.metrics.multilabel import MEAN_PRECISION, labelled_rows, mean_average_precision, resampled_precisions
from shiftbench.store.predictions import Predictions


@dataclass(frozen=True)
class Comparison:
    """The first classifier minus the second, in one setting, on the images that count for both."""

    setting: str
    first: str
    second: str
    n: int
    first_accuracy: float
    second_accuracy: float
    #: Images that only the first, only the second gets right; None where images are not right or wrong (mAP).
    only_first: int | None
    only_second: int | None
    difference: float
    low: float
    high: float
    #: Two-sided, McNemar's exact one for top-1; ``p_holm`` also counts how many comparisons were made with it.
    p: float
    p_holm: float
    level: float = 0.95
    provenance: str = ""
    #: What the accuracies are.
    metric: str = "top1"

    @property
    def verdict(self) -> str:
        """The name of the better one, or "" if the test does not decide at this level."""
        if not self.p_holm <= 1.0 - self.level:
            return ""
        if self.difference > 0:
            return self.first
        return self.second

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "better": self.verdict}


def mcnemar(only_first: ArrayLike, only_second: ArrayLike) -> FloatArray:
    """Exact two-sided p-values: min(1, 2 P(X <= min(b, c))), X ~ Binomial(b + c, 1/2); 1 when b = c = 0."""
    from scipy.special import bdtr  # here, so that importing the metrics stays light

    b, c = np.broadcast_arrays(np.asarray(only_first, dtype=np.int64), np.asarray(only_second, dtype=np.int64))
    if (b < 0).any() or (c < 0).any():
        raise ShiftbenchError("negative count in McNemar's test", expected="b, c >= 0")
    return np.asarray(np.minimum(1.0, 2.0 * bdtr(np.minimum(b, c).astype(np.float64), b + c, 0.5)))


def holm(p: ArrayLike) -> FloatArray:
    """p-values adjusted for their number m (Holm 1979): max over j <= i of min(1, (m - j + 1) p_(j)).

    nan (a comparison that could not be made) stays nan and is not counted.
    """
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(values.shape, np.nan)
    defined = np.flatnonzero(~np.isnan(values))
    order = defined[np.argsort(values[defined], kind="stable")]
    factors = len(order) - np.arange(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(factors * values[order]))
    return adjusted


def compare(first: Predictions, second: Predictions, *, level: float = 0.95, mixed: bool = False) -> Comparison:
    """Compare two classifiers' top-1 hits on their common images; of several labels per image, their mAP.

    Both must come from the same setting, images, labels and provenance. ``mixed=True`` allows different
    settings and provenance (such as one classifier clean and corrupted), never different images or labels.
    The interval excludes 0 if and only if McNemar's exact test rejects; where the two never disagree, or always in the
    same way, it is the Clopper-Pearson bound on the share of images that are otherwise.
    """
    if MEAN_PRECISION in (first.spec.metric, second.spec.metric):
        return _compare_precision(first, second, level, mixed)
    _check_comparable(first, second, mixed)
    order = aligned(first, second)
    both = first.valid & second.valid[order]
    a = (first.top[:, 0] == first.labels)[both]
    b = (second.top[order, 0] == second.labels[order])[both]
    n = len(a)
    only_a = int((a & ~b).sum())
    only_b = int((b & ~a).sum())
    first_accuracy = second_accuracy = difference = low = high = p = float("nan")
    if n:
        first_accuracy = float(a.mean())
        second_accuracy = float(b.mean())
        difference = (only_a - only_b) / n
        low, high = difference_interval(only_a, only_b, n, level)
        p = float(mcnemar(only_a, only_b))
    return Comparison(
        setting=_joined(first.setting, second.setting),
        first=first.classifier,
        second=second.classifier,
        n=n,
        first_accuracy=first_accuracy,
        second_accuracy=second_accuracy,
        only_first=only_a,
        only_second=only_b,
        difference=difference,
        low=low,
        high=high,
        p=p,
        p_holm=p,
        level=level,
        provenance=_joined(first.provenance, second.provenance),
    )


def _compare_precision(first: Predictions, second: Predictions, level: float, mixed: bool) -> Comparison:
    """mAP under the same draws of the images for both; p is that of a normal law with the draws' spread."""
    _check_comparable(first, second, mixed)
    order = aligned(first, second)
    rows = labelled_rows(first) & labelled_rows(second)[order]
    n = int(rows.sum())
    truth = first.multi_hot[rows]
    a = b = low = high = p = float("nan")
    if n:
        a_scores = kept_scores(first)[rows]
        b_scores = kept_scores(second)[order][rows]
        a = mean_average_precision(a_scores, truth)
        b = mean_average_precision(b_scores, truth)
        a_draws = resampled_precisions(a_scores.astype(float), truth, seed=0)
        b_draws = resampled_precisions(b_scores.astype(float), truth, seed=0)
        draws = a_draws - b_draws
        draws_low, draws_high = percentile_interval(draws, level)
        low = float(draws_low)
        high = float(draws_high)
        p = normal_p(a - b, float(draws.std(ddof=1)))
    return Comparison(
        setting=_joined(first.setting, second.setting),
        first=first.classifier,
        second=second.classifier,
        n=n,
        first_accuracy=a,
        second_accuracy=b,
        only_first=None,
        only_second=None,
        difference=a - b,
        low=low,
        high=high,
        p=p,
        p_holm=p,
        level=level,
        provenance=_joined(first.provenance, second.provenance),
        metric=MEAN_PRECISION,
    )


def normal_p(difference: float, error: float) -> float:
    """Two-sided p-value of a difference with this standard error; 1 where there is no spread to judge by.

    >>> round(normal_p(1.96, 1.0), 3), normal_p(0.1, 0.0)
    (0.05, 1.0)
    """
    from scipy.special import ndtr

    if not error:
        return 1.0
    return float(2.0 * ndtr(-abs(difference) / error))


def difference_interval(only_first: int, only_second: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of the difference in accuracy: the score interval, extended by what McNemar's exact test allows.

    It excludes 0 if and only if the exact test rejects at this level. Exchanging the two models exchanges the ends and
    their signs, so that every command shows one interval for a pair.

    >>> low, high = difference_interval(30, 20, 500)
    >>> f"[{low:.4f}, {high:.4f}]"
    '[-0.0096, 0.0490]'
    """
    if only_first < only_second:
        low, high = difference_interval(only_second, only_first, n, level)
        return -high, -low
    difference = (only_first - only_second) / n
    if max(only_first, only_second) in (0, n):
        # The share of images that are not as all these is bounded, and each of them moves the difference by 1, or by 2
        # if only one model was right.
        reach = (1 + abs(difference)) * clopper_pearson(0, n, level).high
        return max(-1.0, difference - reach), min(1.0, difference + reach)
    score = paired_difference_interval(only_first, only_second, n, level)
    differing = only_first + only_second
    favours_first = clopper_pearson(only_first, differing, level)
    exact_low = (2 * favours_first.low - 1) * differing / n
    exact_high = (2 * favours_first.high - 1) * differing / n
    return min(score.low, exact_low), max(score.high, exact_high)


def compare_all(predictions: Iterable[Predictions], *, level: float = 0.95) -> list[Comparison]:
    """Every pair of classifiers in every setting, Holm over all of them."""
    by_setting = by_key((result.setting, result) for result in predictions)
    comparisons = []
    for group in by_setting.values():
        comparisons += [compare(a, b, level=level) for a, b in itertools.combinations(group, 2)]
    return corrected(comparisons)


def corrected(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons with ``p_holm`` for this family of them."""
    adjusted = holm([comparison.p for comparison in comparisons])
    return [replace(comparison, p_holm=float(p)) for comparison, p in zip(comparisons, adjusted, strict=True)]


def _check_comparable(first: Predictions, second: Predictions, mixed: bool) -> None:
    """Refuse results of different settings or provenance, unless they are to be mixed."""
    if mixed:
        return
    for attribute in ("setting", "provenance"):
        first_value = getattr(first, attribute)
        second_value = getattr(second, attribute)
        if first_value != second_value:
            raise ShiftbenchError(
                f"{_label(first)} and {_label(second)} differ in {attribute}",
                found=f"{first_value!r} and {second_value!r}",
                expected="the same",
                hint="evaluate both on the same images; in Python, shiftbench.metrics.paired.compare(..., mixed=True) "
                "compares them anyway",
            )


def aligned(first: Predictions, second: Predictions) -> NDArray[np.intp]:
    """The rows of ``second`` in the order of ``first``; refuses other images or other labels."""
    order = _matching_rows(first, second)
    message = f"{_label(first)} and {_label(second)} do not have the same labels"
    expected = "one label space and the same label for each image"
    if first.space.keys != second.space.keys:
        names = f"label spaces {first.space.name!r} and {second.space.name!r}"
        raise ShiftbenchError(message, found=names, expected=expected)
    differing = np.flatnonzero(first.labels != second.labels[order])
    if len(differing):
        example = first.ids[differing[0]]
        raise ShiftbenchError(
            message,
            found=f"{len(differing)} images with different labels, the first is {example}",
            expected=expected,
        )
    return order


def _matching_rows(first: Predictions, second: Predictions) -> NDArray[np.intp]:
    """The row of ``second`` that has the same image id, for each row of ``first``."""
    if first.ids is second.ids:
        return np.arange(len(first.ids))
    first_ids = list(first.ids)
    second_ids = list(second.ids)
    if first_ids == second_ids:
        return np.arange(len(first_ids))
    row_of_id = {name: row for row, name in enumerate(second_ids)}
    missing = [name for name in first_ids if name not in row_of_id]
    if missing or len(first_ids) != len(second_ids):
        counts = f"{len(first_ids)} and {len(second_ids)} images, {len(missing)} of the first not in the second"
        if missing:
            counts += f" ({', '.join(missing[:3])}, ...)"
        raise ShiftbenchError(
            f"{_label(first)} and {_label(second)} are not on the same images",
            found=counts,
            expected="the same image ids",
            hint="evaluate both on the same dataset",
        )
    return np.array([row_of_id[name] for name in first_ids])


def _label(predictions: Predictions) -> str:
    return f"{predictions.classifier!r} in {predictions.setting!r}"


def _joined(first: str, second: str) -> str:
    if first == second:
        return first
    return f"{first} | {second}"
