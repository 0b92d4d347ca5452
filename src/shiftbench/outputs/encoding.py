"""Bytes and names of image files."""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from shiftbench.arrays import Pixels
from shiftbench.errors import DatasetError
from shiftbench.native.jpeg import encode_jpeg

#: Suffixes of image files, lower case; other files of a dataset are ignored.
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class Encoding:
    """JPEG of quality 85, optimised, with Pillow's default chroma subsampling, as published; or PNG."""

    lossless: bool = False
    quality: int = 85

    def __call__(self, pixels: Pixels) -> bytes:
        if not self.lossless:
            return encode_jpeg(pixels, self.quality)  # the bytes of Pillow's save(quality=85, optimize=True)
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
        return file.getvalue()

    @property
    def ending(self) -> str:
        return "png" if self.lossless else "jpg"

    def renamed(self, name: str) -> str:
        """The name of an image with the suffix of this format; ``.JPEG`` and the like stay for JPEG."""
        if not self.lossless and PurePosixPath(name).suffix.lower() in (".jpg", ".jpeg"):
            return name
        return f"{without_suffix(name)}.{self.ending}"

    def describe(self) -> dict[str, object]:
        if self.lossless:
            return {"format": "PNG"}
        return {"format": "JPEG", "quality": self.quality, "optimised": True, "chroma": "default (4:2:0)"}


def without_suffix(name: str) -> str:
    suffix = PurePosixPath(name).suffix
    return name[: -len(suffix)] if suffix.lower() in EXTENSIONS else name


def unique_names(
    names: Sequence[str], renamed: Callable[[str], str], *, same: Callable[[str], str] = str.casefold
) -> list[str]:
    """New file names; images that would get the same one keep their old suffix inside the new name.

    Names are equal if ``same`` of them is, by default also where a file system ignores case.
    """
    new = [renamed(name) for name in names]
    taken = Counter(map(same, new))
    for i, name in enumerate(names):
        if taken[same(new[i])] > 1 and new[i] != name:
            new[i] = f"{name}{PurePosixPath(new[i]).suffix}"
    for shared, count in Counter(map(same, new)).items():
        if count > 1:
            both = [name for name, place in zip(names, new, strict=True) if same(place) == shared]
            raise DatasetError(
                f"{count} images would be written to one file", found=", ".join(both[:4]), hint="rename one of them"
            )
    return new
