"""Pictures on disk: the originals under the digest of their bytes, and the copies that annotators see."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path

from PIL import Image as Pillow

from shiftbench.arrays import Pixels
from shiftbench.datasets.images import bad_image, decode
from shiftbench.io.atomic import write_atomically

#: Pictures come from strangers: no file is read, and none decoded, beyond these.
MAX_BYTES = 64 << 20
MAX_PIXELS = 64_000_000
_QUALITY = 90
#: Endings of the originals, by what their bytes begin with: the formats that folders of pictures are made of.
_MARKS = (
    (b"\xff\xd8\xff", ".jpg"),
    (b"\x89PNG\r\n\x1a\n", ".png"),
    (b"BM", ".bmp"),
    (b"II*\0", ".tif"),
    (b"MM\0*", ".tif"),
    (b"P6", ".ppm"),
    (b"P5", ".pgm"),
)


@dataclass(frozen=True)
class StoredImage:
    digest: str
    suffix: str
    width: int
    height: int
    size: int


def image_digest(data: bytes) -> str:
    """40 hexadecimal digits."""
    return hashlib.blake2b(data, digest_size=20).hexdigest()


class ImageStore:
    """``images/`` and ``copies/`` of a project. A picture's name is its digest, never what a stranger chose."""

    def __init__(self, folder: Path, copy_pixels: int) -> None:
        self.originals, self.copies = folder / "images", folder / "copies"
        self._copy_pixels = copy_pixels

    def put(self, data: bytes, image_id: str) -> StoredImage:
        """Keep a picture and its copy; BadImageError, and nothing kept, for one that can't be used."""
        if len(data) > MAX_BYTES:
            raise bad_image(image_id, f"{len(data):,} bytes are more than the limit of {MAX_BYTES:,}")
        pixels = decode(data, image_id, max_pixels=MAX_PIXELS).pixels
        suffix = _suffix(data)
        if suffix is None:  # GIF, AVIF, ...: kept as a PNG of the same pixels, which every reader of folders knows
            data, suffix = as_png(pixels), ".png"
        height, width = pixels.shape[:2]
        stored = StoredImage(image_digest(data), suffix, width, height, len(data))
        original = self.original(stored.digest, suffix)
        if not original.exists():
            write_atomically(original, lambda path: _write(path, data))
            original.chmod(0o444)  # frozen sets hold the same file under another name
        self._make_copy(stored.digest, pixels)
        return stored

    def original(self, digest: str, suffix: str) -> Path:
        return self.originals / digest[:2] / f"{digest[2:]}{suffix}"

    def copy(self, digest: str, suffix: str) -> Path:
        """What annotators see, always a JPEG; made anew from the original if it was lost."""
        path = self._copy_path(digest)
        if not path.exists():
            original = self.original(digest, suffix)
            self._make_copy(digest, decode(original, original.name, max_pixels=MAX_PIXELS).pixels)
        return path

    def _make_copy(self, digest: str, pixels: Pixels) -> None:
        path = self._copy_path(digest)
        if not path.exists():
            data = annotators_copy(pixels, self._copy_pixels)
            write_atomically(path, lambda temporary: _write(temporary, data), durable=False)

    def _copy_path(self, digest: str) -> Path:
        return self.copies / digest[:2] / f"{digest[2:]}.jpg"


def annotators_copy(pixels: Pixels, longest: int) -> bytes:
    """A JPEG with no side above ``longest``, from pixels alone: no EXIF, no place, no hint at its origin.

    All copies are encoded alike, so that a control image can't be told by its file. The pixels are those that a
    classifier gets: EXIF orientation is not applied to them either.
    """
    image = Pillow.fromarray(pixels)
    image.thumbnail((longest, longest), Pillow.Resampling.LANCZOS)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=_QUALITY, subsampling=0)
    return buffer.getvalue()


def as_png(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    Pillow.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def _suffix(data: bytes) -> str | None:
    for mark, suffix in _MARKS:
        if data.startswith(mark):
            return suffix
    return ".webp" if data[8:12] == b"WEBP" else None


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
