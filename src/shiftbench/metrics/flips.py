"""Stability over perturbation sequences (ImageNet-P): flip probability, top-5 distance, Zipf distance.

A clip shows one image under a perturbation that grows or repeats frame by frame. Frames are compared in
pairs: each frame with the one ``step`` before it (step is the difficulty, 1 to 3; all phase offsets count),
or, for noise, where frames do not follow from each other, with the first frame. A clip's value is the mean
over its pairs, the score is the mean over clips, and its interval is a bootstrap by clip: the frames of one
clip are not independent.

Definitions of Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations", with sigma(i) the new rank of the class that was i-th before:

    flip probability   share of pairs with different top-1 classes
    top-5 distance     sum over i = 1..5 of |C(i) - C(sigma(i))|, C(r) = min(r - 1, 5)
    Zipf distance      sum over all i of |1/i - 1/sigma(i)| / i
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray
from shiftbench.errors import ShiftbenchError, argument
from shiftbench.metrics.base import Score
from shiftbench.metrics.bootstrap import RESAMPLES, percentile_interval, resampled_means
from shiftbench.metrics.paired import aligned
from shiftbench.store.predictions import Predictions

IntArray = NDArray[np.integer]

_DEPTH = 5
#: Clips whose full rankings are compared at once.
_BLOCK = 16


def frame_pairs(frames: int, *, step: int = 1, noise: bool = False) -> tuple[IntArray, IntArray]:
    """The earlier and the later frame of every pair; for noise the step does not matter."""
    if step < 1:
        raise ShiftbenchError("invalid step between frames", found=step, expected="1, 2 or 3")
    gap = 1 if noise else step  # every frame of a noise sequence is compared with the first
    if frames <= gap:
        raise ShiftbenchError(
            "a clip is too short to compare its frames", found=f"{frames} frames", expected=f"more than {gap}"
        )
    later = np.arange(gap, frames)
    earlier = np.zeros_like(later) if noise else later - gap
    return earlier, later


def ranks_from_scores(scores: NDArray[Any]) -> NDArray[np.int32]:
    """Ordinal ranks along the last axis, 1 the best; among equal scores the lower class comes first."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    ranks = np.empty(scores.shape, dtype=np.int32)
    np.put_along_axis(ranks, order, np.arange(1, scores.shape[-1] + 1, dtype=np.int32), axis=-1)
    return ranks


def flips_by_clip(classes: IntArray, *, step: int = 1, noise: bool = False) -> FloatArray:
    """(clips, frames) of top-1 classes to the share of flips in each clip."""
    earlier, later = frame_pairs(classes.shape[1], step=step, noise=noise)
    return np.asarray((classes[:, earlier] != classes[:, later]).mean(axis=1))


def top5_distances_by_clip(top: IntArray, *, step: int = 1, noise: bool = False) -> FloatArray:
    """(clips, frames, 5 or more) of best classes to each clip's top-5 distance.

    C is the same for every rank from 6 on, so that the five best classes of each frame are enough.
    """
    if top.shape[-1] < _DEPTH:
        raise ShiftbenchError(
            "top-5 distance needs the five best classes of each frame", found=f"{top.shape[-1]}", expected="5"
        )
    best = top[..., :_DEPTH]
    earlier, later = frame_pairs(top.shape[1], step=step, noise=noise)
    same = best[:, earlier, :, None] == best[:, later, None, :]  # (clips, pairs, old place, new place)
    new_place = np.where(same.any(axis=-1), same.argmax(axis=-1), _DEPTH)  # C(rank) = place from 0, at most 5
    moved = np.abs(np.arange(_DEPTH) - new_place).sum(axis=-1)
    return np.asarray(moved.mean(axis=1))


