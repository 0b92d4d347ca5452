"""The user's own .onnx files: layouts, types, fixed batches, and what they can't tell."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

import shiftbench as sb
from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.onnx_ import OnnxClassifier
from shiftbench.classifiers.onnx_graph import external_files
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.datasets import from_arrays
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, UnknownNameError
from shiftbench.labels.space import LabelSpace
from tests.classifiers.networks import SMALL, Attention, Small

IMAGES = sample_images(5, (32, 32))


class ChannelsLast(Small):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 3, 1, 2))


class Pixels(Small):
    """Takes uint8 and normalises by itself."""

    def forward(self, x: Tensor) -> Tensor:
        mean = torch.tensor([0.485, 0.456, 0.406])
        std = torch.tensor([0.229, 0.224, 0.225])
        return super().forward(((x.float() / 255 - mean) / std).permute(0, 3, 1, 2))


def export(module: nn.Module, example: Tensor, path: Path, fixed: bool = False) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        axes = {} if fixed else {"x": {0: "n"}, "y": {0: "n"}}
        torch.onnx.export(
            module.eval(), (example,), str(path), dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes=axes
        )
    return path


def expected() -> Any:
    with torch.inference_mode():
        return Small().eval()(torch.from_numpy(SMALL.normalisation(IMAGES))).numpy()


def test_a_file(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    classifier = load_classifier(path, labels=pets, preprocessing=SMALL)
    assert (classifier.name, classifier.outputs, classifier.engine) == ("small", "logits", "onnxruntime cpu")
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_onnxruntime_sends_no_telemetry(tmp_path: Path) -> None:
    """With its telemetry it makes an identifier of the machine in the cache of its vendor."""
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    code = "import sys, shiftbench.classifiers.onnx_ as ours; ours.open_session(sys.argv[1])"
    unset = ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | {"HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code, path], check=True, env=environment)
    assert [*tmp_path.rglob("*deviceid*"), *tmp_path.rglob("onnxruntime.db")] == []


def test_a_device_that_is_not_there_is_an_error(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "own.onnx")
    for device in ("mps", "cuda:7"):
        with pytest.raises(ClassifierError, match=device):
            load_classifier(path, labels=pets, preprocessing=SMALL, device=device)


def export_outputs(path: Path, names: list[str], outputs: Callable[[Tensor], tuple[Tensor, ...]]) -> Path:
    """A graph with several outputs, made of the network's scores."""

    class Several(Small):
        def forward(self, x: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
            return outputs(super().forward(x))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        example = torch.zeros(2, 3, 32, 32)
        torch.onnx.export(Several().eval(), (example,), str(path), dynamo=False, output_names=names)
    return path


def test_which_of_several_alike_outputs_has_the_scores_is_assumed_until_stated(
    tmp_path: Path, pets: LabelSpace
) -> None:
    path = export_outputs(tmp_path / "two.onnx", ["aux", "main"], lambda scores: (-scores, scores))
    geometry = {"size": 32, "resize": "squash", "interpolation": "bicubic"}
    stated = {**geometry, "mean": 0.5, "std": 0.25, "colour": "rgb", "outputs": "logits"}
    with pytest.warns(ResultWarning, match="output=aux"):
        first = load_classifier(path, labels=pets, preprocessing=stated)
    assert first.assumed == ("output",) and first.output == "aux"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        main, aux = (load_classifier(path, labels=pets, preprocessing=stated | {"output": n}) for n in ("main", "aux"))
    assert np.allclose(main.scores(IMAGES), -first.scores(IMAGES)) and not main.assumed
    assert aux.fingerprint == first.fingerprint != main.fingerprint
    assert np.array_equal(pickle.loads(pickle.dumps(main)).scores(IMAGES), main.scores(IMAGES))
    with pytest.raises(UnknownNameError):
        load_classifier(path, labels=pets, preprocessing=stated | {"output": "mein"})
    with pytest.raises(ClassifierError):
        load_classifier(Small(), labels=pets, preprocessing=stated | {"output": "main"})


def test_the_only_output_with_a_score_per_class_is_used(tmp_path: Path, pets: LabelSpace) -> None:
    """Beside an embedding, and beside the number of the class, as exporters of estimators write it."""
    for name, others in (
        ("embedding", lambda scores: (scores.repeat(1, 5), scores)),
        ("answer", lambda scores: (scores.argmax(1), scores)),
    ):
        path = export_outputs(tmp_path / f"{name}.onnx", [name, "scores"], others)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            classifier = load_classifier(path, labels=pets, preprocessing=SMALL)
        assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)


