"""Video frames: the published annotation files, rows and ids, and pm-k against a plain count."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.datasets import videos
from shiftbench.datasets.catalogue import copy_remarks, open_dataset, recognise_path
from shiftbench.datasets.subset import Subset
from shiftbench.datasets.videos import (
    YTBB_FILES,
    Anchor,
    frame_dataset,
    open_vid_robust,
    open_ytbb_robust,
    parse_row_id,
    row_id,
)
from shiftbench.errors import DatasetError, LabelError
from shiftbench.labels import label_space
from shiftbench.metrics.video import pm_k_of_predictions
from shiftbench.store.predictions import SKIPPED, Predictions
from shiftbench.store.spec import ResultSpec
from tests.datasets.makers import assert_conforms, png
from tests.raised import raises

TESTBED = Path("imagenet-testbed") / "metadata"


def predictions(dataset: Any, best: list[int]) -> Predictions:
    top = np.array(best, np.int32)[:, None]
    confidence = np.ones(len(best), np.float32)
    return Predictions(
        "m", "s", dataset.space, dataset.ids, dataset.labels, top, confidence, ResultSpec(provenance="p")
    )


def write(root: Path, *frames: str) -> None:
    for i, frame in enumerate(frames):
        (root / frame).parent.mkdir(parents=True, exist_ok=True)
        (root / frame).write_bytes(png(i))


def small_vid(root: Path, inside: str = "val/") -> Path:
    """Two videos: v with neighbours at -2 and +1 (one of them with two labels), w with none."""
    pmsets = {"val/v/000010.JPEG": ["val/v/000008.JPEG", "val/v/000011.JPEG"], "val/w/000005.JPEG": []}
    labels = {
        "val/v/000010.JPEG": [4],
        "val/v/000008.JPEG": [4, 8],
        "val/v/000011.JPEG": [4],
        "val/w/000005.JPEG": [0, 1],
    }
    (root / "metadata").mkdir(parents=True)
    (root / "metadata" / "pmsets.json").write_text(json.dumps(pmsets))
    (root / "metadata" / "labels.json").write_text(json.dumps(labels))
    write(root, *(frame.replace("val/", inside) for frame in labels))
    return root


@pytest.mark.parametrize("inside", ["val/", "", "Data/VID/val/"])
def test_frames_are_found_in_each_packing_of_the_videos(tmp_path: Path, inside: str) -> None:
    root = small_vid(tmp_path / "vid", inside)
    assert recognise_path(root) == ("vid-robust", "the frames of ImageNet-Vid-Robust")
    dataset = open_dataset(root)
    assert list(dataset.ids) == [
        "val/v/000010.JPEG",
        "val/v/000010.JPEG@-2",
        "val/v/000010.JPEG@-2#2",
        "val/v/000010.JPEG@+1",
        "val/w/000005.JPEG",
        "val/w/000005.JPEG#2",
    ]
    assert dataset.labels.tolist() == [4, 4, 8, 4, 0, 1] and dataset.space.name == "vid-robust-30"
    assert dataset.metadata["offset"] == [0, -2, -2, 1, 0, 0]
    assert dataset.metadata["frame"][1] == "val/v/000008.JPEG"
    assert_conforms(dataset, lambda: open_dataset(root))
    assert open_dataset(root, space="imagenet-1k").space.name == "vid-robust-30", "said of the classifier"
    with pytest.raises(LabelError):
        open_dataset(root, space="cifar-10")


@pytest.mark.parametrize(
    ("best", "expected"),
    [
        ([4, 4, 4, 4, 0, 0], {0: 1.0, 1: 1.0, 2: 1.0}),
        ([4, 8, 8, 4, 1, 1], {0: 1.0, 1: 1.0, 2: 1.0}),  # any of several labels is right
        ([4, 9, 9, 4, 1, 1], {0: 1.0, 1: 1.0, 2: 0.5}),  # the frame at -2 is wrong: pm-2 alone sees it
        ([4, 4, 4, 9, 9, 9], {0: 0.5, 1: 0.0, 2: 0.0}),
        ([9, 4, 4, 4, 0, 0], {0: 0.5, 1: 0.5, 2: 0.5}),  # a wrong anchor is wrong whatever its neighbours are
    ],
)
def test_pm_k_for_any_k(tmp_path: Path, best: list[int], expected: dict[int, float]) -> None:
    found = predictions(open_vid_robust(small_vid(tmp_path)), best)
    assert {k: pm_k_of_predictions(found, k).value for k in expected} == expected
    assert pm_k_of_predictions(found).value == expected[2] and pm_k_of_predictions(found, 10).n == 2


def test_anchors_with_an_unreadable_frame_within_k_are_left_out(tmp_path: Path) -> None:
    found = predictions(open_vid_robust(small_vid(tmp_path)), [4, SKIPPED, SKIPPED, 4, 0, 0])
    assert (
        pm_k_of_predictions(found, 1).n == 2
        and pm_k_of_predictions(found, 2).n == 1
        and pm_k_of_predictions(found, 2).value == 1.0
    )


def test_no_anchor_left_is_no_number(tmp_path: Path) -> None:
    score = pm_k_of_predictions(predictions(open_vid_robust(small_vid(tmp_path)), [SKIPPED] * 6), 0)
    assert score.n == 0 and np.isnan(score.value)


def test_missing_frames_and_annotations_are_named(tmp_path: Path) -> None:
    root = small_vid(tmp_path / "vid")
    (root / "val" / "v" / "000011.JPEG").unlink()
    with raises(DatasetError, expected="every anchor and every valid neighbour"):
        open_vid_robust(root)
    (root / "metadata" / "labels.json").unlink()
    with raises(DatasetError, found="no pmsets.json, labels.json"):
        open_vid_robust(root)


def test_row_ids_read_back() -> None:
    for anchor in ("v/1.JPEG", "a@b/frame-3.jpg", "x#y.png"):
        for offset in (-10, 0, 3):
            for copy in (1, 2, 12):
                assert parse_row_id(row_id(anchor, offset, copy)) == (anchor, offset)


def test_k_keeps_fewer_frames(tmp_path: Path) -> None:
    write(tmp_path, *(f"v/{i}.png" for i in range(5)))
    anchor = Anchor("v/2.png", (1,), {o: (f"v/{2 + o}.png", (1,)) for o in (-2, -1, 1, 2)})
    space = label_space("cifar-10")
    assert [len(frame_dataset("v", space, tmp_path, [anchor], k=k)) for k in (0, 1, 2, None)] == [1, 3, 5, 5]
    with raises(DatasetError, expected="a label for each anchor and neighbour"):
        frame_dataset("v", space, tmp_path, [Anchor("v/2.png", (), {})])


def test_the_published_sets_of_imagenet_vid_robust(
    reference_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,109 anchors, 21,070 neighbours, and pm-k as a plain count over pmsets and labels gives it."""
    folder = reference_data / TESTBED / "imagenet-vid-robust_metadata"
    monkeypatch.setattr(videos, "_require_files", lambda *_: None)
    dataset = open_vid_robust(tmp_path, metadata=folder)
    frames = set(dataset.metadata["frame"])
    assert len(frames) == 1_109 + 21_070 and len(set(dataset.metadata["anchor"])) == 1_109
    pmsets = json.loads((folder / "pmsets.json").read_text())
    labels = json.loads((folder / "labels.json").read_text())
    rng = random.Random(0)
    answer = {f: rng.choice(labels[f]) if rng.random() < 0.97 else rng.randrange(30) for f in sorted(frames)}
    right = {frame: answer[frame] in labels[frame] for frame in frames}
    found = predictions(dataset, [answer[frame] for frame in dataset.metadata["frame"]])
    assert pm_k_of_predictions(found, 0).value == sum(right[a] for a in pmsets) / 1_109
    plain = sum(right[a] and all(right[f] for f in near) for a, near in pmsets.items()) / 1_109
    assert pm_k_of_predictions(found, 10).value == plain and pm_k_of_predictions(found, 10).n == 1_109
    assert 0.3 < plain < 0.8


