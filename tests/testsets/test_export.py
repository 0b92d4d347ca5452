"""Frozen sets as others read them: by torchvision, webdataset and datasets themselves, and by our own readers."""

from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import StoreError
from shiftbench.outputs.record import Staging
from shiftbench.testsets.configuration import Instructions
from shiftbench.testsets.errors import FrozenError
from shiftbench.testsets.export import export, exporters, ordered_rows
from shiftbench.testsets.freeze import DEFECTS, freeze
from shiftbench.testsets.frozen import FrozenSet
from shiftbench.testsets.project import Project
from shiftbench.testsets.revisions import revision_images, sample
from shiftbench.testsets.sampling import make_sampling
from tests.raised import raises
from tests.testsets.helpers import annotators, by_share, fill, small_configuration, work


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    configuration = replace(small_configuration(), instructions=Instructions(citation="Example 2026"))
    project = Project.create(tmp_path_factory.mktemp("export") / "pets", configuration)
    fill(project)
    work(project, annotators(project, 3), by_share)
    sample(project, "easy", make_sampling("top-images", min_annotations=3), per_class=4)
    yield project
    project.close()


@pytest.fixture(scope="module")
def frozen(project: Project) -> FrozenSet:
    return freeze(project, "easy", allow=DEFECTS)


def pixels(dataset: Dataset) -> dict[bytes, int]:
    return {dataset.read(i).pixels.tobytes(): int(dataset.labels[i]) for i in range(len(dataset))}


def test_records_come_in_the_sets_own_order(project: Project, frozen: FrozenSet) -> None:
    expected = [image.digest for image in revision_images(project, "easy")]
    assert [Path(row["path"]).stem for row in ordered_rows(frozen)] == expected


@pytest.mark.parametrize("format", ["folder", "webdataset", "huggingface"])
def test_our_own_readers_find_the_same_pictures(frozen: FrozenSet, format: str, tmp_path: Path) -> None:
    target = export(frozen, format, tmp_path / format)
    dataset = open_dataset(target, space=frozen.space)
    assert pixels(dataset) == pixels(frozen.open()) and len(dataset) == frozen.images
    assert (target / "README.md").read_text() == (frozen.folder / "README.md").read_text()
    assert format in exporters


@pytest.mark.soak  # importing torchvision takes longer than all other tests here
def test_class_folders_are_those_of_image_folder(frozen: FrozenSet, tmp_path: Path) -> None:
    from shiftbench.classifiers.zoo import import_torchvision

    import_torchvision()
    from torchvision.datasets import ImageFolder

    theirs = ImageFolder(str(export(frozen, "folder", tmp_path / "folder")))
    assert theirs.classes == list(frozen.space.keys) and len(theirs) == frozen.images
    expected = pixels(frozen.open())
    for picture, label in theirs:
        assert expected[np.asarray(picture).tobytes()] == label


def test_shards_are_those_of_webdataset(frozen: FrozenSet, tmp_path: Path) -> None:
    import webdataset

    target = export(frozen, "webdataset", tmp_path / "shards")
    (shard,) = target.glob("*.tar")
    samples = list(webdataset.WebDataset(str(shard), shardshuffle=False).decode("rgb8"))
    expected = pixels(frozen.open())
    assert len(samples) == frozen.images
    for packed in samples:
        assert expected[packed["png"].tobytes()] == packed["cls"] == packed["json"]["label"]
        assert packed["json"]["annotations"] == 3 and 0 <= packed["json"]["selection_frequency"] <= 1
    assert (target / "classes.txt").read_text().split() == list(frozen.space.keys)
    again = export(frozen, "webdataset", tmp_path / "again")
    assert next(again.glob("*.tar")).read_bytes() == shard.read_bytes()
    with tarfile.open(shard) as archive:
        assert all("/" not in name and not name.startswith(".") for name in archive.getnames())


