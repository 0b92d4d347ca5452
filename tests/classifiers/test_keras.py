"""Keras 3 files against Keras itself, and files that would run code."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="the extra keras is not installed")

from shiftbench.classifiers import load_classifier  # noqa: E402
from shiftbench.datasets.samples import sample_images  # noqa: E402
from shiftbench.errors import ClassifierError, ResultWarning  # noqa: E402

IMAGES = sample_images(5, (24, 24))
PETS = ["cat", "dog", "fish"]
STATED = "size=24,mean=0.5,std=0.25"


def network(channels: int = 3) -> Any:
    keras.utils.set_random_seed(0)
    inputs = keras.Input((24, 24, channels))
    features = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(inputs)
    features = keras.layers.BatchNormalization()(features)
    features = features + keras.layers.Conv2D(8, 1)(features)
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(keras.layers.GlobalAveragePooling2D()(features)))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keras") / "small.keras"
    network().save(path)
    return path


def rewritten(source: Path, target: Path, change: Callable[[Any], None]) -> Path:
    """A copy of the file with another configuration."""
    with zipfile.ZipFile(source) as archive, zipfile.ZipFile(target, "w") as copy:
        for name in archive.namelist():
            content = archive.read(name)
            if name == "config.json":
                config = json.loads(content)
                change(config)
                content = json.dumps(config).encode()
            copy.writestr(name, content)
    return target


@pytest.mark.parametrize("engine", ["torch", "onnxruntime"])
def test_scores_are_those_of_keras(model: Path, engine: Any) -> None:
    classifier = load_classifier(model, labels=PETS, preprocessing=STATED, engine=engine)
    library = keras.models.load_model(model)
    expected = library.predict((IMAGES / 255 - 0.5) / 0.25, verbose=0)
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-5)
    assert classifier.outputs == "probabilities"
    assert classifier.preprocessing.normalisation.layout == "nhwc"
    assert {"colour order"} <= set(classifier.assumed)


def test_grey_input_is_read_from_the_file(tmp_path: Path) -> None:
    network(channels=1).save(tmp_path / "grey.keras")
    classifier = load_classifier(tmp_path / "grey.keras", labels=PETS, engine="torch")
    assert classifier.preprocessing.normalisation.colour_order == "grey"


def test_lambda_layers_need_trust(tmp_path: Path) -> None:
    inputs = keras.Input((24, 24, 3))
    outputs = keras.layers.Lambda(lambda x: x.mean(axis=(1, 2)))(inputs)
    keras.Model(inputs, outputs).save(tmp_path / "lambda.keras")
    with pytest.raises(ClassifierError) as refused:
        load_classifier(tmp_path / "lambda.keras", labels=PETS)
    assert "Lambda" in str(refused.value.found) and "trust" in str(refused.value.hint)
    classifier = load_classifier(tmp_path / "lambda.keras", labels=PETS, trust=True, engine="torch")
    assert classifier.scores(IMAGES).shape == (5, 3)


def _first_layer(config: Any) -> Any:
    return next(layer for layer in config["config"]["layers"] if layer["class_name"] == "Conv2D")


@pytest.mark.parametrize(
    "part",
    [
        {"class_name": "function", "module": "os", "config": "system", "registered_name": "function"},
        {"class_name": "function", "module": "keras.utils", "config": "get_file", "registered_name": "get_file"},
        {"class_name": "__lambda__", "config": {"value": "x"}},
        {"class_name": "TorchModuleWrapper", "module": "keras.layers", "config": {}, "registered_name": None},
        {"class_name": "Popen", "module": "subprocess", "config": {"args": ["true"]}, "registered_name": "Popen"},
        {"class_name": "layers.TorchModuleWrapper", "module": "keras", "config": {}, "registered_name": None},
        {"class_name": "utils.get_file", "module": "keras", "config": {}, "registered_name": "x"},
    ],
    ids=lambda part: f"{part.get('module')}.{part['class_name']}",
)
def test_parts_that_run_code_are_refused_before_keras_sees_them(
    model: Path, tmp_path: Path, part: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keras.models, "load_model", lambda *_, **__: pytest.fail("Keras was asked to load the file"))
    path = rewritten(
        model, tmp_path / "evil.keras", lambda config: _first_layer(config)["config"].update(activation=part)
    )
    with pytest.raises(ClassifierError) as refused:
        load_classifier(path, labels=PETS)
    assert part["class_name"] in str(refused.value.found)


def test_how_a_model_was_trained_is_not_loaded(tmp_path: Path) -> None:
    """Files that `fit` leaves name a loss and an optimizer; a hostile loss is not looked up either."""
    trained = network()
    trained.compile("adam", keras.losses.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    trained.save(tmp_path / "trained.keras")
    expected = trained.predict((IMAGES / 255 - 0.5) / 0.25, verbose=0)
    classifier = load_classifier(tmp_path / "trained.keras", labels=PETS, preprocessing=STATED, engine="torch")
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-5)
    hostile = {"class_name": "Popen", "module": "subprocess", "config": {"args": ["touch", str(tmp_path / "run")]}}
    path = rewritten(
        tmp_path / "trained.keras",
        tmp_path / "hostile.keras",
        lambda config: config.update(compile_config={"loss": hostile, "optimizer": hostile}),
    )
    again = load_classifier(path, labels=PETS, preprocessing=STATED, engine="torch")
    assert np.array_equal(again.scores(IMAGES), classifier.scores(IMAGES)) and not (tmp_path / "run").exists()
    nested = rewritten(
        tmp_path / "trained.keras",
        tmp_path / "nested.keras",
        lambda config: _first_layer(config).update(compile_config={"loss": hostile}),
    )
    with pytest.raises(ClassifierError, match="run code"):
        load_classifier(nested, labels=PETS)


def test_damaged_files(tmp_path: Path) -> None:
    (tmp_path / "text.keras").write_text("no archive")
    with pytest.raises(ClassifierError, match="not a Keras 3 file"):
        load_classifier(tmp_path / "text.keras")
    with zipfile.ZipFile(tmp_path / "empty.keras", "w"):
        pass
    with pytest.raises(ClassifierError, match="not a Keras 3 file"):
        load_classifier(tmp_path / "empty.keras")


@pytest.mark.reliability("silent-wrong attempts")
def test_the_first_of_several_outputs_with_scores_is_reported(tmp_path: Path) -> None:
    inputs = keras.Input((24, 24, 3))
    colours = keras.layers.GlobalAveragePooling2D()(inputs)
    keras.Model(inputs, [keras.layers.Rescaling(-1.0)(colours), colours]).save(tmp_path / "two.keras")
    with pytest.warns(ResultWarning, match="2 outputs"):
        load_classifier(tmp_path / "two.keras", labels=PETS, preprocessing=f"{STATED},colour=rgb", engine="torch")
