"""Real exports of a real network: half precision, int8, other preprocessing, other order of classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shiftbench as sb
from shiftbench.arrays import Pixels
from shiftbench.classifiers.demo import DEMO_CLASSIFIERS
from shiftbench.classifiers.description import description_text
from shiftbench.classifiers.loading import load_classifier
from shiftbench.datasets import open_dataset
from shiftbench.datasets.base import Dataset
from shiftbench.diagnosis.exports import _Comparison
from shiftbench.diagnosis.images import Images
from shiftbench.labels.catalogue import label_space
from tests.diagnosis.conftest import DIAGNOSED, RIGHT, dataset, part, reordered, with_softmax
from tests.diagnosis.own import made_for

pytestmark = pytest.mark.filterwarnings("ignore::shiftbench.ResultWarning")

onnx = pytest.importorskip("onnx")
quantization = pytest.importorskip("onnxruntime.quantization")


CIFAR = label_space("cifar-10")


@pytest.fixture(scope="module")
def data(cifar: Dataset) -> Dataset:
    return dataset(*part(cifar, DIAGNOSED[:300]))


def check(first: Path, second: Path, data: Dataset, *preprocessing: str, **options: Any) -> sb.ExportCheck:
    stated = list(preprocessing) or [RIGHT, RIGHT]
    return sb.verify_export(str(first), str(second), data, preprocessing=stated, progress=False, **options)


def half_precision(source: Path, target: Path) -> Path:
    """All weights and arithmetic in float16, input and output in float32."""
    model = onnx.load(source)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor).astype(np.float16)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    start = model.graph.input[0].name
    end = model.graph.output[0].name
    for node in model.graph.node:
        node.input[:] = [f"{name}.half" if name == start else name for name in node.input]
        node.output[:] = [f"{name}.half" if name == end else name for name in node.output]
    cast = onnx.helper.make_node
    model.graph.node.insert(0, cast("Cast", [start], [f"{start}.half"], to=onnx.TensorProto.FLOAT16))
    model.graph.node.append(cast("Cast", [f"{end}.half"], [end], to=onnx.TensorProto.FLOAT))
    del model.graph.value_info[:]
    onnx.save(model, target)
    return target


def int8(source: Path, target: Path, images: Pixels, stated: str = RIGHT, labels: str = "cifar-10") -> Path:
    """Static quantisation by onnxruntime, calibrated on images."""
    classifier = load_classifier(str(source), preprocessing=stated, labels=labels)
    batches: Iterator[dict[str, Any]] = iter([{"images": classifier.preprocessing.normalisation(images)}])

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
        def get_next(self) -> Any:
            return next(batches, None)

    quantization.quantize_static(str(source), str(target), Reader(), per_channel=False)
    return target


def test_a_model_and_itself_are_the_same(resnet8: Path, data: Dataset) -> None:
    found = check(resnet8, resnet8, data)
    assert found.status == "same" and found.first_difference is None
    assert {stage.finding for stage in found.stages} == {"same"}
    names = ["pixels", "input", "labels", "outputs", "scores", "top-1", "accuracy"]
    assert [stage.stage for stage in found.stages][:7] == names and len(found.stages) == 11
    assert found.reason in repr(found) and all(name in found._repr_html_() for name in names)


@pytest.mark.slow
def test_an_openvino_export_is_the_same_and_its_swapped_outputs_are_not(
    resnet8: Path, data: Dataset, tmp_path: Path
) -> None:
    openvino = pytest.importorskip("openvino", reason="the extra openvino is not installed")
    for source, name in ((resnet8, "same"), (reordered(resnet8, tmp_path / "s.onnx", [1, 0, *range(2, 10)]), "other")):
        openvino.save_model(openvino.convert_model(source), tmp_path / f"{name}.xml", compress_to_fp16=False)
    assert check(resnet8, tmp_path / "same.xml", data).status == "same"
    different = check(resnet8, tmp_path / "other.xml", data)
    assert different.status == "different" and different.cause is not None
    assert "airplane and automobile are swapped" in different.cause.text


def bgr_network(source: Path, target: Path) -> Path:
    """The network as if it had been trained on BGR."""
    return made_for(source, target, f"{RIGHT},colour=bgr", native=RIGHT)


def test_outputs_in_another_order_are_named_as_the_cause(resnet8: Path, data: Dataset, tmp_path: Path) -> None:
    order = [0, 1, 2, 5, 4, 3, 6, 7, 8, 9]
    swapped = reordered(resnet8, tmp_path / "swapped.onnx", order)
    for first, second in ((resnet8, swapped), (swapped, resnet8)):
        found = check(first, second, data)
        assert found.status == "different" and found.cause is not None
        # The network whose outputs fit the labels is right, whether it is named first or second.
        assert found.cause.model == "swapped"
        assert "cat and dog are swapped" in found.cause.text
        assert found.cause.labels is not None and not found.cause.preprocess
        assert [found.cause.labels[i] for i in order] == list(CIFAR.keys)
        assert found.cause.before < 0.95 and found.cause.after == 1
        assert found.as_dict()["cause"]["labels"] == found.cause.labels  # type: ignore[index]
        assert found.cause.text in found._repr_html_()
        again = sb.verify_export(
            str(resnet8), found.cause.classifier, data, preprocessing=[RIGHT, None], progress=False
        )
        assert again.status == "same" and again.cause is None
    moved = check(resnet8, reordered(resnet8, tmp_path / "moved.onnx", [*range(1, 10), 0]), data)
    assert moved.cause is not None and moved.cause.labels == (*CIFAR.keys[1:], CIFAR.keys[0])


def test_swapped_outputs_of_a_quantised_network_are_named(
    resnet8: Path, cifar: Dataset, data: Dataset, tmp_path: Path
) -> None:
    export = int8(resnet8, tmp_path / "int8.onnx", part(cifar, range(200))[0])
    swapped = reordered(export, tmp_path / "swapped.onnx", [0, 1, 2, 5, 4, 3, 6, 7, 8, 9])
    found = check(resnet8, swapped, data)
    assert found.cause is not None and "cat and dog are swapped" in found.cause.text


def test_other_channels_are_named_as_the_cause(resnet8: Path, data: Dataset, tmp_path: Path) -> None:
    bgr = bgr_network(resnet8, tmp_path / "bgr.onnx")
    for first, second in ((resnet8, bgr), (bgr, resnet8)):
        found = check(first, second, data)
        assert found.cause is not None and found.cause.model == "bgr"
        assert "bgr expects BGR" in found.cause.text and found.cause.labels is None
        assert found.cause.preprocess["colour"] == "bgr"
        fixed = description_text(found.cause.preprocess)
        assert check(resnet8, bgr, data, RIGHT, fixed).status == "same"


@pytest.mark.parametrize(("right", "stated"), [("1", "1/255"), ("1/255", "1")])
def test_another_range_is_named_as_the_cause(
    right: str, stated: str, resnet8: Path, data: Dataset, tmp_path: Path
) -> None:
    native = f"size=32,mean=0,std=1,scale={right}"
    other = made_for(resnet8, tmp_path / "range.onnx", native, native=RIGHT)
    for first, second in ((resnet8, other), (other, resnet8)):
        preprocessing = [f"size=32,mean=0,std=1,scale={stated}" if one is other else RIGHT for one in (first, second)]
        found = check(first, second, data, *preprocessing)
        assert found.cause is not None and found.cause.model == "range"
        assert f"expects values from 0 to {'255' if right == '1' else '1'}" in found.cause.text
        assert check(resnet8, other, data, RIGHT, description_text(found.cause.preprocess)).status == "same"


def test_no_cause_is_named_for_other_weights(resnet8: Path, cifar: Dataset, data: Dataset, tmp_path: Path) -> None:
    """Quantised, half precision, and weights that have moved, as by fine-tuning."""
    exports = [
        int8(resnet8, tmp_path / "int8.onnx", part(cifar, range(200))[0]),
        half_precision(resnet8, tmp_path / "half.onnx"),
        *(moved_weights(resnet8, tmp_path / f"moved{percent}.onnx", percent / 100) for percent in (2, 5, 10, 20)),
    ]
    for export in exports:
        for first, second in ((resnet8, export), (export, resnet8)):
            assert check(first, second, data).cause is None, export.name


def moved_weights(source: Path, target: Path, amount: float) -> Path:
    """Every weight changed at random by a share of the deviation of its tensor."""
    model = onnx.load(source)
    rng = np.random.default_rng(0)
    for tensor in model.graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size > 1:
            noise = amount * values.std() * rng.standard_normal(values.shape)
            tensor.CopyFrom(onnx.numpy_helper.from_array((values + noise).astype(np.float32), tensor.name))
    onnx.save(model, target)
    return target


def test_half_precision_first_differs_in_the_scores(resnet8: Path, data: Dataset, tmp_path: Path) -> None:
    found = check(resnet8, half_precision(resnet8, tmp_path / "half.onnx"), data, least_agreement=0.95)
    assert found.status == "same" and found.first_difference == "scores"
    stages = {stage.stage: stage for stage in found.stages}
    assert 1e-4 < stages["scores"].values["largest"] < 0.02 and stages["scores"].finding == "close"
    assert stages["top-1"].values["agreement"] >= 0.99


def test_int8_differs_in_the_scores_and_in_some_answers(
    resnet8: Path, cifar: Dataset, data: Dataset, tmp_path: Path
) -> None:
    export = int8(resnet8, tmp_path / "int8.onnx", part(cifar, range(200))[0])
    found = check(resnet8, export, data)
    stages = {stage.stage: stage for stage in found.stages}
    assert found.first_difference == "scores" and stages["scores"].finding == "different"
    # By hand: the same two models, image by image.
    models = [load_classifier(str(one), labels="cifar-10", preprocessing=RIGHT) for one in (resnet8, export)]
    pixels = np.stack([data.read(i).pixels for i in range(len(data))])
    top = [model.scores(pixels).argmax(axis=1) for model in models]
    assert stages["top-1"].values["agreement"] == pytest.approx(float((top[0] == top[1]).mean()))
    hits = [one == data.labels for one in top]
    assert stages["accuracy"].values["difference"] == pytest.approx(float(hits[1].mean() - hits[0].mean()))
    assert 0.5 < stages["top-1"].values["agreement"] < 1
    assert found.status == ("different" if stages["top-1"].values["high"] < 0.98 else "undecided")


@pytest.mark.parametrize(
    ("preprocessing", "stage"),
    [
        ("size=32,mean=0.485,0.456,0.406,std=0.229,0.224,0.225", "input"),
        (f"{RIGHT},colour=bgr", "input"),
        ("resize=48,crop=32,mean=128,std=128", "pixels"),
        ("size=48,mean=128,std=128", "pixels"),
    ],
)
def test_another_preprocessing_is_named_as_the_first_difference(
    preprocessing: str, stage: str, resnet8: Path, data: Dataset
) -> None:
    found = check(resnet8, resnet8, data, RIGHT, preprocessing)
    assert found.first_difference == stage and found.status == "different"
    scores = next(one for one in found.stages if one.stage == "scores")
    # The same pixels give the same scores, where only resize and crop differ.
    if preprocessing.startswith("resize=48"):
        assert scores.finding == "same"


@pytest.mark.parametrize(("times", "kind"), [(0, "probabilities"), (1, "logits"), (2, "probabilities")])
def test_a_wrong_softmax_is_named_although_the_answers_agree(
    times: int, kind: str, resnet8: Path, data: Dataset, tmp_path: Path
) -> None:
    export = with_softmax(resnet8, tmp_path / "export.onnx", times)
    found = check(resnet8, export, data, RIGHT, f"{RIGHT},outputs={kind}")
    assert found.status == "different" and found.first_difference == "outputs" and "softmax" in found.reason
    assert next(stage for stage in found.stages if stage.stage == "top-1").finding == "same"


def test_images_under_shift_are_of_all_classes(resnet8: Path, cifar: Dataset) -> None:
    """Folders give them class by class."""
    pixels, labels = part(cifar, DIAGNOSED[:400])
    order = np.argsort(labels, kind="stable")
    pair = [load_classifier(str(resnet8), labels="cifar-10", preprocessing=RIGHT)] * 2
    compared = _Comparison(pair[0], pair[1], Images(dataset(pixels[order], labels[order])), 0.95, 0)
    assert len(compared.shifted_places) == 100
    assert set(labels[order][compared.shifted_places]) == set(range(10))


def test_a_graph_in_training_mode_mixes_the_images_of_a_batch(data: Dataset, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
        network = torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(8, 10))
        files = tmp_path / "right.onnx", tmp_path / "training.onnx"
        for path, mode in zip(files, (torch.onnx.TrainingMode.EVAL, torch.onnx.TrainingMode.TRAINING), strict=True):
            axes = {"images": {0: "n"}}
            torch.onnx.export(
                network,
                (torch.zeros(2, 3, 32, 32),),
                str(path),
                dynamo=False,
                training=mode,
                do_constant_folding=mode == torch.onnx.TrainingMode.EVAL,
                input_names=["images"],
                dynamic_axes=axes,
            )
    found = check(*files, data)
    assert found.status == "different" and found.first_difference == "outputs" and "batch" in found.reason
    alone = sb.doctor(str(files[1]), data, preprocessing=RIGHT, progress=False)
    assert alone.status == "fault" and "images of a batch" in alone.changes


@pytest.mark.soak
def test_real_exports_of_a_network_for_photographs(tmp_path: Path) -> None:
    """EfficientNet-Lite0 on the demo's photographs: float16, int8, and exports with a mistake."""
    demo = DEMO_CLASSIFIERS["efficientnet-lite0"]
    photographs = open_dataset("demo")
    original = tmp_path / "lite0.onnx"
    demo.graph(demo.weights(), (224, 224)).save(original)
    right = "resize=256,crop=224,interpolation=bicubic,mean=127,std=128"
    classifier = load_classifier(str(original), preprocessing=right)
    pixels = np.stack([classifier.preprocessing.geometry(photographs.read(row).pixels) for row in range(0, 100, 5)])
    exports = {
        "float16": (half_precision(original, tmp_path / "half.onnx"), right, "scores", {"same", "undecided"}),
        "int8": (
            int8(original, tmp_path / "int8.onnx", pixels, right, "imagenet-1k"),
            right,
            "scores",
            {"same", "undecided", "different"},
        ),
        "BGR in the graph": (
            made_for(
                original,
                tmp_path / "bgr.onnx",
                "mean=127,std=128,scale=1,colour=bgr",
                native="mean=127,std=128,scale=1",
            ),
            right,
            "scores",
            {"different"},
        ),
        "squash": (
            original,
            "size=224,interpolation=bicubic,mean=127,std=128",
            "pixels",
            {"same", "undecided", "different"},
        ),
        "ImageNet's values": (
            original,
            right.replace("mean=127,std=128", "mean=0.485,0.456,0.406,std=0.229,0.224,0.225"),
            "input",
            {"different", "undecided"},
        ),
        "softmax twice": (with_softmax(original, tmp_path / "twice.onnx", 2), right, "outputs", {"different"}),
        "softmax missing": (original, f"{right},outputs=probabilities", "outputs", {"different"}),
    }
    for name, (export, stated, stage, statuses) in exports.items():
        found = sb.verify_export(str(original), str(export), photographs, preprocessing=[right, stated], progress=False)
        print("RESULT", name, found.status, found.first_difference, found.reason)
        for one in found.stages:
            print("   ", one.stage, one.finding, one.text)
        assert found.first_difference == stage and found.status in statuses, name


