"""What lies beside a model file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiftbench.classifiers.options import Options, with_sidecar
from shiftbench.classifiers.preprocessing import CAFFE_NORMALISATION, Preprocessing
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError
from shiftbench.labels.space import LabelSpace

CAFFE = Preprocessing(Geometry(256, 227), CAFFE_NORMALISATION)


def write(tmp_path: Path, words: Any) -> str:
    (tmp_path / "model.onnx.json").write_text(words if isinstance(words, str) else json.dumps(words))
    return str(tmp_path / "model.onnx")


def test_it_fills_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "pets.txt").write_text("cat\ndog\n")
    target = write(
        tmp_path,
        {"name": "pet net", "labels": "pets.txt", "outputs": "probabilities", "preprocessing": CAFFE.describe()},
    )
    options = with_sidecar(target, Options())
    assert (options.name, options.outputs, options.preprocessing) == ("pet net", "probabilities", CAFFE)
    assert options.labels is not None
    assert options.labels.keys == ("cat", "dog")


def test_the_caller_comes_first(tmp_path: Path, pets: LabelSpace) -> None:
    target = write(tmp_path, {"labels": "imagenet-1k", "name": "theirs"})
    options = with_sidecar(target, Options(labels=pets))
    assert (options.labels, options.name) == (pets, "theirs")


def test_no_sidecar(tmp_path: Path) -> None:
    assert with_sidecar(str(tmp_path / "model.onnx"), Options()) == Options()


@pytest.mark.parametrize("words", ["{", {"mean": [0, 0, 0]}, {"outputs": "votes"}, {"preprocessing": {"crop": 3}}])
def test_sidecars_that_are_wrong(tmp_path: Path, words: Any) -> None:
    with pytest.raises(ClassifierError):
        with_sidecar(write(tmp_path, words), Options())
