"""Small packages of icons in the layouts of the real ones, and the sources that name them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from shiftbench.datasets.icons.sources import IconSource
from shiftbench.datasets.registry_packages import Package

#: A few icons of three classes: codepoints as packages write them, and the subtype.
AIRPLANE = "2708-fe0f"
CAT = "1f408"
HAND = "1f44b"


def png(colour: str, size: int = 64, alpha: int = 255) -> bytes:
    """A disc on nothing."""
    from PIL import ImageDraw

    image = Image.new("RGBA", (size, size), (0, 0, 0, 0))
    red, green, blue = Image.new("RGB", (1, 1), colour).getpixel((0, 0))  # type: ignore[misc]
    ImageDraw.Draw(image).ellipse((4, 4, size - 5, size - 5), fill=(red, green, blue, alpha))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def svg(colour: str, extra: str = "") -> bytes:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 36 36">'
        f'<circle cx="18" cy="18" r="12" fill="{colour}"/>{extra}</svg>'
    ).encode()


def tgz(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def wheel(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in files.items():
            made.writestr(name, data)
    return buffer.getvalue()


def place(cache: Path, file: str, data: bytes) -> Package:
    """The package as if it had been fetched, so that neither client nor network is needed."""
    folder = cache / "packages"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data)
    registry = "pypi" if file.endswith(".whl") else "npm"
    return Package(registry, file.split("-1.0")[0], "1.0", file, hashlib.sha256(data).hexdigest())


def source(
    style: str, rendition: int, package: Package, folder: str, suffix: str, naming: str = "codepoints"
) -> IconSource:
    return IconSource(
        style,
        rendition,
        f"{style} {rendition}",
        package,
        folder,
        suffix,
        naming,
        "CC0-1.0",
        True,
        "nobody",
        frozenset({"full"}),
    )


def small_sources(cache: Path) -> tuple[IconSource, ...]:
    """Two renditions of one vendor, of which one drawing did not change; one of another; one of words in JSON."""
    old = tgz({f"package/img/maker/64/{code}.png": png("red") for code in (AIRPLANE, CAT, HAND)})
    new_files = {
        f"package/img/maker/64/{AIRPLANE}.png": png("red"),
        f"package/img/maker/64/{CAT}.png": png("green"),
        f"package/img/maker/64/{HAND}.png": png("blue"),
        f"package/img/maker/64/{HAND}-1f3ff.png": png("brown"),
        "package/img/maker/64/1f468-1f3fb-200d-1f469-1f3ff.png": png("black"),
        "package/img/maker/sheets/64.png": png("white"),
        "package/package.json": b"{}",
    }
    vectors = tgz({f"package/svg/{code.upper()}.svg": svg("orange") for code in (AIRPLANE, HAND)})
    drawings = {"icons": {"smallairplane": {"body": svg_body("navy")}, "wave": {"body": svg_body("teal")}}}
    words = tgz({"package/icons.json": json.dumps(drawings).encode()})
    maker = "package/img/maker/64/"
    return (
        source("maker", 0, place(cache, "maker-old-1.0.tgz", old), maker, ".png"),
        source("maker", 1, place(cache, "maker-new-1.0.tgz", tgz(new_files)), maker, ".png"),
        source("vector", 0, place(cache, "vector-1.0.tgz", vectors), "package/svg/", ".svg"),
        source("words", 0, place(cache, "words-1.0.tgz", words), "package/icons.json", ".json", "iconify"),
    )


def svg_body(colour: str) -> str:
    return f'<circle cx="256" cy="256" r="200" fill="{colour}"/>'
