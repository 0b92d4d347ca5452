"""Ways to make a workspace, a file or a model answer for another one: a right number, an error, or a warning.

Each of them once printed a wrong number, or could have: the number that an empty workspace gives is the right one.
"""

from __future__ import annotations

import io
import json
import linecache
import os
import shutil
import sys
import tarfile
import threading
import unicodedata
import warnings
from collections.abc import Callable, Sequence
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
from shiftbench.classifiers.defences import Defended
from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.errors import (
    ClassifierError,
    DatasetError,
    LabelError,
    ResultWarning,
    SettingError,
    StoreError,
    UnknownClassesError,
)
from shiftbench.jobs.base import Executor, Failure, Job
from shiftbench.jobs.progress import Advance
from shiftbench.labels.space import LabelSpace
from shiftbench.runs import behaviour
from shiftbench.runs.import_predictions import import_predictions
from shiftbench.settings.base import Setting
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, corruption
from shiftbench.store.baseline import GateBaseline, read_baseline, write_baseline
from shiftbench.store.run_records import Software
from tests.commands import answer, call
from tests.raised import raises
from tests.runs.helpers import brightest_channel, darkest_channel
from tests.store.test_damage import _forget

pytestmark = pytest.mark.reliability("silent-wrong attempts")
NAMES = ("blue", "green", "red")
CLASSES = LabelSpace("three", NAMES)
GEOMETRY = {"size": 32, "resize": "squash", "interpolation": "bilinear"}
SMALL: dict[str, Any] = {"preprocessing": GEOMETRY, "labels": list(NAMES), "progress": False, "workers": 1}
LOADS = "import numpy as np\ndef classifier():\n    return lambda images: {scores}\n"
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
        for path in data.glob("blue/*"):
            other = data / "red" / path.name
            aside = tmp_path / "aside"
            if how == "renamed":
                path.rename(aside)
                other.rename(path)
                aside.rename(other)
            else:
                first = path.read_bytes()
                second = other.read_bytes()
                keeping_dates(path, second)
                keeping_dates(other, first)

    check_change(lambda: right, data, tmp_path, exchange)


def test_an_archive_of_equal_size_and_date(tmp_path: Path) -> None:
    labels = np.arange(600) % 3
    path = tmp_path / "d.npz"

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


def test_an_archive_whose_copy_in_the_cache_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    labels = np.arange(600) % 3
    images = np.random.default_rng(0).integers(0, 100, (600, 32, 32, 3)).astype(np.uint8)
    images[np.arange(600), :, :, 2 - labels] += 100
    np.savez(tmp_path / "d.npz", images=images, labels=labels)
    assert evaluate(right, tmp_path / "d.npz", tmp_path / "w")[0] == 1
    (copy,) = (tmp_path / "cache/arrays").glob("*.npy")
    np.save(copy, np.load(copy)[..., ::-1])
    assert evaluate(right, tmp_path / "d.npz", tmp_path / "w2")[0] == 1


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
        lambda: right,
        data,
        tmp_path,
        lambda: keeping_dates(tmp_path / "outside.bmp", (data / "red/1.bmp").read_bytes()),
    )


def test_a_link_to_the_data_that_is_switched_during_a_run(data: Path, tmp_path: Path) -> None:
    other = shutil.copytree(data, tmp_path / "other")
    link = tmp_path / "link"
    for path in other.glob("red/*"):
        shutil.copy(data / "blue" / path.name, path)
    link.symlink_to(data)
    calls: list[int] = []

    def switching(images: Any) -> Any:
        calls.append(len(images))
        if len(calls) == 10:  # after nine calls with fixed images, in the first of two blocks
            link.unlink()
            link.symlink_to(other)
        return right(images)

    with pytest.raises(IncompleteRunError, match="changed or vanished"):
        evaluate(switching, link, tmp_path / "w", batch_size=12)


def test_labels_of_a_manifest_and_of_a_file(data: Path, tmp_path: Path) -> None:
    manifest = data / "images.csv"
    names = tmp_path / "names.txt"

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
    with raises(ClassifierError, found="blue/0.bmp: red in the file, blue in the dataset"):
        import_predictions(tmp_path / "1.npz", "data", **how)


