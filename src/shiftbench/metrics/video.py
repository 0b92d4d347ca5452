"""pm-k accuracy of video frames: right on an anchor frame and on every valid frame up to k away.

Shankar et al., "Do Image Classifiers Generalize Across Time?" (ImageNet-Vid-Robust, YTBB-Robust), as in the
ImageNet testbed. A pmset is an anchor with its neighbours that people found similar to it; it holds at most 2k
of them, fewer where frames were struck off. pm-0 is the share of anchors that are right, pm-k the share where
the anchor AND all its neighbours are. The denominator is the number of anchors in both, 1,109 for
ImageNet-Vid-Robust; an anchor without a valid neighbour is pm-k right if it is right.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Literal, TypeVar

import numpy as np

from shiftbench.arrays import IntArray
from shiftbench.errors import ShiftbenchError
from shiftbench.metrics.accuracy import proportion, weighted_class_accuracy
from shiftbench.metrics.base import Metric, Needs, Score, metric, metrics
from shiftbench.store.predictions import SKIPPED, Predictions

#: Anchor to its valid neighbours: their names, or name by offset in frames (-10 to 10).
PmSets = Mapping[str, Collection[str] | Mapping[int, str]]
#: Whose labels a neighbour is held against: its own (ImageNet-Vid-Robust) or the anchor's (YTBB-Robust).
LabelsOf = Literal["frame", "anchor"]
T = TypeVar("T")


def pm_k(
    pmsets: PmSets,
    *,
    correct: Mapping[str, bool] | None = None,
    predicted: Mapping[str, int] | None = None,
    labels: Mapping[str, Collection[int]] | None = None,
    labels_of: LabelsOf = "frame",
    k: int | None = None,
) -> float:
    """The share of anchors that are right together with every valid neighbour at most ``k`` frames away.

    Either ``correct`` gives for each frame whether it is right, or ``predicted`` gives its class and ``labels``
    the classes that count as right for it. Neighbours are held against their own labels, as published for
    ImageNet-Vid-Robust, or with ``labels_of="anchor"`` against the anchor's, as for YTBB-Robust.

    ``k=None`` takes every neighbour listed, ``k=0`` none. Between, the distance is the offset, or for names
    the difference of the numbers that file names end in.

    Args:
        pmsets: For each anchor frame, its neighbours.
        correct: By frame: whether it is right.
        predicted: By frame: its predicted class, in place of ``correct``.
        labels: By frame: the classes that count as right.
        labels_of: Whose labels neighbours are held against: ``"frame"`` (its own) or ``"anchor"``.
        k: Largest distance of a neighbour in frames; None: every neighbour listed.

    Example:
        >>> sets = {"v/000010.JPEG": ["v/000009.JPEG", "v/000012.JPEG"], "w/000005.JPEG": []}
        >>> right = {"v/000010.JPEG": True, "v/000009.JPEG": True, "v/000012.JPEG": False, "w/000005.JPEG": True}
        >>> [pm_k(sets, correct=right, k=k) for k in (0, 1, 2)]
        [1.0, 1.0, 0.5]
    """
    if not pmsets:
        raise ShiftbenchError("no anchors to score", expected="at least one anchor with its neighbours")
    if k is not None and k < 0:
        raise ShiftbenchError("bad distance in frames", found=k, expected="0 or more")
    if (correct is None) == (predicted is None) or (predicted is None) != (labels is None):
        raise ShiftbenchError("pm-k needs to know which frames are right", expected="correct, or predicted and labels")
    if labels_of not in ("frame", "anchor"):
        raise ShiftbenchError("bad labels_of", found=labels_of, expected='"frame" or "anchor"')

    def right(frame: str, anchor: str) -> bool:
        if correct is not None:
            return _look(correct, frame, "hit")
        labelled_frame = anchor if labels_of == "anchor" else frame
        accepted = _look(labels or {}, labelled_frame, "label")
        return int(_look(predicted or {}, frame, "prediction")) in accepted

    hits = 0
    for anchor, near in pmsets.items():
        hits += all(right(frame, anchor) for frame in _frames(anchor, near, k))
    return hits / len(pmsets)


def pm_k_score(
    predictions: Predictions,
    pmsets: PmSets,
    labels: Mapping[str, Collection[int]] | None = None,
    *,
    labels_of: LabelsOf = "frame",
    k: int | None = None,
    level: float = 0.95,
) -> Score:
    """pm-k of predictions whose image ids are the names of frames, with its Clopper-Pearson interval.

    ``labels`` are lists of classes in the predictions' space; without them each frame has its one label.
    Anchors with a frame that could not be read are left out; n is the number that remains. Anchors of one
    video are counted as independent, as the published intervals do.

    Args:
        predictions: The predictions of one model in one setting.
        pmsets: For each anchor frame, its neighbours.
        labels: By frame: classes in the predictions' space; default: each frame's one label.
        labels_of: Whose labels neighbours are held against.
        k: Largest distance of a neighbour in frames; None: every neighbour listed.
        level: Confidence level of the intervals.
    """
    predicted = dict(zip(predictions.ids, predictions.top[:, 0].tolist(), strict=True))
    if labels is None:
        labels = {name: (label,) for name, label in zip(predictions.ids, predictions.labels.tolist(), strict=True)}
    unread = {name for name, predicted_class in predicted.items() if predicted_class == SKIPPED}
    readable = {anchor: near for anchor, near in pmsets.items() if unread.isdisjoint(_frames(anchor, near, k))}
    share = 0.0
    if readable:
        share = pm_k(readable, predicted=predicted, labels=labels, labels_of=labels_of, k=k)
    name = "pm-k" if k is None else f"pm-{k}"
    return proportion(name, round(share * len(readable)), predictions, n=len(readable), level=level)


def _frames(anchor: str, near: Collection[str] | Mapping[int, str], k: int | None) -> list[str]:
    """The anchor and its neighbours within k."""
    if k == 0:
        return [anchor]
    frames = [anchor]
    if isinstance(near, Mapping):
        for offset, frame in near.items():
            if k is None or abs(int(offset)) <= k:
                frames.append(frame)
    else:
        for frame in near:
            if k is None or abs(_number(frame) - _number(anchor)) <= k:
                frames.append(frame)
    return frames


def _number(frame: str) -> int:
    """The number a frame's file name ends in: 12 of "val/video/000012.JPEG"."""
    digits = re.search(r"(\d+)$", PurePosixPath(frame).stem)
    if digits is None:
        raise ShiftbenchError(
            "the distance of a frame from its anchor is not known",
            found=f"{frame!r}, which ends in no number",
            hint="give pmsets as {anchor: {offset: frame}}, or k=None for all neighbours",
        )
    return int(digits[1])


