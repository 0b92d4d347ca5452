"""The in-memory corruptions of the ImageNet testbed (Taori et al. 2020), which are not quite ImageNet-C's.

The testbed corrupts the model's own crop, at any resolution, with the constants of the 224 px table, as float
tensors that are never rounded to 8 bits, and with other borders, kernels and slips of its own; its 90
``_in-memory`` settings measure these. Here they are under the names ``testbed_<corruption>``, for all but
glass_blur, which the testbed leaves out. Results are rounded to the nearest of 256 levels, since shifts hand
on 8-bit images: at most half a level from the testbed's floats. Numbers come from our own streams (the testbed
draws from three unseeded generators), so equality is one of definition and distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import required
from shiftbench.native.jpeg import compressed
from shiftbench.native.loops import affine_warp, plasma, shift_hsv_values
from shiftbench.shifts.corruptions import frost as frost_images
from shiftbench.shifts.corruptions.blur import disk_kernel, to_float32
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.digital import random_affine
from shiftbench.shifts.corruptions.severities import Row, parameters
from shiftbench.shifts.corruptions.weather import BOX, EMBOSS, equalised_distance, filtered
from shiftbench.shifts.seeds import Draws

Values = NDArray[np.floating]
Make = Callable[..., Values]


def _shot_noise(x: Values, row: Row, draws: Draws) -> Values:
    """Poisson(x * c) / c, by inversion."""
    from scipy.special import pdtrik

    rate = np.maximum(x * row[0], 1e-9)
    return np.asarray(np.maximum(np.ceil(pdtrik(draws.uniforms(x.shape), rate)), 0) / row[0])


def _hsv(x: Values, factor: float, s_shift: float, v_shift: float) -> Values:
    out = np.empty(x.shape)
    shift_hsv_values(x.astype(np.float64).reshape(-1, 3), factor, s_shift, v_shift, out.reshape(-1, 3))
    return out


def _defocus_blur(x: Values, row: Row, draws: Draws) -> Values:
    """The published disk kernel, borders reflected about the edge pixel."""
    cv2 = required("cv2", "opencv", "the corruption testbed_defocus_blur", "opencv-python-headless")
    return np.asarray(cv2.filter2D(x, -1, disk_kernel(*row)))


def _bell(x: Values, sigma: float, size: int) -> Values:
    from scipy.ndimage import correlate1d

    position = np.linspace(-(size // 2), size // 2, size)
    weights = np.exp(-(position**2) / (2 * sigma**2))
    weights /= weights.sum()
    return np.asarray(correlate1d(correlate1d(x, weights, axis=0, mode="mirror"), weights, axis=1, mode="mirror"))


def _line(x: Values, radius: float, sigma: float, radians: float) -> Values:
    """Blur along a line that begins at each pixel, with edges repeated."""
    size = 2 * math.ceil(radius) + 1
    # The weight of each pixel on the line, by its offset (dy, dx). Where two points round to one pixel, the later one
    # replaces the earlier, as it does when the published code writes them into a kernel.
    taps: dict[tuple[int, int], float] = {}
    for i in range(size):
        offset = (round(math.sin(radians) * i), round(math.cos(radians) * i))
        taps[offset] = math.exp(-(i**2) / (2 * sigma**2))
    rows = np.arange(x.shape[0])
    columns = np.arange(x.shape[1])
    total = np.zeros(x.shape)
    for (dy, dx), weight in taps.items():
        source_rows = np.clip(rows + dy, 0, rows[-1])
        source_columns = np.clip(columns + dx, 0, columns[-1])
        total += weight * x[source_rows][:, source_columns]
    return total / sum(taps.values())


def _zoom(x: Values, factor: float) -> Values:
    """The centre of the image enlarged to its size."""
    for axis in (0, 1):
        n = x.shape[axis]
        crop = math.ceil(n / factor)
        position = (np.arange(n) + (int(crop * factor) - n) // 2 + 0.5) / factor - 0.5
        position = np.clip(position, 0, crop - 1) + (n - crop) // 2
        low = np.floor(position).astype(np.int64)
        shape = [1] * x.ndim
        shape[axis] = -1
        fraction = (position - low).reshape(shape)
        x = x.take(low, axis) * (1 - fraction) + x.take(np.minimum(low + 1, n - 1), axis) * fraction
    return x


def _snow(x: Values, row: Row, draws: Draws) -> Values:
    """As published but in floats, and with the wind's -135 to -45 degrees taken for radians."""
    loc, scale, zoom, threshold, radius, sigma, mix = row
    layer = _zoom(loc + scale * draws.normals(x.shape[:2]), zoom)
    layer = _line(np.where(layer < threshold, 0, layer), radius, sigma, draws.uniform(-135, -45))[..., None]
    grey = (x @ np.array([0.299, 0.587, 0.114], x.dtype))[..., None]
    bleached = mix * x + (1 - mix) * np.maximum(x, 1.5 * grey + 0.5)
    return np.asarray(bleached + layer + layer[::-1, ::-1])


