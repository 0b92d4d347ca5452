"""Stability measures against their definitions, written out in loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import rankdata

from shiftbench.errors import ShiftbenchError
from shiftbench.labels.space import NO_ANSWER
from shiftbench.metrics.flips import (
    flip_probability,
    flips_by_clip,
    frame_pairs,
    mean_flip_rate,
    ranks_from_scores,
    stack_frames,
    stack_scores,
    top5_distance,
    top5_distances_by_clip,
    zipf_distance,
    zipf_distances_by_clip,
)
from tests.metrics.making import predictions
from tests.raised import raises

CASES = [(1, False), (2, False), (3, False), (1, True), (3, True)]


def pairs_in_words(frames: int, step: int, noise: bool) -> list[tuple[int, int]]:
    """For each phase offset walk through the clip in steps; noise looks back at the first frame."""
    if noise:
        return [(0, t) for t in range(1, frames)]
    return [(t, t + step) for phase in range(step) for t in range(phase, frames - step, step)]


def random_ranks(clips: int = 7, frames: int = 8, classes: int = 12) -> NDArray[np.int32]:
    scores = np.random.default_rng(0).normal(size=(clips, 1, classes))
    return ranks_from_scores(scores + np.random.default_rng(1).normal(0, 0.5, size=(clips, frames, classes)))


def sigma(before: NDArray[np.int32], after: NDArray[np.int32]) -> list[int]:
    """The new rank of the class that was i-th, for i = 1, 2, ..."""
    return [int(after[list(before).index(i)]) for i in range(1, len(before) + 1)]


@pytest.mark.parametrize(("step", "noise"), CASES)
@pytest.mark.parametrize("frames", [4, 5, 31])
def test_pairs(frames: int, step: int, noise: bool) -> None:
    earlier, later = frame_pairs(frames, step=step, noise=noise)
    assert sorted(zip(earlier, later, strict=True)) == sorted(pairs_in_words(frames, step, noise))


@pytest.mark.parametrize(("step", "noise"), CASES)
def test_flip_probability_in_words(step: int, noise: bool) -> None:
    classes = np.random.default_rng(2).integers(0, 3, size=(20, 9))
    expected = [np.mean([clip[a] != clip[b] for a, b in pairs_in_words(9, step, noise)]) for clip in classes]
    np.testing.assert_allclose(flips_by_clip(classes, step=step, noise=noise), expected)
    score = flip_probability(classes, step=step, noise=noise)
    assert score.value == pytest.approx(np.mean(expected))
    assert score.low < score.value < score.high
    assert score.n == 20 and "clip" in score.method


@pytest.mark.parametrize(("step", "noise"), CASES)
def test_distances_in_words(step: int, noise: bool) -> None:
    ranks = random_ranks()
    cut = [min(r - 1, 5) for r in range(1, 20)]  # C(1), C(2), ...
    top = []
    zipf = []
    for clip in ranks:
        moves = [sigma(clip[a], clip[b]) for a, b in pairs_in_words(len(clip), step, noise)]
        top.append(np.mean([sum(abs(cut[i - 1] - cut[s[i - 1] - 1]) for i in range(1, 6)) for s in moves]))
        zipf.append(np.mean([sum(abs(1 / i - 1 / s[i - 1]) / i for i in range(1, len(s) + 1)) for s in moves]))
    best = np.argsort(ranks, axis=-1)[..., :5]
    np.testing.assert_allclose(top5_distances_by_clip(best, step=step, noise=noise), top)
    np.testing.assert_allclose(zipf_distances_by_clip(ranks, step=step, noise=noise), zipf)
    assert top5_distance(best, step=step, noise=noise).value == pytest.approx(np.mean(top))
    assert zipf_distance(ranks, step=step, noise=noise).value == pytest.approx(np.mean(zipf))


def test_top5_distance_of_a_wholly_new_top_five() -> None:
    """All five leave: |0-5| + |1-5| + ... + |4-5| = 15, the most there is."""
    assert top5_distances_by_clip(np.array([[[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]]))[0] == 15.0


@given(st.lists(st.integers(0, 4), min_size=2, max_size=30))
def test_ranks_are_ordinal(values: list[int]) -> None:
    scores = np.array(values, dtype=np.float32)
    np.testing.assert_array_equal(ranks_from_scores(scores), rankdata(-scores, method="ordinal"))


def test_a_still_clip_is_zero() -> None:
    ranks = random_ranks()[:, :1].repeat(6, axis=1)
    assert zipf_distance(ranks).value == 0.0
    assert top5_distance(np.argsort(ranks, axis=-1)).value == 0.0
    assert flip_probability(ranks.argmin(axis=-1)).value == 0.0


def test_many_clips_are_done_in_blocks() -> None:
    ranks = random_ranks(clips=40)
    one_by_one = [zipf_distances_by_clip(clip[None])[0] for clip in ranks]
    np.testing.assert_allclose(zipf_distances_by_clip(ranks), one_by_one)


def test_no_clip() -> None:
    score = flip_probability(np.empty((0, 5), dtype=int))
    assert np.isnan(score.value) and score.n == 0


def test_what_is_refused() -> None:
    with raises(ShiftbenchError, found="2 frames", expected="more than 2"):
        flips_by_clip(np.zeros((3, 2), dtype=int), step=2)
    with raises(ShiftbenchError, found=0, expected="1, 2 or 3"):
        flips_by_clip(np.zeros((3, 2), dtype=int), step=0)
    with raises(ShiftbenchError, found="4"):
        top5_distances_by_clip(np.zeros((3, 2, 4), dtype=int))


def test_rates_divide_by_the_baseline() -> None:
    assert mean_flip_rate({"tilt": 0.1, "scale": 0.3}, {"tilt": 0.2, "scale": 0.2}) == pytest.approx(1.0)
    with raises(ShiftbenchError, found="no snow"):
        mean_flip_rate({"snow": 0.1}, {"tilt": 0.2})


def test_frames_as_predictions() -> None:
    """A clip with an unreadable frame is left out; labels do not matter."""
    scores = np.random.default_rng(4).normal(size=(3, 4, 6)).astype(np.float32)  # frames, clips, classes
    top = np.argsort(-scores, axis=-1)
    top[1, 2] = -1
    frames = [predictions(top[t], [-1, 0, 0, 0], classes=6, scores=scores[t]) for t in range(3)]
    stacked = stack_frames(frames)
    assert stacked.shape == (3, 3, 6)
    np.testing.assert_array_equal(stacked, top.transpose(1, 0, 2)[[0, 1, 3]])
    ranks = ranks_from_scores(stack_scores(frames))
    np.testing.assert_array_equal(np.argsort(ranks, axis=-1), stacked)
    with pytest.raises(ShiftbenchError, match="scores of all classes"):
        stack_scores([predictions([0], [0])])
    # No answer is a reaction to the frame, unlike an unreadable file.
    with_refusals = [predictions([0, 1], [0, 0]), predictions([NO_ANSWER, 1], [0, 0])]
    assert flips_by_clip(stack_frames(with_refusals)[:, :, 0]).tolist() == [1, 0]
    with raises(ShiftbenchError, expected="one Predictions per frame"):
        stack_frames([])
