"""Wrong label maps are told for every natural set: the same photographs, filed by the field's usual mistakes."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import shiftbench as sb
from shiftbench.labels import guard
from tests.datasets import official_trees as trees

FULL = trees.FULL
#: Folders 0 to 999 sorted as text: the class at place i is taken for class i.
AS_TEXT = sorted(range(1000), key=str)
PHOTOS = trees.photographs()
WHOLE = (
    "imagenet-val",
    "imagenetv2-matched-frequency",
    "imagenetv2-threshold0.7",
    "imagenetv2-top-images",
    "imagenet-sketch",
    "real-blurry-images",
    "stylized-imagenet",
)


def warned(suite: str, data: Mapping[str, Path] | Path, workspace: Path, classifier: object) -> dict[str, str]:
    """The warning of each setting that has one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        sb.evaluate(classifier, suite, data, workspace, labels="imagenet-1k", progress=False)
    texts = [str(warning.message) for warning in caught if " on " in str(warning.message)]
    return dict(text.split(" on ", 1)[1].split(": ", 1) for text in texts)


def misfiled(photos: list[trees.Photograph], space: str | None) -> list[trees.Photograph]:
    """Sorted as text, or one class further within the classes of a smaller space."""
    if space is None:
        return [replace(photo, label=AS_TEXT.index(photo.label)) for photo in photos]
    target = sb.label_space(space)
    moved = []
    for photo in trees.of_space(space, photos):
        place = target.index(trees.owner(space, photo.wnid)) + 1
        while target.members is not None and not target.members[place % len(target)]:
            place += 1  # classes that ImageNet lacks have no photographs
        key = target.keys[place % len(target)]
        wnid = key if target.members is None else target.members[place % len(target)][0]
        moved.append(replace(photo, label=FULL.index(wnid)))
    return moved


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    root = tmp_path_factory.mktemp("misfiled")
    for role in WHOLE:
        trees.MAKERS[role](root / role, misfiled(list(PHOTOS[::4]), None))
    for role, space in (("imagenet-a", "imagenet-a-200"), ("imagenet-r", "imagenet-r-200")):
        trees.MAKERS[role](root / role, misfiled(list(PHOTOS), space))
    trees.objectnet(root / "objectnet", misfiled(list(PHOTOS), "objectnet-113"))
    trees.imagenet_vid_robust(root / "imagenet-vid-robust", misfiled(list(PHOTOS), "vid-robust-30"), most=8)
    trees.ytbb_robust(root / "ytbb-robust", misfiled(list(PHOTOS), "ytbb-robust-24"), most=8)
    return warned("natural,stylized-imagenet", root, root / "w", "demo:squeezenet1_1")


@pytest.mark.parametrize(
    "setting",
    [
        "val",
        "imagenetv2-matched-frequency",
        "imagenetv2-threshold0.7",
        "imagenetv2-topimages",
        "imagenet-sketch",
        "stylized_imagenet",
    ],
)
def test_folders_sorted_as_text_are_recognised(told: dict[str, str], setting: str) -> None:
    assert "labels look permuted" in told[setting] and "sorted as text" in told[setting]


@pytest.mark.parametrize("setting", ["imagenet-a", "imagenet-r"])
def test_classes_one_further_are_recognised(told: dict[str, str], setting: str) -> None:
    assert "labels look permuted" in told[setting] and "one class behind the labels" in told[setting]


@pytest.mark.parametrize(
    "setting", ["real-blurry-images", "objectnet-1.0-beta", "imagenet-vid-robust_pm0", "ytbb-robust_pm10"]
)
def test_few_or_hard_pictures_are_enough_to_doubt(told: dict[str, str], setting: str) -> None:
    """Too few to tell which mistake it was; enough to see that there is one."""
    assert "labels look permuted" in told[setting] or "chance level" in told[setting]


def test_pictures_chosen_to_fool_may_do_so(tmp_path: Path) -> None:
    """No hit at all is what ImageNet-A is made for; on ImageNet-R it is a sign of something wrong."""

    def blind(images: NDArray[np.uint8]) -> NDArray[np.float32]:
        scores = np.zeros((len(images), 1000), np.float32)
        scores[:, FULL.index("n03657121")] = 1  # a lens cap
        return scores

    trees.make_all(tmp_path, PHOTOS[::2], ["imagenet-val", "imagenet-a", "imagenet-o", "imagenet-r"])
    classifier = sb.load_classifier(blind, name="blind", labels="imagenet-1k")
    found = warned("natural,natural-adversarial", tmp_path, tmp_path / "w", classifier)
    assert {"val", "imagenet-r", "imagenet-r.unmasked"} <= set(found)
    assert not {"imagenet-a", "imagenet-a.unmasked", "imagenet-o"} & set(found)
    assert "one class: wrong preprocessing or untrained weights" in found["imagenet-r"]


def test_cifar_with_its_classes_in_another_order(tmp_path: Path) -> None:
    images, labels = trees.cifar_10_test()
    trees.cifar_binary(tmp_path / "cifar-10", images[:300], labels[:300])
    for version in ("v4", "v6"):
        trees.cifar_10_1(tmp_path / "cifar-10.1", version, images[300:500], (labels[300:500] + 1) % 10)
    trees.cifar_10_2(tmp_path / "cifar-10.2", images[500:700], 9 - labels[500:700])
    roles = {role: tmp_path / role for role in ("cifar-10", "cifar-10.1", "cifar-10.2")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        sb.evaluate("demo:resnet8-cifar10", "cifar", roles, tmp_path / "w", progress=False)
    texts = {text.split(": ")[0]: text for text in (str(w.message) for w in caught) if "permuted" in text}
    assert {name.split(" on ")[1] for name in texts} == {"cifar-10.1-v4", "cifar-10.1-v6", "cifar-10.2"}
    assert "order of the classes is reversed" in json.dumps(texts)


def test_what_is_skipped_for_speed_would_have_found_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on what a mapping could explain never hides one that does."""
    rng = np.random.default_rng(0)
    space = sb.label_space("cifar-10")
    cases = []
    for _ in range(200):
        labels = rng.integers(0, 10, int(rng.integers(20, 200)))
        mapping = rng.permutation(10) if rng.random() < 0.5 else np.arange(10)
        top1 = np.where(rng.random(len(labels)) < rng.random(), mapping[labels], rng.integers(0, 10, len(labels)))
        cases.append((labels, top1))

    def texts() -> list[list[str]]:
        return [[str(outcome_warning) for outcome_warning in guard.outcome_warnings(*case, space)] for case in cases]

    quick = texts()
    monkeypatch.setattr(guard, "_could_gain", lambda *_: True)
    assert quick == texts()
    assert 20 < sum(map(bool, quick)) < 180