def _frost(x: Values, row: Row, draws: Draws, frost_textures: str | None = None) -> Values:
    """One of all six images (five of ours), enlarged to cover the image, their height and width exchanged."""
    cv2 = required("cv2", "opencv", "the corruption testbed_frost", "opencv-python-headless")
    textures = frost_images.resolve_textures(frost_textures)
    count = 5 if textures == frost_images.PROCEDURAL else 6
    texture = frost_images.frost_image(textures, draws.integer(0, count))
    height, width = x.shape[:2]
    # exchanged sides must both cover an image that need not be square
    factor = max(1.0, width / texture.shape[0], height / texture.shape[1])
    size = (math.ceil(texture.shape[0] * factor), math.ceil(texture.shape[1] * factor))
    turned = np.asarray(cv2.resize(texture, size, interpolation=cv2.INTER_CUBIC)) / np.float32(255)
    top = draws.integer(0, turned.shape[0] - height + 1)
    left = draws.integer(0, turned.shape[1] - width + 1)
    return row[0] * x + row[1] * turned[top : top + height, left : left + width]


def _fog(x: Values, row: Row, draws: Draws) -> Values:
    """As published, on a fractal whose side holds the longer side of the image."""
    side = 1 << (max(x.shape[:2]) - 1).bit_length()
    field = np.empty((side, side))
    plasma(row[1], draws.uniforms((side * side - 1,)), field)
    field = (field - field.min()) / np.ptp(field)
    brightest = x.max()
    lit = x + row[0] * field[: x.shape[0], : x.shape[1], None]
    return np.asarray(lit * brightest / (brightest + row[0]))


def _spatter(x: Values, row: Row, draws: Draws) -> Values:
    """As published, in floats after the equalised distances, with kernels of 4 sigma - 1 px."""
    loc, scale, sigma, threshold, strength, mud = row
    layer = _bell(loc + scale * draws.normals(x.shape[:2]), sigma, math.ceil(4 * sigma - 1))
    layer = np.where(layer < threshold, 0, layer)
    if mud:
        cover = _bell((layer > threshold).astype(np.float64), strength, math.ceil(4 * strength - 1))[..., None]
        cover = np.where(cover < 0.8, 0, cover)
        return x * (1 - cover) + np.array([63, 42, 20]) / 255.0 * cover
    light = np.maximum(filtered(equalised_distance((layer * 255).astype(np.uint8)), EMBOSS), 0)
    drops = layer * (filtered(light, BOX) / 9).astype(np.float32)
    drops = drops / drops.max() if drops.max() > 0 else drops
    return x + strength * drops[..., None] * (np.array([175, 238, 238]) / 255.0)


def _jpeg_compression(x: Values, row: Row, draws: Draws) -> Values:
    """Truncated to 8 bits and written with red taken for blue, so that the chroma loses other detail."""
    exchanged = (x * 255).astype(np.uint8)[..., ::-1]
    return to_float32(np.ascontiguousarray(compressed(exchanged, int(row[0]))[..., ::-1]))