def _look(table: Mapping[str, T], frame: str, noun: str) -> T:
    """A frame's entry in a table of hits, labels or predictions."""
    try:
        return table[frame]
    except KeyError:
        raise ShiftbenchError(
            f"a frame of a pmset has no {noun}", found=frame, hint="evaluate all anchors and all their neighbours"
        ) from None


# The registered metrics: the ids of a video set's rows name their anchor and offset.


def pm_k_of_predictions(predictions: Predictions, k: int | None = None, *, level: float = 0.95) -> Score:
    """pm-k of the stored predictions of a video set (``shiftbench.datasets.videos``), for any k that it holds.

    An anchor counts as right if it and every valid neighbour up to ``k`` frames away are (``None``: all that are
    stored). A frame is right if its best class is among its labels. Anchors with a frame that could not be read
    are left out; n is the number that remains.
    """
    rows = _video_rows(tuple(predictions.ids))
    best = predictions.top[:, 0]
    within_k = np.ones(len(rows.offset), np.bool_) if k is None else np.abs(rows.offset) <= k
    # An image with several labels has one row for each of them: it is right if one of its rows is.
    is_right = np.zeros(rows.frames, np.bool_)
    is_right[rows.frame[best == predictions.labels]] = True
    counts = np.zeros(rows.anchors, np.bool_)
    counts[rows.anchor[rows.offset == 0]] = True
    counts[rows.anchor[within_k & (best == SKIPPED)]] = False
    all_right = np.ones(rows.anchors, np.bool_)
    all_right[rows.anchor[within_k & ~is_right[rows.frame]]] = False
    n = int(counts.sum())
    name = "pm-k" if k is None else f"pm{k}"
    return proportion(name, int((all_right & counts).sum()), predictions, n=n, level=level)


