"""A cabinet of odd and broken pictures: for each its bytes and what decoding must give."""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image


@dataclass(frozen=True)
class Odd:
    """``note`` is the exact conversion noted; ``reason`` a part of the refusal. One of them is set."""

    file: str
    data: bytes
    note: str | None = None
    reason: str | None = None
    size: tuple[int, int] = (24, 16)


def scene(width: int = 24, height: int = 16) -> Image.Image:
    """Smooth, so that JPEG hardly changes it, and different in every channel."""
    y, x = np.mgrid[0:height, 0:width]
    red = 255 * x / max(width - 1, 1)
    green = 255 * y / max(height - 1, 1)
    return Image.fromarray(np.stack([red, green, 255 - red], axis=2).astype(np.uint8))


def encoded(image: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, depth: int, colour: int, rows: bytes) -> bytes:
    """A PNG written by hand, so that it may hold what no library would write."""
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def png_16_bit(colour: int, channels: int) -> bytes:
    values = np.linspace(0, 65535, 24 * 16 * channels).astype(">u2").reshape(16, -1)
    return png(24, 16, 16, colour, b"".join(b"\0" + row.tobytes() for row in values))


def ycck_jpeg() -> bytes:
    """A CMYK JPEG whose Adobe marker says that its first three components are YCC."""
    data = encoded(scene().convert("CMYK"), "JPEG", quality=95)
    at = data.index(b"Adobe\0")
    return data[: at + 11] + b"\x02" + data[at + 12 :]


def jpeg_of_size(width: int, height: int) -> bytes:
    """A small JPEG whose header lies about its size."""
    data = encoded(scene(), "JPEG")
    at = data.index(b"\xff\xc0")
    return data[: at + 5] + struct.pack(">HH", height, width) + data[at + 9 :]


def tiff(array: np.ndarray[Any, Any]) -> bytes:
    return encoded(Image.fromarray(array), "TIFF")


def with_exif_rotation() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(scene(), "JPEG", quality=95, exif=exif)


def text_bomb() -> bytes:
    """A PNG whose comment unpacks to 64 MB."""
    packed = zlib.compress(b"a" * (64 << 20), 9)
    data = encoded(scene(), "PNG")
    return data[:33] + chunk(b"zTXt", b"Comment\0\0" + packed) + data[33:]


