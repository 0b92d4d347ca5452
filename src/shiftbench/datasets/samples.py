"""Images built from formulas, with the statistics of photographs, for checks that need an input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels


def sample_images(count: int = 4, size: tuple[int, int] = (224, 224)) -> Pixels:
    """Textures with nearly the 1/f spectrum of natural scenes, lit unevenly, each with a few flat shapes.

    White noise is unsuitable for comparing two engines: a network's activations on it are mostly saturated or zero,
    unlike those on photographs.
    """
    return np.stack([_scene(np.random.default_rng(seed), *size) for seed in range(count)])


def _scene(rng: np.random.Generator, height: int, width: int) -> Pixels:
    scene = _texture(rng, height, width)
    rows, columns = np.mgrid[0:height, 0:width] / max(height, width)
    scene += (rng.normal(0, 0.6) * rows + rng.normal(0, 0.6) * columns)[..., None]
    for _ in range(4):
        centre = rng.uniform(0.1, 0.9, 2)
        radius = rng.uniform(0.05, 0.25)
        inside = (rows - centre[0]) ** 2 + ((columns - centre[1]) * rng.uniform(0.5, 2)) ** 2 < radius**2
        scene[inside] = 0.4 * scene[inside] + rng.normal(0, 1, 3)
    return (np.clip(0.45 + 0.22 * scene, 0, 1) * 255).astype(np.uint8)


def _texture(rng: np.random.Generator, height: int, width: int) -> NDArray[np.float64]:
    """A texture in RGB, made of one plane of luminance and two weaker planes of colour."""
    frequency = np.hypot(np.fft.fftfreq(height)[:, None] * height, np.fft.rfftfreq(width) * width)
    frequency[0, 0] = 1
    planes = []
    for _ in range(3):
        noise = np.fft.rfft2(rng.normal(size=(height, width))) / frequency**1.2
        noise[0, 0] = 0
        plane = np.fft.irfft2(noise, (height, width))
        planes.append(plane / (plane.std() + 1e-12))
    light, warm, green = planes
    return np.stack([light + 0.3 * warm, light + 0.3 * green, light - 0.3 * warm], axis=-1)
