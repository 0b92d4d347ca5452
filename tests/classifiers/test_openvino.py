"""OpenVINO IR against OpenVINO itself, and against the network that it was converted from."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError
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