def test_fingerprint_is_of_the_bytes(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    (tmp_path / "copy.onnx").write_bytes(path.read_bytes())
    other = export(Small(seed=1), torch.zeros(2, 3, 32, 32), tmp_path / "other.onnx")
    first, copy, third = (
        load_classifier(p, labels=pets, preprocessing=SMALL).fingerprint for p in (path, tmp_path / "copy.onnx", other)
    )
    assert first == copy != third


def with_external_data(path: Path, data: str) -> Path:
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, location=data, size_threshold=0)
    return path


def test_weights_in_other_files_are_part_of_the_model(tmp_path: Path, pets: LabelSpace) -> None:
    path = with_external_data(export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "e.onnx"), "e.onnx.data")
    other = with_external_data(export(Small(seed=1), torch.zeros(2, 3, 32, 32), tmp_path / "f.onnx"), "f.onnx.data")
    graph = path.read_bytes()
    first = load_classifier(path, labels=pets, preprocessing=SMALL)
    (tmp_path / "e.onnx.data").write_bytes((tmp_path / "f.onnx.data").read_bytes())
    second = load_classifier(path, labels=pets, preprocessing=SMALL)
    assert path.read_bytes() == graph and other.exists()
    assert not np.allclose(first.scores(IMAGES), second.scores(IMAGES))
    assert first.fingerprint != second.fingerprint


def test_a_model_and_its_weights_may_be_links(tmp_path: Path, pets: LabelSpace) -> None:
    """As in the cache of the Hugging Face Hub, where the files themselves have other names."""
    path = with_external_data(export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "e.onnx"), "e.onnx_data")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for number, name in enumerate(("e.onnx", "e.onnx_data")):
        (tmp_path / name).rename(tmp_path / f"blobs/{number}")
        (tmp_path / "snapshot" / name).symlink_to(f"../blobs/{number}")
    model = load_classifier(tmp_path / "snapshot" / path.name, labels=pets, preprocessing=SMALL)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.scores(IMAGES), model.scores(IMAGES))
    assert np.allclose(model.scores(IMAGES), expected(), atol=1e-5)


def test_external_files_are_those_that_onnx_finds(tmp_path: Path) -> None:
    path = export(Attention(), torch.zeros(2, 3, 32, 32), tmp_path / "a.onnx")
    assert external_files(path) == []
    model = onnx.load(path)
    onnx.save_model(model, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    tensors = onnx.external_data_helper._get_all_tensors(onnx.load(path, load_external_data=False))
    expected = {onnx.external_data_helper.ExternalDataInfo(t).location for t in tensors if t.external_data}
    assert set(external_files(path)) == expected and len(expected) > 3


#: Key and value of an entry as Protocol Buffers write them.
_ENTRY = [b"\x0a\x08location", b"\x12\x0be.onnx.data"]


def test_external_files_are_found_in_any_order_of_the_fields(tmp_path: Path) -> None:
    path = with_external_data(export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "e.onnx"), "e.onnx.data")
    entry, turned = (b"".join(parts) for parts in (_ENTRY, _ENTRY[::-1]))
    assert entry in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(entry, turned))
    assert onnx.load(path, load_external_data=False).graph.initializer[0].external_data[0].value == "e.onnx.data"
    assert external_files(path) == ["e.onnx.data"]


@pytest.mark.parametrize("location", ["../w.data", "missing.data"])
def test_weights_outside_the_folder_are_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "models").mkdir()
    path = with_external_data(export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "models/e.onnx"), "e.onnx.data")
    (tmp_path / "w.data").write_bytes((tmp_path / "models/e.onnx.data").read_bytes())
    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        next(entry for entry in tensor.external_data if entry.key == "location").value = location
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ClassifierError) as raised:
        external_files(path)
    assert raised.value.found == location


def test_channels_last_is_seen_and_assumptions_are_said(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(ChannelsLast(), torch.zeros(2, 32, 32, 3), tmp_path / "tf.onnx")
    with pytest.warns(ResultWarning):
        classifier = load_classifier(path, labels=pets)
    assert classifier.preprocessing == Preprocessing(Geometry(32, None, "exact"), Normalisation(layout="nhwc"))
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)


def test_uint8_inputs_get_the_pixels(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Pixels(), torch.zeros(2, 32, 32, 3, dtype=torch.uint8), tmp_path / "pixels.onnx")
    classifier = load_classifier(path, labels=pets, preprocessing=SMALL)
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)