def zipf_distances_by_clip(ranks: IntArray, *, step: int = 1, noise: bool = False) -> FloatArray:
    """(clips, frames, classes) of ranks from 1 to each clip's Zipf distance."""
    earlier, later = frame_pairs(ranks.shape[1], step=step, noise=noise)
    distances = np.empty(len(ranks))
    for start in range(0, len(ranks), _BLOCK):
        block = ranks[start : start + _BLOCK]
        before = 1.0 / block[:, earlier]
        after = 1.0 / block[:, later]
        # Summed class by class instead of place by place: i is the class's old rank, sigma(i) its new one.
        distances[start : start + _BLOCK] = (np.abs(before - after) * before).sum(axis=-1).mean(axis=1)
    return distances


def flip_probability(
    classes: IntArray, *, level: float = 0.95, provenance: str = "", step: int = 1, noise: bool = False
) -> Score:
    """The mean share of flips over clips, from (clips, frames) of top-1 classes; pairs as in ``frame_pairs``."""
    return _score("flip probability", flips_by_clip(classes, step=step, noise=noise), level, provenance, "%")


def top5_distance(
    top: IntArray, *, level: float = 0.95, provenance: str = "", step: int = 1, noise: bool = False
) -> Score:
    """The mean top-5 distance over clips, from (clips, frames, 5) of best classes."""
    return _score("top-5 distance", top5_distances_by_clip(top, step=step, noise=noise), level, provenance, "")


def zipf_distance(
    ranks: IntArray, *, level: float = 0.95, provenance: str = "", step: int = 1, noise: bool = False
) -> Score:
    """The mean Zipf distance over clips, from (clips, frames, classes) of ranks from 1."""
    return _score("Zipf distance", zipf_distances_by_clip(ranks, step=step, noise=noise), level, provenance, "")


def mean_flip_rate(probabilities: Mapping[str, float], baseline: Mapping[str, float]) -> float:
    """mFR: the mean over perturbations of the flip probability divided by the baseline's (AlexNet's in the paper)."""
    missing = [name for name in probabilities if name not in baseline]
    if missing:
        raise ShiftbenchError("the baseline lacks perturbations", found=f"no {', '.join(missing)}")
    rates = []
    for name, probability in probabilities.items():
        divisor = baseline[name]
        rates.append(probability / divisor if divisor > 0 else float("nan"))
    return fmean(rates)


def stack_frames(frames: Sequence[Predictions]) -> NDArray[np.int32]:
    """The best classes as one array (clips, frames, k).

    Args:
        frames: The predictions of each frame, whose rows are the clips. A clip with a frame that could not be read is
            left out. Labels do not matter here.
    """
    return _stacked(frames, lambda predictions: predictions.top)


def stack_scores(frames: Sequence[Predictions]) -> NDArray[np.float32]:
    """The scores as one array (clips, frames, classes), for ``ranks_from_scores``; see ``stack_frames``."""
    if any(predictions.scores is None for predictions in frames):
        raise ShiftbenchError(
            "Zipf distance needs the scores of all classes", hint=f"evaluate again with {argument('keep_scores', True)}"
        )
    return _stacked(frames, lambda predictions: predictions.scores)


def _stacked(frames: Sequence[Predictions], get: Callable[[Predictions], Any]) -> NDArray[Any]:
    """One array per frame, stacked over the clips that could be read in all frames."""
    if not frames:
        raise ShiftbenchError("no frames to compare", expected="one Predictions per frame")
    orders = [aligned(frames[0], frame) for frame in frames]
    readable = np.all([frame.readable[order] for frame, order in zip(frames, orders, strict=True)], axis=0)
    return np.stack([get(frame)[order][readable] for frame, order in zip(frames, orders, strict=True)], axis=1)


def _score(name: str, values: FloatArray, level: float, provenance: str, unit: str) -> Score:
    value = low = high = float("nan")
    if len(values):
        value = float(values.mean())
        lows, highs = percentile_interval(resampled_means(values[:, None]), level)
        low = float(lows[0])
        high = float(highs[0])
    return Score(
        name,
        value,
        low,
        high,
        len(values),
        level,
        method=f"bootstrap by clip, {RESAMPLES:,} resamples",
        provenance=provenance,
        unit=unit,
        higher_is_better=False,
    )
