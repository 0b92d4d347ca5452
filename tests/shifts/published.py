"""The published definitions of the corruptions, written plainly with SciPy, OpenCV and Pillow; slow on purpose.

They check the compiled ones at severities and on pictures for which no published output is at hand.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.random import RandomState
from PIL import Image
from scipy import ndimage

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.frost import ORIGINALS
from shiftbench.shifts.corruptions.severities import TABLES

Array = Any  # plain NumPy arithmetic, whose types say nothing here


def published(name: str, image: Pixels, severity: int, rng: RandomState, frost: Path | None = None) -> Pixels:
    """The corruption of a square image of a published size."""
    row = TABLES[image.shape[0]][name][severity - 1]
    if name == "frost":
        return _levels(_frost(image, row, rng, frost))
    return _levels(_DEFINITIONS[name](image, row, rng))


def _levels(x: Array) -> Pixels:
    """Truncated, not rounded."""
    return np.asarray(x).astype(np.uint8)


def _gaussian(x: Array, sigma: float, mode: str = "nearest", truncate: float = 4.0) -> Array:
    if x.ndim == 2:
        return ndimage.gaussian_filter(x, sigma, mode=mode, truncate=truncate)
    return np.stack([_gaussian(x[..., c], sigma, mode, truncate) for c in range(x.shape[2])], axis=-1)


def _unit(x: Array) -> Array:
    return np.clip(x, 0, 1) * 255


def _gaussian_noise(x: Array, row: Array, rng: RandomState) -> Array:
    return _unit(x / 255.0 + rng.normal(size=x.shape, scale=row[0]))


def _shot_noise(x: Array, row: Array, rng: RandomState) -> Array:
    return _unit(rng.poisson(x / 255.0 * row[0]) / row[0])


def _speckle_noise(x: Array, row: Array, rng: RandomState) -> Array:
    return _unit(x / 255.0 + x / 255.0 * rng.normal(size=x.shape, scale=row[0]))


def _gaussian_blur(x: Array, row: Array, rng: RandomState) -> Array:
    return _unit(_gaussian(x / 255.0, row[0]))


def _glass_blur(x: Array, row: Array, rng: RandomState) -> Array:
    sigma, delta, iterations = row
    side = x.shape[0]
    moved = _levels(_gaussian(x / 255.0, sigma) * 255)
    for _ in range(iterations):
        for h in range(side - delta, delta, -1):
            for w in range(side - delta, delta, -1):
                dx, dy = rng.randint(-delta, delta, size=(2,))
                moved[h, w] = moved[h + dy, w + dx]
    return _unit(_gaussian(moved / 255.0, sigma))


def _defocus_blur(x: Array, row: Array, rng: RandomState) -> Array:
    radius, softness = row
    reach, size = (8, 3) if radius <= 8 else (radius, 5)
    grid = np.arange(-reach, reach + 1)
    disk = (grid[:, None] ** 2 + grid[None, :] ** 2 <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), (size, size), sigmaX=softness)
    return _unit(np.stack([cv2.filter2D(x[..., c] / 255.0, -1, kernel) for c in range(3)], axis=-1))


def _magick_motion(x: Array, radius: float, sigma: float, degrees: float) -> Array:
    width = 2 * math.ceil(radius) + 1
    weights = np.exp(-(np.arange(width) ** 2) / (2.0 * sigma**2))
    weights /= weights.sum()
    total = np.zeros(x.shape)
    rows = np.arange(x.shape[0])
    columns = np.arange(x.shape[1])
    for i, weight in enumerate(weights):
        dx = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        dy = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        y = np.clip(rows + dy, 0, rows[-1])
        z = np.clip(columns + dx, 0, columns[-1])
        total += weight * 257.0 * x[y][:, z]
    return np.floor(np.floor(total + 0.5) / 257)


def _motion_blur(x: Array, row: Array, rng: RandomState) -> Array:
    return _magick_motion(x, row[0], row[1], rng.uniform(-45, 45))


def _clipped_zoom(x: Array, factor: float) -> Array:
    side = x.shape[0]
    crop = math.ceil(side / factor)
    top = (side - crop) // 2
    zoomed = ndimage.zoom(x[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
    trim = (zoomed.shape[0] - side) // 2
    return zoomed[trim : trim + side, trim : trim + side]


def _zoom_blur(x: Array, row: Array, rng: RandomState) -> Array:
    factors = [float(z) for z in np.arange(1, *row)]
    unit = (x / 255.0).astype(np.float32)
    total = np.zeros_like(unit)
    for factor in factors:
        total += _clipped_zoom(unit, factor)
    return _unit((unit + total) / (len(factors) + 1))


def _snow(x: Array, row: Array, rng: RandomState) -> Array:
    loc, scale, zoom, threshold, radius, sigma, mix = row
    unit = x.astype(np.float32) / 255.0
    layer = _clipped_zoom(rng.normal(size=x.shape[:2], loc=loc, scale=scale)[..., None], zoom)[..., 0]
    layer[layer < threshold] = 0
    layer = _magick_motion(_levels(_unit(layer)), radius, sigma, rng.uniform(-135, -45))[..., None] / 255.0
    grey = cv2.cvtColor(unit, cv2.COLOR_RGB2GRAY)[..., None]
    bleached = mix * unit + (1 - mix) * np.maximum(unit, grey * 1.5 + 0.5)
    return _unit(bleached + layer + np.rot90(layer, k=2))


def _frost(x: Array, row: Array, rng: RandomState, folder: Path | None) -> Array:
    assert folder is not None
    side = x.shape[0]
    picture = cv2.imread(str(folder / ORIGINALS[rng.randint(5)]))
    assert picture is not None
    shrink = {32: 0.2, 64: 0.3}.get(side)
    if shrink:
        picture = cv2.resize(picture, (0, 0), fx=shrink, fy=shrink)
    top = rng.randint(0, picture.shape[0] - side)
    left = rng.randint(0, picture.shape[1] - side)
    crop = picture[top : top + side, left : left + side][..., ::-1]
    return np.clip(row[0] * x + row[1] * crop, 0, 255)


def _plasma(side: int, decay: float, rng: RandomState) -> Array:
    field = np.zeros((side, side))
    step = side
    w = 100.0

    def displaced(total: Array) -> Array:
        return total / 4 + w * rng.uniform(-w, w, total.shape)

    while step >= 2:
        half = step // 2
        corners = field[::step, ::step]
        pairs = corners + np.roll(corners, -1, axis=0)
        field[half::step, half::step] = displaced(pairs + np.roll(pairs, -1, axis=1))
        centres = field[half::step, half::step]
        corners = field[::step, ::step]
        across = (centres + np.roll(centres, 1, axis=0)) + (corners + np.roll(corners, -1, axis=1))
        field[::step, half::step] = displaced(across)
        along = (centres + np.roll(centres, 1, axis=1)) + (corners + np.roll(corners, -1, axis=0))
        field[half::step, ::step] = displaced(along)
        step = half
        w = w / decay
    field -= field.min()
    return field / field.max()


def _fog(x: Array, row: Array, rng: RandomState) -> Array:
    amount, decay = row
    side = x.shape[0]
    field = _plasma({32: 32, 64: 64, 224: 256, 299: 512}[side], decay, rng)[:side, :side, None]
    brightest = (x / 255.0).max()
    return _unit((x / 255.0 + amount * field) * brightest / (brightest + amount))


def _hsv(x: Array, factor: float, s_shift: float, v_shift: float) -> Array:
    value = x.max(axis=-1)
    delta = np.ptp(x, axis=-1)
    with np.errstate(all="ignore"):
        s = np.where(delta == 0, 0, delta / value)
        h = np.zeros_like(value)
        for c, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
            largest = x[..., c] == value
            h[largest] = (2.0 * c + (x[..., i] - x[..., j]) / delta)[largest]
        h = np.where(delta == 0, 0, (h / 6.0) % 1.0)
    s = np.clip(s * factor + s_shift, 0, 1)
    v = np.clip(value + v_shift, 0, 1)
    sector = np.floor(h * 6)
    f = h * 6 - sector
    p = v * (1 - s)
    q = v * (1 - f * s)
    t = v * (1 - (1 - f) * s)
    cases = [(v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q)]
    which = np.repeat(sector.astype(np.uint8)[..., None] % 6, 3, axis=-1)
    return _unit(np.choose(which, [np.stack(case, axis=-1) for case in cases]))


def _brightness(x: Array, row: Array, rng: RandomState) -> Array:
    return _hsv(x / 255.0, 1.0, 0.0, row[0])


def _saturate(x: Array, row: Array, rng: RandomState) -> Array:
    return _hsv(x / 255.0, row[0], row[1], 0.0)


def _contrast(x: Array, row: Array, rng: RandomState) -> Array:
    unit = x / 255.0
    mean = unit.mean(axis=(0, 1), keepdims=True)
    return _unit((unit - mean) * row[0] + mean)


def _pixelate(x: Array, row: Array, rng: RandomState) -> Array:
    side = x.shape[0]
    small = int(side * row[0])
    shrunk = Image.fromarray(x).resize((small, small), Image.Resampling.BOX)
    return np.array(shrunk.resize((side, side), Image.Resampling.BOX))


def _jpeg_compression(x: Array, row: Array, rng: RandomState) -> Array:
    buffer = io.BytesIO()
    Image.fromarray(x).save(buffer, "JPEG", quality=row[0])
    return np.array(Image.open(buffer))


def _warp(x: Array, matrix: Array) -> Array:
    """OpenCV 4's warpAffine for float images: positions in 1/32 px, reflect-101 borders."""
    side = x.shape[0]
    full = np.vstack([matrix, [0, 0, 1]])
    inverse = np.linalg.inv(full)
    grid = np.arange(side)
    period = 2 * (side - 1)

    def positions(line: Array) -> tuple[Array, Array, Array]:
        fixed = np.rint((line[1] * grid + line[2]) * 1024)[:, None] + np.rint(line[0] * grid * 1024)[None, :] + 16
        fixed = fixed.astype(np.int64) >> 5
        low = np.mod(fixed >> 5, period)
        high = np.mod((fixed >> 5) + 1, period)
        part = ((fixed & 31).astype(np.float32) / np.float32(32))[..., None]
        return np.minimum(low, period - low), np.minimum(high, period - high), part

    x0, x1, fx = positions(inverse[0])
    y0, y1, fy = positions(inverse[1])
    one = np.float32(1)
    value = x[y0, x0] * ((one - fy) * (one - fx)) + x[y0, x1] * ((one - fy) * fx)
    return (value + x[y1, x0] * (fy * (one - fx))) + x[y1, x1] * (fy * fx)