def _pixelate(x: Values, row: Row, draws: Draws) -> Values:
    """Means over every pixel that a box touches, then the nearest repeated."""
    for axis in (0, 1):
        n = x.shape[axis]
        small = max(int(n * row[0]), 1)
        start = np.arange(small) * n // small
        stop = -(-(np.arange(1, small + 1) * n) // small)
        means = [x.take(range(a, b), axis).mean(axis=axis, keepdims=True) for a, b in zip(start, stop, strict=True)]
        x = np.concatenate(means, axis=axis).take(np.arange(n) * small // n, axis)
    return x


def _elastic_transform(x: Values, row: Row, draws: Draws) -> Values:
    """The published affine map, then displacements whose filter is cut at the image's height.

    Positions are half a pixel up and to the left, by the conventions of the sampling function used there.
    """
    from scipy.ndimage import map_coordinates

    alpha, sigma, affine = row
    height, width = x.shape[:2]
    warped = np.empty((height, 3 * width), np.float32)
    inverse = random_affine((height, width), affine, draws)
    affine_warp(np.ascontiguousarray(x, np.float32).reshape(height, -1), inverse, width, warped)
    size = 2 * min(int(3 * sigma + 0.5), height, width) - 1
    dx, dy = (_bell(2 * draws.uniforms((height, width)) - 1, sigma, max(size, 1)) * alpha for _ in range(2))
    rows, columns = np.mgrid[0:height, 0:width]
    positions = [rows + dy - 0.5, columns + dx - 0.5]
    channels = warped.reshape(height, width, 3)
    moved = [map_coordinates(channels[..., c], positions, order=1, mode="reflect") for c in range(3)]
    return np.stack(moved, axis=-1)


def _impulse_noise(x: Values, row: Row, draws: Draws) -> Values:
    hit = draws.uniforms(x.shape) < row[0]
    return np.where(hit, draws.uniforms(x.shape) < 0.5, x)


def _contrast(x: Values, row: Row, draws: Draws) -> Values:
    mean = x.mean(axis=(0, 1), keepdims=True, dtype=np.float64)
    return np.asarray((x - mean) * row[0] + mean)


def _zoom_blur(x: Values, row: Row, draws: Draws) -> Values:
    factors = np.arange(1, *row)
    return (x + sum(_zoom(x, float(z)) for z in factors)) / (len(factors) + 1)


_VARIANTS: dict[str, Make] = {
    "gaussian_noise": lambda x, row, draws: x + row[0] * draws.normals(x.shape),
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
    "speckle_noise": lambda x, row, draws: x + x * row[0] * draws.normals(x.shape),
    "contrast": _contrast,
    # Hue and saturation are clipped too, which changes nothing.
    "brightness": lambda x, row, draws: _hsv(x, 1.0, 0.0, row[0]),
    "saturate": lambda x, row, draws: _hsv(x, row[0], row[1], 0.0),
    "defocus_blur": _defocus_blur,
    # A kernel of 4 c - 1 px only, borders reflected about the edge pixel.
    "gaussian_blur": lambda x, row, draws: _bell(x, row[0], math.ceil(4 * row[0] - 1)),
    # A one-sided Gaussian of 2 r + 1 taps along a rounded line, up to 45 degrees either way.
    "motion_blur": lambda x, row, draws: _line(x, row[0], row[1], draws.uniform(-math.pi / 4, math.pi / 4)),
    # As published, with pixel centres kept in place when zooming (half-pixel bilinear).
    "zoom_blur": _zoom_blur,
    "snow": _snow,
    "frost": _frost,
    "fog": _fog,
    "spatter": _spatter,
    "jpeg_compression": _jpeg_compression,
    "pixelate": _pixelate,
    "elastic_transform": _elastic_transform,
}


def _register(name: str, function: Make) -> None:
    """Register ``function(x, row, draws)``, which works on floats, as ``testbed_<name>`` with the 224 px constants."""
    option_names = ("frost_textures",) if name == "frost" else ()

    @corruption(f"testbed_{name}", group="testbed", options=option_names)
    def run(image: Pixels, severity: float, draws: Draws, **options: object) -> Pixels:
        result = function(to_float32(image), parameters(name, severity, 224, 224), draws, **options)
        return np.rint(np.clip(result, 0, 1) * 255).astype(np.uint8)


for _name, _function in _VARIANTS.items():
    _register(_name, _function)
