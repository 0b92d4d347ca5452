"""Pictures as bytes, against Pillow."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from shiftbench.outputs.encoding import Encoding
from shiftbench.shifts.corruptions.api import corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.outputs.helpers import scene


@pytest.mark.parametrize("name", corruptions("all"))
def test_jpeg_bytes_are_those_of_pillow(name: str) -> None:
    for severity, shape in ((1, (64, 64)), (5, (75, 50))):
        pixels = corrupt(scene(8, *shape), name, severity)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=85, optimize=True)
        assert Encoding()(pixels) == file.getvalue()


@pytest.mark.parametrize("shape", [(64, 64), (8, 8), (31, 100)])
def test_png_loses_nothing(shape: tuple[int, int]) -> None:
    pixels = scene(5, *shape)
    image = Image.open(io.BytesIO(Encoding(lossless=True)(pixels)))
    assert (image.format, image.mode) == ("PNG", "RGB")
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_names() -> None:
    jpeg = Encoding()
    png = Encoding(lossless=True)
    names = ("a/b.JPEG", "a.JPG", "a.tar.png", "v1.2", "a.jpeg#2", "ü.webp")
    assert [jpeg.renamed(n) for n in names] == ["a/b.JPEG", "a.JPG", "a.tar.jpg", "v1.2.jpg", "a.jpeg#2.jpg", "ü.jpg"]
    assert [png.renamed(n) for n in names] == ["a/b.png", "a.png", "a.tar.png", "v1.2.png", "a.jpeg#2.png", "ü.png"]
