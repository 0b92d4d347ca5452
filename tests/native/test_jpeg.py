"""Our JPEG codec against Pillow's and OpenCV's: the same pixels, and the same bytes of a file."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.native.jpeg import compressed, encode_jpeg

SIDES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33)


def smooth(height: int, width: int, seed: int = 0) -> Pixels:
    """Waves of colour with some noise: few coefficients in most blocks, and runs of zeros in between."""
    rng = np.random.default_rng(seed)
    y = np.arange(height)[:, None, None]
    x = np.arange(width)[:, None]
    waves = 127 + 90 * np.sin(y / 9 + x / np.array([7.0, 11.0, 23.0])) + rng.normal(0, 9, (height, width, 3))
    return np.asarray(np.clip(waves, 0, 255), np.uint8)


def images() -> list[Pixels]:
    rng = np.random.default_rng(1)
    noise = [rng.integers(0, 256, (h, w, 3)).astype(np.uint8) for h in SIDES for w in SIDES]
    extreme = rng.choice([0, 255], (41, 43, 3)).astype(np.uint8)
    return [*noise, extreme, np.zeros((40, 24, 3), np.uint8), smooth(224, 224), smooth(131, 250, 2)]


def by_pillow(image: Pixels, quality: int, optimize: bool) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=quality, optimize=optimize)
    return file.getvalue()


@pytest.mark.parametrize("quality", [1, 7, 25, 49, 50, 80, 95, 100])
def test_pixels_and_bytes_are_those_of_pillow(quality: int) -> None:
    for image in images():
        assert encode_jpeg(image, quality) == by_pillow(image, quality, optimize=True), image.shape
        with Image.open(io.BytesIO(by_pillow(image, quality, optimize=False))) as read:
            np.testing.assert_array_equal(compressed(image, quality), np.array(read))


def test_pixels_are_those_of_opencv() -> None:
    image = smooth(97, 130)
    _, code = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 18])
    decoded = cv2.imdecode(code, cv2.IMREAD_COLOR)
    assert decoded is not None
    np.testing.assert_array_equal(compressed(image, 18), decoded[..., ::-1])


def test_views_and_other_orders_of_memory() -> None:
    image = smooth(40, 50)
    for view in (image[::-1], image[:, ::2], np.asfortranarray(image)):
        np.testing.assert_array_equal(compressed(view, 40), compressed(np.ascontiguousarray(view), 40))
        assert encode_jpeg(view, 40) == encode_jpeg(np.ascontiguousarray(view), 40)