def test_another_order_of_the_same_classes_is_compared_by_name(resnet8: Path, data: Dataset, tmp_path: Path) -> None:
    order = [*range(9, -1, -1)]
    export = reordered(resnet8, tmp_path / "reversed.onnx", order)
    names = [data.space.keys[i] for i in order]
    own = load_classifier(str(resnet8), labels="cifar-10", preprocessing=RIGHT)
    other = load_classifier(str(export), labels=names, preprocessing=RIGHT)
    found = sb.verify_export(own, other, data, progress=False)
    assert found.status == "same" and found.first_difference == "labels"
    assert next(stage for stage in found.stages if stage.stage == "scores").finding == "same"


def test_few_images_cannot_show_agreement(resnet8: Path, cifar: Dataset, tmp_path: Path) -> None:
    few = dataset(*part(cifar, DIAGNOSED[:50]))
    assert check(resnet8, half_precision(resnet8, tmp_path / "half.onnx"), few).status == "undecided"


def test_without_labels_accuracy_is_unknown(resnet8: Path, cifar: Dataset) -> None:
    pixels, labels = part(cifar, DIAGNOSED[:60])
    labels[1:] = -1
    found = check(resnet8, resnet8, dataset(pixels, labels))
    stages = {stage.stage: stage for stage in found.stages}
    assert stages["accuracy"].finding == "unknown" and stages["top-1"].finding == "same"


def test_models_of_other_classes_are_refused(resnet8: Path, data: Dataset) -> None:
    other = load_classifier(str(resnet8), labels=[*data.space.keys[:9], "lorry"], preprocessing=RIGHT)
    own = load_classifier(str(resnet8), labels="cifar-10", preprocessing=RIGHT)
    with pytest.raises(sb.ShiftbenchError, match="different classes") as error:
        sb.verify_export(own, other, data, progress=False)
    assert "lorry" in str(error.value.found)
