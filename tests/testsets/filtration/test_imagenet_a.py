"""ImageNet-A's recipe against a plain loop with other tools, on real photographs and with real classifiers."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.special import softmax

import shiftbench as sb
from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.subset import take
from shiftbench.errors import ClassifierError, LabelError, ShiftbenchError, StoreError
from shiftbench.labels.space import LabelSpace
from shiftbench.outputs.record import Staging
from shiftbench.testsets.filtration import (
    RECORD,
    Filtration,
    Funnel,
    FunnelStep,
    Shortlisted,
    Views,
    filter_adversarially,
)
from tests.testsets.filtration.kill_target import BLOCKS, IMAGES, SEEN, STALL, run


@pytest.fixture(scope="module")
def squeezenet() -> Classifier:
    return sb.load_classifier("demo:squeezenet1_1")


@pytest.fixture(scope="module")
def photographs() -> Dataset:
    """Photographs that fool none, one or both of two classifiers."""
    return take(open_named("demo"), [23, 32, 40, 99])


def crops_by_torchvision(picture: NDArray[np.uint8], geometry: sb.Geometry) -> list[NDArray[np.uint8]]:
    transforms: Any = import_torchvision().transforms
    mode = transforms.InterpolationMode(geometry.interpolation)
    resized = transforms.functional.resize(Image.fromarray(picture), geometry.resize, mode)
    return [np.array(crop) for crop in transforms.TenCrop(geometry.crop)(resized)]


def test_ten_crops_are_those_of_torchvision() -> None:
    """From the whole picture, wide or tall; 224 of 256, so that the middle of the mirror image is no matter."""
    classifier = sb.load_classifier("demo:efficientnet-lite0")
    picture = open_named("demo").read(93).pixels  # 1024 x 683
    for view in (picture, np.ascontiguousarray(picture.swapaxes(0, 1))):
        ours = Views.of(classifier, ten=True)(view)
        theirs = crops_by_torchvision(view, classifier.preprocessing.geometry)
        assert Counter(crop.tobytes() for crop in ours) == Counter(crop.tobytes() for crop in theirs)


@dataclass(frozen=True)
class Seen:
    """What one classifier makes of one picture."""

    right: bool
    truth: float
    taken_for: str


def plain_loop(dataset: Dataset, classifier: Classifier, space: LabelSpace) -> list[Seen]:
    """Crop by crop, with torchvision's crops and SciPy's softmax."""
    columns = [classifier.space.index(key) for key in space.keys]
    seen = []
    for i, label in enumerate(dataset.labels.tolist()):
        crops = crops_by_torchvision(dataset.read(i).pixels, classifier.preprocessing.geometry)
        scores = np.concatenate([classifier.scores(crop[None]) for crop in crops])[:, columns]
        chances = softmax(scores.astype(np.float64), axis=1)
        target = space.index(dataset.space.keys[label])
        other_classes = np.delete(np.arange(len(space)), target)
        taken_for = space.names[other_classes[chances.mean(axis=0)[other_classes].argmax()]]
        seen.append(Seen(bool((chances.argmax(axis=1) == target).any()), float(chances[:, target].max()), taken_for))
    return seen


def test_two_classifiers_on_photographs(photographs: Dataset, tmp_path: Path) -> None:
    classifiers = [sb.load_classifier(f"demo:{name}") for name in ("efficientnet-lite0", "efficientnet-lite1")]
    seen = [plain_loop(photographs, classifier, photographs.space) for classifier in classifiers]
    lengths = set()
    for used, limit in ((1, 0.15), (2, 0.15), (2, 0.02)):
        filtration = filter_adversarially(photographs, classifiers[:used], max_confidence=limit, folder=tmp_path)
        both = list(zip(*seen[:used], strict=True))
        wrong = [i for i, looks in enumerate(both) if not any(look.right for look in looks)]
        unsure = [i for i in wrong if max(look.truth for look in both[i]) <= limit]
        assert [step.left for step in filtration.funnel.steps] == [4, 4, len(wrong), len(unsure), len(unsure)]
        assert {image.index: image.taken_for for image in filtration.shortlist} == {
            i: seen[0][i].taken_for for i in unsure
        }
        for image in filtration.shortlist:
            truth = max(look.truth for look in both[image.index])
            assert image.true_confidence == pytest.approx(truth, rel=1e-3, abs=1e-6)
        truths = [image.true_confidence for image in filtration.shortlist]
        assert truths == sorted(truths)
        lengths.add(len(unsure))
    assert len(lengths) > 1 and 0 < max(lengths) < 4, "thresholds and classifiers matter on these pictures"


def test_only_the_named_classes_compete() -> None:
    """With 200 of the thousand classes: other images are left out, other classes do not take confidence away."""
    space = sb.label_space("imagenet-a-200")
    lite = sb.load_classifier("demo:efficientnet-lite0")
    demo = take(open_named("demo"), range(0, 114, 9))
    inside = [i for i, label in enumerate(demo.labels.tolist()) if demo.space.keys[label] in space]
    filtration = filter_adversarially(demo, [lite], space=space, max_confidence=1.0, per_confusion=None)
    assert [step.left for step in filtration.funnel.steps[:2]] == [len(demo), len(inside)]
    assert list(filtration.pool.ids) == [demo.ids[i] for i in inside] and 0 < len(inside) < len(demo)
    seen = plain_loop(take(demo, inside), lite, space)
    assert {image.index for image in filtration.shortlist} == {i for i, image in enumerate(seen) if not image.right}
    empty = 200 - len({image.label for image in filtration.shortlist})
    assert any(note.startswith(f"{empty} of 200 classes have no image left: ") for note in filtration.funnel.notes)


@pytest.fixture(scope="module")
def resnet8() -> Classifier:
    return sb.load_classifier("demo:resnet8-cifar10")


@pytest.fixture(scope="module")
def cifar() -> Dataset:
    return take(open_named("cifar-10-test"), range(400))


def test_a_confusion_has_at_most_so_many_images(cifar: Dataset, resnet8: Classifier, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_confidence": 0.6, "folder": tmp_path, "ten_crop": False}
    uncapped = filter_adversarially(cifar, [resnet8], per_confusion=None, **options)
    capped = filter_adversarially(cifar, [resnet8], per_confusion=2, **options)
    confusions = Counter((image.label, image.taken_for) for image in uncapped.shortlist)
    assert max(confusions.values()) > 2
    assert Counter((image.label, image.taken_for) for image in capped.shortlist) == {
        pair: min(count, 2) for pair, count in confusions.items()
    }
    for pair in confusions:  # the least confident in the truth stay
        truths = sorted(image.true_confidence for image in uncapped.shortlist if (image.label, image.taken_for) == pair)
        kept = [image.true_confidence for image in capped.shortlist if (image.label, image.taken_for) == pair]
        assert sorted(kept) == truths[: len(kept)]
    assert all(image.label != image.taken_for for image in uncapped.shortlist)


def test_small_inputs_are_enlarged_so_that_crops_differ(resnet8: Classifier, cifar: Dataset) -> None:
    """Its resize equals its crop: five equal crops would make ten views into two."""
    crops = Views.of(resnet8, ten=True)(cifar.read(0).pixels)
    assert crops.shape == (10, 32, 32, 3) and len({crop.tobytes() for crop in crops}) == 10


def test_the_result_does_not_depend_on_workers_or_the_folder(
    cifar: Dataset, resnet8: Classifier, tmp_path: Path
) -> None:
    subset = take(cifar, range(70))
    tables = [
        filter_adversarially(subset, [resnet8], max_confidence=0.5, folder=folder, workers=workers)
        .review_list()
        .to_json()
        for folder, workers in ((None, 1), (None, 3), (tmp_path, 2), (tmp_path, 1))
    ]
    assert len(set(tables)) == 1


def test_the_shortlist_is_a_data_set_and_a_list_for_people(cifar: Dataset, resnet8: Classifier) -> None:
    filtration = filter_adversarially(cifar, [resnet8], max_confidence=0.5, ten_crop=False)
    subset = filtration.subset()
    assert sorted(subset.ids) == sorted(image.image for image in filtration.shortlist) and len(subset) > 30
    scores = resnet8.scores(
        np.stack([resnet8.preprocessing.geometry(subset.read(i).pixels) for i in range(len(subset))])
    )
    assert (scores.argmax(axis=1) != subset.labels).all(), "0 % by construction"
    table = filtration.review_list()
    assert table.to_csv().count("\n") == len(filtration.shortlist) + 1
    assert "first 30 of" in table.to_text(100)


def shards(folder: Path) -> int:
    return sum(1 for _ in folder.glob("*/*.npz"))


def test_a_killed_filtration_continues_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = tmp_path / "computed"
    expected_seen = tmp_path / "expected"
    resumed = tmp_path / "resumed"
    monkeypatch.setenv(SEEN, str(expected_seen))
    expected = run(None)
    command = [sys.executable, "-m", "tests.testsets.filtration.kill_target", str(computed)]
    process = subprocess.Popen(
        command,
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, SEEN: str(tmp_path / "killed"), STALL: "1"},
    )
    with process:
        assert process.stdout is not None and process.stdout.readline() == "stalled\n"
        process.kill()
    assert shards(computed) == BLOCKS
    monkeypatch.setenv(SEEN, str(resumed))
    continued = run(computed)
    assert expected_seen.stat().st_size == 10 * IMAGES
    assert resumed.stat().st_size == 10 * (IMAGES - 32 * BLOCKS)
    assert continued.shortlist == expected.shortlist and continued.funnel.steps == expected.funnel.steps
    assert shards(computed) == 0


def written(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_killed_shortlist_is_completed_and_another_refused(cifar: Dataset, tmp_path: Path) -> None:
    def shortlist(*indices: int) -> Filtration:
        rows = [Shortlisted(cifar.ids[i], i, "cat", "dog", 0.5, 0.1) for i in indices]
        return Filtration(cifar, Funnel([FunnelStep("candidates", len(cifar))], title="filtered"), tuple(rows))

    complete = tmp_path / "whole"
    killed = tmp_path / "killed"
    shortlist(1, 4, 6, 9).write(complete)
    child = os.fork()
    if not child:
        write = Staging.write
        numbers = itertools.count()
        die = partial(os.kill, os.getpid(), signal.SIGKILL)
        Staging.write = lambda *a, **k: write(*a, **k) if next(numbers) < 2 else die()  # type: ignore[method-assign]
        shortlist(1, 4, 6, 9).write(killed)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(list(killed.glob("images/*/*"))) == 2
    with pytest.raises(StoreError):
        shortlist(1, 4, 6).write(killed)
    for _ in range(2):
        shortlist(1, 4, 6, 9).write(killed)
        assert written(killed) == written(complete) and len(list(complete.glob("images/*/*"))) == 4
    (killed / RECORD).unlink()
    with pytest.raises(StoreError):
        shortlist(1, 4, 6, 9).write(killed)


def test_broken_pictures_are_counted_and_named(resnet8: Classifier, cifar: Dataset, tmp_path: Path) -> None:
    for i in range(4):
        target = tmp_path / cifar.space.keys[cifar.labels[i]] / f"{i}.png"
        target.parent.mkdir(exist_ok=True)
        Image.fromarray(cifar.read(i).pixels).save(target)
    (tmp_path / "ship").mkdir(exist_ok=True)
    (tmp_path / "ship" / "broken.png").write_bytes(b"\x89PNG")
    filtration = filter_adversarially(open_folder(tmp_path, space="cifar-10"), [resnet8], max_confidence=1)
    assert [step.left for step in filtration.funnel.steps[:2]] == [5, 4]
    assert [image for image, _ in filtration.unreadable] == ["ship/broken.png"]


def test_bad_wishes(cifar: Dataset, resnet8: Classifier, squeezenet: Classifier, tmp_path: Path) -> None:
    with pytest.raises(ShiftbenchError, match="no models"):
        filter_adversarially(cifar, [])
    with pytest.raises(ShiftbenchError, match="confidence"):
        filter_adversarially(cifar, [resnet8], max_confidence=15)
    with pytest.raises(ShiftbenchError, match="per_confusion"):
        filter_adversarially(cifar, [resnet8], per_confusion=0)
    with pytest.raises(LabelError):
        filter_adversarially(cifar, [squeezenet])  # knows no such classes
    (tmp_path / "answers.csv").write_text("id,prediction\na,1\n")
    recorded = sb.load_classifier(tmp_path / "answers.csv", labels="cifar-10")
    with pytest.raises(ClassifierError, match="crops"):
        filter_adversarially(cifar, [recorded])
