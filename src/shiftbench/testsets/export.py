"""Frozen sets in common layouts: class folders, WebDataset shards, Hugging Face tables, COCO, Croissant."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from PIL import Image as Pillow

from shiftbench.extend.datasets import read_rows
from shiftbench.extend.io import write_json
from shiftbench.extend.outputs import (
    OutputFile,
    OutputRecord,
    PackedSample,
    check_destination,
    table_name,
    write_files,
    write_table,
    write_tar,
)
from shiftbench.extend.registration import Registry
from shiftbench.testsets.frozen import FrozenSet

#: A line of images.jsonl.
Row = Mapping[str, Any]
#: ``function(frozen)``: the files of a format.
Exporter = Callable[[FrozenSet], list[OutputFile]]
exporters: Registry[Exporter] = Registry("export format")
#: Images per WebDataset shard.
SHARD_SIZE = 1000
#: Images per Parquet file.
TABLE_SIZE = 2000


#: The terms of Croissant 1.0 that its context defines.
_CROISSANT_TERMS = (
    "citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset "
    "jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source "
    "subField transform"
)
#: The context of Croissant 1.0, as validators expect it.
_CROISSANT_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "dct": "http://purl.org/dc/terms/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: f"cr:{term}" for term in _CROISSANT_TERMS.split()},
}
#: Columns of the manifest that Croissant describes, with their types.
_CROISSANT_COLUMNS = {
    "path": "sc:Text",
    "label": "sc:Text",
    "selection_frequency": "sc:Float",
    "annotations": "sc:Integer",
}
#: Columns of the Parquet tables beside image and label.
_TABLE_COLUMNS = {
    "selection_frequency": "float64",
    "selected": "int32",
    "annotations": "int32",
    "keyword": "string",
    "date": "string",
    "licence": "string",
    "author": "string",
    "url": "string",
    "source": "string",
}


def export(frozen: FrozenSet, format: str, target: str | Path) -> Path:
    """Write a frozen set with its card into a folder: as ``folder``, ``webdataset``, ``huggingface``, ``coco`` or
    ``croissant``. After an interruption, the same call continues."""
    files = exporters.get(format)
    frozen.open()  # raises if the set is incomplete or was modified, so that it is not passed on
    recipe = {"format": format, "set": frozen.name, "revision": frozen.revision, "fingerprint": frozen.fingerprint}
    record = OutputRecord(Path(target), "export.json", "A frozen test set, exported.", recipe)
    check_destination(record.folder, record.name)
    write_files(record, [*files(frozen), _copied(frozen, "README.md")])
    return record.folder


def _copied(frozen: FrozenSet, name: str, source: str = "") -> OutputFile:
    """A file of the frozen set, from its folder ``source``, under the same name."""
    return name, partial(shutil.copyfile, frozen.folder / source / name)


@exporters.register("folder")
def folder_files(frozen: FrozenSet) -> list[OutputFile]:
    """Class folders (ImageFolder), the files as they are."""
    images = [_copied(frozen, row["path"], "images") for row in read_rows(frozen.folder / "images.jsonl")]
    return [*images, _copied(frozen, "images.jsonl")]


@exporters.register("webdataset")
def shards(frozen: FrozenSet) -> list[OutputFile]:
    """WebDataset tar shards of a thousand images, in the set's random order."""
    files: list[OutputFile] = []
    for number, samples in enumerate(_samples(frozen, SHARD_SIZE)):
        files.append((f"{frozen.set_name}-{number:06d}.tar", partial(write_tar, samples=samples)))
    classes = "".join(f"{key}\n" for key in frozen.space.keys).encode()
    files.append(("classes.txt", lambda path: path.write_bytes(classes)))
    return files


@exporters.register("huggingface")
def tables(frozen: FrozenSet) -> list[OutputFile]:
    """Parquet files for Hugging Face's datasets library, in the set's random order."""
    parts = _samples(frozen, TABLE_SIZE)
    write = partial(write_table, classes=frozen.space.keys, columns=_TABLE_COLUMNS)
    return [(table_name(number, len(parts)), partial(write, samples=part)) for number, part in enumerate(parts)]


