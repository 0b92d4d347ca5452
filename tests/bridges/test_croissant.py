"""Croissant descriptions, read by MLCommons' library: of files, and with images that the library decodes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import DatasetError

CONTEXT = {
    "@language": "en", "@vocab": "https://schema.org/", "cr": "http://mlcommons.org/croissant/",
    "sc": "https://schema.org/", "dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo",
    "column": "cr:column", "dataType": {"@id": "cr:dataType", "@type": "@vocab"}, "extract": "cr:extract",
    "field": "cr:field", "fileObject": "cr:fileObject", "fileProperty": "cr:fileProperty", "fileSet": "cr:fileSet",
    "includes": "cr:includes", "recordSet": "cr:recordSet", "source": "cr:source",
}  # fmt: skip


def describe(folder: Path, url: str = "images.csv", table: str = "") -> Path:
    """Six images of two classes in a folder, a table of their paths, and its description."""
    lines = ["path,label"]
    for number in range(6):
        name = f"{('cat', 'dog')[number % 2]}/{number}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (9, 8), (40 * number, 0, 0)).save(folder / name)
        lines.append(f"{name},{name[:3]}")
    (folder / "images.csv").write_text(table or "\n".join(lines) + "\n")
    digest = hashlib.sha256((folder / "images.csv").read_bytes()).hexdigest()
    fields: list[dict[str, Any]] = []
    for column in ("path", "label"):
        source = {"fileObject": {"@id": "table"}, "extract": {"column": column}}
        fields.append(
            {"@type": "cr:Field", "@id": f"images/{column}", "name": column, "dataType": "sc:Text", "source": source}
        )
    content = {
        "@context": CONTEXT, "@type": "sc:Dataset", "conformsTo": "http://mlcommons.org/croissant/1.0", "name": "pets",
        "description": "Six images.", "license": "CC0-1.0", "url": "https://example.org", "version": "1.0.0",
        "datePublished": "2026-01-01", "citeAs": "Nobody.",
        "distribution": [{"@type": "cr:FileObject", "@id": "table", "name": "table", "contentUrl": url,
                          "encodingFormat": "text/csv", "sha256": digest}],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "images", "name": "images", "field": fields}],
    }  # fmt: skip
    file = folder / "croissant.json"
    file.write_text(json.dumps(content))
    return file


def test_a_description_of_files_is_the_dataset_of_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("mlcroissant")
    dataset = sb.open_dataset(describe(tmp_path))
    folder = sb.open_dataset(f"folder:{tmp_path}", labels="folders")
    assert dataset.name == "pets" and list(dataset.space.names) == ["cat", "dog"]
    assert sorted(dataset.ids) == sorted(folder.ids)
    for index, image_id in enumerate(dataset.ids):
        place = list(folder.ids).index(image_id)
        assert dataset.labels[index] == folder.labels[place]
        assert (dataset.read(index).pixels == folder.read(place).pixels).all()


def test_files_elsewhere_are_not_read(tmp_path: Path) -> None:
    pytest.importorskip("mlcroissant")
    for url in ("https://example.org/images.csv", "/etc/passwd", "../images.csv"):
        with pytest.raises(DatasetError, match="elsewhere"):
            sb.open_dataset(describe(tmp_path, url))
    file = describe(tmp_path, table="path,label\n../../secret.png,cat\n")
    with pytest.raises(DatasetError, match="elsewhere"):
        sb.open_dataset(file)
    for content in ("[]", "{", '{"@context": "https://example.org/context"}'):
        file.write_text(content)
        with pytest.raises(DatasetError):
            sb.open_dataset(file)
