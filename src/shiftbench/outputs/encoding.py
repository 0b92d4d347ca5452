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
            # These are the bytes of Pillow's save(quality=85, optimize=True).
            return encode_jpeg(pixels, self.quality)
        from PIL import Image

        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG", compress_level=1, compress_type=zlib.Z_RLE)
        return file.getvalue()

    @property
    def ending(self) -> str:
        """The suffix of its files, without the dot."""
        return "png" if self.lossless else "jpg"

    def renamed(self, name: str) -> str:
        """The name of an image with the suffix of this format; ``.JPEG`` and the like stay for JPEG."""
        if not self.lossless and PurePosixPath(name).suffix.lower() in (".jpg", ".jpeg"):
            return name
        return f"{without_suffix(name)}.{self.ending}"

    def describe(self) -> dict[str, object]:
        """The format and its options, for records."""
        if self.lossless:
            return {"format": "PNG"}
        return {"format": "JPEG", "quality": self.quality, "optimised": True, "chroma": "default (4:2:0)"}


def without_suffix(name: str) -> str:
    """A name without the suffix of an image file; other suffixes are parts of the name."""
    suffix = PurePosixPath(name).suffix
    if suffix.lower() in EXTENSIONS:
        return name[: -len(suffix)]
    return name


def unique_names(
    names: Sequence[str], renamed: Callable[[str], str], *, same: Callable[[str], str] = str.casefold
) -> list[str]:
    """New file names; images that would get the same one keep their old suffix inside the new name.

    Two names are equal if ``same`` returns the same for both; by default, names that differ by case only are equal, as
    some file systems ignore case. Raises DatasetError if names are equal all the same.
    """
    new_names = [renamed(name) for name in names]
    counts = Counter(map(same, new_names))
    for i, name in enumerate(names):
        if counts[same(new_names[i])] > 1 and new_names[i] != name:
            new_names[i] = f"{name}{PurePosixPath(new_names[i]).suffix}"
    for shared_name, count in Counter(map(same, new_names)).items():
        if count > 1:
            pairs = zip(names, new_names, strict=True)
            colliding = [name for name, new_name in pairs if same(new_name) == shared_name]
            raise DatasetError(
                f"{count} images would be written to one file",
                found=", ".join(colliding[:4]),
                hint="rename one of them",
            )
    return new_names
