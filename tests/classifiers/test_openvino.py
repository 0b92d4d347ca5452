"""OpenVINO IR against OpenVINO itself, and against the network that it was converted from."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.datasets import from_arrays
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning
from tests.classifiers.networks import SMALL, Small
from tests.raised import raises

openvino = pytest.importorskip("openvino", reason="the extra openvino is not installed")

IMAGES = sample_images(5, (32, 32))
FACTS = {"mean_values": "123.675 116.28 103.53", "scale_values": "58.395 57.12 57.375", "resize_type": "standard"}


def converted(path: Path, *, batch: int = -1, info: dict[str, str] | None = None) -> Path:
    example = torch.zeros(2, 3, 32, 32)
    model = openvino.convert_model(Small().eval(), example_input=example, input=[batch, 3, 32, 32])
    for key, value in (info or {}).items():
        model.set_rt_info(value, ["model_info", key])
    openvino.save_model(model, path, compress_to_fp16=False)
    return path


def expected() -> NDArray[np.float32]:
    with torch.inference_mode():
        scores: NDArray[np.float32] = Small().eval()(torch.from_numpy(SMALL.normalisation(IMAGES))).numpy()
    return scores


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return converted(tmp_path_factory.mktemp("openvino") / "small.xml")


def test_scores_are_those_of_the_network(model: Path) -> None:
    classifier = load_classifier(model, labels=["cat", "dog", "fish"])
    np.testing.assert_allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    assert classifier.preprocessing.geometry.output == (32, 32)
    assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_scores_do_not_depend_on_threads_or_company(model: Path) -> None:
    classifier = load_classifier(model, labels=["cat", "dog", "fish"], threads=1)
    other = load_classifier(model, labels=["cat", "dog", "fish"], threads=2)
    assert np.array_equal(classifier.scores(IMAGES), other.scores(IMAGES))
    assert np.array_equal(classifier.scores(IMAGES)[2:3], other.scores(IMAGES[2:3]))


def test_file_with_a_fixed_batch(tmp_path: Path) -> None:
    classifier = load_classifier(converted(tmp_path / "one.xml", batch=1), labels=["cat", "dog", "fish"])
    assert classifier.batch_size == 1
    np.testing.assert_allclose(classifier.scores(IMAGES), expected(), atol=1e-5)


def test_metadata_state_preprocessing_and_classes(tmp_path: Path) -> None:
    classifier = load_classifier(converted(tmp_path / "facts.xml", info=FACTS | {"labels": "cat dog fish"}))
    assert classifier.space.names == ("cat", "dog", "fish")
    assert classifier.preprocessing.normalisation.mean == (123.675, 116.28, 103.53)
    assert classifier.preprocessing.normalisation.scale == 1
    assert set(classifier.assumed) == {"interpolation", "colour order"}
    np.testing.assert_allclose(classifier.scores(IMAGES), expected(), atol=1e-4)


def test_embedded_normalisation_is_not_done_twice(tmp_path: Path) -> None:
    info = FACTS | {"embedded_processing": "True"}
    classifier = load_classifier(converted(tmp_path / "embedded.xml", info=info), labels=["cat", "dog", "fish"])
    assert "mean" in classifier.assumed


def test_pixels_as_input(tmp_path: Path) -> None:
    core = openvino.Core()
    steps = openvino.preprocess.PrePostProcessor(core.read_model(converted(tmp_path / "float.xml", batch=2)))
    steps.input().tensor().set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC"))
    steps.input().model().set_layout(openvino.Layout("NCHW"))
    mean = [255 * value for value in (0.485, 0.456, 0.406)]
    std = [255 * value for value in (0.229, 0.224, 0.225)]
    steps.input().preprocess().convert_element_type(openvino.Type.f32).mean(mean).scale(std)
    openvino.save_model(steps.build(), tmp_path / "pixels.xml", compress_to_fp16=False)
    classifier = load_classifier(tmp_path / "pixels.xml", labels=["cat", "dog", "fish"])
    assert classifier.takes_pixels and classifier.preprocessing.normalisation.layout == "nhwc"
    np.testing.assert_allclose(classifier.scores(IMAGES), expected(), atol=1e-4)


def test_copy_for_another_process(model: Path) -> None:
    classifier = load_classifier(model, labels=["cat", "dog", "fish"])
    twin = pickle.loads(pickle.dumps(classifier))
    assert twin.fingerprint == classifier.fingerprint
    assert np.array_equal(twin.scores(IMAGES), classifier.scores(IMAGES))


def test_other_weights_are_another_model(model: Path, tmp_path: Path) -> None:
    before = load_classifier(model, labels=["cat", "dog", "fish"]).fingerprint
    (tmp_path / "small.xml").write_bytes(model.read_bytes())
    weights = bytearray(model.with_suffix(".bin").read_bytes())
    weights[0] ^= 1
    (tmp_path / "small.bin").write_bytes(weights)
    assert load_classifier(tmp_path / "small.xml", labels=["cat", "dog", "fish"]).fingerprint != before


def test_files_that_cannot_be_run(model: Path, tmp_path: Path) -> None:
    lonely = tmp_path / "lonely.xml"
    lonely.write_bytes(model.read_bytes())
    with pytest.raises(ClassifierError) as missing:
        load_classifier(lonely)
    assert missing.value.found == "no lonely.bin beside it"
    lonely.with_suffix(".bin").write_bytes(b"")
    lonely.write_text("<nothing/>")
    with pytest.raises(ClassifierError, match="can't open"):
        load_classifier(lonely)
    vector = openvino.convert_model(nn.Linear(4, 2), example_input=torch.zeros(1, 4))
    openvino.save_model(vector, tmp_path / "vector.xml")
    with raises(ClassifierError, found="input: [?,?]"):
        load_classifier(tmp_path / "vector.xml")
    with pytest.raises(ClassifierError) as device:
        load_classifier(model, labels=["cat", "dog", "fish"], device="cuda")
    assert device.value.found == "cuda"


def graph(path: Path, outputs: Callable[[Any], list[Any]], batch: int = -1) -> Path:
    """A graph whose outputs are made of the mean colours of (N, 3, 32, 32)."""
    operations = openvino.opset13
    images = operations.parameter(openvino.PartialShape([batch, 3, 32, 32]), np.float32, name="images")
    colours = operations.reduce_mean(images, operations.constant(np.array([2, 3])), False)
    openvino.save_model(openvino.Model(outputs(colours), [images], "colours"), path, compress_to_fp16=False)
    return path


def colours_of(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    means: NDArray[np.float32] = images.mean(axis=(1, 2), dtype=np.float32)
    return means


PIXELS = "size=32,resize=squash,interpolation=bilinear,mean=0,std=1,scale=1,colour=rgb,outputs=logits"


@pytest.mark.reliability("silent-wrong attempts")
def test_the_first_of_several_outputs_with_scores_is_reported(tmp_path: Path) -> None:
    operations = openvino.opset13
    path = graph(tmp_path / "two.xml", lambda colours: [operations.negative(colours), colours])
    with pytest.warns(ResultWarning) as caught:
        classifier = load_classifier(path, labels=["red", "green", "blue"], preprocessing=PIXELS)
    assert [getattr(record.message, "code", "") for record in caught] == ["several-outputs"]
    np.testing.assert_allclose(classifier.scores(IMAGES), -colours_of(IMAGES), atol=1e-3)


def test_the_only_output_with_a_score_per_class_is_used(tmp_path: Path) -> None:
    operations = openvino.opset13

    def outputs(colours: Any) -> list[Any]:
        return [operations.concat([colours, colours], 1), colours]

    classifier = load_classifier(
        graph(tmp_path / "embedding.xml", outputs), labels=["red", "green", "blue"], preprocessing=PIXELS
    )
    np.testing.assert_allclose(classifier.scores(IMAGES), colours_of(IMAGES), atol=1e-3)
    copy = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_allclose(copy.scores(IMAGES), colours_of(IMAGES), atol=1e-3)
    other = load_classifier(
        graph(tmp_path / "alone.xml", lambda colours: [colours]), labels=["red", "green", "blue"], preprocessing=PIXELS
    )
    assert other.fingerprint != classifier.fingerprint


@pytest.mark.reliability("silent-wrong attempts")
@pytest.mark.parametrize("batch", [1, -1])
def test_graphs_that_keep_variables_or_draw_random_numbers_are_reported(tmp_path: Path, batch: int) -> None:
    operations = openvino.opset13

    def noisy(colours: Any) -> list[Any]:
        sizes = operations.constant(np.array([1, 3]))
        limits = [operations.constant(np.float32(value)) for value in (0, 400)]
        return [operations.add(colours, operations.random_uniform(sizes, *limits, "f32"))]

    labels = ["red", "green", "blue"]
    for path in (graph(tmp_path / "noisy.xml", noisy, batch), counting(tmp_path / "counting.xml", batch)):
        classifier = load_classifier(path, labels=labels, preprocessing=PIXELS)
        assert not classifier.repeatable
        data = from_arrays(IMAGES, [0] * len(IMAGES), space=labels, name="photos")
        with pytest.warns(ResultWarning) as caught:
            sb.evaluate(classifier, "clean", data, tmp_path / "w", progress=False)
        assert "unsteady-model" in {getattr(record.message, "code", "") for record in caught}


def counting(path: Path, batch: int) -> Path:
    """A graph that adds the number of its earlier calls to the score of the first class."""
    operations = openvino.opset13
    information = openvino.op.util.VariableInfo()
    information.data_shape = openvino.PartialShape([1, 3])
    information.data_type = openvino.Type.f32
    information.variable_id = "calls"
    variable = openvino.op.util.Variable(information)
    images = operations.parameter(openvino.PartialShape([batch, 3, 32, 32]), np.float32, name="images")
    calls = operations.read_value(operations.constant(np.zeros((1, 3), np.float32)), variable)
    step = operations.constant(np.array([[1, 0, 0]], np.float32))
    counted = operations.assign(operations.add(calls, step), variable)
    colours = operations.reduce_mean(images, operations.constant(np.array([2, 3])), False)
    result = operations.result(operations.add(colours, calls))
    openvino.save_model(openvino.Model([result], [counted], [images], "counting"), path, compress_to_fp16=False)
    return path