def test_tables_are_those_of_datasets(frozen: FrozenSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    target = export(frozen, "huggingface", tmp_path / "hub")
    loaded = datasets.load_dataset(str(target), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["test"]
    table = loaded["test"]
    assert table.features["label"].names == list(frozen.space.keys) and len(table) == frozen.images
    expected = pixels(frozen.open())
    for row in table:
        assert expected[np.asarray(row["image"]).tobytes()] == row["label"]
        assert row["annotations"] == 3 and row["selection_frequency"] == row["selected"] / 3
    assert datasets.load_dataset_builder(str(target), cache_dir=str(tmp_path / "cache")).info.features is not None


def test_nothing_is_overwritten(frozen: FrozenSet, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "precious").write_text("x")
    with raises(StoreError, found="precious"):
        export(frozen, "folder", tmp_path / "there")
    (tmp_path / "empty").mkdir()
    export(frozen, "folder", tmp_path / "empty")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "there"]


@pytest.mark.parametrize("format", ["folder", "coco", "webdataset"])
def test_an_export_continues_where_it_was_interrupted(
    frozen: FrozenSet, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    complete = files(export(frozen, format, tmp_path / "whole"))
    real_write = Staging.write
    written = 0

    def write(*arguments: Any, **options: Any) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise KeyboardInterrupt
        real_write(*arguments, **options)

    monkeypatch.setattr(Staging, "write", write)
    with pytest.raises(KeyboardInterrupt):
        export(frozen, format, tmp_path / "parts")
    kept = {
        path: path.stat().st_mtime_ns for path in (tmp_path / "parts").rglob("*.*") if path.suffix in (".png", ".tar")
    }
    with pytest.raises(StoreError, match="different format"):
        export(frozen, "croissant", tmp_path / "parts")
    assert files(export(frozen, format, tmp_path / "parts")) == complete
    assert kept and all(path.stat().st_mtime_ns == before for path, before in kept.items())


def test_the_manifest_is_complete(frozen: FrozenSet) -> None:
    rows = [json.loads(line) for line in (frozen.folder / "images.jsonl").read_text().splitlines()]
    columns = {
        "path",
        "label",
        "position",
        "drawn_for",
        "fallback",
        "selection_frequency",
        "selected",
        "annotations",
        "source",
        "source_id",
        "query",
        "keyword",
        "date",
        "licence",
        "author",
        "url",
        "extra",
    }
    assert len(rows) == frozen.images and all(set(row) == columns for row in rows)
    assert sorted(row["position"] for row in rows) == list(range(frozen.images))


def test_coco_and_croissant(frozen: FrozenSet, tmp_path: Path) -> None:
    dataset = frozen.open()
    coco = json.loads((export(frozen, "coco", tmp_path / "coco") / "annotations.json").read_text())
    names = {item["id"]: item["key"] for item in coco["categories"]}
    files = {item["id"]: item for item in coco["images"]}
    labels = {files[item["image_id"]]["file_name"]: names[item["category_id"]] for item in coco["annotations"]}
    assert labels == {key: dataset.space.keys[label] for key, label in zip(dataset.ids, dataset.labels, strict=True)}
    assert all((tmp_path / "coco" / name).is_file() for name in labels)
    size = dataset.read(0).pixels.shape
    first = next(item for item in coco["images"] if item["file_name"] == dataset.ids[0])
    assert (first["height"], first["width"]) == size[:2]
    listed = {row["path"]: row["licence"] or "not stated" for row in ordered_rows(frozen)}
    licences = {item["id"]: item["name"] for item in coco["licenses"]}
    assert {item["file_name"]: licences[item["license"]] for item in coco["images"]} == listed
    folder = export(frozen, "croissant", tmp_path / "croissant")
    described = json.loads((folder / "croissant.json").read_text())
    manifest = next(item for item in described["distribution"] if item["@id"] == "manifest")
    assert manifest["sha256"] == hashlib.sha256((folder / manifest["contentUrl"]).read_bytes()).hexdigest()
    rows = [json.loads(line) for line in (folder / "images.jsonl").read_text().splitlines()]
    for field in described["recordSet"][0]["field"]:
        # Not a JSON path: readers of Croissant take a file of JSON lines for a table.
        assert all(field["source"]["extract"]["column"] in row for row in rows)
    assert described["license"] == sorted({row["licence"] for row in rows if row["licence"]})
    assert described["citeAs"] == "Example 2026"


def test_a_changed_set_is_not_passed_on(frozen: FrozenSet, tmp_path: Path) -> None:
    """The last test of this file: it breaks the set."""
    path = next((frozen.folder / "images").rglob("*.png"))
    path.unlink()
    with pytest.raises(FrozenError):
        export(frozen, "folder", tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
