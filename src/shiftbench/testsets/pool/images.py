"""Image files: originals under the digest of their bytes, and the copies that annotators see."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image as Pillow
from PIL import ImageOps

from shiftbench.extend.datasets import bad_image, decode
from shiftbench.extend.io import write_atomically
from shiftbench.extend.types import Pixels

#: Images come from untrusted sources: larger ones are refused.
MAX_BYTES = 64 << 20
MAX_PIXELS = 64_000_000
_JPEG_QUALITY = 90
#: An image with no brighter pixel than this, of 255, is pitch black: nobody can see what it shows.
_BLACK = 8
#: File extensions by magic bytes, for the formats that image folders are made of.
_SUFFIX_BY_MAGIC = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG\r\n\x1a\n": ".png",
    b"BM": ".bmp",
    b"II*\0": ".tif",
    b"MM\0*": ".tif",
    b"P6": ".ppm",
    b"P5": ".pgm",
}


#: How copies get the same size: the square centre of the image, the whole image on a grey square, or the whole image in
#: one aspect ratio.
CopyFit = Literal["crop", "pad", "resize"]


@dataclass(frozen=True)
class StoredImage:
    """A stored original: the digest and extension that name its file, its sides, and its size in bytes."""

    digest: str
    suffix: str
    width: int
    height: int
    size: int

    @property
    def file_name(self) -> str:
        return f"{self.digest}{self.suffix}"


def image_digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class ImageStore:
    """``images/`` and ``copies/`` of a project. Files are named by digest, never by untrusted names.

    ``common_size`` returns the width and height that most references have, or None without references.
    """

    def __init__(
        self,
        folder: Path,
        copy_pixels: int,
        copy_fit: CopyFit = "crop",
        common_size: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self.originals = folder / "images"
        self.copies = folder / "copies"
        self._copy_pixels = copy_pixels
        self._copy_fit = copy_fit
        self._common_size = common_size
        self._resized: tuple[int, int] | None = None

    def put(self, data: bytes, image_id: str) -> StoredImage:
        """Store an image and its copy; BadImageError if it cannot be used."""
        if len(data) > MAX_BYTES:
            raise bad_image(image_id, f"{len(data):,} bytes are more than the limit of {MAX_BYTES:,}")
        pixels = decode(data, image_id, max_pixels=MAX_PIXELS).pixels
        if pixels.max() <= _BLACK:
            raise bad_image(image_id, f"pitch black: no pixel is brighter than {_BLACK} of 255")
        suffix = _suffix_of(data)
        if suffix is None:
            # GIF, AVIF and others are stored as PNG, which every dataset reader supports.
            data = as_png(pixels)
            suffix = ".png"
        height, width = pixels.shape[:2]
        stored = StoredImage(image_digest(data), suffix, width, height, len(data))
        original = self.original(stored.digest, suffix)
        if not original.exists():
            write_atomically(original, lambda path: path.write_bytes(data))
            original.chmod(0o444)  # Frozen sets hard-link this file, so nobody may change it.
        if self._copy_fit != "resize":
            # The common size of the references is only known after they are imported.
            self._make_copy(stored.digest, pixels)
        return stored

    def original(self, digest: str, suffix: str) -> Path:
        return self.originals / digest[:2] / f"{digest[2:]}{suffix}"

    def copy(self, digest: str, suffix: str, fit: CopyFit | None = None) -> Path:
        """The JPEG that annotators see, or one of another ``fit``; made from the original if it is missing."""
        path = self._copy_path(digest, fit)
        if not path.exists():
            original = self.original(digest, suffix)
            self._make_copy(digest, decode(original, original.name, max_pixels=MAX_PIXELS).pixels, fit)
        return path

    def _make_copy(self, digest: str, pixels: Pixels, fit: CopyFit | None = None) -> None:
        path = self._copy_path(digest, fit)
        if not path.exists():
            # Not durable: a copy that is lost in a power failure is made again from the original.
            fit = fit or self._copy_fit
            data = annotators_copy(pixels, self._size_of_copies(fit), fit)
            write_atomically(path, lambda temporary: temporary.write_bytes(data), durable=False)

    def _size_of_copies(self, fit: CopyFit) -> tuple[int, int]:
        """Width and height of the copies: a square, or in the aspect ratio that most references have."""
        square_size = (self._copy_pixels, self._copy_pixels)
        if fit != "resize":
            return square_size
        if self._resized is None:
            common_size = self._common_size()
            if common_size is None:
                return square_size
            scale = self._copy_pixels / max(common_size)
            self._resized = (max(1, round(common_size[0] * scale)), max(1, round(common_size[1] * scale)))
        return self._resized

    def _copy_path(self, digest: str, fit: CopyFit | None) -> Path:
        fit = fit or self._copy_fit
        size = str(self._copy_pixels)
        if fit == "resize":
            width, height = self._size_of_copies(fit)
            size = f"{width}x{height}"
        return self.copies / digest[:2] / f"{digest[2:]}-{fit}-{size}.jpg"


def _suffix_of(data: bytes) -> str | None:
    """The file extension of an image file's format; None for formats that are not stored as they are."""
    if data[8:12] == b"WEBP":
        return ".webp"
    for magic, suffix in _SUFFIX_BY_MAGIC.items():
        if data.startswith(magic):
            return suffix
    return None


def annotators_copy(pixels: Pixels, size: tuple[int, int], fit: CopyFit = "crop") -> bytes:
    """A JPEG of that width and height, encoded from pixels: no EXIF, no location, no hint at its source.

    All copies have the same size and encoding, so that neither reveals control images. The pixels are those that a
    model receives: EXIF orientation is not applied.
    """
    buffer = io.BytesIO()
    Pillow.fromarray(fitted(pixels, size, fit)).save(buffer, "JPEG", quality=_JPEG_QUALITY, subsampling=0)
    return buffer.getvalue()


def fitted(pixels: Pixels, size: tuple[int, int], fit: CopyFit = "crop") -> Pixels:
    """An image in that width and height: its centre, the whole image on grey ("pad"), or stretched ("resize")."""
    image = Pillow.fromarray(pixels)
    if fit == "resize":
        return np.asarray(image.resize(size, Pillow.Resampling.LANCZOS))
    if fit == "crop":
        return np.asarray(ImageOps.fit(image, size, Pillow.Resampling.LANCZOS))
    return np.asarray(ImageOps.pad(image, size, Pillow.Resampling.LANCZOS, color=(128, 128, 128)))


def as_png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()
