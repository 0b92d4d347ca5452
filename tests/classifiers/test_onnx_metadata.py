"""Preprocessing inside an ONNX file: read, written, and what the model's id makes of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import shiftbench as sb
from shiftbench.classifiers.onnx_graph import described_from, onnx_digest
from shiftbench.classifiers.onnx_metadata import write_metadata
from shiftbench.classifiers.options import write_sidecar
from shiftbench.errors import ClassifierError
from tests.commands import answer, call, output
from tests.runs.helpers import write_onnx_model

IMAGES = np.random.default_rng(3).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
STATED = {
    "resize": "squash",
    "interpolation": "bicubic",
    "mean": [0.4, 0.5, 0.6],
    "std": 0.2,
    "colour": "bgr",
    "outputs": "logits",
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The mean of each channel, in the order blue, green, red of the network's channels."""
    write_onnx_model(tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def sources(classifier: sb.Classifier) -> dict[str, str]:
    return {fact.name: fact.source for fact in classifier.facts}


@pytest.mark.parametrize(("name", "low", "high"), [("NominalRange_0_255", 0, 255), ("Normalized_1_1", -1, 1)])
def test_the_keys_of_the_onnx_specification(name: str, low: float, high: float, model: Path) -> None:
    graph = onnx.load(model)
    onnx.helper.set_model_props(graph, {"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": name})
    onnx.save(graph, model)
    classifier = sb.load_classifier(str(model), labels=["a", "b", "c"])
    # The graph gathers its channels from the last to the first; the network's first channel is blue.
    means = (low + (high - low) * (IMAGES / 255)).mean(axis=(1, 2))
    assert classifier.scores(IMAGES) == pytest.approx(means, rel=1e-4, abs=1e-4)
    found = sources(classifier)
    assert {found[fact] for fact in ("mean", "std", "scale", "colour order")} == {"file"}
    assert found["interpolation"] == "assumed"


def test_what_is_written_is_read_again_and_the_id_stays(model: Path) -> None:
    stated = sb.load_classifier(str(model), labels=["a", "b", "c"], preprocessing=STATED, name="channels")
    digest = onnx_digest(model)
    before = model.read_bytes()
    write_metadata(str(model), stated)
    assert model.read_bytes()[: described_from(model)] == before != model.read_bytes()
    again = sb.load_classifier(str(model))
    assert (again.scores(IMAGES) == stated.scores(IMAGES)).all()
    assert again.fingerprint == stated.fingerprint and onnx_digest(model) == digest
    assert (again.name, again.space.keys, again.outputs) == ("channels", ("a", "b", "c"), "logits")
    assert again.preprocessing == stated.preprocessing
    assert again.assumed == () and sources(again)["colour order"] == sources(again)["labels"] == "file"
    graph = onnx.load(model)
    onnx.checker.check_model(graph)
    assert [prop.key for prop in graph.metadata_props] == ["shiftbench"]
    # Another tool writes the file again, in an order of its own.
    onnx.helper.set_model_props(graph, {**{prop.key: prop.value for prop in graph.metadata_props}, "author": "me"})
    onnx.save(graph, model)
    assert sb.load_classifier(str(model)).preprocessing == stated.preprocessing


def test_the_caller_and_a_sidecar_prevail(model: Path) -> None:
    write_metadata(str(model), sb.load_classifier(str(model), labels=["a", "b", "c"], preprocessing=STATED))
    given = sb.load_classifier(str(model), labels=["x", "y", "z"], preprocessing={"colour": "rgb"})
    assert given.preprocessing.normalisation.colour_order == "rgb" and given.space.keys == ("x", "y", "z")
    assert given.preprocessing.normalisation.mean == (0.4, 0.5, 0.6)
    write_sidecar(str(model), given)
    assert sources(sb.load_classifier(str(model)))["colour order"] == "sidecar"


def test_assumptions_stay_assumptions_and_a_description_is_replaced_only_on_request(model: Path) -> None:
    assumed = sb.load_classifier(str(model), labels=["a", "b", "c"])
    write_metadata(str(model), assumed)
    size = model.stat().st_size
    assert sb.load_classifier(str(model)).assumed == assumed.assumed != ()
    with pytest.raises(ClassifierError):
        write_metadata(str(model), assumed)
    write_metadata(str(model), assumed, force=True)
    assert model.stat().st_size == size
    stated = sb.load_classifier(str(model), preprocessing=STATED)
    write_metadata(str(model), stated, force=True)
    assert sb.load_classifier(str(model)).assumed == ()


def test_a_damaged_description_is_an_error(model: Path) -> None:
    for text in ("{", "[]", '{"means": 3}', '{"mean": "dark"}'):
        graph = onnx.load(model)
        onnx.helper.set_model_props(graph, {"shiftbench": text})
        onnx.save(graph, model)
        with pytest.raises(ClassifierError):
            sb.load_classifier(str(model), labels=["a", "b", "c"])


def test_the_command(model: Path) -> None:
    output("describe", model, "--write", "--embed", "--preprocess", "mean=0.5,std=0.25")
    assert not Path(f"{model}.json").exists()
    facts = {fact["name"]: fact["source"] for fact in answer("describe", model)["facts"]}
    assert (facts["mean"], facts["colour order"]) == ("file", "assumed")
    again = call("describe", model, "--write", "--embed")
    assert isinstance(again.exception, ClassifierError)
    output("describe", model, "--write", "--embed", "--force")
