"""Orientation and transparency of image files: as Pillow treats them, for every kind of dataset that decodes files."""

from __future__ import annotations

import csv
import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from PIL import Image, ImageOps

from shiftbench.datasets import open_dataset
from shiftbench.datasets.base import Dataset, Decoding
from shiftbench.datasets.images import conversion_kinds, decode
from shiftbench.datasets.subset import Subset

ORIENTATION = 0x112
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 17, 4), dtype=np.uint8)


def turned(orientation: int, format: str = "PNG") -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    file = io.BytesIO()
    Image.fromarray(PIXELS[..., :3]).save(file, format, exif=exif)
    return file.getvalue()


def transparent(mode: str) -> bytes:
    rgba = Image.fromarray(PIXELS, "RGBA")
    file = io.BytesIO()
    if mode == "P":
        rgba.convert("RGB").quantize(8).save(file, "PNG", transparency=0)
    elif mode == "RGB":
        rgba.convert("RGB").save(file, "PNG", transparency=tuple(PIXELS[0, 0, :3].tolist()))
    else:
        rgba.convert(mode).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(10))
def test_an_orientation_is_applied_as_pillow_applies_it(orientation: int, format: str) -> None:
    data = turned(orientation, format)
    with Image.open(io.BytesIO(data)) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    with Image.open(io.BytesIO(data)) as image:
        as_stored = np.asarray(image.convert("RGB"))
    assert np.array_equal(decode(data, "x", decoding=Decoding(exif="apply")).pixels, expected)
    ignored = decode(data, "x")
    assert np.array_equal(ignored.pixels, as_stored)
    # Pillow turns TIFF files whatever is asked for.
    matters = orientation in range(2, 9) and format != "TIFF"
    assert ("EXIF orientation not applied" in ignored.converted) == matters


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "RGB"])
@pytest.mark.parametrize("colour", ["white", "black"])
def test_transparency_is_composited_as_pillow_does_it(mode: str, colour: Literal["white", "black"]) -> None:
    data = transparent(mode)
    with Image.open(io.BytesIO(data)) as image:
        rgba = image.convert("RGBA")
    expected = np.asarray(Image.alpha_composite(Image.new("RGBA", rgba.size, colour), rgba).convert("RGB"))
    laid = decode(data, "x", decoding=Decoding(alpha=colour))
    assert np.array_equal(laid.pixels, expected)
    assert f"alpha on {colour}" in conversion_kinds(laid.converted)
    assert "alpha dropped" in conversion_kinds(decode(data, "x").converted)


def test_an_opaque_alpha_channel_changes_nothing() -> None:
    file = io.BytesIO()
    Image.fromarray(PIXELS[..., :3]).convert("RGBA").save(file, "PNG")
    for decoding in (Decoding(), Decoding(alpha="white")):
        image = decode(file.getvalue(), "x", decoding=decoding)
        assert np.array_equal(image.pixels, PIXELS[..., :3])
        assert conversion_kinds(image.converted) == ["opaque alpha dropped"]


def folder(root: Path) -> Dataset:
    for name, data in (("a", turned(6)), ("b", transparent("RGBA"))):
        (root / name).mkdir(parents=True)
        (root / name / "0.png").write_bytes(data)
    return open_dataset(root, space="folders")


def manifest(root: Path) -> Dataset:
    folder(root / "images")
    with (root / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], ["images/a/0.png", "a"], ["images/b/0.png", "b"]])
    return open_dataset(root / "list.csv", space="folders")


def shard(root: Path) -> Dataset:
    with tarfile.open(root / "set.tar", "w") as tar:
        for name, data in (("0.png", turned(6)), ("0.cls", b"0"), ("1.png", transparent("RGBA")), ("1.cls", b"1")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return open_dataset(root / "set.tar", space="folders")


def table(root: Path) -> Dataset:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = [{"bytes": data, "path": f"{i}.png"} for i, data in enumerate((turned(6), transparent("RGBA")))]
    parquet.write_table(arrow.table({"image": images, "label": ["a", "b"]}), root / "set.parquet")
    return open_dataset(root / "set.parquet", space="folders")


def part(root: Path) -> Dataset:
    return Subset(folder(root), [0, 1], name="part")


@pytest.mark.parametrize("make", [folder, manifest, shard, table, part])
def test_every_dataset_of_files_decodes_as_asked(make: Callable[[Path], Dataset], tmp_path: Path) -> None:
    dataset = make(tmp_path)
    fingerprint = dataset.fingerprint
    view = dataset.decoded_as(Decoding("apply", "white"))
    for one in (view, pickle.loads(pickle.dumps(view))):
        assert one.fingerprint == fingerprint
        assert one.read(0).pixels.shape == (17, 12, 3)
        expected = decode(transparent("RGBA"), "x", decoding=Decoding(alpha="white")).pixels
        assert np.array_equal(one.read(1).pixels, expected)
    # The dataset itself decodes as ever.
    assert dataset.read(0).pixels.shape == (12, 17, 3)