def test_same_bits_for_every_batch_and_number_of_threads(tmp_path: Path, pets: LabelSpace) -> None:
    """Batches of one, or of fewer images than threads, would get other last bits if they were not filled up."""
    path = export(Attention(), torch.zeros(2, 3, 32, 32), tmp_path / "attention.onnx")
    images = sample_images(13, (32, 32))
    expected = load_classifier(path, labels=pets, preprocessing=SMALL, threads=1).scores(images)
    for threads in (1, 2, 3, 5, 8):
        classifier = load_classifier(path, labels=pets, preprocessing=SMALL, threads=threads)
        for size in (1, 2, 3, 7, 13):
            parts = [classifier.scores(images[start : start + size]) for start in range(0, 13, size)]
            assert np.array_equal(np.concatenate(parts), expected), (threads, size)


def test_a_fixed_batch_is_filled_up(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Small(), torch.zeros(4, 3, 32, 32), tmp_path / "four.onnx", fixed=True)
    classifier = load_classifier(path, labels=pets, preprocessing=SMALL)
    assert np.allclose(classifier.scores(IMAGES), expected(), atol=1e-5)
    assert classifier.batch_size == 4
    assert [check for check in check_classifier(classifier) if not check.ok] == []


def test_probabilities_are_seen(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(nn.Sequential(Small(), nn.Softmax(1)), torch.zeros(2, 3, 32, 32), tmp_path / "p.onnx")
    assert load_classifier(path, labels=pets, preprocessing=SMALL).outputs == "probabilities"


def test_pictures_of_the_wrong_size(tmp_path: Path, pets: LabelSpace) -> None:
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    with pytest.raises(ClassifierError, match="images of 40 x 40"):
        load_classifier(path, labels=pets, preprocessing=Preprocessing(Geometry(40, 40)))


def test_no_onnx(tmp_path: Path) -> None:
    (tmp_path / "torn.onnx").write_bytes(b"\x08\x07torn")
    with pytest.raises(ClassifierError, match="can't open torn"):
        load_classifier(tmp_path / "torn.onnx")
    with pytest.raises(ClassifierError, match="file not found"):
        load_classifier(tmp_path / "missing.onnx")


def test_memory_that_runs_out_halves_the_batch(
    tmp_path: Path, pets: LabelSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    classifier = load_classifier(path, labels=pets, preprocessing=SMALL)
    assert isinstance(classifier, OnnxClassifier)
    normal = classifier.forward

    def forward(images: Any) -> Any:
        if len(images) > 5:
            raise RuntimeError(
                "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer"
            )
        return normal(images)

    monkeypatch.setattr(classifier, "forward", forward)
    many = np.concatenate([IMAGES] * 4)
    assert np.allclose(classifier.scores(many)[:5], expected(), atol=1e-5)
    assert classifier.batch_size == 4


@pytest.mark.parametrize("text", ['["dog", "cat", "fish"]', "{0: 'dog', 1: 'cat', 2: 'fish'}"])
def test_the_classes_that_a_file_names(tmp_path: Path, text: str) -> None:
    onnx = pytest.importorskip("onnx")
    path = export(Small(3), torch.zeros(2, 3, 32, 32), tmp_path / "small.onnx")
    graph = onnx.load(path)
    onnx.helper.set_model_props(graph, {"names": text})
    onnx.save(graph, path)
    default = LabelSpace("folders", ("cat", "dog", "fish"))
    assert load_classifier(path, preprocessing=SMALL, default_labels=default).space.keys == ("dog", "cat", "fish")
    assert load_classifier(path, preprocessing=SMALL, labels=["a", "b", "c"]).space.keys == ("a", "b", "c")


@pytest.mark.reliability("silent-wrong attempts")
@pytest.mark.parametrize("batch_size", [1, 8])
def test_graphs_that_draw_random_numbers_are_reported(tmp_path: Path, pets: LabelSpace, batch_size: int) -> None:
    """They were taken for models that mix the images of a batch, and with one image at a time for good ones."""
    helper = onnx.helper
    path = export(Small(), torch.zeros(2, 3, 32, 32), tmp_path / "noisy.onnx")
    graph = onnx.load(path)
    [output] = graph.graph.output
    noise = helper.make_node("RandomNormalLike", [output.name], ["noise"], scale=5.0)
    graph.graph.node.extend([noise, helper.make_node("Add", [output.name, "noise"], ["scores"])])
    output.name = "scores"
    onnx.save(graph, path)
    classifier = load_classifier(path, labels=pets, preprocessing=SMALL, batch_size=batch_size)
    assert not classifier.repeatable
    assert not classifier.one_at_a_time
    data = from_arrays(IMAGES, [0] * len(IMAGES), space=pets, name="photos")
    with pytest.warns(ResultWarning) as caught:
        sb.evaluate(classifier, "clean", data, tmp_path / "w", progress=False)
    assert "unsteady-model" in {getattr(record.message, "code", "") for record in caught}
