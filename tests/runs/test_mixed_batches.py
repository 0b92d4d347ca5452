"""Models whose scores depend on the other images of a batch get the same numbers with every batch size and design."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers.loading import load_classifier
from shiftbench.classifiers.onnx_graph import mixes_images
from shiftbench.errors import ResultWarning
from tests.commands import answer

CLASSES = ["blue", "green", "red"]
GEOMETRY = {"size": 16}
OPTIONS: Any = {
    "labels": "folders",
    "preprocessing": {"size": 16, "mean": 0, "std": 1, "scale": 1 / 255, "colour": "rgb"},
    "progress": False,
    "keep_scores": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dark images, whose colours differ by little, and a bright one among eight."""
    folder = tmp_path_factory.mktemp("mixed") / "data"
    rng = np.random.default_rng(0)
    for number, name in enumerate(reversed(CLASSES)):
        (folder / name).mkdir(parents=True)
        for i in range(16):
            bright = i % 8 == 7
            pixels = np.full((16, 16, 3), 180 if bright else 6, np.int64)
            pixels[..., number] += 70 if bright else 2
            pixels += rng.integers(0, 2, pixels.shape)
            Image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i:02d}.png")
    return folder


def write_graph(path: Path, nodes: list[Any], batch: str | int = "n", **weights: Any) -> Path:
    """Write a graph of the opset 17 that turns ``images`` into ``scores``."""
    float32 = onnx.TensorProto.FLOAT
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("images", float32, [batch, 3, 16, 16])],
        [helper.make_tensor_value_info("scores", float32, [batch, 3])],
        initializers,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def quantised(path: Path, batch: str | int = "n") -> Path:
    """A network whose features are quantised to eight bits, with the range of the batch."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("DynamicQuantizeLinear", ["flat"], ["whole", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["whole", "scale", "zero"], ["back"]),
        helper.make_node("MatMul", ["back", "w"], ["scores"]),
    ]
    return write_graph(path, nodes, batch, w=np.eye(3, dtype=np.float32)[:, ::-1].copy() * 20)


def evaluate(model: Any, data: Path, workspace: Path, **options: Any) -> tuple[sb.Run, list[str]]:
    """The run, and the codes of its warnings about the model."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = sb.evaluate(model, data=data, workspace=workspace, **{**OPTIONS, **options})
    codes = [warning.message.code for warning in caught if isinstance(warning.message, ResultWarning)]
    return run, [code for code in codes if code.endswith("-model")]


def accuracy(run: sb.Run) -> float:
    ((_, _, score),) = run.scores("top1")
    return score.value


def files(workspace: Path) -> dict[str, bytes]:
    """The predictions of complete results; those of a design are left out."""
    folder = workspace / "predictions"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.mark.parametrize("batch", ["n", 4])
def test_dynamic_quantisation_is_independent_of_the_batch_size(data: Path, tmp_path: Path, batch: str | int) -> None:
    path = quantised(tmp_path / "net.onnx", batch)
    runs = [evaluate(path, data, tmp_path / f"w{size}", batch_size=size) for size in (1, 2, 16, 64)]
    assert [accuracy(run) for run, _ in runs] == [1.0] * 4
    assert {run.results[0].model_id for run, _ in runs} == {runs[0][0].results[0].model_id}
    assert all(codes == ["mixing-model"] for _, codes in runs)
    assert files(tmp_path / "w1") == files(tmp_path / "w2") == files(tmp_path / "w64")
    (row,) = answer("table", "-w", tmp_path / "w1", "--provenance")["rows"]
    assert row["state"] == "one image at a time"
    strict, _ = evaluate(path, data, tmp_path / "w1", strict=True)
    assert accuracy(strict) == 1.0


def test_a_design_and_processes_give_the_same_predictions(data: Path, tmp_path: Path) -> None:
    path = quantised(tmp_path / "net.onnx")
    suite: Any = {"suite": "corruptions", "corruptions": ["contrast", "brightness"]}
    evaluate(path, data, tmp_path / "both", design="one-pass", **suite)
    evaluate(path, data, tmp_path / "both", **suite)
    evaluate(path, data, tmp_path / "full", executor="processes", workers=2, **suite)
    full = files(tmp_path / "full")
    both = files(tmp_path / "both")
    assert len(full) > 2
    assert {name: both[name] for name in full} == full