def _elastic_transform(x: Array, row: Array, rng: RandomState) -> Array:
    alpha, sigma, affine = row
    side = x.shape[0]
    c = side // 2
    half = side // 3
    points = np.array([[c + half, c + half], [c + half, c - half], [c - half, c - half]], np.float32)
    moved = points + rng.uniform(-affine, affine, size=points.shape).astype(np.float32)
    warped = _warp(x.astype(np.float32) / np.float32(255), cv2.getAffineTransform(points, moved))
    fields = []
    for _ in range(2):
        noise = rng.uniform(-1, 1, size=x.shape[:2])
        fields.append((_gaussian(noise, sigma, "reflect", 3) * alpha).astype(np.float32))
    rows, columns = np.mgrid[0:side, 0:side]
    place = [rows + fields[1], columns + fields[0]]
    channels = [ndimage.map_coordinates(warped[..., c], place, order=1, mode="reflect") for c in range(3)]
    return _unit(np.stack(channels, axis=-1))


def _spatter(x: Array, row: Array, rng: RandomState) -> Array:
    loc, scale, sigma, threshold, strength, mud = row
    unit = x.astype(np.float32) / 255.0
    layer = _gaussian(rng.normal(size=x.shape[:2], loc=loc, scale=scale), sigma)
    layer[layer < threshold] = 0
    if mud:
        cover = _gaussian((layer > threshold).astype(np.float32), strength)[..., None]
        cover[cover < 0.8] = 0
        return _unit(unit * (1 - cover) + cover * (np.array([63, 42, 20]) / 255.0).astype(np.float32))
    levels = (layer * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(levels, 50, 150), cv2.DIST_L2, 5)
    _, distance = cv2.threshold(distance, 20, 20, cv2.THRESH_TRUNC)
    distance = cv2.equalizeHist(cv2.blur(distance, (3, 3)).astype(np.uint8))
    light = cv2.filter2D(distance, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    drops = levels * cv2.blur(light, (3, 3)).astype(np.float32)
    drops = drops / drops.max() * np.float32(strength)
    return _unit(unit + drops[..., None] * (np.array([175, 238, 238]) / 255.0).astype(np.float32))


_DEFINITIONS: dict[str, Callable[[Array, Array, RandomState], Array]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "speckle_noise": _speckle_noise,
    "gaussian_blur": _gaussian_blur,
    "glass_blur": _glass_blur,
    "defocus_blur": _defocus_blur,
    "motion_blur": _motion_blur,
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "fog": _fog,
    "brightness": _brightness,
    "saturate": _saturate,
    "contrast": _contrast,
    "pixelate": _pixelate,
    "jpeg_compression": _jpeg_compression,
    "elastic_transform": _elastic_transform,
    "spatter": _spatter,
}
