"""Recipes of ImageNet's size, in miniature: real photographs, the same code, a small network and small images."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from shiftbench.classifiers import load_classifier
from shiftbench.datasets import from_arrays
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.hardening.recipe import load_recipe
from shiftbench.hardening.training.data import prepare_training
from shiftbench.hardening.training.train import train

MINIATURE = (
    "architecture.model=test_resnet",
    "architecture.pretrained=false",
    "data.size=64",
    "data.resize=72",
    "data.sample=24",
    "data.empty_classes=true",
    "train.epochs=1",
    "train.batch_size=12",
)
RECIPES = (
    "augmix",
    "noise2net",
    "pgd",
    "wong",
    "deepaugment-noise2net-augmix",
    *(
        pytest.param(name, marks=pytest.mark.soak)
        for name in ("standard", "fgsm", "noise", "speckle", "stability", "clahe", "a-filter")
    ),
)


@pytest.fixture(scope="module")
def photographs() -> Dataset:
    """The demo photographs, decoded once and small."""
    demo = open_named("demo")
    images = [cv2.resize(demo.read(i).pixels, (80, 80), interpolation=cv2.INTER_AREA) for i in range(len(demo))]
    return from_arrays(np.stack(images), demo.labels, space=demo.space)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.filterwarnings("ignore:classes with one")
def test_a_recipe_of_imagenet_runs_and_its_classifier_is_loaded(
    name: str, photographs: Dataset, tmp_path: Path
) -> None:
    steps = ["scheme.steps=1"] if name == "pgd" else []
    size = [f"augmentations.{1 if name == 'clahe' else 0}.size=64"]
    recipe = load_recipe(f"imagenet-{name}", [*MINIATURE, *size, *steps, "data.extra=[]"])
    folder = train(recipe, tmp_path / "run", data=photographs, workers=0, progress=False).folder
    classifier = load_classifier(f"hardened:{folder}", engine="torch")
    assert classifier.preprocessing.geometry.resize == 72 and classifier.preprocessing.geometry.crop == 64
    # 003 trains on ImageNet's images of the 200 classes of ImageNet-A.
    assert len(classifier.space) == (200 if name in ("pgd", "fgsm", "noise", "a-filter") else 1000)
    assert np.isfinite(classifier.scores(np.zeros((2, 64, 64, 3), np.uint8))).all()


@pytest.mark.filterwarnings("ignore:classes with one")
def test_copies_on_disk_are_trained_on_too(photographs: Dataset, tmp_path: Path) -> None:
    demo = photographs
    for index in range(6):
        folder = tmp_path / "EDSR" / demo.space.keys[int(demo.labels[index])]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(255 - demo.read(index).pixels).save(folder / f"{index}.png")
    recipe = load_recipe(
        "imagenet-deepaugment", [*MINIATURE, "augmentations.0.size=64", f"data.extra=['{tmp_path}/EDSR']"]
    )
    images, _ = prepare_training(recipe, demo)
    assert (len(images.ids), len(images)) == (24, 30)
    assert sorted(images.targets[24:].tolist()) == sorted(demo.labels[:6].tolist())
    train(recipe, tmp_path / "run", data=demo, workers=0, progress=False)