def test_fewer_labels_than_predictions(data: Path, tmp_path: Path) -> None:
    """They can't be compared with those of the data, and would not be."""
    labels = np.repeat([0, 1, 2], 8)
    np.savez(tmp_path / "m.npz", prediction=np.roll(labels, 1), label=np.roll(labels, 1)[:-1])
    with raises(ClassifierError, found=23):
        import_predictions(tmp_path / "m.npz", "data", tmp_path / "w", data=data, labels="folders", in_order=True)


def test_images_that_every_class_is_ruled_out_for(data: Path, tmp_path: Path) -> None:
    """The first class would be predicted."""
    scores = np.where(np.eye(3)[np.repeat([0, 1, 2], 8)] == 1, 0.0, -np.inf)
    scores[:8] = -np.inf
    ids = [f"{name}/{i}.bmp" for name in NAMES for i in range(8)]
    np.savez(tmp_path / "m.npz", id=ids, scores=scores)
    with pytest.raises(ClassifierError, match="NaN or infinite"):
        import_predictions(tmp_path / "m.npz", "data", tmp_path / "w", data=data, labels="folders")


def test_numbers_that_are_names_of_classes(tmp_path: Path) -> None:
    """Class 1 may be the folder 1, or the second one, which is the folder 2."""
    for number in (1, 2, 3):
        (tmp_path / f"data/{number}").mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (32, 32), (number, i, 0)).save(tmp_path / f"data/{number}/{i}.bmp")

    def imported(name: str, predicted: dict[int, int]) -> list[str]:
        rows = [f"{number}/{i}.bmp,{predicted[number]}" for number in (1, 2, 3) for i in range(4)]
        (tmp_path / name).write_text("\n".join(["id,prediction", *rows]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            where = {"data": tmp_path / "data", "labels": "folders", "workspace": tmp_path / "w"}
            import_predictions(tmp_path / name, "data", **where)  # type: ignore[arg-type]
        return [one.message.code for one in caught if isinstance(one.message, ResultWarning)]

    assert "ambiguous-classes" in imported("a.csv", {1: 1, 2: 1, 3: 2})
    assert "ambiguous-classes" not in imported("b.csv", {1: 1, 2: 2, 3: 3})
    assert "ambiguous-classes" not in imported("c.csv", {1: 0, 2: 1, 3: 2})


def test_numbers_of_a_table_with_gaps(tmp_path: Path) -> None:
    """pandas writes the class 1 as 1.0: it is the folder 1, not the second folder, and not the folder 10."""
    ids = []
    for number in range(1, 11):
        (tmp_path / f"data/{number}").mkdir(parents=True)
        Image.new("RGB", (32, 32), (number, 0, 0)).save(tmp_path / f"data/{number}/0.bmp")
        ids.append(f"{number}/0.bmp")
    rows = [f"{image_id},{image_id.split('/')[0]}.0" for image_id in ids]
    (tmp_path / "p.csv").write_text("\n".join(["id,prediction", *rows]))
    where: Any = {"data": tmp_path / "data", "labels": "folders", "workspace": tmp_path / "w"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import_predictions(tmp_path / "p.csv", "data", **where)
    assert sb.Run.open(tmp_path / "w").predictions().correct.all()
    (tmp_path / "data/manifest.csv").write_text("\n".join(["path,label", *rows]))
    classes = tuple(map(str, range(1, 11)))
    labelled = open_dataset(tmp_path / "data/manifest.csv", space=LabelSpace("numbers", classes))
    assert [classes[label] for label in labelled.labels] == [image_id.split("/")[0] for image_id in labelled.ids]


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


def write_shard(path: Path, samples: Sequence[tuple[str, Path, str]], mode: Literal["w", "a"] = "w") -> None:
    """Samples have a key, an image and a label; the ending of an image is that of its file."""
    with tarfile.open(path, mode) as archive:
        for key, image, label in samples:
            for ending, content in ((image.suffix, image.read_bytes()), (".cls", label.encode())):
                member = tarfile.TarInfo(f"{key}{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


def test_shards_with_later_additions_other_names_or_a_missing_end(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    samples = [(f"{name}{i}", data / name / f"{i}.bmp", name) for name in NAMES for i in range(8)]

    def write(samples: Sequence[tuple[str, Path, str]], mode: Literal["w", "a"] = "w") -> None:
        write_shard(path, samples, mode)

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
    with raises(DatasetError, found="s/red0"):
        evaluate(right, path, tmp_path / "w")
    write([(f"{key[:-1]}{int(key[-1]) // 2}", *rest) for key, *rest in samples])  # type: ignore[misc]
    with raises(DatasetError, found="s/blue0, s/blue1, s/blue2, s/blue3 and 8 more"):  # neighbours of one name
        evaluate(right, path, tmp_path / "w")


def test_samples_of_several_images(data: Path, tmp_path: Path) -> None:
    """Which one is used would be by chance the right one."""
    other = tmp_path / "other.ppm"
    Image.open(data / "blue/0.bmp").save(other)
    with tarfile.open(tmp_path / "s.tar", "w") as archive:
        for name in NAMES:
            archive.add(data / name / "0.bmp", f"{name}.bmp")
            archive.add(other, f"{name}.ppm")
            (tmp_path / "label").write_text(name)
            archive.add(tmp_path / "label", f"{name}.cls")
    assert "data-files" in evaluate(right, tmp_path / "s.tar", tmp_path / "w")[1]


def write_table(path: Path, data: Path, numbers: range, names: Sequence[str]) -> None:
    """Images of these numbers from each class, whose label is a place among the names."""
    rows = [(name, data / name / f"{i}.bmp") for name in NAMES for i in numbers]
    images = pa.array([{"bytes": image.read_bytes(), "path": None} for _, image in rows])
    table = pa.table({"image": images, "label": pa.array([names.index(name) for name, _ in rows])})
    features = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": list(names)}}
    about = json.dumps({"info": {"features": features}})
    pq.write_table(table.replace_schema_metadata({"huggingface": about}), path)


def test_tables_that_number_the_classes_differently_or_are_missing(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    write_table(folder / "test-00000-of-00002.parquet", data, range(4), NAMES)
    assert evaluate(right, folder, tmp_path / "w") == (1.0, ["data-files"])
    write_table(folder / "test-00001-of-00002.parquet", data, range(4, 8), NAMES[::-1])
    with raises(DatasetError, found="red, green, blue"):
        evaluate(right, folder, tmp_path / "w")
    write_table(folder / "test-00001-of-00002.parquet", data, range(4, 8), NAMES)
    assert evaluate(right, folder, tmp_path / "w") == (1.0, [])


def test_arrays_that_may_be_the_labels(tmp_path: Path) -> None:
    images = np.zeros((6, 32, 32, 3), np.uint8)
    labels = np.arange(6) % 3
    np.savez(tmp_path / "d.npz", x_test=images, y_test=labels, labels=labels[::-1])
    with raises(DatasetError, found="labels, y_test") as caught:
        evaluate(right, tmp_path / "d.npz", tmp_path / "w")
    assert caught.value.found == "labels, y_test"


def test_a_class_without_images(data: Path, tmp_path: Path) -> None:
    """As where a disk is not mounted: the number is over fewer classes."""
    for path in (data / "red").iterdir():
        path.unlink()
    assert evaluate(right, data, tmp_path / "w")[1] == ["data-files"]


def test_the_same_key_twice_in_files_of_labels_and_of_models(data: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.json"
    for text in (
        '{"blue": ["a"], "green": ["b"], "green": ["c"]}',
        '{"0": "red", "1": "green", "2": "blue", "0": "x"}',
    ):
        names.write_text(text)
        with pytest.raises(LabelError, match="twice"):
            evaluate(right, data, tmp_path / "w", labels=str(names))
    onnx_file(tmp_path / "m.onnx", [2, 1, 0])
    (tmp_path / "m.onnx.json").write_text('{"size": 32, "mean": 0, "std": 1, "colour": "rgb", "colour": "bgr"}')
    with pytest.raises(ClassifierError, match="twice"):
        evaluate(tmp_path / "m.onnx", data, tmp_path / "w", preprocessing=None)


def test_names_of_files_with_ends_of_lines(data: Path, tmp_path: Path) -> None:
    """Some characters end a line for Python, and not in a CSV or JSONL file."""
    (data / "red/0.bmp").rename(data / "red/0\u2028.bmp")
    paths = [f"{path.parent.name}/{path.name}" for path in sorted(data.glob("*/*"))]
    rows = [(path, path.partition("/")[0]) for path in paths]
    (data / "m.csv").write_text("\n".join(["path,label", *map(",".join, rows)]), encoding="utf-8")
    lines = [json.dumps({"path": path, "label": label}, ensure_ascii=False) for path, label in rows]
    (data / "m.jsonl").write_text("\n".join(lines), encoding="utf-8")
    for name in ("m.csv", "m.jsonl"):
        run = sb.evaluate(right, data=data / name, workspace=tmp_path / "w", **SMALL)
        assert [score.n for _, _, score in run.scores("top1")] == [24]


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


NORMALISED: dict[str, Any] = {
    "preprocessing": {**GEOMETRY, "mean": [0, 0, 0], "std": [1, 1, 1], "scale": "1/255", "colour": "rgb"}
}


def test_an_onnx_file_of_equal_size_and_date(data: Path, tmp_path: Path) -> None:
    onnx_file(tmp_path / "m.onnx", [2, 1, 0])
    onnx_file(tmp_path / "n.onnx", [0, 1, 2])
    new = (tmp_path / "n.onnx").read_bytes()
    model = tmp_path / "m.onnx"
    check_change(lambda: model, data, tmp_path, lambda: keeping_dates(model, new), **NORMALISED)


def test_a_file_beside_the_model(data: Path, tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    beside = tmp_path / "m.onnx.json"
    onnx_file(model, [2, 1, 0])
    text = '{{"preprocessing": {{"size": 32, "mean": [0, 0, 0], "std": [1, 1, 1], "colour_order": "{}"}}}}'
    beside.write_text(text.format("rgb"))
    check_change(lambda: model, data, tmp_path, lambda: beside.write_text(text.format("bgr")), preprocessing=None)


def test_classes_that_a_model_states_in_another_order(data: Path, tmp_path: Path) -> None:
    """As where the wrong order of the first attempt is corrected."""
    onnx_file(tmp_path / "m.onnx", [2, 1, 0])
    (tmp_path / "m.onnx.json").write_text('{"size": 32, "mean": 0, "std": 1, "labels": "names.txt"}')
    names = tmp_path / "names.txt"
    names.write_text("red\ngreen\nblue")
    own: dict[str, Any] = {"preprocessing": None, "labels": None}
    check_change(lambda: tmp_path / "m.onnx", data, tmp_path, lambda: names.write_text("blue\ngreen\nred"), **own)
    assert evaluate(tmp_path / "m.onnx", data, tmp_path / "w", **own)[0] == 1


@pytest.mark.parametrize("suffix", [".onnx", ".py"])
def test_a_model_that_is_replaced_before_its_workers_load_it(data: Path, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"m{suffix}"

    def write(order: list[int]) -> None:
        if suffix == ".py":
            path.write_text(FILE.format(flip=f"[:, {order}]"))
        else:
            onnx_file(path, order)

    write([2, 1, 0])
    own = NORMALISED["preprocessing"] if suffix == ".onnx" else GEOMETRY
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
    assert ("mixing-model" in found) == (batch_size > 1)


@pytest.mark.parametrize("defences", [(), ("clahe",)])
@pytest.mark.parametrize("change", ["weights", "buffer", "attribute", "hook", "method"])
def test_a_torch_module_that_changes_after_it_was_loaded(
    data: Path, tmp_path: Path, change: str, defences: tuple[str, ...]
) -> None:
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3, bias=False)
            self.factor = 1.0
            self.linear.weight.data = torch.eye(3).flip(0)
            self.register_buffer("sign", torch.ones(1), persistent=False)

        def forward(self, images: Any) -> Any:
            return self.linear(images.mean((2, 3))) * self.factor * self.sign

    module: Any = Network()
    model = sb.load_classifier(module, labels=CLASSES, name="net", engine="onnxruntime", **NORMALISED)
    own = {"labels": CLASSES, "preprocessing": None, "defences": defences}
    assert evaluate(model, data, tmp_path / "w", **own)[0] == 1
    if change == "weights":
        module.linear.weight.data *= 1.0001
    elif change == "buffer":
        module.sign.fill_(-1)
    elif change == "attribute":
        module.factor = -1.0
    elif change == "hook":
        module.register_forward_hook(lambda module, inputs, output: -output)
    else:
        module.forward = lambda images: -images.mean((2, 3))
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
        if len(seen) > 70:
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
            return right(images) if self.images < 70 else darkest_channel(images)

    with pytest.raises(IncompleteRunError, match="changed while the run used it"):
        evaluate(Tired(), data, tmp_path / "w", name="tired")


def test_a_model_that_changes_and_changes_back(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that were withdrawn when the change was noticed are not joined with those that were made again."""

    class Wavers:
        probing = False
        wrong = None

        def __call__(self, images: Any) -> Any:
            if not self.probing and self.wrong is None:
                self.wrong = True
            found = darkest_channel(images) if self.wrong else right(images)
            self.wrong = False if self.probing and self.wrong else self.wrong
            return found

    def probing(function: Any) -> Any:
        def probe(*arguments: Any) -> Any:
            model.probing = True
            found = function(*arguments)
            model.probing = False
            return found

        return probe

    model = Wavers()
    for name in ("_probe", "_mixes_images"):
        monkeypatch.setattr(behaviour, name, probing(getattr(behaviour, name)))
    monkeypatch.setattr(behaviour, "_IMAGES_BETWEEN_CHECKS", 24)
    with pytest.raises(IncompleteRunError):
        evaluate(model, data, tmp_path / "w", name="wavers")
    assert evaluate(model, data, tmp_path / "w", name="wavers")[0] == 1.0


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
        scores[(len(images) + 1) // 2 :] = scores[(len(images) + 1) // 2 :, ::-1]
        return scores

    assert evaluate(half, data, tmp_path / "w") == (1.0, ["mixing-model"])


def test_an_estimator_with_a_function_among_its_parts(data: Path, tmp_path: Path) -> None:
    pipeline = pytest.importorskip("sklearn.pipeline")
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import FunctionTransformer

    order = [2, 1, 0]
    step = FunctionTransformer(lambda values: values.reshape(len(values), -1, 3).mean(axis=1)[:, order])
    last = LogisticRegression().fit(np.eye(3) * 50 + 100, [0, 1, 2])
    model = pipeline.make_pipeline(step, last)
    check_change(lambda: model, data, tmp_path, order.sort, name="m")


def test_results_that_were_never_verified_stay_marked(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "w.npy"
    np.save(weights, np.eye(3)[::-1])
    (tmp_path / "m.py").write_text(LOADS.format(scores=f"images.mean((1, 2)) / 20 @ np.load({str(weights)!r})"))
    with monkeypatch.context() as patched:  # as ids were before they had scores and classes
        patched.setattr(behaviour, "_coarse", lambda scores: "")
        patched.setattr(sb.Classifier, "states_classes", property(lambda model: False, lambda model, value: None))
        evaluate(tmp_path / "m.py", data, tmp_path / "w")
    shutil.rmtree(tmp_path / "w/behaviour")
    np.save(weights, np.eye(3))
    for _ in range(2):
        assert "unverified-model" in evaluate(tmp_path / "m.py", data, tmp_path / "w")[1]
    assert call("store", "remove", "m", "-w", tmp_path / "w", "--yes").exit_code == 0
    found = evaluate(tmp_path / "m.py", data, tmp_path / "w")
    assert found[0] == pytest.approx(1 / 3) and "unverified-model" not in found[1]


def test_a_workspace_that_was_restored_without_its_records_of_models(data: Path, tmp_path: Path) -> None:
    weights = tmp_path / "w.npy"
    np.save(weights, np.eye(3)[::-1])
    (tmp_path / "m.py").write_text(LOADS.format(scores=f"images.mean((1, 2)) / 20 @ np.load({str(weights)!r})"))

    def change() -> None:
        shutil.rmtree(tmp_path / "w/behaviour")
        np.save(weights, np.eye(3))

    check_change(lambda: tmp_path / "m.py", data, tmp_path, change)


# -- outputs of models ---------------------------------------------------------------------------------------------


def test_an_array_that_a_model_fills_again_and_again(data: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    buffer = np.zeros((32, 3), np.float32)

    def reusing(images: Any) -> Any:
        buffer[: len(images)] = right(images)
        return buffer[: len(images)]

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, images: Any) -> Any:
            shared[: len(images)] = images.mean((2, 3)).flip(1)
            return shared[: len(images)]

    shared = torch.zeros(32, 3)
    assert evaluate(reusing, data, tmp_path / "w", batch_size=5)[0] == 1
    assert evaluate(lambda images: torch.from_numpy(reusing(images)), data, tmp_path / "v", batch_size=5)[0] == 1
    module = sb.load_classifier(Module(), labels=CLASSES, engine="torch", batch_size=5, **NORMALISED)
    assert evaluate(module, data, tmp_path / "u", labels=CLASSES, preprocessing=None)[0] == 1


def test_columns_that_name_the_classes_in_another_order(data: Path, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    order = [1, 0, 2]

    def framed(images: Any) -> Any:
        return pandas.DataFrame(right(images)[:, order], columns=[NAMES[i] for i in order])

    assert evaluate(framed, data, tmp_path / "w")[0] == 1


def test_scores_that_overflow(data: Path, tmp_path: Path) -> None:
    with pytest.raises(IncompleteRunError, match="nan or inf"), np.errstate(over="ignore"):
        evaluate(lambda images: (right(images) * 1e5).astype(np.float16), data, tmp_path / "w", name="m")


def test_percentages(data: Path, tmp_path: Path) -> None:
    """Read as logits, they are all but certain."""

    def percent(images: Any) -> Any:
        shares = np.exp(right(images))
        return 100 * shares / shares.sum(axis=1, keepdims=True)

    with pytest.warns(UserWarning, match="looks like probabilities"):
        sb.evaluate(percent, data=data, workspace=tmp_path / "w", **SMALL)
    ids = [f"{name}/{i}.bmp" for name in NAMES for i in range(8)]
    scores = np.full((24, 3), 20.0) + 40 * np.eye(3)[np.repeat([0, 1, 2], 8)]
    np.savez(tmp_path / "m.npz", id=ids, scores=scores)
    found = import_predictions(tmp_path / "m.npz", "data", tmp_path / "w2", data=data, labels="folders")
    assert found.results.predictions().confidence == pytest.approx(0.6, abs=1e-3)


def test_scores_that_are_stated_to_be_probabilities(data: Path, tmp_path: Path) -> None:
    stated = {"size": 32, "outputs": "probabilities"}
    with pytest.raises(IncompleteRunError, match="negative"):
        evaluate(lambda images: right(images) - 3, data, tmp_path / "w", name="m", preprocessing=stated)


def test_scores_that_are_masked(data: Path, tmp_path: Path) -> None:
    def masked(images: Any) -> Any:
        scores = right(images)
        least = scores == scores.min(axis=1, keepdims=True)
        return np.ma.array(np.where(least, 1e6, scores), mask=least)

    with pytest.raises(IncompleteRunError, match="nan or inf"):
        evaluate(masked, data, tmp_path / "w")


@pytest.mark.parametrize(("kind", "offset"), [(float, -1e9), (np.int64, 2**40)])
def test_scores_whose_order_is_lost_by_rounding(data: Path, tmp_path: Path, kind: Any, offset: Any) -> None:
    def far_away(images: Any) -> Any:
        return right(images).astype(kind) + offset

    assert "rounded-scores" in evaluate(far_away, data, tmp_path / "w")[1]


def test_labels_without_an_order(data: Path, tmp_path: Path) -> None:
    with pytest.raises(LabelError, match="no defined order"):
        evaluate(right, data, tmp_path / "w", labels={"red", "green", "blue"})
    assert evaluate(right, data, tmp_path / "w", labels=np.array(NAMES))[0] == 1


@pytest.mark.parametrize("kind", ["class_to_idx", "id2label", "class_to_idx.json", "id2label.json", "index.csv"])
def test_labels_with_indices_are_ordered_by_them(data: Path, tmp_path: Path, kind: str) -> None:
    """As torchvision's ImageFolder and transformers write them, in any order of the entries."""
    indices = dict(sorted(((name, index) for index, name in enumerate(NAMES)), reverse=True))
    assert tuple(indices) != NAMES
    labels: Any = indices if kind.startswith("class") else {index: name for name, index in indices.items()}
    if kind.endswith(".json"):
        labels = write(tmp_path / kind, json.dumps(labels))
    elif kind.endswith(".csv"):
        labels = write(tmp_path / kind, "index,key\n" + "".join(f"{i},{name}\n" for name, i in indices.items()))
    assert evaluate(right, data, tmp_path / "w", labels=labels)[0] == 1


def test_names_in_order_are_a_label_space_for_data_too(data: Path, tmp_path: Path) -> None:
    images = np.eye(3, dtype=np.uint8).repeat(64, axis=0).reshape(3, 8, 8, 3) * 255  # red, green, blue
    opened = from_arrays(images, [0, 1, 2], space=["red", "green", "blue"])
    assert opened.space.keys == ("red", "green", "blue")
    assert sb.open_dataset(data, space=list(reversed(NAMES))).space.keys == tuple(reversed(NAMES))


def test_a_tilde_is_the_home_folder(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(data.parent))
    write(data.parent / "home_model.py", "def model():\n    return lambda images: images.mean(axis=(1, 2))[:, ::-1]\n")
    run = sb.evaluate(
        "~/home_model.py:model", data=f"~/{data.name}", workspace=tmp_path / "w", progress=False, trust=True
    )
    assert run.settings == [data.name]


@pytest.mark.parametrize("thing", [3, [1, 2], object()])
def test_data_that_are_neither_a_path_nor_a_dataset(tmp_path: Path, thing: Any) -> None:
    with pytest.raises(SettingError) as caught:
        evaluate(right, thing, tmp_path / "w")
    assert caught.value.found == type(thing).__name__ and "from_arrays" in str(caught.value.hint)


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# -- models that a run cannot tell apart by their code -------------------------------------------------------------


def test_scores_that_only_differ_in_what_the_images_do_not_share(data: Path, tmp_path: Path) -> None:
    """The scores of a run have a large common offset, beside which their differences are small."""
    weights = tmp_path / "w.npy"
    model = tmp_path / "m.py"
    scores = f"(images.mean(axis=(1, 2)) / 20 @ np.load({str(weights)!r})).astype(np.float32) - np.float32(20_000)"
    model.write_text(LOADS.format(scores=scores))
    np.save(weights, np.eye(3)[::-1])
    check_change(lambda: model, data, tmp_path, lambda: np.save(weights, np.eye(3)))


def test_classes_that_change_places_far_apart(tmp_path: Path) -> None:
    order = tmp_path / "order.npy"
    model = tmp_path / "m.py"
    names = [f"c{i:03d}" for i in range(128)]
    images = np.repeat(np.arange(128, dtype=np.uint8) + 60, 32 * 32 * 3).reshape(128, 32, 32, 3)
    dataset = from_arrays(images, np.arange(128), space=LabelSpace("many", tuple(names)))
    scores = f"-np.abs(images.mean(axis=(1, 2, 3))[:, None] - np.arange(60, 188))[:, np.load({str(order)!r})]"
    model.write_text(LOADS.format(scores=scores))
    np.save(order, np.arange(128))
    check_change(lambda: model, dataset, tmp_path, lambda: np.save(order, (np.arange(128) + 64) % 128), labels=names)


def test_a_model_that_fails_on_the_fixed_images(data: Path, tmp_path: Path) -> None:
    def choosy(images: Any) -> Any:
        if images.mean() > 110:
            raise ValueError("not one of mine")
        return right(images)

    assert evaluate(choosy, data, tmp_path / "w") == (1.0, ["unverified-model"])


def test_workspaces_of_two_machines_with_other_weights_in_one(data: Path, tmp_path: Path) -> None:
    """The same code, and in each workspace the first model that it was: results of both would be under one id."""
    weights = tmp_path / "w.npy"
    model = tmp_path / "m.py"
    model.write_text(LOADS.format(scores=f"images.mean(axis=(1, 2)) / 20 @ np.load({str(weights)!r})"))
    for name, matrix, shift in (("a", np.eye(3)[::-1], "contrast"), ("b", np.eye(3), "brightness")):
        np.save(weights, matrix)
        evaluate(model, data, tmp_path / name, suite="corruptions", corruptions=[shift], severities=[1])
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    shown = {(model, score.value) for model, setting, score in sb.Run.open(tmp_path / "a").scores("top1")}
    assert len(shown) == len({model for model, _ in shown}) == 2


class InThisThread(Executor):
    def run(self, job: Job[Any], items: Sequence[object], advance: Advance) -> list[Failure]:
        assert not any(job.compute(item, advance, wait=True) for item in items)
        return []


def test_two_runs_at_once_of_the_same_code_with_other_weights(data: Path, tmp_path: Path) -> None:
    """Both would be the first model of that code."""
    scores = "(time.sleep(0.2), images.mean(axis=(1, 2))[:, :: getattr(threading.current_thread(), 'order')] / 20)[1]"
    (tmp_path / "m.py").write_text("import threading\nimport time\n" + LOADS.format(scores=scores))
    found: dict[int, float] = {}

    def run() -> None:
        done = sb.evaluate(
            tmp_path / "m.py", data=data, workspace=tmp_path / "w", **{**SMALL, "executor": InThisThread()}
        )
        found[threading.current_thread().order] = done.scores("top1")[0][2].value  # type: ignore[attr-defined]

    threads = [threading.Thread(target=run) for _ in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for order, thread in zip((1, -1), threads, strict=True):
            thread.order = order  # type: ignore[attr-defined]
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {-1: 1.0, 1: pytest.approx(1 / 3)}


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
        linecache.clearcache()
        corruption("mine", group="digital")(__import__("plugin_with_mine").mine)

    register(1)
    options = {"suite": "corruptions", "corruptions": ["mine"], "severities": [3]}
    check_change(lambda: right, data, tmp_path, lambda: register(-1), **options)


def own_class(path: Path, text: str) -> Any:
    """The class Mine of a module that is written and imported anew."""
    path.write_text(text)
    sys.modules.pop(path.stem, None)
    linecache.clearcache()
    return __import__(path.stem).Mine


SHIFT = """
from shiftbench.shifts.base import Shift
class Mine(Shift):
    name = "mine"
    def __init__(self, step=1): self.step = step
    def __call__(self, image, *, image_id, seed): return image[..., :: {flip} * self.step].copy()
    def describe(self): return {{"shift": "mine"}}
"""
DEFENCE = """
from dataclasses import dataclass
from shiftbench.classifiers.defences import Defence
@dataclass(frozen=True)
class Mine(Defence):
    name = "mine"
    def __call__(self, images): return images[..., ::{flip}].copy()
"""


def test_shifts_whose_description_says_too_little(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for flip in (1, -1):
        kind = own_class(tmp_path / "own_shift.py", SHIFT.format(flip=flip))
        suite = [Setting("one", "data", kind()), Setting("other", "data", kind(-1))]
        run = sb.evaluate(right, data=data, workspace=tmp_path / "w", **{**SMALL, "suite": suite})
        found.append([score.value for _, _, score in run.scores("top1")])
    assert found == [[1.0, pytest.approx(1 / 3)], [pytest.approx(1 / 3), 1.0]]


def test_a_defence_of_a_plugin_whose_code_changes(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    onnx_file(tmp_path / "m.onnx", [2, 1, 0])
    flips = iter((1, -1, -1))

    def defended() -> Defended:
        kind = own_class(tmp_path / "own_defence.py", DEFENCE.format(flip=next(flips)))
        return Defended(sb.load_classifier(tmp_path / "m.onnx", labels=CLASSES, **NORMALISED), kind())

    check_change(defended, data, tmp_path, lambda: None, labels=CLASSES, preprocessing=None)


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
            if self.calls == 21:  # 15 with fixed images, four with those of the first block
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
    found = {(result.model_id, result.spec.dataset.fingerprint): run.workspace.read(result) for result in run.results}
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
        # Without its digest, the file is what an old version could have written.
        metadata = {key: value for key, value in table.schema.metadata.items() if b"digest" not in key}
        pq.write_table(table.replace_schema_metadata(metadata), path)
        with pytest.raises(StoreError, match="no digest"):
            read_baseline(path)
        assert read_baseline(path, accept_unsigned=True).model == "m"
