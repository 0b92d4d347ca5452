"""Every natural test set end to end: trees in the official layouts, real pictures, a real classifier.

All go through ``shiftbench eval``; every accuracy is counted a second time by hand, from the files themselves.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.official import open_objectnet
from shiftbench.metrics.detection import aupr
from shiftbench.metrics.video import pm_k_of_predictions
from shiftbench.settings.base import build_suite
from tests.commands import output
from tests.datasets import official_trees as trees
from tests.runs import by_hand

SQUEEZENET = "demo:squeezenet1_1"
SUITES = "natural,natural-adversarial,stylized-imagenet"
FULL = trees.FULL
Truths = dict[str, trees.Truth]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def truths(root: Path) -> Truths:
    """Every role of the suites, from every sixth photograph."""
    return trees.make_all(root, trees.photographs()[::6])


@pytest.fixture(scope="module")
def summary(root: Path, truths: Truths) -> dict[str, Any]:
    """One command for all of them."""
    arguments = ["eval", SQUEEZENET, "--suite", SUITES, "--data", str(root), "--labels", "imagenet-1k"]
    options = ["--workspace", str(root / "w"), "--keep-scores", "--json", "--quiet"]
    result = output(*arguments, *options)
    found: dict[str, Any] = json.loads(result)
    return found


@pytest.fixture(scope="module")
def run(root: Path, summary: dict[str, Any]) -> sb.Run:
    return sb.Run.open(root / "w")


@pytest.fixture(scope="module")
def scores(root: Path, truths: Truths) -> dict[str, by_hand.Scores]:
    """All files of a role through the network, by hand."""
    return {
        role: by_hand.squeezenet([root / role / file for file in truth], border=2 if role == "objectnet" else 0)
        for role, truth in truths.items()
    }


def test_nothing_is_left_out(summary: dict[str, Any]) -> None:
    settings = build_suite(SUITES).settings
    assert summary["left_out"] == {} and {row["setting"] for row in summary["scores"]} == {s.name for s in settings}
    assert len(settings) == 26 and summary["problems"] == []
    assert summary["warnings"] == [], (
        "grey, blurred and painted photographs are hard, and no reason to doubt the labels"
    )


SETTINGS = [setting for setting in build_suite(SUITES).settings if not setting.metric.startswith("pm")]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_count_and_accuracy_are_those_of_the_files(
    setting: sb.Setting, summary: dict[str, Any], truths: Truths, scores: dict[str, by_hand.Scores]
) -> None:
    row = next(row for row in summary["scores"] if row["setting"] == setting.name)
    truth = truths[setting.dataset]
    space = sb.label_space(setting.space or "imagenet-1k")
    groups = space.members or tuple((key,) for key in space.keys)
    owner = {wnid: key for key, group in zip(space.keys, groups, strict=True) for wnid in (*group, key)}
    used = [i for i, key in enumerate(truth.values()) if key in owner]
    best = by_hand.best_keys(scores[setting.dataset][used], space)
    right = [owner[list(truth.values())[i]] == key for i, key in zip(used, best, strict=True)]
    assert (row["n"], row["value"]) == (len(right), sum(right) / len(right))
    assert row["metric"] == "top1" and row["low"] <= row["value"] <= row["high"]


def test_the_accuracies_are_those_of_a_classifier_that_sees(summary: dict[str, Any]) -> None:
    """The same photographs under six layouts of V2; grey, blurred and painted ones are harder."""
    value = {row["setting"]: row["value"] for row in summary["scores"]}
    v2 = [name for name in value if name.startswith("imagenetv2")]
    assert len(v2) == 6 and {value[name] for name in v2} == {value["val"]} and value["val"] > 0.6
    for harder in ("imagenet-sketch", "real-blurry-images", "stylized_imagenet"):
        assert 0.3 < value[harder] < value["val"]
    assert value["imagenet-a"] >= value["imagenet-a.unmasked"] and value["imagenet-r"] >= value["imagenet-r.unmasked"]
    assert value["imagenet-o"] < 0.1, "no folder names what is to be seen"


@pytest.mark.parametrize(("role", "neighbours"), [("imagenet-vid-robust", 3), ("ytbb-robust", 2)])
def test_pm_k_is_that_of_the_frames(
    role: str, neighbours: int, run: sb.Run, truths: Truths, scores: dict[str, by_hand.Scores]
) -> None:
    """Max over the members of each class, then the anchor and every neighbour up to k frames away must be right."""
    truth = truths[role]
    space = sb.label_space("vid-robust-30" if "vid" in role else "ytbb-robust-24")
    best = by_hand.best_keys(scores[role], space)
    videos: dict[str, dict[int, bool]] = defaultdict(dict)
    for (file, key), answer in zip(truth.items(), best, strict=True):
        number = int(re.findall(r"\d+", Path(file).stem)[-1])
        videos[Path(file).parent.name][number - (20 if "vid" in role else 500)] = answer == key
    assert {len(frames) for frames in videos.values()} == {neighbours + 1}
    stored = run.predictions(setting=f"{role}_pm10")
    for k in (0, 1, 2, 9, 10):
        plain = [all(hit for offset, hit in frames.items() if abs(offset) <= k) for frames in videos.values()]
        found = pm_k_of_predictions(stored, k)
        assert (found.n, found.value) == (len(videos), sum(plain) / len(videos)), k
    published = {setting: score.value for _, setting, score in run.scores()}
    assert published[f"{role}_pm0"] == pm_k_of_predictions(stored, 0).value
    assert published[f"{role}_pm10"] == pm_k_of_predictions(stored, 10).value


def test_the_border_of_objectnet_is_gone_before_the_classifier_sees_it(root: Path, truths: Truths, run: sb.Run) -> None:
    assert "2 px border cropped" in run.predictions(setting="objectnet-1.0-beta").provenance
    file = next(iter(truths["objectnet"]))
    image_id = file.removeprefix("images/")
    whole = np.asarray(Image.open(root / "objectnet" / file))
    assert all((edge == (255, 0, 0)).all() for edge in (whole[:2], whole[-2:], whole[:, :2], whole[:, -2:]))
    seen = sb.open_dataset(root / "objectnet")
    np.testing.assert_array_equal(seen.read(list(seen.ids).index(image_id)).pixels, whole[2:-2, 2:-2])
    kept = open_objectnet(root / "objectnet", border=0)
    np.testing.assert_array_equal(kept.read(list(kept.ids).index(image_id)).pixels, whole)


def test_the_packing_of_imagenetv2_is_told(run: sb.Run) -> None:
    told = {setting: run.predictions(setting=setting).provenance for setting in run.settings if "v2" in setting}
    assert [name for name, line in told.items() if "(wnid folders)" in line] == ["imagenetv2-top-images-format-val"]


def test_photographs_of_other_classes_are_found_by_their_confidence(run: sb.Run) -> None:
    known, unknown = (run.predictions(setting=name) for name in ("val-on-imagenet-o-classes", "imagenet-o"))
    assert len(known.space) == len(unknown.space) == 200
    chance = len(unknown) / (len(known) + len(unknown))
    assert aupr(-known.confidence, -unknown.confidence) > chance + 0.05


class CountingClassifier(sb.Classifier):
    """Counts the images that it is asked about."""

    def __init__(self, base: sb.Classifier) -> None:
        self.base = base
        self.seen = 0
        self.name = "counting"
        self.space = base.space
        self.preprocessing = base.preprocessing
        self.outputs = base.outputs
        self.batch_size = base.batch_size
        self.self_contained = True  # so that it is asked for the images of the data alone

    @property
    def fingerprint(self) -> str:
        return self.base.fingerprint

    def scores(self, images: NDArray[np.uint8]) -> by_hand.Scores:
        self.seen += len(images)
        return self.base.scores(images)


class CountingDataset(sb.Dataset):
    """Counts how often pictures are read."""

    def __init__(self, base: sb.Dataset) -> None:
        self.base = base
        self.reads = 0
        self.name = base.name
        self.space = base.space
        self.ids = base.ids
        self.labels = base.labels

    @property
    def fingerprint(self) -> str:
        return self.base.fingerprint

    def read(self, index: int) -> DecodedImage:
        self.reads += 1
        return self.base.read(index)


def test_val_and_all_its_restrictions_are_one_pass(root: Path, truths: Truths, tmp_path: Path) -> None:
    """Each image is read once and goes through the classifier once for val and for all that is restricted from it."""
    val = CountingDataset(open_folder(root / "imagenet-val", space="imagenet-1k", name="val"))
    classifier = CountingClassifier(load_classifier(SQUEEZENET))
    every = build_suite("natural,natural-adversarial,testbed-213").settings
    wanted = [s for s in every if s.dataset == "imagenet-val" and s.source is None and not s.name.startswith("pgd.")]
    assert {s.name for s in wanted} == {
        "val",
        *(f"val-on-{name}-classes" for name in ("imagenet-a", "imagenet-o", "imagenet-r", "objectnet")),
        *(f"val-on-{name}-robust-classes" for name in ("vid", "ytbb")),
        "val_subsampled_class_1_8",
    }
    run = sb.evaluate(classifier, wanted, {"imagenet-val": val}, tmp_path, workers=1, progress=False)
    assert val.reads == classifier.seen == len(truths["imagenet-val"])
    sizes = {setting: score.n for _, setting, score in run.scores()}
    assert sizes["val"] == len(val) and all(0 < n < len(val) for name, n in sizes.items() if name != "val")
    sb.evaluate(classifier, wanted, {"imagenet-val": val}, tmp_path, workers=1, progress=False)
    assert classifier.seen == len(val), "and not again"
