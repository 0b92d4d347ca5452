"""What lies beside a model file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shiftbench.classifiers.options import Options, foreign_keys, sidecar_of, with_sidecar
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
    options = with_sidecar(target, Options()).over(Preprocessing())
    assert (options.name, options.outputs, options.preprocessing) == ("pet net", "probabilities", CAFFE)
    assert options.labels is not None
    assert options.labels.keys == ("cat", "dog")
    assert {options.sources[name] for name in ("resize", "crop", "mean", "colour order", "labels")} == {"sidecar"}


def test_the_caller_comes_first(tmp_path: Path, pets: LabelSpace) -> None:
    target = write(tmp_path, {"labels": "imagenet-1k", "name": "theirs", "size": 32, "resize": "squash", "mean": 0.5})
    given = Options.of(pets, {"mean": 0.25})
    options = with_sidecar(target, given).over(Preprocessing(), "assumed")
    assert (options.labels, options.name) == (pets, "theirs")
    assert options.preprocessing is not None
    assert options.preprocessing.normalisation.mean == (0.25, 0.25, 0.25)
    assert options.preprocessing.geometry == Geometry(32, None, "exact")
    sources = {name: options.sources[name] for name in ("resize", "mean", "std")}
    assert sources == {"resize": "sidecar", "mean": "given", "std": "assumed"}


def test_no_sidecar(tmp_path: Path) -> None:
    assert with_sidecar(str(tmp_path / "model.onnx"), Options()) == Options()


def test_it_may_be_named_after_the_stem_if_it_contains_nothing_else(tmp_path: Path) -> None:
    beside = tmp_path / "model.json"
    beside.write_text(json.dumps({"size": 32, "labels": ["cat", "dog"]}))
    options = with_sidecar(str(tmp_path / "model.onnx"), Options())
    assert options.labels is not None and options.labels.keys == ("cat", "dog")
    beside.write_text(json.dumps({"size": 32, "learning_rate": 0.1}))
    assert sidecar_of(tmp_path / "model.onnx") is None
    assert foreign_keys(beside) == ["learning_rate"]
    write(tmp_path, {"size": 64})
    assert sidecar_of(tmp_path / "model.onnx") == tmp_path / "model.onnx.json"


@pytest.mark.parametrize(
    "words", ["{", {"means": [0, 0, 0]}, {"outputs": "votes"}, {"preprocessing": {"crops": 3}}, []]
)
def test_sidecars_that_are_wrong(tmp_path: Path, words: Any) -> None:
    with pytest.raises(ClassifierError):
        with_sidecar(write(tmp_path, words), Options())
