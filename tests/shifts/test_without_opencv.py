"""What replaces OpenCV gives its numbers, and what still needs it asks for the extra."""

from __future__ import annotations

import subprocess
import sys

import cv2
import numpy as np
import pytest

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.frost import _resized
from shiftbench.shifts.corruptions.weather import BOX, EMBOSS, equalised_distance, filtered

BLOCKED = """
import sys
sys.modules["cv2"] = None  # as if it were not installed
import numpy as np
import shiftbench as sb
from shiftbench.shifts.corruptions.catalogue import corruptions
testbed = [f"testbed_{name}" for name in ("defocus_blur", "frost", "spatter", "jpeg_compression")]
image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
for name in [*corruptions(), *testbed]:
    try:
        sb.corrupt(image, name, 3, image_id="a", **({"frost_textures": "procedural"} if name.endswith("frost") else {}))
    except sb.ShiftbenchError as error:
        assert "shiftbench[opencv]" in str(error), error
        print(name)
"""


def layers(count: int) -> list[Pixels]:
    rng = np.random.default_rng(0)
    made = []
    for i in range(count):
        noise = rng.normal(0.6, 0.3, tuple(rng.integers(2, 70, 2)))
        soft = cv2.GaussianBlur(noise, (0, 0), 0.5 + i % 4)
        made.append((np.clip(np.where(soft < 0.6, 0, soft) * (1 + i % 3), 0, 1) * 255).astype(np.uint8))
    return [*made, np.zeros((9, 9), np.uint8), np.full((1, 5), 200, np.uint8)]


def test_spatter_lights_drops_as_opencv_does() -> None:
    for layer in layers(120):
        distance = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
        distance = cv2.equalizeHist(cv2.blur(np.minimum(distance, np.float32(20)), (3, 3)).astype(np.uint8))
        ours = equalised_distance(layer)
        np.testing.assert_array_equal(ours, distance)
        light = cv2.filter2D(distance, cv2.CV_8U, EMBOSS)
        own_light = np.clip(filtered(ours.astype(np.int32), EMBOSS), 0, 255)
        np.testing.assert_array_equal(own_light, light)
        np.testing.assert_array_equal(np.rint(filtered(own_light, BOX) / 9), cv2.blur(light, (3, 3)))


@pytest.mark.parametrize("scale", [0.2, 0.3, 0.77, 1.9])
def test_frost_is_resized_as_by_opencv(scale: float) -> None:
    rng = np.random.default_rng(3)
    for height, width in ((37, 50), (101, 64), (5, 7)):
        image = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        expected = cv2.resize(image, (0, 0), fx=scale, fy=scale)
        size = [round(side * scale) for side in image.shape[:2]]
        np.testing.assert_array_equal(_resized(image, size, [1 / scale] * 2), expected)
        expected = cv2.resize(image, (61, 83))
        np.testing.assert_array_equal(_resized(image, [83, 61], [height / 83, width / 61]), expected)


def test_only_two_variants_of_the_testbed_need_it() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["testbed_defocus_blur", "testbed_frost"]