def small_ytbb(root: Path) -> Path:
    marks = ["good", "unsure", "bad", "person", "dog", "car"]
    key = "{}_100/frame-{}.jpg".format
    anchors = [
        (key("a", 20), ["good"]),
        ("/somewhere/else/" + key("b", 30), ["good", "person"]),
        (key("c", 5), ["good", "unsure"]),
        (key("d", 6), ["bad"]),
        (key("e", 7), ["good"]),
    ]
    pair_marks = ["similar", "dissimilar", "blur-increase", "bad-anchor", "correct"]
    pairs = [
        (key("a", 20), key("a", 21), ["similar", "correct"]),
        (key("a", 20), key("a", 19), ["similar", "blur-increase"]),
        (key("a", 20), key("a", 18), ["correct"]),
        (key("b", 30), key("b", 28), ["similar"]),
        (key("e", 7), key("e", 8), ["similar", "bad-anchor"]),
    ]
    folder = root / "metadata"
    folder.mkdir(parents=True)
    first = [{"key": k, "notes": "", "labels": [marks.index(m) for m in found]} for k, found in anchors]
    second = [{"key": f"{a},{b}", "labels": [pair_marks.index(m) for m in found]} for a, b, found in pairs]
    (folder / YTBB_FILES[0]).write_text(json.dumps({"annotations": first, "labels": marks}))
    (folder / YTBB_FILES[1]).write_text(json.dumps({"annotations": second, "labels": pair_marks}))
    rows = ["ytid,time_ms,label", "a,100,22", "b,100,19", "c,100,1", "d,100,1", "e,100,1"]
    (folder / YTBB_FILES[2]).write_text("\n".join(rows) + "\n")
    write(root, *(key(v, n) for v, n in (("a", 20), ("a", 21), ("b", 30), ("b", 28))))
    return root


