"""The door: specs, registry, errors, and what importing costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shiftbench.classifiers import FunctionClassifier, classifier_loaders, load_classifier
from shiftbench.classifiers.loading import split_spec
from shiftbench.classifiers.options import Options
from shiftbench.errors import ClassifierError, ShiftbenchError, UnknownNameError
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import mean_colours
from tests.raised import raises


@pytest.mark.parametrize(
    ("spec", "key", "target"),
    [
        ("timm:resnet50", "timm", "resnet50"),
        ("timm:hf-hub:someone/model", "timm", "hf-hub:someone/model"),
        ("hf:models/vit", "hf", "models/vit"),
        ("demo:squeezenet1_1", "demo", "squeezenet1_1"),
        ("models/best.ONNX", ".onnx", "models/best.ONNX"),
        ("C:/models/best.onnx", ".onnx", "C:/models/best.onnx"),
        ("a/mine.py:make", ".py", "a/mine.py:make"),
        ("mine.py", ".py", "mine.py"),
        ("run.csv", ".csv", "run.csv"),
    ],
)
def test_specs(spec: str, key: str, target: str) -> None:
    assert split_spec(spec) == (key, target)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("resnet50", "timm:resnet50"),
        ("tim:resnet50", "did you mean 'timm'"),
        ("model.h5", "the extension '.h5'"),
        ("", "neither a scheme nor an extension"),
    ],
)
def test_specs_that_no_loader_knows(spec: str, message: str) -> None:
    with pytest.raises(ShiftbenchError, match=message):
        load_classifier(spec)


@pytest.fixture
def own_loaders() -> Iterator[None]:
    """What a test registers is gone after it."""
    before = dict(classifier_loaders)
    yield
    for name in set(classifier_loaders._items) - set(before):
        classifier_loaders._items.pop(name)


def test_a_third_partys_loader(pets: LabelSpace, own_loaders: None) -> None:
    def load_mine(target: str, options: Options) -> FunctionClassifier:
        return FunctionClassifier(mean_colours, name=target, space=pets)

    classifier_loaders.register("test-only")(load_mine)
    classifier = load_classifier("test-only:thing")
    assert classifier.name == "thing"
    assert classifier.origin is not None
    assert load_classifier(classifier) is classifier


def test_wrong_options() -> None:
    for wrong in ({"engine": "tpu"}, {"outputs": "votes"}, {"threads": 0}, {"batch_size": -1}):
        with pytest.raises(ClassifierError):
            load_classifier(mean_colours, **wrong)
    with pytest.raises(UnknownNameError):
        load_classifier(mean_colours, labels="imagenet-2k")


def test_things_that_are_no_classifier() -> None:
    with raises(ClassifierError, found="builtins.int"):
        load_classifier(7)


def test_labels_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "pets.txt").write_text("cat\ndog\nfish\n")
    assert load_classifier(mean_colours, labels=str(tmp_path / "pets.txt")).space.keys == ("cat", "dog", "fish")


def test_importing_brings_no_framework() -> None:
    code = (
        "import sys, shiftbench.classifiers, shiftbench.classifiers.check, shiftbench.classifiers.recorded;"
        "print([m for m in ('torch', 'onnxruntime', 'onnx', 'pyarrow', 'sklearn', 'timm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["model.mlpackage", "model.pb", "model.h5"])
def test_a_file_of_another_framework_leads_to_a_function(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    with pytest.raises(ClassifierError) as caught:
        load_classifier(tmp_path / name)
    assert caught.value.hint is not None and "model.py:factory" in caught.value.hint
