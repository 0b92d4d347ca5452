"""A model is the same model whatever its label space is called: a folder, a Parquet file and a list of classes name the
same classes otherwise."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.store.models import rename_model
from shiftbench.store.run_records import read_runs
from shiftbench.store.workspace import Workspace
from tests.commands import answer, output
from tests.runs.helpers import COLOURS, colour_folder, write_onnx_model

#: In the order of the folders, which is not the order of ``COLOURS``.
CLASSES = ("blue", "green", "red")
PREPROCESSING = {"size": 32, "mean": 0.5, "std": 0.25, "colour": "rgb", "interpolation": "bilinear"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images as a folder, a manifest, a Parquet file and a dataset of Hugging Face, a file of the classes,
    and an ONNX model."""
    root = tmp_path_factory.mktemp("names")
    folder = colour_folder(root / "folder", per_class=8)
    files = sorted(folder.glob("*/*.png"))
    with (folder / "manifest.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["path", "label"])
        for path in files:
            writer.writerow([path.relative_to(folder).as_posix(), path.parent.name])
    _write_tables(root, files)
    (root / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    (root / "other_order.txt").write_text("\n".join(COLOURS.keys) + "\n")
    write_onnx_model(root / "light.onnx")
    return root


def _write_tables(root: Path, files: list[Path]) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=list(CLASSES))})
    rows: dict[str, list[Any]] = {"image": [], "label": []}
    for path in files:
        rows["image"].append(Image.open(io.BytesIO(path.read_bytes())))
        rows["label"].append(CLASSES.index(path.parent.name))
    table = datasets.Dataset.from_dict(rows, features=features)
    table.to_parquet(str(root / "shifted.parquet"))
    table.save_to_disk(str(root / "saved"))


def evaluate(root: Path, data: str, workspace: Path, labels: Any = None) -> sb.Run:
    return sb.evaluate(
        str(root / "light.onnx"),
        data=root / data,
        labels=labels,
        workspace=workspace,
        preprocessing=PREPROCESSING,
        progress=False,
        workers=1,
    )


@pytest.fixture(scope="module")
def workspace(root: Path) -> Path:
    """All forms in one workspace."""
    for data in ("shifted.parquet", "saved", "folder"):
        evaluate(root, data, root / "w")
    evaluate(root, "folder/manifest.csv", root / "w", "folders")
    return root / "w"


def test_all_forms_are_of_one_model(root: Path, workspace: Path) -> None:
    run = sb.Run.open(workspace)
    assert run.settings == ["folder", "manifest.csv", "saved", "shifted.parquet"] and run.classifiers == ["light"]
    assert len({result.model_id for result in run.results}) == 1
    elsewhere = [evaluate(root, data, root / f"w-{data}").results[0] for data in ("saved", "folder")]
    assert {result.model_id for result in elsewhere} == {run.results[0].model_id}


def test_commands_work_across_them(workspace: Path) -> None:
    place = ["--workspace", workspace]
    rows = answer("table", *place)["scores"]
    assert {row["setting"] for row in rows} == {"folder", "manifest.csv", "saved", "shifted.parquet"}
    assert len({row["id"] for row in rows}) == 1
    figure = workspace / "scatter.png"
    output("figure", "scatter", *place, "--x", "shifted.parquet", "--y", "saved", "-o", figure)
    assert figure.is_file()


def test_another_name_of_the_same_classes_finds_the_results(root: Path, tmp_path: Path) -> None:
    first = evaluate(root, "folder", tmp_path / "w", "folders")
    second = evaluate(root, "folder", tmp_path / "w", root / "classes.txt")
    assert [result.key for result in first.results] == [result.key for result in second.results]
    last = read_runs(Workspace(tmp_path / "w"))[0][-1]
    assert last.models[0].reused == [first.results[0].key] and not last.models[0].computed


def test_another_order_of_the_classes_is_another_model(root: Path, tmp_path: Path) -> None:
    evaluate(root, "folder", tmp_path / "w", root / "classes.txt")
    evaluate(root, "folder", tmp_path / "w", root / "other_order.txt")
    ids = {result.model_id for result in sb.Run.open(tmp_path / "w").results}
    assert len(ids) == 2


def as_of_version_2(root: Path, place: Path) -> list[sb.Run]:
    """A workspace as version 0.2 wrote it: each name of the label space has results and ids of its own."""
    runs = [evaluate(root, "folder", place, "folders"), evaluate(root, "folder", place / "x", root / "classes.txt")]
    workspace = Workspace(place)
    shutil.copytree(place / "x" / "predictions", place / "predictions", dirs_exist_ok=True)
    shutil.copytree(place / "x" / "spaces", place / "spaces", dirs_exist_ok=True)
    shutil.copytree(place / "x" / "runs", place / "runs", dirs_exist_ok=True)
    former = {run.results[0].key: run.results[0].spec.classifier.former_version for run in runs}
    for path in sorted((place / "runs").glob("*.json")):
        content = dict(workspace.files.read_json(path))
        for model in content["models"]:
            model["id"] = f"light@{former[model['computed'][0]]}"
            model["assumed"] = ["crop"]
        workspace.write_json(path, content)
    shutil.rmtree(place / "x")
    return runs


def test_results_of_version_2_are_found_again(root: Path, tmp_path: Path) -> None:
    first, second = as_of_version_2(root, tmp_path / "w")
    former = [run.results[0].spec.classifier.former_version for run in (first, second)]
    assert former[0] != former[1]
    run = sb.Run.open(tmp_path / "w")
    assert run.classifiers == ["light"] and len(run.results) == 1
    # Their former ids are accepted, and what their runs had to assume is still known.
    for hash_of_version in former:
        assert len(sb.Run.open(tmp_path / "w", [f"light@{hash_of_version}"]).results) == 1
    assert run.model_facts()["light"].assumed == ["crop"]
    for labels, made in (("folders", first), (root / "classes.txt", second)):
        again = evaluate(root, "folder", tmp_path / "w", labels)
        assert [result.key for result in again.results] == [made.results[0].key]
    assert not any(record.models[0].computed for record in read_runs(Workspace(tmp_path / "w"))[0][2:])


def test_a_name_that_was_given_by_the_former_id_stays(root: Path, tmp_path: Path) -> None:
    first, _ = as_of_version_2(root, tmp_path / "w")
    workspace = Workspace(tmp_path / "w")
    former = first.results[0].spec.classifier.former_version
    workspace.write_json(tmp_path / "w" / "names.json", {former: {"name": "mine", "stored_as": "light"}})
    run = sb.Run.open(tmp_path / "w")
    assert run.classifiers == ["mine"]
    rename_model(workspace, next(iter(run.models)), "yours", [])
    assert sb.Run.open(tmp_path / "w").classifiers == ["yours"]