@exporters.register("coco")
def coco(frozen: FrozenSet) -> list[OutputFile]:
    """COCO's annotation file beside class folders: one annotation per image, the whole image as its box."""
    images = []
    annotations = []
    licence_ids: dict[str, int] = {}
    for number, row in enumerate(read_rows(frozen.folder / "images.jsonl"), start=1):
        with Pillow.open(frozen.folder / "images" / row["path"]) as image:
            width, height = image.size
        # A licence gets the next free number when it first occurs.
        licence_id = licence_ids.setdefault(row["licence"] or "not stated", len(licence_ids) + 1)
        images.append(
            {
                "id": number,
                "file_name": row["path"],
                "width": width,
                "height": height,
                "date_captured": row["date"],
                "license": licence_id,
                "coco_url": row.get("extra", {}).get("image_url") or row["url"],
                "selection_frequency": row["selection_frequency"],
            }
        )
        annotations.append(
            {
                "id": number,
                "image_id": number,
                "category_id": frozen.space.index(row["label"]) + 1,
                "iscrowd": 0,
                "bbox": [0, 0, width, height],
                "area": width * height,
            }
        )
    classes = zip(frozen.space.keys, frozen.space.names, strict=True)
    values = {
        "info": {
            "description": frozen.name,
            "version": f"revision {frozen.revision}",
            "date_created": f"{frozen.frozen_at:%Y-%m-%d}",
        },
        "images": images,
        "annotations": annotations,
        "categories": [{"id": i, "name": name, "key": key} for i, (key, name) in enumerate(classes, start=1)],
        "licenses": [{"id": number, "name": name} for name, number in licence_ids.items()],
    }
    return [*folder_files(frozen), ("annotations.json", partial(write_json, value=values))]


@exporters.register("croissant")
def croissant(frozen: FrozenSet) -> list[OutputFile]:
    """Croissant metadata (JSON-LD, version 1.0) beside class folders and their manifest."""
    manifest = frozen.folder / "images.jsonl"
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"images/{name}",
            "name": name,
            "dataType": data_type,
            "source": {"fileObject": {"@id": "manifest"}, "extract": {"column": name}},
        }
        for name, data_type in _CROISSANT_COLUMNS.items()
    ]
    manifest_object = {
        "@type": "cr:FileObject",
        "@id": "manifest",
        "name": "manifest",
        "contentUrl": "images.jsonl",
        "encodingFormat": "application/jsonlines",
        "sha256": hashlib.sha256(manifest.read_bytes()).hexdigest(),
    }
    image_files = {
        "@type": "cr:FileSet",
        "@id": "files",
        "name": "files",
        "includes": "*/*",
        "encodingFormat": "image/*",
    }
    strategy = frozen.sampling["strategy"]
    values = {
        "@context": _CROISSANT_CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": frozen.name,
        "description": f"{frozen.images:,} images of {len(frozen.space)} classes, {strategy}; see README.md.",
        "license": sorted({row["licence"] for row in read_rows(manifest) if row.get("licence")}),
        "version": f"{frozen.revision}.0.0",
        "datePublished": f"{frozen.frozen_at:%Y-%m-%d}",
        "distribution": [manifest_object, image_files],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "images", "name": "images", "field": fields}],
    }
    if frozen.citation:
        values["citeAs"] = frozen.citation
    return [*folder_files(frozen), ("croissant.json", partial(write_json, value=values))]


def ordered_rows(frozen: FrozenSet) -> list[Row]:
    """The manifest in the set's own random order, so that any first part of it is a fair sample."""
    return sorted(read_rows(frozen.folder / "images.jsonl"), key=lambda row: int(row["position"]))


def _samples(frozen: FrozenSet, size: int) -> list[Iterator[PackedSample]]:
    """The images in parts of that size, read as they are written; one empty part if there are no images."""

    def sample(row: Row) -> PackedSample:
        path = frozen.folder / "images" / row["path"]
        label = frozen.space.index(row["label"])
        details = {"label": label, "class": row["label"]}
        details |= {name: value for name, value in row.items() if name not in ("path", "label", "position")}
        return PackedSample(path.stem, path.suffix, path.read_bytes(), label, details)

    rows = ordered_rows(frozen)
    parts = [rows[start : start + size] for start in range(0, len(rows), size)]
    return [map(sample, part) for part in parts] or [iter(())]