def frames(count: int, mode: str = "RGB") -> list[Image.Image]:
    return [Image.fromarray(np.asarray(scene()) // (i + 1)).convert(mode) for i in range(count)]


def _half_zeros(data: bytes) -> bytes:
    """As a copy that stopped leaves it, in a file of the right size."""
    return data[: len(data) // 2] + bytes(len(data) - len(data) // 2)


def cabinet() -> list[Odd]:
    return [*_ordinary(), *_converted(), *_broken()]


def _ordinary() -> list[Odd]:
    rgb = scene()
    grey = scene().convert("L")
    large = scene(400, 300)
    return [
        Odd("plain.jpg", encoded(rgb, "JPEG", quality=95), ""),
        Odd("progressive.jpg", encoded(rgb, "JPEG", quality=95, progressive=True), ""),
        Odd("chroma_444.jpg", encoded(rgb, "JPEG", quality=95, subsampling=0), ""),
        Odd("grey.jpg", encoded(grey, "JPEG", quality=95), ""),
        Odd("exif_rotated.jpg", with_exif_rotation(), "EXIF orientation not applied"),
        Odd("with_profile.jpg", encoded(rgb, "JPEG", icc_profile=b"not a profile" * 99), ""),
        Odd("plain.png", encoded(rgb, "PNG"), ""),
        Odd("grey.png", encoded(grey, "PNG"), ""),
        Odd("png_named_jpeg.JPEG", encoded(rgb, "PNG"), ""),
        Odd("jpeg_named_png.png", encoded(rgb, "JPEG"), ""),
        Odd("picture.bmp", encoded(rgb, "BMP"), ""),
        Odd("picture.ppm", encoded(rgb, "PPM"), ""),
        Odd("picture.pgm", encoded(grey, "PPM"), ""),
        Odd("picture.tif", encoded(rgb, "TIFF"), ""),
        Odd("packed.tiff", encoded(rgb, "TIFF", compression="tiff_lzw"), ""),
        Odd("picture.webp", encoded(rgb, "WEBP", lossless=True), ""),
        Odd("one_pixel.png", encoded(scene(1, 1), "PNG"), "", size=(1, 1)),
        Odd("one_row.png", encoded(scene(5000, 1), "PNG"), "", size=(5000, 1)),
        Odd("one_column.jpg", encoded(scene(1, 5000), "JPEG"), "", size=(1, 5000)),
        Odd("larger.jpg", encoded(large, "JPEG"), "", size=(400, 300)),
        Odd("junk_at_end.jpg", encoded(rgb, "JPEG") + b"junk" * 99, ""),
    ]


def _converted() -> list[Odd]:
    rgb = scene()
    rgba = rgb.convert("RGBA")
    rgba.putalpha(Image.linear_gradient("L").resize(rgb.size))
    floats = np.linspace(0, 1, 24 * 16, dtype=np.float32).reshape(16, 24)
    palette = rgb.quantize(16)
    several: dict[str, Any] = {"save_all": True, "append_images": frames(3)[1:]}
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    return [
        Odd("cmyk.jpg", encoded(rgb.convert("CMYK"), "JPEG", quality=95), "CMYK to RGB"),
        Odd("ycck.jpg", ycck_jpeg(), "YCCK to RGB"),
        Odd("cmyk.tif", encoded(rgb.convert("CMYK"), "TIFF"), "CMYK to RGB"),
        Odd("grey_16.png", png_16_bit(0, 1), "16 bits reduced to 8"),
        Odd("colour_16.png", png_16_bit(2, 3), "16 bits reduced to 8"),
        Odd("alpha_16.png", png_16_bit(6, 4), "16 bits reduced to 8, alpha dropped"),
        Odd("grey_16.tif", tiff((floats * 65535).astype(np.uint16)), "16 bits reduced to 8"),
        Odd("grey_16.pgm", b"P5 24 16 65535\n" + bytes(range(256)) * 3, "16 bits reduced to 8"),
        Odd("float_unit.tif", tiff(floats), "floating point scaled to 8 bits"),
        Odd("palette.png", encoded(palette, "PNG"), "palette to RGB"),
        Odd("palette_clear.png", encoded(palette, "PNG", transparency=bytes([0, 128])), _CLEAR),
        Odd("still.gif.jpg", encoded(palette, "GIF"), "palette to RGB"),
        Odd("key_colour.png", encoded(rgb, "PNG", transparency=(0, 0, 255)), "transparency dropped"),
        Odd("rgba.png", encoded(rgba, "PNG"), "alpha dropped"),
        Odd("la.png", encoded(rgba.convert("LA"), "PNG"), "alpha dropped"),
        Odd("rgba.webp", encoded(rgba, "WEBP", lossless=True), "alpha dropped"),
        Odd("one_bit.png", encoded(rgb.convert("1"), "PNG"), "1-bit to RGB"),
        Odd("fax.tif", encoded(rgb.convert("1"), "TIFF", compression="group4"), "1-bit to RGB"),
        Odd("moving.gif.jpg", encoded(rgb, "GIF", **several), "palette to RGB, first of 3 frames"),
        Odd("moving.webp", encoded(rgb, "WEBP", lossless=True, **several), "first of 3 frames"),
        Odd("moving.png", encoded(rgb, "PNG", **several), "first of 3 frames"),
        Odd("pages.tif", encoded(rgb, "TIFF", **several), "first of 3 frames"),
        Odd("stereo.jpg", encoded(rgb, "MPO", **several), "first of 3 frames"),
        Odd("half_zeros.jpg", _half_zeros(encoded(noise, "JPEG")), "incomplete: the file ends in zeros", size=(64, 64)),
        Odd("zeros_behind.jpg", encoded(rgb, "JPEG") + bytes(99), ""),
    ]


_CLEAR = "palette to RGB, transparency dropped"


def _broken() -> list[Odd]:
    jpeg = encoded(scene(400, 300), "JPEG", quality=95)
    whole = encoded(scene(), "PNG")
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    long_png = encoded(Image.fromarray(noise), "PNG")
    floats = np.linspace(-3, 900, 24 * 16, dtype=np.float32).reshape(16, 24)
    huge = np.full((16, 24), 1 << 30, dtype=np.int32)
    crc = bytearray(whole)
    crc[30] ^= 0xFF
    return [
        Odd("empty.jpg", b"", reason="empty"),
        Odd("only_spaces.png", b"   \n", reason="no known image format"),
        Odd("web_page.jpg", b"<!DOCTYPE html><html><body>404</body></html>", reason="web page"),
        Odd("drawing.png", b"<svg xmlns='http://www.w3.org/2000/svg'/>", reason="web page or SVG"),
        Odd("lfs.jpg", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", reason="Git LFS"),
        Odd("words.jpg", b"this is not a picture at all", reason="no known image format"),
        Odd("zeros.jpg", bytes(4096), reason="no known image format"),
        Odd("magic_only.jpg", b"\xff\xd8\xff\xe0", reason="can't be used"),
        Odd("half.jpg", jpeg[: len(jpeg) // 2], reason="truncated"),
        Odd("header_only.jpg", jpeg[: jpeg.index(b"\xff\xda")], reason="can't be used"),
        Odd("half.png", long_png[: len(long_png) // 2], reason="truncated"),
        Odd("bad_checksum.png", bytes(crc), reason="can't be used"),
        Odd("half.gif.png", encoded(scene(200, 200), "GIF")[:300], reason="broken header"),
        Odd("half.webp", encoded(scene(200, 200), "WEBP")[:200], reason="can't be used"),
        Odd("half.bmp", encoded(scene(), "BMP")[:100], reason="truncated"),
        Odd("half.tif", encoded(scene(), "TIFF")[:60], reason="can't be used"),
        Odd("bomb.png", png(60000, 60000, 8, 2, bytes(1 << 20)), reason="decompression bomb"),
        Odd("bomb_lies.png", png(13000, 13000, 1, 0, bytes(10)), reason="truncated"),
        Odd("bomb.jpg", jpeg_of_size(65500, 65500), reason="decompression bomb"),
        Odd("text_bomb.png", text_bomb(), reason="can't be used"),
        Odd("no_width.png", png(0, 16, 8, 2, b""), reason="can't be used"),
        Odd("float_wild.tif", tiff(floats), reason="no defined white"),
        Odd("float_nan.tif", tiff(np.full((16, 24), np.nan, dtype=np.float32)), reason="no defined white"),
        Odd("integer_32.tif", tiff(huge), reason="no defined white"),
        Odd("drawing.eps.jpg", encoded(scene(), "EPS"), reason="no known image format"),
        Odd("archive.jpg", b"PK\x03\x04" + bytes(100), reason="no known image format"),
    ]
