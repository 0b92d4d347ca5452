"""Ways to make a workspace, a file or a model answer for another one: a right number, an error, or a warning.

Each of them once printed a wrong number, or could have: the number that an empty workspace gives is the right one.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
import threading
import unicodedata
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.api import IncompleteRunError
from shiftbench.classifiers import function
from shiftbench.datasets import from_arrays
from shiftbench.errors import ClassifierError, DatasetError, LabelError, ResultWarning, StoreError, UnknownClassesError
from shiftbench.labels.space import LabelSpace
from shiftbench.runs.import_predictions import import_predictions
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruption
from shiftbench.store.baseline import GateBaseline, read_baseline, write_baseline
from shiftbench.store.run_records import Software
from tests.commands import answer, call
from tests.runs.helpers import brightest_channel, darkest_channel
from tests.store.test_damage import _forget

pytestmark = pytest.mark.reliability("silent-wrong attempts")
NAMES = ("blue", "green", "red")
CLASSES = LabelSpace("three", NAMES)
SMALL: dict[str, Any] = {"preprocessing": {"size": 32}, "labels": list(NAMES), "progress": False, "workers": 1}
FILE = "def classifier():\n    return lambda images: images.mean(axis=(1, 2)){flip} / 20\n"


def right(images: Any) -> Any:
    return brightest_channel(images)[:, ::-1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Files of equal size, in three classes."""
    rng = np.random.default_rng(0)
    for place, name in enumerate(NAMES):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(8):
            pixels = rng.integers(0, 120, (36, 36, 3))
            pixels[..., 2 - place] += 90
            Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "data" / name / f"{i}.bmp")
    return tmp_path / "data"


