"""pm-k against the published loops, with own and with the anchor's labels."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shiftbench.datasets.videos import parse_row_id, row_id
from shiftbench.errors import ShiftbenchError
from shiftbench.labels.catalogue import label_space
from shiftbench.metrics import clopper_pearson, metrics, pm_k, pm_k_score
from tests.metrics.making import predictions, with_hits
from tests.raised import raises


def name(video: int, frame: int) -> str:
    return f"val/video_{video:04d}/{frame:06d}.JPEG"


def made(seed: int = 0, videos: int = 30) -> tuple[dict[str, list[str]], dict[str, int], dict[str, list[int]]]:
    """Anchors at frame 20 with a random part of the frames around; classes mostly among the labels."""
    rng = np.random.default_rng(seed)
    pmsets = {}
    predicted = {}
    labels = {}
    for video in range(videos):
        offsets = [int(o) for o in range(-10, 11) if o and rng.random() < 0.7] if video else []
        pmsets[name(video, 20)] = [name(video, 20 + offset) for offset in offsets]
        for offset in [0, *offsets]:
            frame = name(video, 20 + offset)
            labels[frame] = sorted({int(c) for c in rng.integers(0, 4, 3)})
            predicted[frame] = int(rng.choice(labels[frame])) if rng.random() < 0.97 else int(rng.integers(0, 4))
    return pmsets, predicted, labels


def own_labels_in_words(
    pmsets: Mapping[str, Collection[str]], predicted: Mapping[str, int], labels: Mapping[str, list[int]]
) -> float:
    """Count what is right in each set; all of it and the anchor must be."""
    whole = 0
    for anchor, near in pmsets.items():
        right = sum(predicted[frame] in labels[frame] for frame in near)
        right += predicted[anchor] in labels[anchor]
        whole += right == len(near) + 1
    return whole / len(pmsets)


def test_own_labels() -> None:
    pmsets, predicted, labels = made(videos=200)
    value = pm_k(pmsets, predicted=predicted, labels=labels)
    assert value == own_labels_in_words(pmsets, predicted, labels)
    correct = {frame: predicted[frame] in labels[frame] for frame in predicted}
    assert pm_k(pmsets, correct=correct) == value
    anchors = np.mean([correct[anchor] for anchor in pmsets])
    assert pm_k(pmsets, correct=correct, k=0) == anchors
    assert 0 < value < anchors < 1


@pytest.mark.parametrize("k", [1, 3, 9, 10, 50])
def test_any_k(k: int) -> None:
    pmsets, predicted, labels = made(1)
    near = {a: [f for f in frames if abs(int(f[-11:-5]) - 20) <= k] for a, frames in pmsets.items()}
    value = pm_k(pmsets, predicted=predicted, labels=labels, k=k)
    assert value == own_labels_in_words(near, predicted, labels)
    # The same from offsets instead of names.
    offsets = {a: {int(f[-11:-5]) - 20: f for f in frames} for a, frames in pmsets.items()}
    assert pm_k(offsets, predicted=predicted, labels=labels, k=k) == value


@given(st.integers(0, 1000))
def test_more_frames_only_make_it_harder(seed: int) -> None:
    pmsets, predicted, labels = made(seed, videos=6)
    found = [pm_k(pmsets, predicted=predicted, labels=labels, k=k) for k in range(11)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == pm_k(pmsets, predicted=predicted, labels=labels)


def test_the_anchors_labels() -> None:
    """YTBB: a neighbour is held against the anchor's classes; frames need no labels of their own."""
    pmsets = {"a-1.jpg": {-1: "a-0.jpg", 1: "a-2.jpg"}, "b-1.jpg": {}}
    predicted = {"a-0.jpg": 5, "a-1.jpg": 3, "a-2.jpg": 3, "b-1.jpg": 0}
    labels = {"a-1.jpg": {3}, "b-1.jpg": {0, 1}, "a-0.jpg": {5}, "a-2.jpg": {3}}
    assert pm_k(pmsets, predicted=predicted, labels=labels) == 1.0
    assert pm_k(pmsets, predicted=predicted, labels=labels, labels_of="anchor") == 0.5
    anchors_only = {"a-1.jpg": {3, 5}, "b-1.jpg": {0}}
    assert pm_k(pmsets, predicted=predicted, labels=anchors_only, labels_of="anchor") == 1.0


def test_an_anchor_without_neighbours_counts_by_itself() -> None:
    assert pm_k({"a": [], "b": []}, correct={"a": True, "b": False}) == 0.5


