"""The whole way of a test set on real pictures: pool, annotation, sample, review, freeze, evaluation."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image as Pillow

import shiftbench as sb
from shiftbench.labels.space import LabelSpace
from shiftbench.testsets.configuration import configuration_for
from shiftbench.testsets.database.tables import Entry
from shiftbench.testsets.freezing import freeze, verify
from shiftbench.testsets.frequencies import selection_frequencies
from shiftbench.testsets.pool.importing import import_pictures
from shiftbench.testsets.predictions import frequency_accuracy
from shiftbench.testsets.project import Project
from shiftbench.testsets.reviewing import mark
from shiftbench.testsets.revisions import difference, revision_images, sample, set_status
from shiftbench.testsets.sampling.base import Annotated, largest_remainder, make_sampling
from shiftbench.testsets.sampling.matched_frequency import MatchedFrequency
from shiftbench.testsets.tasks import make_tasks
from tests.testsets.conftest import NewProject
from tests.testsets.helpers import annotators, by_share, cifar, fill, work


def test_from_pool_to_evaluation(new_project: NewProject, tmp_path: Path) -> None:
    project = new_project()
    fill(project)
    work(project, annotators(project, 3), by_share)
    strategy = make_sampling("matched-frequency", min_annotations=3, min_references=6)
    first, changed = sample(project, "matched", strategy, per_class=4)
    assert (first.number, changed, first.images) == (1, True, 12)
    gone = revision_images(project, "matched")[0]
    mark(project, gone.entry, "blacklist", "a drawing")
    assert set_status(project, "matched").to_remove == {gone.digest: "blacklist"}
    second, changed = sample(project, "matched")
    assert (second.number, changed) == (2, True)
    change = difference(project, "matched", 1, 2)
    assert [(image.digest, why) for image, why in change.removed] == [(gone.digest, "blacklist: a drawing")]
    assert change.kept == 11 and len(change.added) == 1 - second.report["short"].get(gone.class_key, 0)
    frozen = freeze(project, "matched", allow_short=True)
    assert verify(project, "matched") == frozen

    run = sb.evaluate("demo:resnet8-cifar10", f"testset:{project.folder}", workspace=tmp_path / "w", progress=False)
    assert {setting for _, setting, _ in run.scores()} == {"pets-matched", "pets-reference"}


FOUR = LabelSpace("four", ("airplane", "dog", "frog", "truck"))


def spoilt(folder: Path, part: str, each: int, worst: int) -> Path:
    """A manifest of CIFAR-10's real pictures, more or less noisy; the keyword says how much."""
    pictures = cifar(part, each, FOUR)
    folder.mkdir()
    lines = []
    for i, label in enumerate(pictures.labels.tolist()):
        severity = i % (worst + 1)
        pixels = pictures.read(i).pixels
        if severity:
            pixels = sb.corrupt(pixels, "gaussian_noise", severity)
        Pillow.fromarray(pixels).save(folder / f"{i}.png")
        lines.append(json.dumps({"path": f"{i}.png", "label": FOUR.keys[label], "keyword": str(severity)}) + "\n")
    (folder / "list.jsonl").write_text("".join(lines))
    return folder / "list.jsonl"


def sees(annotator: int, entry: Entry, class_key: str) -> bool:
    """Nine of ten see what a clean picture shows, fewer and fewer a spoilt one; one in fifty errs on other classes."""
    text = f"{annotator}/{entry.image.digest}/{class_key}".encode()
    chance = int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") / 2**32
    return chance < (0.98 - 0.19 * int(entry.keyword or 0) if entry.class_key == class_key else 0.02)


@pytest.mark.slow
def test_the_order_of_effects(tmp_path: Path) -> None:
    """Paper 004: a real classifier finds TopImages easier than Threshold0.7, and that easier than MatchedFrequency;
    the matched set has the selection frequencies of the reference."""
    project = Project.create(tmp_path / "new", configuration_for(FOUR, "new"))
    import_pictures(project, spoilt(tmp_path / "candidates", "test", 60, 5))
    import_pictures(project, spoilt(tmp_path / "references", "train", 24, 3), "reference")
    make_tasks(project)
    work(project, annotators(project, 10), sees)
    for name in ("top-images", "threshold", "matched-frequency"):
        sample(project, name, make_sampling(name), per_class=10)
        freeze(project, name)

    rows = [row for row in selection_frequencies(project) if row.annotations >= 10]
    chosen = {image.digest for image in revision_images(project, "matched-frequency")}
    matched = MatchedFrequency()
    for key in FOUR.keys:
        bins = [Counter(matched.bin_of(Annotated("", key, row.selected, row.annotations)) for row in part) for part in (
            [row for row in rows if row.class_key == key and row.role == "reference"],
            [row for row in rows if row.class_key == key and row.digest in chosen],
        )]  # fmt: skip
        wished = largest_remainder([bins[0][b] for b in range(5)], 10, ties_to_last=True)
        assert [bins[1][b] for b in range(5)] == wished

    run = sb.evaluate("demo:resnet8-cifar10", f"testset:{project.folder}", workspace=tmp_path / "w", progress=False)
    accuracy = {setting: score.value for _, setting, score in run.scores()}
    assert accuracy["new-top-images"] > accuracy["new-threshold"] > accuracy["new-matched-frequency"]
    assert abs(accuracy["new-matched-frequency"] - accuracy["new-reference"]) < 0.15
    easy, hard = (bins[0] for bins in (
        [one for one in frequency_accuracy(project, "matched-frequency", tmp_path / "w") if one.images][::-1],
        [one for one in frequency_accuracy(project, "matched-frequency", tmp_path / "w") if one.images],
    ))  # fmt: skip
    assert easy.accuracy is not None and hard.accuracy is not None and easy.accuracy > hard.accuracy
    project.close()