def evaluate(model: Any, data: Any, workspace: Path, **options: Any) -> tuple[float, list[str]]:
    """Accuracy in the last setting, and the codes of the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = sb.evaluate(model, data=data, workspace=workspace, **{**SMALL, **options})
    codes: list[str] = [one.message.code for one in caught if isinstance(one.message, ResultWarning)]
    return run.scores("top1")[-1][2].value, codes


def check_change(
    model: Callable[[], Any], data: Any, tmp_path: Path, change: Callable[[], Any], **options: Any
) -> None:
    """The same call after a change gives the number of an empty workspace, and another one than before."""
    before, _ = evaluate(model(), data, tmp_path / "w", **options)
    change()
    after, _ = evaluate(model(), data, tmp_path / "w", **options)
    assert after == evaluate(model(), data, tmp_path / "empty", **options)[0] != before


def keeping_dates(path: Path, content: bytes) -> None:
    state = path.stat()
    assert state.st_size == len(content)
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


# -- data ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["written", "renamed"])
def test_images_exchanged_pairwise(data: Path, tmp_path: Path, how: str) -> None:
    def exchange() -> None:
        for one in data.glob("blue/*"):
            other, aside = data / "red" / one.name, tmp_path / "aside"
            if how == "renamed":
                one.rename(aside)
                other.rename(one)
                aside.rename(other)
            else:
                first, second = one.read_bytes(), other.read_bytes()
                keeping_dates(one, second)
                keeping_dates(other, first)

    check_change(lambda: right, data, tmp_path, exchange)


def test_an_archive_of_equal_size_and_date(tmp_path: Path) -> None:
    labels, path = np.arange(600) % 3, tmp_path / "d.npz"

    def write(images: Any) -> None:
        images[np.arange(600), :, :, labels] += 100
        np.savez(tmp_path / "new.npz", images=images, labels=labels)

    rng = np.random.default_rng(0)
    write(rng.integers(0, 100, (600, 32, 32, 3)).astype(np.uint8))
    shutil.copy(tmp_path / "new.npz", path)

    def change() -> None:
        write(rng.integers(0, 156, (600, 32, 32, 3)).astype(np.uint8) // 2)
        with np.load(tmp_path / "new.npz") as arrays:
            np.savez(tmp_path / "new.npz", images=arrays["images"][..., ::-1], labels=labels)
        keeping_dates(path, (tmp_path / "new.npz").read_bytes())

    check_change(lambda: brightest_channel, path, tmp_path, change)


def test_arrays_changed_in_memory(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3)).astype(np.uint8)
    dataset = from_arrays(images, np.arange(12) % 3, space=CLASSES)
    evaluate(right, dataset, tmp_path / "w", labels=CLASSES)
    images += 9
    with pytest.raises((DatasetError, IncompleteRunError), match="changed"):
        evaluate(darkest_channel, dataset, tmp_path / "w", labels=CLASSES)


def test_hard_links_across_classes(data: Path, tmp_path: Path) -> None:
    os.link(data / "blue/0.bmp", data / "red/link.bmp")
    assert evaluate(right, data, tmp_path / "w")[1].count("duplicate-images") == 2


def test_the_content_of_a_hard_link(data: Path, tmp_path: Path) -> None:
    os.link(data / "blue/0.bmp", tmp_path / "outside.bmp")
    check_change(
        lambda: right, data, tmp_path,
        lambda: keeping_dates(tmp_path / "outside.bmp", (data / "red/1.bmp").read_bytes()),
    )  # fmt: skip


def test_a_link_to_the_data_that_is_switched_during_a_run(data: Path, tmp_path: Path) -> None:
    other, link = shutil.copytree(data, tmp_path / "other"), tmp_path / "link"
    for one in other.glob("red/*"):
        shutil.copy(data / "blue" / one.name, one)
    link.symlink_to(data)
    calls: list[int] = []

    def switching(images: Any) -> Any:
        calls.append(len(images))
        if len(calls) == 3:  # after two calls with fixed images, in the first of two blocks
            link.unlink()
            link.symlink_to(other)
        return right(images)

    with pytest.raises(IncompleteRunError, match="changed or vanished"):
        evaluate(switching, link, tmp_path / "w", batch_size=12)


def test_labels_of_a_manifest_and_of_a_file(data: Path, tmp_path: Path) -> None:
    manifest, names = data / "images.csv", tmp_path / "names.txt"

    def write(classes: tuple[str, ...], order: tuple[str, ...]) -> None:
        rows = [f"{name}/{i}.bmp,{own}" for name, own in zip(NAMES, classes, strict=True) for i in range(8)]
        manifest.write_text("\n".join(["path,label", *rows]))
        names.write_text("\n".join(order))

    write(NAMES, NAMES)
    check_change(lambda: right, manifest, tmp_path, lambda: write(NAMES[::-1], NAMES), labels=str(names))
    check_change(lambda: right, manifest, tmp_path / "2", lambda: write(NAMES[::-1], NAMES[::-1]), labels=str(names))


def test_predictions_in_another_order_than_the_data(data: Path, tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], 8)
    for number, order in enumerate((np.arange(24), np.roll(np.arange(24), 1))):
        np.savez(tmp_path / f"{number}.npz", prediction=labels[order], label=labels[order])
    how: dict[str, Any] = {"data": data, "labels": "folders", "in_order": True, "workspace": tmp_path / "w"}
    import_predictions(tmp_path / "0.npz", "data", **how)
    with pytest.raises(ClassifierError, match="3 of 24 images"):
        import_predictions(tmp_path / "1.npz", "data", **how)


def test_rows_without_a_label_are_counted(data: Path, tmp_path: Path) -> None:
    """Half of the images would be missing from n, and nothing else would show it."""
    rows = [(f"{name}/{i}.bmp", name if i < 4 else "") for name in NAMES for i in range(8)]
    (data / "m.csv").write_text("\n".join(["path,label", *map(",".join, rows)]))
    assert evaluate(right, data / "m.csv", tmp_path / "w") == (1.0, ["data-files"])
    (data / "m.jsonl").write_text("\n".join(json.dumps({"path": path, "label": label or True}) for path, label in rows))
    with pytest.raises(UnknownClassesError) as caught:
        evaluate(right, data / "m.jsonl", tmp_path / "w2")
    assert caught.value.found == "true"


def test_the_same_key_twice_in_a_line_of_json(data: Path, tmp_path: Path) -> None:
    (data / "m.jsonl").write_text('{"path": "red/0.bmp", "label": "red", "label": "blue"}')
    with pytest.raises(DatasetError, match="twice"):
        evaluate(right, data / "m.jsonl", tmp_path / "w")


def test_two_spellings_of_an_accent(data: Path, tmp_path: Path) -> None:
    """As two folders they would be two classes of one name, of which a model knows one."""
    composed, decomposed = (unicodedata.normalize(form, "rosé") for form in ("NFC", "NFD"))
    (data / "red").rename(data / composed)
    assert evaluate(right, data, tmp_path / "w", labels=["blue", "green", decomposed])[0] == 1
    shutil.copytree(data / "green", data / decomposed)
    with pytest.raises(LabelError, match="twice"):
        evaluate(right, data, tmp_path / "w2", labels="folders")


def test_images_without_an_extension(data: Path, tmp_path: Path) -> None:
    for i in range(4):
        (data / f"red/{i}.bmp").rename(data / f"red/{i}")
        (data / f"blue/{i}.bmp").rename(data / f"blue/{i}.jfif")
    assert evaluate(right, data, tmp_path / "w")[1] == ["data-files"]


def test_shards_with_later_additions_other_names_or_a_missing_end(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    samples = [(f"{name}{i}", data / name / f"{i}.bmp", name) for name in NAMES for i in range(8)]

    def write(samples: list[tuple[str, Path, str]], mode: Literal["w", "a"] = "w") -> None:
        with tarfile.open(path, mode) as archive:
            for key, image, label in samples:
                for ending, content in (("bmp", image.read_bytes()), ("cls", label.encode())):
                    member = tarfile.TarInfo(f"{key}.{ending}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))

    write(samples)
    assert evaluate(right, path, tmp_path / "w") == (1.0, [])
    with tarfile.open(path) as archive:
        cut = archive.getmembers()[20].offset
    path.write_bytes(path.read_bytes()[:cut])
    assert evaluate(right, path, tmp_path / "w")[1] == ["data-files"]
    write([(key if i % 2 else f"{key}.v2", *rest) for i, (key, *rest) in enumerate(samples)])  # type: ignore[misc]
    assert evaluate(right, path, tmp_path / "w")[1] == ["data-files"]
    write(samples)
    write([("red0", data / "blue/0.bmp", "red")], "a")
    with pytest.raises(DatasetError, match="more than once"):
        evaluate(right, path, tmp_path / "w")


# -- models --------------------------------------------------------------------------------------------------------


def onnx_file(path: Path, order: list[int]) -> None:
    """The mean of each channel, in this order."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["means"]),
        helper.make_node("Flatten", ["means"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 32, 32]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3]),
    ]
    weights = numpy_helper.from_array(np.eye(3, dtype=np.float32)[:, order], "w")
    graph = helper.make_graph(nodes, "means", ends[:1], ends[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


NORMALISED: dict[str, Any] = {"preprocessing": {"size": 32, "mean": [0, 0, 0], "std": [1, 1, 1]}}


def test_an_onnx_file_of_equal_size_and_date(data: Path, tmp_path: Path) -> None:
    onnx_file(tmp_path / "m.onnx", [2, 1, 0])
    onnx_file(tmp_path / "n.onnx", [0, 1, 2])
    new = (tmp_path / "n.onnx").read_bytes()
    model = tmp_path / "m.onnx"
    check_change(lambda: model, data, tmp_path, lambda: keeping_dates(model, new), **NORMALISED)


def test_a_file_beside_the_model(data: Path, tmp_path: Path) -> None:
    model, beside = tmp_path / "m.onnx", tmp_path / "m.onnx.json"
    onnx_file(model, [2, 1, 0])
    text = '{{"preprocessing": {{"size": 32, "mean": [0, 0, 0], "std": [1, 1, 1], "colour_order": "{}"}}}}'
    beside.write_text(text.format("rgb"))
    check_change(
        lambda: model, data, tmp_path, lambda: beside.write_text(text.format("bgr")), preprocessing=None
    )  # fmt: skip


@pytest.mark.parametrize("suffix", [".onnx", ".py"])
def test_a_model_that_is_replaced_before_its_workers_load_it(data: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"

    def write(order: list[int]) -> None:
        if suffix == ".py":
            path.write_text(FILE.format(flip=f"[:, {order}]"))
        else:
            onnx_file(path, order)

    write([2, 1, 0])
    own = NORMALISED["preprocessing"] if suffix == ".onnx" else {"size": 32}
    model = sb.load_classifier(path, labels=CLASSES, preprocessing=own)
    write([0, 1, 2])
    with pytest.raises(IncompleteRunError, match="changed after this run had loaded it"):
        evaluate(model, data, tmp_path / "w", executor="processes", preprocessing=None, labels=CLASSES)


def test_what_a_file_of_python_reads_from_the_environment(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.py"
    path.write_text("import os\nORDER = int(os.environ['ORDER'])\n" + FILE.format(flip="[:, ::ORDER]"))
    monkeypatch.setenv("ORDER", "-1")
    check_change(lambda: path, data, tmp_path, lambda: monkeypatch.setenv("ORDER", "1"))


@pytest.mark.parametrize("batch_size", [1, 2, 30])
def test_a_model_that_mixes_the_images_of_a_batch(data: Path, tmp_path: Path, batch_size: int) -> None:
    def normalised(images: Any) -> Any:
        means = images.mean(axis=(1, 2))
        return (means - means.mean(axis=0)) / (means.std(axis=0) + 1e-6)

    found = evaluate(normalised, data, tmp_path / "w", batch_size=batch_size)[1]
    assert ("unsteady-model" in found) == (batch_size > 1)


def test_a_torch_module_that_is_trained_further(data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 3, bias=False))
    module[2].weight.data = torch.eye(3).flip(0)
    model = sb.load_classifier(module, labels=CLASSES, name="net", engine="onnxruntime", **NORMALISED)
    own = {"labels": CLASSES, "preprocessing": None}
    assert evaluate(model, data, tmp_path / "w", **own)[0] == 1
    module[2].weight.data = torch.eye(3)
    with pytest.raises(ClassifierError, match="have changed since it was loaded"):
        evaluate(model, data, tmp_path / "w", **own)


USES_HELPER = """
import sys
sys.path.insert(0, __file__.rpartition("/")[0])
import helper_of_the_model
def classifier():
    return lambda images: helper_of_the_model.score(images)
"""


def test_helper_modules_that_change_or_have_the_same_name(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(function, "_helpers", {})

    def write(folder: str, flip: str) -> Path:
        (tmp_path / folder).mkdir(exist_ok=True)
        text = f"def score(images):\n    return images.mean(axis=(1, 2)){flip} / 20\n"
        (tmp_path / folder / "helper_of_the_model.py").write_text(text)
        (tmp_path / folder / "model.py").write_text(USES_HELPER)
        return tmp_path / folder / "model.py"

    model = write("a", "[:, ::-1]")
    other = write("b", "")
    try:
        check_change(lambda: model, data, tmp_path, lambda: write("a", ""))
        with pytest.raises(ClassifierError, match="helper_of_the_model") as caught:
            evaluate([model, other], data, tmp_path / "both")
        assert str(caught.value.expected) == str(other.parent / "helper_of_the_model.py")
    finally:
        sys.modules.pop("helper_of_the_model", None)


def test_a_file_of_python_that_goes_to_another_folder(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relative paths would lead to other data and another workspace."""
    shutil.copytree(data / "blue", tmp_path / "elsewhere/data/red")
    (tmp_path / "m.py").write_text("import os\nos.chdir('elsewhere')\n" + FILE.format(flip="[:, ::-1]"))
    monkeypatch.chdir(tmp_path)
    assert evaluate("m.py", "data", Path("w")) == (1.0, [])
    assert not (tmp_path / "elsewhere/w").exists()


READS = """
import numpy as np
seen = []
def classifier():
    def scores(images):
        seen.extend(images)
        found = images.mean(axis=(1, 2)) / 20 @ np.load({weights!r})
        if len(seen) > 30:
            np.save({weights!r}, np.eye(3))
        return found
    return scores
"""


def test_weights_that_are_replaced_during_a_run(data: Path, tmp_path: Path) -> None:
    """One number over two models; then, by the same command, the number of the second."""
    weights = str(tmp_path / "w.npy")
    np.save(weights, np.eye(3)[::-1])
    (tmp_path / "m.py").write_text(READS.format(weights=weights))
    with pytest.raises(IncompleteRunError, match="changed while the run used it"):
        evaluate(tmp_path / "m.py", data, tmp_path / "w")
    assert not list((tmp_path / "w").rglob("shards/**/*.parquet"))
    assert evaluate(tmp_path / "m.py", data, tmp_path / "w")[0] == pytest.approx(1 / 3)


def test_a_model_that_keeps_state(data: Path, tmp_path: Path) -> None:
    class Tired:
        images = 0

        def __call__(self, images: Any) -> Any:
            self.images += len(images)
            return right(images) if self.images < 30 else darkest_channel(images)

    with pytest.raises(IncompleteRunError, match="changed while the run used it"):
        evaluate(Tired(), data, tmp_path / "w", name="tired")


def test_a_model_that_differs_in_worker_processes(data: Path, tmp_path: Path) -> None:
    """As where a machine lacks a file, and the code goes on without it."""
    (tmp_path / "m.py").write_text(
        "import multiprocessing\n"
        "flip = -1 if multiprocessing.parent_process() is None else 1\n" + FILE.format(flip="[:, ::flip]")
    )
    with pytest.raises(IncompleteRunError, match="changed"):
        evaluate(tmp_path / "m.py", data, tmp_path / "w", executor="processes", workers=2)
    (tmp_path / "m.py").write_text(
        "import multiprocessing\ndef classifier():\n    def scores(images):\n"
        "        flip = -1 if multiprocessing.parent_process() is None else 1\n"
        "        return images.mean(axis=(1, 2))[:, ::flip] / 20\n    return scores\n"
    )
    with pytest.raises(IncompleteRunError, match="changed while the run used it"):
        evaluate(tmp_path / "m.py", data, tmp_path / "w2", executor="processes", workers=2)
    assert not list((tmp_path / "w2").rglob("shards/**/*.parquet"))


def test_workers_with_another_processor_are_recorded(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As machines of a cluster: processes that are started now find fewer instructions than this one."""
    features = set(Software.present().cpu_features)
    if not (optional := sorted(features & {"X86_V3", "X86_V4", "AVX2", "AVX512F", "ASIMDHP"})):
        pytest.skip("NumPy uses no instructions here that it can do without")
    (tmp_path / "m.py").write_text(FILE.format(flip="[:, ::-1]"))
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", optional[-1])
    evaluate(tmp_path / "m.py", data, tmp_path / "w", executor="processes", workers=2)
    assert "different versions" in call("table", "-w", tmp_path / "w").stdout
    (row,) = answer("table", "-w", tmp_path / "w", "--provenance")["rows"]
    assert " and " in row["cpu_features"] and row["assumed"] == "nothing"


def test_a_model_that_depends_on_the_place_in_the_batch(data: Path, tmp_path: Path) -> None:
    def half(images: Any) -> Any:
        scores = right(images).copy()
        scores[len(images) // 2 :] = scores[len(images) // 2 :, ::-1]
        return scores

    assert "unsteady-model" in evaluate(half, data, tmp_path / "w")[1]


def test_an_estimator_with_a_function_among_its_parts(data: Path, tmp_path: Path) -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import FunctionTransformer

    order = [2, 1, 0]
    step = FunctionTransformer(lambda values: values.reshape(len(values), -1, 3).mean(axis=1)[:, order])
    last = LogisticRegression().fit(np.eye(3) * 50 + 100, [0, 1, 2])
    model = pipeline.make_pipeline(step, last)
    check_change(lambda: model, data, tmp_path, order.sort, name="m")


def test_results_that_were_never_verified_stay_marked(data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", np.eye(3)[::-1])
    text = (
        f"import numpy as np\ndef classifier():\n    return lambda x: x.mean((1, 2)) / 20 @ np.load('{tmp_path}/w.npy')"
    )
    (tmp_path / "m.py").write_text(text)
    evaluate(tmp_path / "m.py", data, tmp_path / "w")
    shutil.rmtree(tmp_path / "w/behaviour")  # a backup that was restored in part
    np.save(tmp_path / "w.npy", np.eye(3))
    for _ in range(2):
        assert "unverified-model" in evaluate(tmp_path / "m.py", data, tmp_path / "w")[1]
    assert call("store", "remove", "m", "-w", tmp_path / "w", "--yes").exit_code == 0
    found = evaluate(tmp_path / "m.py", data, tmp_path / "w")
    assert found[0] == pytest.approx(1 / 3) and "unverified-model" not in found[1]


# -- shifts --------------------------------------------------------------------------------------------------------


def test_a_corruption_of_a_plugin_whose_code_changes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CORRUPTIONS, "_items", dict(CORRUPTIONS._items))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def register(flip: int) -> None:
        text = f"def mine(image, severity, draws):\n    return image[..., ::{flip}].copy()\n"
        (tmp_path / "plugin_with_mine.py").write_text(text)
        sys.modules.pop("plugin_with_mine", None)
        CORRUPTIONS._items.pop("mine", None)
        import linecache

        linecache.clearcache()
        corruption("mine", group="digital")(__import__("plugin_with_mine").mine)

    register(1)
    options = {"suite": "corruptions", "corruptions": ["mine"], "severities": [3]}
    check_change(lambda: right, data, tmp_path, lambda: register(-1), **options)


def test_frost_images_that_are_exchanged(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "frost"
    folder.mkdir()

    def write(colour: tuple[int, int, int]) -> None:
        for i in range(1, 7):
            image = Image.new("RGB", (300, 300), colour)
            image.save(folder / f"frost{i}.{'png' if i < 4 else 'jpg'}")

    write((120, 120, 120))
    options = {"suite": "corruptions", "corruptions": ["frost"], "severities": [5], "frost_textures": folder}
    check_change(lambda: right, data, tmp_path, lambda: write((255, 0, 0)), **options)


# -- workspaces and baselines --------------------------------------------------------------------------------------


def test_two_runs_with_other_labels_at_once(data: Path, tmp_path: Path) -> None:
    found: dict[tuple[str, ...], float] = {}

    def run(names: tuple[str, ...]) -> None:
        done = sb.evaluate(right, data=data, workspace=tmp_path / "w", **{**SMALL, "labels": list(names)})
        found[names] = done.scores("top1")[0][2].value

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threads = [threading.Thread(target=run, args=(names,)) for names in (NAMES, NAMES[::-1])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {NAMES: 1.0, NAMES[::-1]: pytest.approx(1 / 3)}


def test_a_run_that_is_continued_with_other_options(data: Path, tmp_path: Path) -> None:
    class Stopped:
        calls = 0

        def __call__(self, images: Any) -> Any:
            self.calls += 1
            if self.calls == 12:  # six with fixed images, four with those of the first block
                raise KeyboardInterrupt
            return right(images)

    model = Stopped()
    with pytest.raises(KeyboardInterrupt):
        evaluate(model, data, tmp_path / "w", name="m", batch_size=3)
    assert list((tmp_path / "w/shards").rglob("*.parquet")), "some of it was done"
    evaluate(model, data, tmp_path / "w", name="m", batch_size=5, workers=3)
    evaluate(model, data, tmp_path / "empty", name="m")
    (one,), (other,) = ([*(tmp_path / name / "predictions").rglob("*.parquet")] for name in ("w", "empty"))
    assert one.read_bytes() == other.read_bytes()


def test_workspaces_copied_into_each_other(data: Path, tmp_path: Path) -> None:
    other = shutil.copytree(data, tmp_path / "other/data")
    shutil.copy(other / "red/0.bmp", other / "blue/0.bmp")
    for place, (model, images) in enumerate(((right, data), (right, other), (darkest_channel, data))):
        evaluate(model, images, tmp_path / f"w{place}", name="m")
        shutil.copytree(tmp_path / f"w{place}", tmp_path / "all", dirs_exist_ok=True)
    run = sb.Run.open(tmp_path / "all")
    found = {(one.model_id, one.spec.dataset.fingerprint): run.workspace.read(one) for one in run.results}
    assert len(found) == 3 and len(run.classifiers) == 2
    shown = call("table", "-w", tmp_path / "all").stdout
    assert shown.count("24 images") == 2, "a column for each dataset"
    # predictions alone are of nothing
    shutil.rmtree(tmp_path / "all/datasets")
    _forget()
    with pytest.raises(StoreError, match="missing"):
        list(sb.Run.open(tmp_path / "all").scores("top1"))


def test_a_model_is_not_renamed_to_another_one(data: Path, tmp_path: Path) -> None:
    evaluate(right, data, tmp_path / "w", name="a")
    evaluate(darkest_channel, data, tmp_path / "w", name="b")
    assert call("store", "rename", "b", "a", "-w", tmp_path / "w").exit_code == 1


def test_an_edited_baseline(data: Path, tmp_path: Path) -> None:
    run = sb.evaluate(right, data=data, workspace=tmp_path / "w", **SMALL)
    path = tmp_path / "b.parquet"
    for column in ("top0", "confidence0", "label0", "image"):
        write_baseline(path, GateBaseline("m", {"data": run.predictions()}, {}))
        table = pq.read_table(path)
        values = table.column(column).to_pylist()
        rolled = pa.array(values[1:] + values[:1], table.schema.field(column).type)
        pq.write_table(table.set_column(table.column_names.index(column), column, rolled), path)
        with pytest.raises(StoreError, match="changed"):
            read_baseline(path)
