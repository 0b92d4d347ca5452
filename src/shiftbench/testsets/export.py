"""Frozen sets in common layouts: class folders, WebDataset shards, Hugging Face tables, COCO, Croissant."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from shiftbench.datasets.manifest import read_rows
from shiftbench.io.atomic import write_json
from shiftbench.jobs.blocks import cut
from shiftbench.outputs.packed import SHARD_SIZE, PackedSample, table_name, write_table, write_tar
from shiftbench.outputs.record import fill_folder
from shiftbench.registry import Registry
from shiftbench.testsets.frozen import FrozenSet

Row = Mapping[str, Any]
#: ``function(frozen, folder)`` fills an empty folder.
Exporter = Callable[[FrozenSet, Path], None]
exporters: Registry[Exporter] = Registry("export format")
_CROISSANT = {
    "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/", "conformsTo": "http://purl.org/dc/terms/conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "extract": "cr:extract", "field": "cr:field",
    "fileObject": "cr:fileObject", "includes": "cr:includes", "column": "cr:column", "recordSet": "cr:recordSet",
    "source": "cr:source",
}  # fmt: skip
#: Images per Parquet file.
TABLE_SIZE = 2000
#: Columns of the tables beside image and label.
_COLUMNS = {
    "selection_frequency": "float64", "selected": "int32", "annotations": "int32",
    **dict.fromkeys(("keyword", "date", "licence", "author", "url", "source"), "string"),
}  # fmt: skip


def export(frozen: FrozenSet, format: str, target: str | Path) -> Path:
    """Write a frozen set with its card into a new folder: as ``folder``, ``webdataset``, ``huggingface``, ``coco`` or
    ``croissant``."""
    write = exporters.get(format)
    frozen.open()  # complete and unchanged, or nothing is passed on

    def fill(folder: Path) -> None:
        write(frozen, folder)
        shutil.copyfile(frozen.folder / "README.md", folder / "README.md")

    fill_folder(Path(target), fill)
    return Path(target)


@exporters.register("folder")
def write_folder(frozen: FrozenSet, folder: Path) -> None:
    """Class folders (ImageFolder), the files as they are."""
    shutil.copytree(frozen.folder / "images", folder, dirs_exist_ok=True)
    shutil.copyfile(frozen.folder / "images.jsonl", folder / "images.jsonl")


@exporters.register("webdataset")
def write_shards(frozen: FrozenSet, folder: Path) -> None:
    """WebDataset tar shards of a thousand images, in the set's random order."""
    for number, part in enumerate(_samples(frozen, SHARD_SIZE)):
        write_tar(folder / f"{frozen.set_name}-{number:06d}.tar", part)
    (folder / "classes.txt").write_text("".join(f"{key}\n" for key in frozen.space.keys), encoding="utf-8")


@exporters.register("huggingface")
def write_tables(frozen: FrozenSet, folder: Path) -> None:
    """Parquet files for Hugging Face's datasets library, in the set's random order."""
    (folder / "data").mkdir()
    parts = _samples(frozen, TABLE_SIZE)
    for number, part in enumerate(parts):
        write_table(folder / table_name(number, len(parts)), part, frozen.space.keys, _COLUMNS)


@exporters.register("coco")
def write_coco(frozen: FrozenSet, folder: Path) -> None:
    """COCO's annotation file beside class folders: one annotation per image, the whole image as its box."""
    write_folder(frozen, folder)
    images, annotations = [], []
    for number, row in enumerate(read_rows(frozen.folder / "images.jsonl"), start=1):
        with Pillow.open(frozen.folder / "images" / row["path"]) as image:
            width, height = image.size
        named = {"coco_url": "url", "date_captured": "date", "selection_frequency": "selection_frequency"}
        details = {name: row[column] for name, column in named.items()}
        images.append({"id": number, "file_name": row["path"], "width": width, "height": height, **details})
        annotations.append(
            {"id": number, "image_id": number, "category_id": frozen.space.index(row["label"]) + 1, "iscrowd": 0,
             "bbox": [0, 0, width, height], "area": width * height}
        )  # fmt: skip
    names = zip(frozen.space.keys, frozen.space.names, strict=True)
    categories = [{"id": i, "name": name, "key": key} for i, (key, name) in enumerate(names, start=1)]
    dated = f"{frozen.frozen_at:%Y-%m-%d}"
    info = {"description": frozen.name, "version": f"revision {frozen.revision}", "date_created": dated}
    values = {"info": info, "images": images, "annotations": annotations, "categories": categories, "licenses": []}
    write_json(folder / "annotations.json", values)


@exporters.register("croissant")
def write_croissant(frozen: FrozenSet, folder: Path) -> None:
    """Croissant metadata (JSON-LD, version 1.0) beside class folders and their manifest."""
    write_folder(frozen, folder)
    manifest = (folder / "images.jsonl").read_bytes()
    columns = {"path": "sc:Text", "label": "sc:Text", "selection_frequency": "sc:Float", "annotations": "sc:Integer"}
    fields = [
        {
            "@type": "cr:Field", "@id": f"images/{name}", "name": name, "dataType": kind,
            "source": {"fileObject": {"@id": "manifest"}, "extract": {"column": name}},
        }
        for name, kind in columns.items()
    ]  # fmt: skip
    listed = {
        "@type": "cr:FileObject", "@id": "manifest", "name": "manifest", "contentUrl": "images.jsonl",
        "encodingFormat": "application/jsonlines", "sha256": hashlib.sha256(manifest).hexdigest(),
    }  # fmt: skip
    files = {"@type": "cr:FileSet", "@id": "files", "name": "files", "includes": "*/*", "encodingFormat": "image/*"}
    licences = sorted({row["licence"] for row in read_rows(folder / "images.jsonl") if row.get("licence")})
    what = f"{frozen.images:,} images of {len(frozen.space)} classes, {frozen.sampling['strategy']}; see README.md."
    values = {
        "@context": _CROISSANT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": frozen.name, "description": what, "license": licences, "version": f"{frozen.revision}.0.0",
        "datePublished": f"{frozen.frozen_at:%Y-%m-%d}", "distribution": [listed, files],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "images", "name": "images", "field": fields}],
    }  # fmt: skip
    write_json(folder / "croissant.json", values)


def ordered_rows(frozen: FrozenSet) -> list[Row]:
    """The manifest in the set's own random order, so that any first part of it is a fair sample."""
    return sorted(read_rows(frozen.folder / "images.jsonl"), key=lambda row: int(row["position"]))


def _samples(frozen: FrozenSet, size: int) -> list[Iterator[PackedSample]]:
    """The images in parts of that size, read as they are written."""

    def sample(row: Row) -> PackedSample:
        path, label = frozen.folder / "images" / row["path"], frozen.space.index(row["label"])
        details = {name: value for name, value in row.items() if name not in ("path", "label", "position")}
        details = {"label": label, "class": row["label"], **details}
        return PackedSample(path.stem, path.suffix, path.read_bytes(), label, details)

    rows = ordered_rows(frozen)
    return [map(sample, rows[block.slice]) for block in cut(len(rows), size)] or [iter(())]