@pytest.mark.parametrize(
    "operation",
    [
        helper.make_node("ReduceMax", ["flat"], ["range"], axes=[0]),
        helper.make_node("ReduceMean", ["flat"], ["range"]),
        helper.make_node("ReduceSum", ["flat", "first_axis"], ["range"]),
    ],
    ids=lambda node: node.op_type,
)
def test_reductions_over_the_batch(data: Path, tmp_path: Path, operation: Any) -> None:
    nodes = [
        helper.make_node("GlobalAveragePool", ["images"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        operation,
        # The range decides only in the twentieth digit, which no score shows.
        helper.make_node("Mul", ["range", "little"], ["small"]),
        helper.make_node("Add", ["flat", "small"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["scores"]),
    ]
    weights: Any = {"w": np.eye(3, dtype=np.float32), "little": np.float32(1e-20), "first_axis": np.array([0])}
    path = write_graph(tmp_path / "net.onnx", nodes, **weights)
    assert mixes_images(path)
    assert load_classifier(path, labels=CLASSES, preprocessing=OPTIONS["preprocessing"]).one_at_a_time


def test_reductions_over_other_axes_keep_full_batches(data: Path, tmp_path: Path) -> None:
    """Shapes may be reduced too, and an ensemble takes the mean over its members, which are the first axis then."""
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["flat"], axes=[2, 3], keepdims=0),
        helper.make_node("Shape", ["flat"], ["shape"]),
        helper.make_node("ReduceProd", ["shape"], ["count"], keepdims=0),
        helper.make_node("Unsqueeze", ["flat", "first_axis"], ["member"]),
        helper.make_node("Concat", ["member", "member"], ["members"], axis=0),
        helper.make_node("ReduceMean", ["members"], ["mean"], axes=[0], keepdims=0),
        helper.make_node("MatMul", ["mean", "w"], ["scores"]),
    ]
    path = write_graph(
        tmp_path / "net.onnx", nodes, w=np.eye(3, dtype=np.float32)[:, ::-1].copy() * 20, first_axis=np.array([0])
    )
    run, codes = evaluate(path, data, tmp_path / "w")
    assert accuracy(run) == 1.0 and codes == []
    assert "batch" not in run.results[0].spec.classifier.values
    assert not load_classifier(path, labels=CLASSES, preprocessing=OPTIONS["preprocessing"]).one_at_a_time


def test_a_graph_that_mixes_images_by_its_scores_alone(tmp_path: Path) -> None:
    """Images change places in a matrix product, which no reduction shows."""
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["flat"], axes=[2, 3], keepdims=0),
        helper.make_node("Transpose", ["flat"], ["turned"], perm=[1, 0]),
        helper.make_node("ReduceMax", ["turned"], ["range"], axes=[1], keepdims=0),
        helper.make_node("Add", ["flat", "range"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["scores"]),
    ]
    path = write_graph(tmp_path / "net.onnx", nodes, w=np.eye(3, dtype=np.float32))
    assert not mixes_images(path)
    classifier = load_classifier(path, labels=CLASSES, preprocessing=OPTIONS["preprocessing"])
    assert classifier.one_at_a_time
    assert pickle.loads(pickle.dumps(classifier)).one_at_a_time


def right(images: Any) -> Any:
    return images.mean(axis=(1, 2))[:, ::-1] * 20


def test_a_function_that_takes_its_range_from_the_batch(data: Path, tmp_path: Path) -> None:
    def in_eight_bits(images: Any) -> Any:
        scores = right(images)
        step = scores.max() / 255
        return np.round(scores / step) * step

    run, codes = evaluate(in_eight_bits, data, tmp_path / "w", preprocessing=GEOMETRY)
    again, later = evaluate(in_eight_bits, data, tmp_path / "w", preprocessing=GEOMETRY)
    assert accuracy(run) == 1.0 and codes == later == ["mixing-model"]
    assert again.results[0].key == run.results[0].key
    assert run.results[0].spec.classifier.batch == "one image at a time"


def test_a_function_that_differs_for_large_odd_batches(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number, name in enumerate(reversed(CLASSES)):
        (data / name).mkdir(parents=True)
        for i in range(9):
            pixels = np.full((16, 16, 3), 40 + i, np.uint8)
            pixels[..., number] = 200
            Image.fromarray(pixels).save(data / name / f"{i}.png")

    def reversing(images: Any) -> Any:
        scores = right(images)
        if len(images) > 8 and len(images) % 2:
            return scores[::-1]
        return scores

    run, codes = evaluate(reversing, data, tmp_path / "w", preprocessing=GEOMETRY)
    assert accuracy(run) == 1.0 and codes == ["mixing-model"]


def test_worker_processes_keep_to_one_image_at_a_time(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import numpy as np\n"
        "def classifier():\n"
        "    def scores(images):\n"
        "        means = images.mean(axis=(1, 2))[:, ::-1] * 20\n"
        "        step = means.max() / 255\n"
        "        return np.round(means / step) * step\n"
        "    return scores\n"
    )
    run, codes = evaluate(path, data, tmp_path / "w", executor="processes", workers=2, preprocessing=GEOMETRY)
    assert accuracy(run) == 1.0 and codes == ["mixing-model"]


def test_a_torch_module_that_takes_its_range_from_the_batch(data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")

    class Quantised(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, images: Any) -> Any:
            means = images.mean(dim=(2, 3)).flip(1) * 20
            step = means.max() / 255
            return torch.round(means / step) * step

    for engine in ("torch", "auto"):
        given: Any = {"labels": CLASSES, "preprocessing": OPTIONS["preprocessing"], "engine": engine}
        model = load_classifier(Quantised().eval(), **given)
        run, codes = evaluate(model, data, tmp_path / engine, preprocessing=None)
        assert accuracy(run) == 1.0 and codes == ["mixing-model"]