@dataclass(frozen=True)
class _VideoRows:
    """What the ids of a video set's rows say, as arrays."""

    anchor: IntArray
    offset: IntArray
    #: The number of each row's frame: the same for rows of the same anchor and offset.
    frame: IntArray

    @property
    def anchors(self) -> int:
        return int(self.anchor.max(initial=-1)) + 1

    @property
    def frames(self) -> int:
        return int(self.frame.max(initial=-1)) + 1


@lru_cache(maxsize=16)
def _video_rows(ids: tuple[str, ...]) -> _VideoRows:
    """The rows of a video set; hundreds of models share them."""
    from shiftbench.datasets.videos import parse_row_id

    # Anchors and frames are numbered in the order in which they first occur.
    anchor_numbers: dict[str, int] = {}
    frame_numbers: dict[tuple[str, int], int] = {}
    anchors = []
    offsets = []
    frames = []
    for row in ids:
        anchor, offset = parse_row_id(row)
        anchors.append(anchor_numbers.setdefault(anchor, len(anchor_numbers)))
        offsets.append(offset)
        frames.append(frame_numbers.setdefault((anchor, offset), len(frame_numbers)))
    return _VideoRows(np.array(anchors, np.int64), np.array(offsets, np.int64), np.array(frames, np.int64))


_CLASSES_ONLY = Needs(confidence=False)


@metric("pm0", needs=_CLASSES_ONLY)
def pm0(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of anchor frames that are right (video sets)."""
    return pm_k_of_predictions(predictions, 0, level=level)


@metric("pm10", needs=_CLASSES_ONLY)
def pm10(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The share of anchor frames that are right together with every valid frame up to 10 away (video sets)."""
    return pm_k_of_predictions(predictions, 10, level=level)


#: Labels of ImageNet-Vid-Robust's 22,179 annotated frames by class, in the order of its label space. Some frames have
#: several.
_VID_ROBUST_LABELS = (
    *(1642, 355, 825, 769, 2431, 620, 1666, 669, 2271, 1688),
    *(798, 336, 293, 539, 1014, 272, 503, 727, 588, 409),
    *(146, 313, 369, 556, 363, 1771, 768, 616, 163, 264),
)
_VID_ROBUST = "vid-robust-30"


@metric("class_mean_vid_robust", needs=_CLASSES_ONLY)
def class_mean_vid_robust(predictions: Predictions, *, level: float = 0.95) -> Score:
    """The accuracy on ImageNet's images if its classes were as frequent as in ImageNet-Vid-Robust."""
    if predictions.space.name != _VID_ROBUST:
        raise ShiftbenchError(
            "this metric weighs the 30 classes of ImageNet-Vid-Robust",
            found=f"predictions over {predictions.space.name!r}",
            expected=f"{_VID_ROBUST!r}, as in the setting val-on-vid-robust-classes",
        )
    weights = np.array(_VID_ROBUST_LABELS, np.float64)
    return weighted_class_accuracy("class_mean_vid_robust", predictions, weights, level=level)


@metrics.family("pmK", r"pm(0|[1-9]\d*)")
def pm_any(k: str) -> Metric:
    """The share of anchor frames that are right together with every valid frame up to K away, for any K (pm3)."""

    def score(predictions: Predictions, *, level: float = 0.95) -> Score:
        return pm_k_of_predictions(predictions, int(k), level=level)

    return Metric(f"pm{k}", score, _CLASSES_ONLY)