def test_a_score_from_predictions() -> None:
    frames = ["v/1.jpg", "v/2.jpg", "v/3.jpg", "w/1.jpg", "w/2.jpg", "x/1.jpg"]
    pmsets = {"v/2.jpg": ["v/1.jpg", "v/3.jpg"], "w/1.jpg": ["w/2.jpg"], "x/1.jpg": []}
    found = predictions([0, 0, 1, 2, -1, 1], [0, 0, 0, 2, 2, 1], ids=frames, provenance="p")
    score = pm_k_score(found, pmsets)
    # w has a frame that could not be read; of v and x one is wholly right.
    assert (score.value, score.n, score.metric, score.provenance) == (0.5, 2, "pm-k", "p")
    assert (score.low, score.high) == tuple(clopper_pearson(1, 2))
    anchors = pm_k_score(found, pmsets, k=0)
    assert (anchors.value, anchors.n, anchors.metric) == (1.0, 3, "pm-0")
    lists = {frame: [0, 1] if frame[0] == "v" else [2] for frame in frames}
    assert pm_k_score(found, pmsets, lists).value == 0.5
    assert pm_k_score(found, pmsets, {"v/2.jpg": [0, 1], "x/1.jpg": [1]}, labels_of="anchor").value == 1.0
    none = pm_k_score(found, {"w/2.jpg": []})
    assert np.isnan(none.value) and (none.low, none.high, none.n) == (0.0, 1.0, 0)


def test_what_is_refused() -> None:
    sets = {"a": ["b"]}
    with raises(ShiftbenchError, found="b"):
        pm_k(sets, correct={"a": True})
    with raises(ShiftbenchError, found="b"):
        pm_k(sets, predicted={"a": 0}, labels={"a": [0], "b": [0]})
    with raises(ShiftbenchError, found="b"):
        pm_k(sets, predicted={"a": 0, "b": 0}, labels={"a": [0]})
    with raises(ShiftbenchError, found="'b', which ends in no number"):
        pm_k(sets, correct={"a": True, "b": True}, k=3)
    with raises(ShiftbenchError, found=-1):
        pm_k(sets, correct={"a": True, "b": True}, k=-1)
    with pytest.raises(ShiftbenchError, match="no anchors"):
        pm_k({}, correct={})
    for wrong in ({}, {"predicted": {"a": 0}}, {"correct": {"a": True}, "predicted": {"a": 0}, "labels": {"a": [0]}}):
        with pytest.raises(ShiftbenchError, match="which frames are right"):
            pm_k(sets, **wrong)
    with raises(ShiftbenchError, found="video"):
        pm_k(sets, predicted={}, labels={}, labels_of="video")  # type: ignore[arg-type]


def test_any_distance_is_a_metric_of_stored_rows() -> None:
    """``--metric pm3``: by its name, over the rows of a video set, against counting by hand."""
    rng = np.random.default_rng(5)
    ids = []
    right = []
    for anchor in range(60):
        for offset in (0, *(o for o in range(-6, 7) if o and rng.random() < 0.8)):
            ids.append(row_id(f"v{anchor}/000010.JPEG", offset))
            right.append(rng.random() < 0.93)
    found = with_hits(right, ids=ids)
    for k in (0, 1, 3, 6, 20):
        near = [abs(parse_row_id(name)[1]) <= k for name in ids]
        wrong = {parse_row_id(n)[0] for n, hit, close in zip(ids, right, near, strict=True) if close and not hit}
        score = metrics.get(f"pm{k}")(found)
        assert (score.metric, score.n) == (f"pm{k}", 60) and score.value == pytest.approx(1 - len(wrong) / 60)


def test_classes_as_frequent_as_in_the_videos(reference_data: Path) -> None:
    """Against the released labels of the frames, and the mean over classes written out."""
    file = reference_data / "imagenet-testbed" / "metadata" / "imagenet-vid-robust_metadata" / "labels.json"
    frequencies = np.zeros(30)
    for classes in json.loads(file.read_text()).values():
        frequencies[classes] += 1
    rng = np.random.default_rng(2)
    labels = np.repeat(np.arange(30), 50)
    best = np.where(rng.random(1500) < 0.7, labels, (labels + 1) % 30)
    found = replace(predictions(best, labels, classes=30), space=label_space("vid-robust-30"))
    expected = 0.0
    for label in range(30):
        expected += frequencies[label] / frequencies.sum() * float(np.mean(best[labels == label] == label))
    score = metrics.get("class_mean_vid_robust")(found)
    assert score.value == pytest.approx(expected, abs=1e-12) and score.low < expected < score.high
    with raises(ShiftbenchError, found="predictions over 'test-30'"):
        metrics.get("class_mean_vid_robust")(predictions(best, labels, classes=30))
