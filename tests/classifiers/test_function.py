"""Python functions and files with factories."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, UnknownNameError
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import mean_colours
from tests.raised import raises

IMAGES = sample_images(4, (16, 16))
FACTORY = """
import numpy as np

GAIN = {gain}

def classifier():
    return score

def other():
    return lambda images: -score(images)

def score(images):
    return GAIN * images.reshape(len(images), -1, 3).mean(axis=1)
"""


def test_a_function(pets: LabelSpace) -> None:
    classifier = load_classifier(mean_colours, labels=pets)
    assert (classifier.name, classifier.engine, classifier.outputs) == ("mean_colours", "python", "logits")
    assert np.allclose(classifier.scores(IMAGES), mean_colours(IMAGES))
    assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_a_function_that_spoils_its_argument(pets: LabelSpace) -> None:
    def spoil(images: Any) -> Any:
        scores = mean_colours(images)
        images[:] = 0
        return scores

    before = IMAGES.copy()
    load_classifier(spoil, labels=pets).scores(IMAGES)
    assert np.array_equal(IMAGES, before)


def test_torch_tensors_are_welcome(pets: LabelSpace) -> None:
    torch = pytest.importorskip("torch")
    classifier = load_classifier(lambda images: torch.from_numpy(mean_colours(images)).requires_grad_(), labels=pets)
    assert np.allclose(classifier.scores(IMAGES), mean_colours(IMAGES))


def test_labels_are_needed() -> None:
    with pytest.raises(ClassifierError, match="labels="):
        load_classifier(mean_colours)


def test_fingerprints_follow_source_and_name(pets: LabelSpace) -> None:
    first = load_classifier(mean_colours, labels=pets)
    assert load_classifier(mean_colours, labels=pets).fingerprint == first.fingerprint
    assert load_classifier(mean_colours, labels=pets, name="mine").fingerprint != first.fingerprint
    assert load_classifier(lambda x: 2 * mean_colours(x), labels=pets, name="mean_colours").fingerprint != (
        first.fingerprint
    )


def test_a_file(tmp_path: Path, pets: LabelSpace) -> None:
    path = tmp_path / "mine.py"
    path.write_text(FACTORY.format(gain=1))
    classifier = load_classifier(path, labels=pets)
    assert np.allclose(classifier.scores(IMAGES), mean_colours(IMAGES))
    classifier.name = "mine-2"  # as the runner does with a second one of the name
    twin = pickle.loads(pickle.dumps(classifier))
    assert twin.name == "mine-2"
    assert np.array_equal(twin.scores(IMAGES), classifier.scores(IMAGES))
    assert np.allclose(load_classifier(f"{path}:other", labels=pets).scores(IMAGES), -mean_colours(IMAGES))
    before = classifier.fingerprint
    path.write_text(FACTORY.format(gain=3))  # outside of the function, and yet it decides its scores
    assert load_classifier(path, labels=pets).fingerprint != before


def test_bytecode_of_an_earlier_file_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python takes cached bytecode for current if the file has the same size and was changed in the same second."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = tmp_path / "model.py"
    space = LabelSpace("two", ("a", "b"))
    first = []
    for favourite in (0, 1):
        path.write_text(
            f"import numpy as np\ndef make():\n    return lambda images: np.eye(2)[[{favourite}] * len(images)]\n"
        )
        os.utime(path, (1_700_000_000, 1_700_000_000))
        first.append(int(load_classifier(f"{path}:make", labels=space).scores(sample_images(1, (32, 32))).argmax()))
    assert first == [0, 1]


@pytest.mark.parametrize("file", ["_ops.py", "/nowhere/archive.zip/helper.py"])
def test_modules_whose_file_does_not_exist(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``import torch`` brings ``torch.ops``, whose ``__file__`` is "_ops.py"."""
    monkeypatch.setitem(sys.modules, "made_up", ModuleType("made_up"))  # removed at the end
    lines = [
        "import sys, types",
        "sys.modules['made_up'] = types.ModuleType('made_up')",
        f"sys.modules['made_up'].__file__ = {file!r}",
    ]
    (tmp_path / "model.py").write_text(
        "\n".join([*lines, "def make():", "    return lambda images: images[:, 0, 0, :2]"])
    )
    assert (
        load_classifier(f"{tmp_path / 'model.py'}:make", labels=["a", "b"], preprocessing={"size": 8}).name
        == "model.make"
    )


def test_a_file_that_names_another_spec(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def classifier():\n    return 'demo:efficientnet-lite9'\n")
    with raises(UnknownNameError, name="efficientnet-lite9"):
        load_classifier(tmp_path / "mine.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def make(): pass", "no factory 'classifier'"),
        ("1 / 0", "fails when it is run"),
        ("def classifier():\n    1 / 0", "ZeroDivisionError"),
        ("def classifier():\n    return 3", "unsupported model object"),
    ],
)
def test_files_that_make_no_classifier(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "mine.py").write_text(text)
    with pytest.raises(ClassifierError, match=message):
        load_classifier(tmp_path / "mine.py")
