"""Test pictures: structure, noise, and the flat and saturated regions where truncation is decided by a hair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # scripts/make_goldens.py imports this module where shiftbench is not installed
    from shiftbench.arrays import Pixels


def landscape(side: int, width: int | None = None) -> Pixels:
    """A smooth scene with fine texture and edges, the same for every size."""
    y, x = np.mgrid[0:side, 0 : width or side] / side
    rng = np.random.RandomState(0)
    waves = [np.sin(2 * np.pi * (fx * x + fy * y + p)) for fx, fy, p in rng.uniform(0, 9, (3, 3))]
    ball = ((x - 0.6) ** 2 + (y - 0.4) ** 2 < 0.05).astype(float)
    channels = [120 + 45 * w + 60 * ball * (c - 1) for c, w in enumerate(waves)]
    picture = np.stack(channels, axis=-1) + rng.normal(0, 6, (*x.shape, 3))
    return np.clip(picture, 0, 255).astype(np.uint8)


def cut_out(side: int) -> Pixels:
    """An object before a pure white background, as in product photographs."""
    picture = landscape(side)
    y, x = np.mgrid[0:side, 0:side] / side - 0.5
    picture[x**2 + y**2 > 0.12] = 255
    return picture


def patches(side: int) -> Pixels:
    """Flat colours, black among them."""
    picture = np.zeros((side, side, 3), np.uint8)
    half = side // 2
    picture[:half, :half], picture[half:, :half], picture[:half, half:] = (200, 30, 90), (17, 17, 17), (255, 254, 3)
    return picture


def ramps(side: int) -> Pixels:
    """Gradients in two directions; many values lie exactly on whole grey levels."""
    ramp = np.repeat(np.linspace(0, 255, side).astype(np.uint8)[None, :], side, axis=0)
    return np.stack([ramp, ramp.T, 255 - ramp], axis=-1)


def write_frost_textures(folder: Path) -> None:
    """Five generated textures under the names of the published frost photographs."""
    from PIL import Image

    for i, name in enumerate(("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")):
        texture = np.roll(landscape(230 + 10 * i, 270 - 5 * i), 40 * i, axis=1)[..., ::-1]
        # PNG under every name: decoders go by the content, and a JPEG would depend on the decoder's version.
        Image.fromarray(np.ascontiguousarray(texture)).save(folder / name, "PNG")
