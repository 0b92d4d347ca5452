"""Decode one image with Pillow, as an image-folder pipeline would, or explain why it can't be used.

By default an ordinary image gives the pixels of ``PIL.Image.open(path).convert("RGB")``, bit for bit: EXIF orientation
and colour profiles are ignored, as in the pipelines that ImageNet classifiers were trained with. ``Decoding`` can ask
for the pixels of ``ImageOps.exif_transpose`` and of ``Image.alpha_composite`` instead. What can change a score is noted
in ``DecodedImage.converted``:

* an EXIF orientation other than upright;
* CMYK and YCCK: Pillow's plain conversion;
* palette, 1-bit: expanded;
* transparency: the alpha channel is dropped, as ``convert("RGB")`` does, or laid on a background;
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import DecodedImage, Decoding
from shiftbench.errors import BadImageError, DatasetError, argument
from shiftbench.io.paths import Location, is_object

if TYPE_CHECKING:
    from PIL.Image import Image

#: Pillow rejects images above this many pixels too (twice its ``MAX_IMAGE_PIXELS``).
MAX_PIXELS = 178_956_970
#: Formats that hold nothing but images (EPS would start an interpreter) and begin with a signature (TGA has none,
#: so that any bytes may pass for one).
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "PPM", "TIFF", "WEBP", "MPO", "JPEG2000", "AVIF")
#: Number of the EXIF entry.
_ORIENTATION = 0x112
#: By value of the entry: what turns the image upright. 1 is upright, and other values mean nothing.
_TURNS: dict[int, Callable[[Pixels], Pixels]] = {
    2: lambda pixels: pixels[:, ::-1],
    3: lambda pixels: pixels[::-1, ::-1],
    4: lambda pixels: pixels[::-1],
    5: lambda pixels: pixels.swapaxes(0, 1),
    6: lambda pixels: pixels.swapaxes(0, 1)[:, ::-1],
    7: lambda pixels: pixels.swapaxes(0, 1)[::-1, ::-1],
    8: lambda pixels: pixels.swapaxes(0, 1)[::-1],
}
_PILLOW = re.compile(r"PIL\.")
_ALPHA_MODES = {"LA", "PA", "La", "RGBA", "RGBa"}
#: Notes on images, by which conversions are counted. Those of a file's orientation and of its transparency say whether
#: the score would be another with another ``Decoding``.
EXIF_IGNORED = "EXIF orientation not applied"
EXIF_APPLIED = "EXIF orientation applied"
ALPHA_DROPPED = "alpha dropped"
ALPHA_LAID = {"white": "alpha on white", "black": "alpha on black"}
#: The note on an image of which the rest is missing.
CUT = "incomplete: the file was cut"
_FRAMES = re.compile(r"first of \d+ frames")
#: Ends a JPEG; some cameras add zeros behind it.
_END_OF_JPEG = b"\xff\xd9"
#: Segments of a JPEG, by the second byte of their marker, and any marker but those within a scan.
_PROGRESSIVE_FRAME = 0xC2
_START_OF_SCAN = 0xDA
_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]", re.DOTALL)
#: The value of all channels where a JPEG has no data, and data that continue a JPEG.
_MISSING_GREY = 128
_FURTHER_DATA = b"\x5a" * 4096
#: Memory that decoding takes for each pixel, in bytes: the image in the file's mode and as RGB, each with a copy ...
_BYTES_PER_PIXEL = 16
#: ... and whatever the size of the image.
_SPARE_MEMORY = 32_000_000
#: A file that needs more memory than this is no image that a run could use.
_MOST_MEMORY = 8_000_000_000
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
        ImageFile.LOAD_TRUNCATED_IMAGES = False
        _strict_users[0] += 1
    try:
        yield
    finally:
        with _strict_turn:
            _strict_users[0] -= 1
            ImageFile.LOAD_TRUNCATED_IMAGES = not _strict_users[0]


def conversion_kinds(converted: str) -> list[str]:
    """The conversions that the text of ``DecodedImage.converted`` lists, each by the name it is counted under.

    >>> conversion_kinds("palette to RGB, transparency dropped, first of 7 frames")
    ['palette to RGB', 'alpha dropped', 'first of several frames']
    """
    kinds = []
    for note in converted.split(", "):
        if note == "transparency dropped":
            kinds.append(ALPHA_DROPPED)
        else:
            kinds.append(_FRAMES.sub("first of several frames", note))
    return kinds


def decode(
    source: bytes | str | Location,
    image_id: str,
    *,
    max_pixels: int = MAX_PIXELS,
    decoding: Decoding = Decoding(),  # noqa: B008  # immutable
) -> DecodedImage:
    """Encoded bytes, or the path of a file, to RGB pixels.

    Raises:
        BadImageError: The image is unreadable, for every reader at any time.
        DatasetError: Memory ran out, which says nothing about the image.
    """
    path = Path(source) if isinstance(source, str) else source
    data = path if isinstance(path, bytes) else read_file(path, image_id)
    if not data:
        raise bad_image(image_id, "the file is empty")
    try:
        return _decode(data, image_id, max_pixels, decoding)
    except (BadImageError, DatasetError):
        raise
    except MemoryError as error:
        raise _memory_ran_out(image_id, len(data)) from error
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
    except MemoryError as error:
        raise _memory_ran_out(image_id, path.stat().st_size) from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise bad_image(image_id, f"the file can't be read ({reason})") from error


def bad_image(image_id: str, reason: str) -> BadImageError:
    error = BadImageError(f"{image_id} can't be used: {reason}")
    error.found = reason  # the summary of a run groups skipped images by it
    return error


def _memory_ran_out(image_id: str, needed: int) -> BadImageError | DatasetError:
    """The error about an image that needs this many bytes of memory and did not get them.

    A broken file may ask for any amount. It is to blame if there is enough memory for what it needs; otherwise the
    image may be fine, and must not be counted as unreadable.
    """
    enough = needed + _SPARE_MEMORY
    try:
        if enough <= _MOST_MEMORY:
            np.empty(enough, np.uint8)
        return bad_image(image_id, "it asks for more memory than an image of its size needs")
    except MemoryError:
        return DatasetError(
            f"memory ran out while {image_id} was read",
            expected=f"{enough / 1e6:.0f} MB that are free",
            hint=f"close other programs, or use {argument('workers', 1)}; the same command resumes",
        )


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


def _decode(data: bytes, image_id: str, max_pixels: int, decoding: Decoding) -> DecodedImage:
    """The pixels of an image file as RGB, with remarks on what was converted or is missing.

    Raises BadImageError for what is no image, is too large, or does not fit into memory.
    """
    from PIL import Image

    _quieten()
    with _no_truncated_images(), Image.open(io.BytesIO(data), formats=_formats()) as image:
        width, height = image.size
        if width * height > max_pixels:
            raise bad_image(
                image_id, f"{width} x {height} pixels are more than the limit of {max_pixels} (decompression bomb?)"
            )
        frames = getattr(image, "n_frames", 1)
        bits = _bits_per_value(image)
        try:
            image.load()
            orientation = _orientation(image)
            pixels, notes = _to_rgb(image, bits, image_id, decoding)
        except MemoryError as error:
            raise _memory_ran_out(image_id, _BYTES_PER_PIXEL * width * height) from error
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
        raise bad_image(image_id, f"it has no pixels (decoded to shape {pixels.shape})")
    if frames > 1:
        notes.append(f"first of {frames} frames")
    decoded = pixels
    if orientation in _TURNS and decoding.exif == "apply":
        pixels = np.ascontiguousarray(_TURNS[orientation](pixels))
        notes.append(EXIF_APPLIED)
    elif orientation in _TURNS:
        notes.append(EXIF_IGNORED)
    if image.format == "JPEG" and image.info.get("progressive") and _lacks_scans(data):
        notes.append(CUT)
    elif image.format == "JPEG":
        notes += _missing_parts(data, decoded)
    return DecodedImage(pixels, ", ".join(notes))


def _missing_parts(data: bytes, pixels: Pixels) -> list[str]:
    """A note if a JPEG was cut, although Pillow reads it without an error. ``pixels`` are as they are in the file."""
    content = data.rstrip(b"\0")
    if not content.endswith(_END_OF_JPEG):
        return ["incomplete: the file ends in zeros"] if data.endswith(bytes(64)) else []
    # What is missing before the marker at the end becomes grey, and so does the last corner.
    if (pixels[-1, -8:] != _MISSING_GREY).any():
        return []
    # The decoder needs no further data for a complete image. An incomplete one takes them for what is missing.
    continued = content.removesuffix(_END_OF_JPEG) + _FURTHER_DATA + _END_OF_JPEG
    if _same_pixels(continued, pixels):
        return []
    return [CUT]


def _lacks_scans(data: bytes) -> bool:
    """Whether a progressive JPEG ends before the scans that complete it, and is coarser than it should be.

    Each scan adds some coefficients of some channels (Ss to Se), down to a bit (Al). A complete file has all 64 of each
    channel down to bit 0.
    """
    missing: dict[int, set[int]] = {}
    position = 2
    while position + 4 <= len(data):
        marker = data[position + 1]
        segment = data[position + 4 : position + 2 + int.from_bytes(data[position + 2 : position + 4])]
        if marker == _PROGRESSIVE_FRAME:
            missing = {component: set(range(64)) for component in segment[6::3]}
        elif marker == _START_OF_SCAN:
            first, last, bits = segment[-3:]
            for component in segment[1:-3:2]:
                if bits & 15 == 0:
                    missing.get(component, set()).difference_update(range(first, last + 1))
        next_marker = _MARKER.search(data, position + 4 + len(segment))
        if next_marker is None or next_marker.group() == _END_OF_JPEG:
            break
        position = next_marker.start()
    return any(missing.values())


def _same_pixels(data: bytes, pixels: Pixels) -> bool:
    """Whether the bytes of an image give these pixels."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
            return np.array_equal(np.array(image.convert("RGB")), pixels)
    except Exception:  # Pillow's plugins raise nearly every kind of exception on broken data
        return False


