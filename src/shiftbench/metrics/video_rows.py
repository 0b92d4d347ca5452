"""pm-k from stored predictions: the rows of a video set say in their ids which anchor and offset they are."""

from __future__ import annotations

from collections import defaultdict

from shiftbench.datasets.videos import parse_row_id
from shiftbench.metrics.base import Metric, Needs, Score, metric, metrics
from shiftbench.metrics.intervals import clopper_pearson
from shiftbench.metrics.video import pm_k_hits
from shiftbench.store.predictions import SKIPPED, Predictions


def pm_k_score(predictions: Predictions, k: int | None = None, *, level: float = 0.95) -> Score:
    """pm-k of the stored predictions of a video set (``shiftbench.datasets.videos``), for any k that it holds.

    An anchor counts as right if it and every valid neighbour up to ``k`` frames away are (``None``: all that are
    stored). A frame is right if its best class is among its labels. Anchors with a frame that could not be read
    are left out; n says how many remain.
    """
    right: dict[tuple[str, int], bool] = defaultdict(bool)
    unread = set()
    best = predictions.top[:, 0].tolist()
    for row, label, found in zip(predictions.ids, predictions.labels.tolist(), best, strict=True):
        anchor, offset = place = parse_row_id(row)
        right[place] |= found == label
        if found == SKIPPED and (k is None or abs(offset) <= k):
            unread.add(anchor)
    sets: dict[str, dict[int, str]] = {anchor: {} for anchor, offset in right if offset == 0 and anchor not in unread}
    for anchor, offset in right:
        if offset and anchor in sets:
            sets[anchor][offset] = f"{anchor}@{offset}"
    hits = {anchor if offset == 0 else f"{anchor}@{offset}": hit for (anchor, offset), hit in right.items()}
    n = len(sets)
    count = int(pm_k_hits(sets, correct=hits, k=k).sum()) if n else 0
    low, high = clopper_pearson(count, n, level)
    name = "pm-k" if k is None else f"pm{k}"
    return Score(name, count / n if n else float("nan"), low, high, n, level, provenance=predictions.provenance)


_CLASSES_ONLY = Needs(confidence=False)


@metric("pm0", needs=_CLASSES_ONLY)
def pm0(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of anchor frames that are right (video sets)."""
    return pm_k_score(predictions, 0, level=level)


@metric("pm10", needs=_CLASSES_ONLY)
def pm10(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of anchor frames that are right together with every valid frame up to 10 away (video sets)."""
    return pm_k_score(predictions, 10, level=level)


@metrics.family("pmK", r"pm(0|[1-9]\d*)")
def pm_any(k: str) -> Metric:
    """The share of anchor frames that are right together with every valid frame up to K away, for any K (pm3)."""

    def score(predictions: Predictions, *, level: float = 0.95) -> Score:
        return pm_k_score(predictions, int(k), level=level)

    return Metric(f"pm{k}", score, _CLASSES_ONLY)