def test_ytbb_robust_takes_good_anchors_similar_neighbours_and_the_anchors_labels(tmp_path: Path) -> None:
    root = small_ytbb(tmp_path / "ytbb")
    assert recognise_path(root) == ("ytbb-robust", "the frames of YTBB-Robust")
    dataset = open_dataset(root)
    names = [dataset.space.names[label] for label in dataset.labels]
    assert list(zip(dataset.ids, names, strict=True)) == [
        ("a_100/frame-20.jpg", "car"),  # 22 in the CSV file is car, 23 none: the reverse of the class list
        ("a_100/frame-20.jpg@+1", "car"),
        ("b_100/frame-30.jpg", "dog"),
        ("b_100/frame-30.jpg#2", "person"),
        ("b_100/frame-30.jpg@-2", "dog"),
        ("b_100/frame-30.jpg@-2#2", "person"),
    ]
    assert_conforms(dataset, lambda: open_dataset(root))


def test_the_published_anchors_of_ytbb_robust(
    reference_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = reference_data / TESTBED / "ytbb-robust_metadata"
    for file in (YTBB_FILES[0], YTBB_FILES[2]):
        (tmp_path / file).write_text((folder / file).read_text())
    (tmp_path / YTBB_FILES[1]).write_text(json.dumps({"annotations": [], "labels": ["similar"]}))
    monkeypatch.setattr(videos, "_require_files", lambda *_: None)
    dataset = open_ytbb_robust(tmp_path)
    annotations = json.loads((folder / YTBB_FILES[0]).read_text())
    good = [row for row in annotations["annotations"] if 0 in row["labels"] and not {1, 2} & set(row["labels"])]
    assert len({parse_row_id(row)[0] for row in dataset.ids}) == len(good) == 2_169
    found = predictions(dataset, dataset.labels.tolist())
    assert pm_k_of_predictions(found, 10).value == pm_k_of_predictions(found, 0).value == 1.0, (
        "no neighbour: right if the anchor is"
    )


def test_a_frame_with_several_labels_is_no_copy(tmp_path: Path) -> None:
    small_vid(tmp_path)
    dataset = open_vid_robust(tmp_path)
    assert len(set(dataset.digests(range(len(dataset))))) < len(dataset)
    assert copy_remarks(dataset) == []
    assert copy_remarks(Subset(dataset, range(1, len(dataset)))) == []
