"""Near-duplicates and adversarial filtration as a user types them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets.catalogue import open_named
from shiftbench.errors import StoreError
from shiftbench.testsets.project import Project
from shiftbench.testsets.review import judge, suspicions
from tests.commands import call
from tests.testsets.helpers import cifar
from tests.testsets.test_cli import data, pets, run

__all__ = ["pets"]


def write_folder(folder: Path, part: str, each: int) -> list[Path]:
    dataset = cifar(part, each)
    paths = []
    for index, label in enumerate(dataset.labels.tolist()):
        path = folder / dataset.space.keys[label] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(dataset.read(index).pixels).save(path)
        paths.append(path)
    return paths


def test_planted_duplicates_wait_for_reviewers(pets: Path, tmp_path: Path) -> None:
    """A reference image and a candidate, saved again as JPEG, are found; other pictures are not suspected."""
    candidates = write_folder(tmp_path / "candidates", "test", 12)
    references = write_folder(tmp_path / "references", "train", 12)
    twins = {"again-reference.jpg": references[0], "again-candidate.jpg": candidates[-1]}
    for name, original in twins.items():
        Image.open(original).save(tmp_path / "candidates" / original.parent.name / name, quality=80)
    run("import", pets, tmp_path / "candidates", "-q")
    run("import", pets, tmp_path / "references", "--reference", "-q")
    first = call("testset", "dedupe", pets, "-q", "--json")
    assert first.exit_code == 0, first.output
    assert len(json.loads(first.stdout)["pairs"]) == 2
    assert "2 new pairs" in first.stderr
    assert "0 new pairs" in run("dedupe", pets, "-q"), "nothing is asked twice"
    project = Project.open(pets)
    pairs = suspicions(project)
    assert sorted(pair.resembles.partition(",")[0] for pair in pairs) == ["candidate", "reference"]
    for pair in pairs:
        judge(project, pair.id, duplicate=True)
    project.close()
    assert "0 new pairs" in run("dedupe", pets, "-q"), "what was judged stays judged"
    assert "invalid threshold" in str(call("testset", "dedupe", pets, "--threshold", "ssim=7").exception)


@pytest.mark.soak
def test_a_ray_cluster_describes_the_pictures(pets: Path, tmp_path: Path) -> None:
    """By a real network; the pairs are those that this machine alone finds."""
    pytest.importorskip("ray")
    original = write_folder(tmp_path / "candidates", "test", 4)[0]
    Image.open(original).save(original.with_name("again.jpg"), quality=80)
    run("import", pets, tmp_path / "candidates", "-q")
    words = ("testset", "dedupe", pets, "-q", "--json", "--by", "demo:squeezenet1_1")
    cluster = call(*words, "--executor", "ray", "--workers", 2)
    assert cluster.exit_code == 0, (cluster.output, cluster.exception)
    shutil.rmtree(pets / "descriptors")
    assert json.loads(call(*words).stdout)["pairs"] == json.loads(cluster.stdout)["pairs"] != []


def test_filtered_pictures_fool_the_classifier_and_enter_the_pool_without_predictions(tmp_path: Path) -> None:
    """Against a plain loop over ten crops of all photographs with the real SqueezeNet."""
    photographs = open_named("demo")
    folder = tmp_path / "photographs"
    indices = list(range(0, len(photographs), 7))
    for index in indices:
        path = folder / photographs.space.keys[int(photographs.labels[index])] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(photographs.read(index).pixels).save(path)
    options = ("-c", "demo:squeezenet1_1", "-q", "--max-confidence")
    funnel = data("filter", folder, tmp_path / "hard", *options, "0.4")
    images = sorted((tmp_path / "hard" / "images").rglob("*.png"))
    with (tmp_path / "hard" / "review.csv").open() as file:
        listed = {row["image"] for row in csv.DictReader(file)}
    assert len(images) == len(listed) == funnel["rows"][-1]["left"] > 0
    assert {f"{path.parent.name}/{path.name.split('-', 1)[1]}" for path in images} == listed == by_hand(folder, 0.4)
    refused = call("testset", "filter", folder, tmp_path / "hard", *options, "0.0001")  # another shortlist
    assert isinstance(refused.exception, StoreError)
    run("init", tmp_path / "pool", "--labels", "imagenet-1k")
    assert f"{len(images)} new candidates" in run("import", tmp_path / "pool", tmp_path / "hard" / "images", "-q")
    assert call("testset", "filter", folder, tmp_path / "x", "-c", "a", "--recipe", "imagenet-z").exit_code == 2


def by_hand(folder: Path, limit: float) -> set[str]:
    """Wrong in all ten crops, and never more than ``limit`` sure of the truth."""
    classifier = load_classifier("demo:squeezenet1_1")
    size = classifier.preprocessing.geometry.crop
    assert isinstance(size, int)
    kept = set()
    for path in sorted(folder.rglob("*.png")):
        picture = Image.open(path).convert("RGB")
        crops = ten_crops(picture, classifier.preprocessing.geometry.resize, size)
        scores = classifier.scores(np.stack(crops)).astype(np.float64)
        chances = np.exp(scores - scores.max(1, keepdims=True)) if classifier.outputs == "logits" else scores
        chances /= chances.sum(1, keepdims=True)
        label = classifier.space.index(path.parent.name)
        if (chances.argmax(1) != label).all() and chances[:, label].max() <= limit:
            kept.add(f"{path.parent.name}/{path.name}")
    return kept


def ten_crops(picture: Image.Image, resize: object, size: int) -> list[np.ndarray[tuple[int, ...], np.dtype[np.uint8]]]:
    """Four corners and the centre of the resized picture, and their mirror images."""
    short = resize if isinstance(resize, int) and resize > size else round(size * 8 / 7)
    scale = short / min(picture.size)
    width, height = (round(side * scale) if side != min(picture.size) else short for side in picture.size)
    resized = np.asarray(picture.resize((width, height), Image.Resampling.BILINEAR))
    tops = (0, 0, height - size, height - size, (height - size) // 2)
    lefts = (0, width - size, 0, width - size, (width - size) // 2)
    crops = [resized[top : top + size, left : left + size] for top, left in zip(tops, lefts, strict=True)]
    return [*crops, *(crop[:, ::-1] for crop in crops)]


def test_pictures_of_unknown_things_that_a_classifier_is_sure_of(tmp_path: Path) -> None:
    """Photographs under names that are no classes: those on which the real network is at least 90 % confident."""
    photographs = open_named("demo")
    folder = tmp_path / "strange"
    classifier = load_classifier("demo:squeezenet1_1")
    sure = set()
    for index in range(0, len(photographs), 9):
        path = folder / f"thing-{index % 2}" / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = photographs.read(index).pixels
        Image.fromarray(pixels).save(path)
        scores = classifier.scores(classifier.preprocessing.geometry(pixels)[None]).astype(np.float64)[0]
        chances = np.exp(scores - scores.max()) if classifier.outputs == "logits" else scores
        if chances.max() / chances.sum() >= 0.9:
            sure.add(f"{path.parent.name}/{index}.png")
    options = ("-c", "demo:squeezenet1_1", "--recipe", "imagenet-o", "--min-confidence", "0.9", "-q")
    funnel = data("filter", folder, tmp_path / "odd", *options)
    names = {f"{p.parent.name}/{p.name.split('-', 1)[1]}" for p in (tmp_path / "odd" / "images").rglob("*.png")}
    assert names == sure and 0 < len(sure) == funnel["rows"][-1]["left"] < 13


@pytest.mark.parametrize("command", ["dedupe", "filter"])
def test_help_teaches(command: str) -> None:
    assert "shiftbench testset" in run(command, "--help")