def _bits_per_value(image: Image) -> int:
    """Bits in the file: Pillow silently reads 16-bit colour into 8 bits. To be asked before the image is loaded."""
    tile = getattr(image, "tile", None)
    args = tile[0][3] if tile else None
    raw_mode = args[0] if isinstance(args, tuple) and args else args
    return 16 if isinstance(raw_mode, str) and ";16" in raw_mode else 8


def _orientation(image: Image) -> int:
    """The EXIF orientation of a loaded image. Most files have neither EXIF nor XMP, and are not searched for it."""
    if {"exif", "xmp"}.isdisjoint(image.info):
        return 1
    return int(image.getexif().get(_ORIENTATION, 1))


def _to_rgb(image: Image, bits: int, image_id: str, decoding: Decoding) -> tuple[Pixels, list[str]]:
    """The pixels, and notes on the conversions they needed."""
    mode = image.mode
    if mode.startswith("I") or mode == "F":
        return _scaled_to_8_bits(image, image_id)
    notes = ["16 bits reduced to 8"] if bits == 16 else []
    if mode == "CMYK":
        notes.append("YCCK to RGB" if image.info.get("adobe_transform") == 2 else "CMYK to RGB")
    elif mode == "P":
        notes.append("palette to RGB")
    elif mode == "1":
        notes.append("1-bit to RGB")
    elif mode not in ("RGB", "L", *_ALPHA_MODES):
        notes.append(f"{mode} to RGB")
    keyed = image.info.get("transparency") is not None
    if not keyed and mode not in _ALPHA_MODES:
        return np.array(image if mode == "RGB" else image.convert("RGB")), notes
    rgba = image.convert("RGBA")
    lowest, _ = rgba.getchannel("A").getextrema()
    if lowest == 255:
        notes.append("opaque alpha dropped")
    elif decoding.alpha == "drop":
        notes.append("transparency dropped" if keyed else ALPHA_DROPPED)
    else:
        notes.append(ALPHA_LAID[decoding.alpha])
        return _on_background(rgba, decoding.alpha), notes
    # With the entry in place, convert() warns about what it is meant to do.
    image.info.pop("transparency", None)
    return np.array(image if mode == "RGB" else image.convert("RGB")), notes


def _on_background(rgba: Image, colour: str) -> Pixels:
    from PIL import Image

    background = Image.new("RGBA", rgba.size, colour)
    return np.array(Image.alpha_composite(background, rgba).convert("RGB"))


def _scaled_to_8_bits(image: Image, image_id: str) -> tuple[Pixels, list[str]]:
    """Grey values of 16 or 32 bits, or of floating point."""
    values = np.asarray(image)
    low = values.min()
    high = values.max()
    is_float = image.mode == "F"
    white = 1 if is_float else 0xFFFF
    if not (low >= 0 and high <= white):  # written so that NaN is rejected too
        if is_float:
            reason = f"floating-point values from {low:g} to {high:g}"
        else:
            reason = f"32-bit values from {low} to {high}"
        raise bad_image(image_id, f"{reason} have no defined white")
    grey = np.rint(values * 255) if is_float else values.astype(np.uint16) >> 8
    note = "floating point scaled to 8 bits" if is_float else "16 bits reduced to 8"
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2), [note]


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
    return f"{str(error) or type(error).__name__}"
