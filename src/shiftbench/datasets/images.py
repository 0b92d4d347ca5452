"""Decode one image with Pillow, as an image-folder pipeline would, or explain why it can't be used.

An ordinary image gives the pixels of ``PIL.Image.open(path).convert("RGB")``, bit for bit: EXIF orientation
and colour profiles are ignored, as in the pipelines that ImageNet classifiers were trained with. What can change a
score is noted in ``DecodedImage.converted``:

* an EXIF orientation other than upright;

* CMYK and YCCK: Pillow's plain conversion;
* palette, 1-bit: expanded;
* transparency: the alpha channel is dropped, not composited, as ``convert("RGB")`` does;
* 16 bits: the high byte of each value (``convert`` would clip grey ones at 255);
* floating point in [0, 1]: times 255, rounded; other ranges have no defined white and are rejected;
* several frames: the first one;
* a JPEG whose end is zeros, as an interrupted copy leaves it: decoded as far as it goes.

A truncated file is bad, also where other code has set Pillow's ``LOAD_TRUNCATED_IMAGES``.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import DecodedImage
from shiftbench.errors import BadImageError
from shiftbench.io.paths import Location, is_object

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pillow rejects images above this many pixels too (twice its ``MAX_IMAGE_PIXELS``).
MAX_PIXELS = 178_956_970
#: Formats that hold nothing but images (EPS would start an interpreter) and begin with a signature (TGA has none,
#: so that any bytes may pass for one).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "MPO", "JPEG2000", "AVIF")
#: Number of the EXIF entry; 1 is upright.
_ORIENTATION = 0x112
_PILLOW = re.compile(r"PIL\.")
_ALPHA = {"LA", "PA", "La", "RGBA", "RGBa", "RGBX"}
#: Ends a JPEG; some cameras add zeros behind it.
_END_OF_JPEG = b"\xff\xd9"
_strict_turn = threading.Lock()
_strict_users = [0]


@contextmanager
def _no_truncated_images() -> Iterator[None]:
    """Reset a process-wide setting of Pillow, which user code may have changed, while any thread decodes: missing
    parts would become grey."""
    from PIL import ImageFile

    if not ImageFile.LOAD_TRUNCATED_IMAGES and not _strict_users[0]:
        yield
        return
    with _strict_turn:
        ImageFile.LOAD_TRUNCATED_IMAGES, _strict_users[0] = False, _strict_users[0] + 1
    try:
        yield
    finally:
        with _strict_turn:
            _strict_users[0] -= 1
            ImageFile.LOAD_TRUNCATED_IMAGES = not _strict_users[0]


def decode(source: bytes | str | Location, image_id: str, *, max_pixels: int = MAX_PIXELS) -> DecodedImage:
    """Encoded bytes, or the path of a file, to RGB pixels. Raises BadImageError and nothing else."""
    path = Path(source) if isinstance(source, str) else source
    data = path if isinstance(path, bytes) else read_file(path, image_id)
    if not data:
        raise bad_image(image_id, "the file is empty")
    try:
        return _decode(data, image_id, max_pixels)
    except BadImageError:
        raise
    except Exception as error:  # Pillow's plugins raise nearly every kind of exception on broken data
        raise bad_image(image_id, _reason(error, data)) from error


def read_file(path: Location, image_id: str) -> bytes:
    """The bytes of an image's file; BadImageError if it can't be read.

    An unreachable store is not the image's fault: its UnreachableError ends the run, which can be resumed.
    """
    try:
        if not is_object(path) and not path.is_file() and path.exists():
            # Opening a pipe would block, and a device may be endless.
            raise bad_image(image_id, "it is a folder" if path.is_dir() else "it is a pipe, socket or device")
        return path.read_bytes()
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise bad_image(image_id, f"the file can't be read ({reason})") from error


def bad_image(image_id: str, reason: str) -> BadImageError:
    error = BadImageError(f"{image_id} can't be used: {reason}")
    error.found = reason  # the summary of a run groups skipped images by it
    return error


@cache
def _formats() -> tuple[str, ...]:
    from PIL import Image

    Image.init()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _quieten() -> None:
    """Silence Pillow's warnings about metadata and about sizes below our own limit.

    The filters are appended, so that those of the user go first, and looked for each time, as leaving any
    ``catch_warnings`` block removes them; a block of our own would not be safe with threads.
    """
    from PIL import Image

    if ("ignore", None, Image.DecompressionBombWarning, None, 0) not in warnings.filters:
        warnings.simplefilter("ignore", Image.DecompressionBombWarning, append=True)
    if ("ignore", None, UserWarning, _PILLOW, 0) not in warnings.filters:
        warnings.filterwarnings("ignore", "", UserWarning, _PILLOW.pattern, append=True)


def _decode(data: bytes, image_id: str, max_pixels: int) -> DecodedImage:
    from PIL import Image

    _quieten()
    with _no_truncated_images(), Image.open(io.BytesIO(data), formats=_formats()) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise bad_image(
                image_id, f"{width} x {height} pixels are more than the limit of {max_pixels} (decompression bomb?)"
            )
        frames = getattr(image, "n_frames", 1)
        # Bits per value in the file: Pillow silently reads 16-bit colour into 8 bits.
        args = image.tile[0][3] if getattr(image, "tile", None) else None
        raw = args[0] if isinstance(args, tuple) and args else args
        bits = 16 if isinstance(raw, str) and ";16" in raw else 8
        image.load()
        # Most files have neither EXIF nor XMP; others are only searched for the orientation.
        turned = not {"exif", "xmp"}.isdisjoint(image.info) and image.getexif().get(_ORIENTATION, 1) != 1
        pixels, note = _to_rgb(image, bits, image_id)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise bad_image(image_id, f"it has no pixels (decoded to shape {pixels.shape})")
    notes = [note, f"first of {frames} frames" if frames > 1 else "", "EXIF orientation not applied" if turned else ""]
    if image.format == "JPEG" and data.endswith(bytes(64)) and not data.rstrip(b"\0").endswith(_END_OF_JPEG):
        notes.append("incomplete: the file ends in zeros")
    return DecodedImage(pixels, ", ".join(filter(None, notes)))


def _to_rgb(image: Image, bits: int, image_id: str) -> tuple[Pixels, str]:
    mode = image.mode
    if mode.startswith("I") or mode == "F":
        values = np.asarray(image)
        low, high, white = values.min(), values.max(), 1 if mode == "F" else 0xFFFF
        if not (low >= 0 and high <= white):  # written so that NaN is rejected too
            found = (
                f"floating-point values from {low:g} to {high:g}"
                if mode == "F"
                else f"32-bit values from {low} to {high}"
            )
            raise bad_image(image_id, f"{found} have no defined white")
        grey = np.rint(values * 255) if mode == "F" else values.astype(np.uint16) >> 8
        note = "floating point scaled to 8 bits" if mode == "F" else "16 bits reduced to 8"
        return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2), note
    # only the note: with it in place, convert() warns about what we want it to do
    transparent = image.info.pop("transparency", None) is not None
    if mode == "CMYK":
        note = "YCCK to RGB" if image.info.get("adobe_transform") == 2 else "CMYK to RGB"
    elif mode in _ALPHA:
        note = "alpha dropped"
    elif mode == "P":
        note = "palette to RGB, transparency dropped" if transparent else "palette to RGB"
    elif mode == "1":
        note = "1-bit to RGB"
    elif mode not in ("RGB", "L"):
        note = f"{mode} to RGB"
    else:
        note = "transparency dropped" if transparent else ""
    note = ", ".join(filter(None, ["16 bits reduced to 8" if bits == 16 else "", note]))
    return np.array(image if mode == "RGB" else image.convert("RGB")), note


def _reason(error: Exception, data: bytes) -> str:
    from PIL import Image, UnidentifiedImageError

    if isinstance(error, Image.DecompressionBombError):
        return "more pixels than Pillow's limit allows (decompression bomb?)"
    if isinstance(error, UnidentifiedImageError):
        if data[:512].lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml", b"<svg")):
            return "it is a web page or SVG, not an image"
        if data.startswith(b"version https://git-lfs"):
            return "it is a Git LFS pointer; the image itself was not fetched"
        return f"no known image format, or a broken header (begins with {data[:8].decode('latin-1')!r})"
    if isinstance(error, MemoryError):
        return "it does not fit into memory"
    return f"{str(error) or type(error).__name__}"
