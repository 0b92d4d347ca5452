"""The kernels and the callers of the image decoders under libFuzzer: ``make fuzz``.

``python -m tests.fuzz`` compiles the kernels with the sanitizers and runs this file. The first byte of an input chooses
what is called with the rest; a crash, a report of a sanitizer or an exception that is none of ours ends the run and
leaves the input in a file.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Literal

atheris: Any = importlib.import_module("atheris")

with atheris.instrument_imports(include=["shiftbench.datasets.images", "shiftbench.shifts", "shiftbench.native"]):
    import numpy as np
    from PIL import Image

    import shiftbench as sb
    from shiftbench.arrays import Pixels
    from shiftbench.datasets import images
    from shiftbench.datasets.base import Decoding
    from shiftbench.datasets.geometry import Geometry
    from shiftbench.errors import BadImageError, ShiftError
    from shiftbench.native.jpeg import compressed, encode_jpeg
    from shiftbench.testsets.near_duplicates.similarity import aligned_correlation, ssim

#: Corruptions that need no other files than their own.
CORRUPTIONS = sorted(set(sb.corruptions("registered")) - {"style_transfer"})
#: The largest side of an image that is made of the input.
MOST_PIXELS = 96
EXIF: tuple[Literal["ignore", "apply"], ...] = ("ignore", "apply")
ALPHA: tuple[Literal["drop", "white", "black"], ...] = ("drop", "white", "black")


def decode(choice: int, data: bytes) -> None:
    """Bytes of a stranger are decoded to pixels, or refused with an error about the image."""
    decoding = Decoding(exif=EXIF[choice % 2], alpha=ALPHA[choice % 3])
    with suppress(BadImageError):
        decoded = images.decode(data, "fuzzed", max_pixels=1 << 20, decoding=decoding)
        assert decoded.pixels.dtype == np.uint8
        assert decoded.pixels.shape[2:] == (3,)


def image_of(data: bytes) -> Pixels:
    """An image whose size is that of the first two bytes, and whose pixels repeat the others."""
    height = 1 + data[0] % MOST_PIXELS
    width = 1 + data[1] % MOST_PIXELS
    return np.resize(np.frombuffer(data[2:], np.uint8), (height, width, 3))


def corrupt(choice: int, data: bytes) -> None:
    """A corruption returns an image of the same size, or refuses the size."""
    image = image_of(data)
    name = CORRUPTIONS[choice % len(CORRUPTIONS)]
    apply = partial(sb.corrupt, image, name, 1 + data[0] % 5, image_id=f"{data[1]}")
    if name == "frost":
        apply = partial(apply, frost_textures="procedural")
    with suppress(ShiftError):
        assert apply().shape == image.shape


def save(choice: int, data: bytes) -> None:
    """Our JPEG files are read by Pillow as the pixels that our kernel predicts."""
    image = image_of(data)
    quality = 1 + choice % 100
    reread = np.asarray(Image.open(io.BytesIO(encode_jpeg(image, quality))))
    assert np.array_equal(reread, compressed(image, quality))


def resize(choice: int, data: bytes) -> None:
    """Every geometry gives images of its own size."""
    image = image_of(data)
    side = 1 + choice % 64
    interpolation: tuple[Literal["bilinear", "bicubic", "box"], ...] = ("bilinear", "bicubic", "box")
    geometry = Geometry(
        resize=(side, side), crop=None, resize_rule="exact", interpolation=interpolation[choice % len(interpolation)]
    )
    assert geometry(image).shape == (side, side, 3)


def compare(choice: int, data: bytes) -> None:
    """Similarities of images of one size are numbers."""
    first = np.resize(image_of(data), (2, 32, 32, 3))
    second = np.roll(first, choice, axis=2)
    assert np.isfinite(ssim(first, second)).all()
    assert np.isfinite(aligned_correlation(first, second)).all()


TARGETS: tuple[Callable[[int, bytes], None], ...] = (decode, corrupt, save, resize, compare)


def call(data: bytes) -> None:
    """What the fuzzer calls with every input."""
    if len(data) > 5:
        TARGETS[data[0] % len(TARGETS)](data[1], data[2:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, call)
    atheris.Fuzz()
