"""Weather: snow, frost, fog, brightness, and spatter (Hendrycks and Dietterich 2019)."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.native import loops
from shiftbench.shifts.corruptions import frost as frost_images
from shiftbench.shifts.corruptions.blur import gaussian_weights, to_float32, trail, zoom_positions
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.severities import Row
from shiftbench.shifts.seeds import Draws

Values = NDArray[np.float64]
_WATER, _MUD = ((np.array(colour) / 255.0).astype(np.float32) for colour in ([175, 238, 238], [63, 42, 20]))
# The published code shrinks the frost images for the small images.
_FROST_SCALE = {32: 0.2, 64: 0.3, 224: 1.0, 299: 1.0}


@corruption("snow", group="weather", tabled=True)
def snow(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Zoomed, thresholded and wind-blown noise over a bleached image.

    The layer is N(loc, scale), zoomed, cut below a threshold and motion-blurred at -135 to -45 degrees; the
    image becomes mix * x + (1 - mix) * max(x, 1.5 grey + 0.5); the layer and its 180-degree rotation are
    added.
    """
    loc, scale, zoom, threshold, radius, sigma, mix = parameters
    layer = snow_flakes(image.shape[:2], (loc, scale, zoom, threshold), draws)
    layer = trail(layer, radius, sigma, draws.uniform(-135, -45))
    return snow_over(image, layer, mix)


def snow_flakes(size: tuple[int, int], flake: Row, draws: Draws) -> Pixels:
    """The layer of flakes (loc, scale, zoom, threshold) before the wind, (H, W, 1)."""
    loc, scale, zoom, threshold = flake
    y_whole, y_part, top, rows = zoom_positions(size[0], zoom)
    x_whole, x_part, left, columns = zoom_positions(size[1], zoom)
    if draws.published:
        noise = draws.normals(size)[top : top + rows, left : left + columns]
    else:  # only the part that the zoom keeps
        noise = draws.normals((rows, columns))
    noise = np.ascontiguousarray(loc + scale * noise)
    layer = np.empty((*size, 1), np.uint8)
    loops.snow_layer(noise, y_whole, y_part, x_whole, x_part, threshold, layer)
    return layer


def snow_over(image: Pixels, layer: Pixels, mix: float) -> Pixels:
    out = np.empty_like(image)
    loops.snow_blend(image, layer, mix, out)
    return out


@corruption("frost", group="weather", tabled=True, options=("frost_textures",))
def frost(image: Pixels, parameters: Row, draws: Draws, frost_textures: str | None = None) -> Pixels:
    """a * x + b * (a random crop of one of five frost images), on the 0-255 scale.

    At sizes between the published ones the images are scaled as the nearest table's, times the ratio of
    the sides, and always enough to cover the image.
    """
    a, b = parameters
    height, width = image.shape[:2]
    textures = frost_images.resolve_textures(frost_textures)
    side = min(height, width)
    table = min(_FROST_SCALE, key=lambda s: abs(math.log(side / s)))
    scale = _FROST_SCALE[table] * side / table
    texture = frost_images.texture(textures, draws.integer(0, 5), scale, height, width)
    y = draws.integer(0, texture.shape[0] - height)
    x = draws.integer(0, texture.shape[1] - width)
    out = np.empty_like(image)
    loops.weighted_sum(image, texture, y, x, a, b, out)
    return out


@corruption("fog", group="weather", tabled=True)
def fog(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """(x + c * plasma) * max(x) / (max(x) + c), with a diamond-square plasma fractal on [0, 1].

    The fractal's side is the least power of two that holds the image's shorter side; it is periodic, so a
    longer image gets it repeated without a seam.
    """
    amount, decay = parameters
    side = 1 << (min(image.shape[:2]) - 1).bit_length()
    field = np.empty((side, side))
    loops.plasma(decay, draws.uniforms((side * side - 1,)), field)
    out = np.empty_like(image)
    loops.fog_blend(image, field, amount, out)
    return out


@corruption("brightness", group="weather", tabled=True)
def brightness(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """V + c in the hue-saturation-value model, clipped."""
    (shift,) = parameters
    out = np.empty_like(image)
    loops.brighten(image.reshape(-1), _brightness_table(shift), shift, out.reshape(-1))
    return out


@lru_cache(maxsize=32)
def _brightness_table(shift: float) -> NDArray[np.uint16]:
    """table[256 * v + c]: what channel c of a pixel with largest channel v becomes, 256 more if in doubt."""
    level = np.arange(256) / 255.0
    value = np.clip(level + shift, 0, 1)
    exact = value[:, None] * np.arange(256)[None, :] / np.maximum(np.arange(256), 1)[:, None] * 255.0
    table = np.clip(np.floor(exact), 0, 255).astype(np.uint16)
    table[np.abs(exact - np.rint(exact)) < 1e-6] += 256
    np.fill_diagonal(table, (value * 255).astype(np.uint16))  # the largest channel is V' itself
    return table.reshape(-1)


@corruption("spatter", group="weather", tabled=True)
def spatter(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Drops of water (severity 1 to 3) or splashes of mud (4 and 5) on the lens.

    Both start from smoothed noise, cut below a threshold. Water is lit along its edges (distance to them,
    equalised and embossed) and added in pale turquoise; mud covers the image in brown.
    """
    loc, scale, sigma, threshold, strength, mud = parameters
    layer = spatter_layer(image.shape[:2], (loc, scale, sigma, threshold), draws)
    x = to_float32(image)
    if not mud:
        return water_drops(x, (layer * 255).astype(np.uint8), strength)
    from scipy.ndimage import gaussian_filter

    cover = gaussian_filter((layer > threshold).astype(np.float32), strength, mode="nearest")[..., None]
    cover[cover < 0.8] = 0
    return np.asarray(np.clip(x * (1 - cover) + _MUD * cover, 0, 1) * 255).astype(np.uint8)


def spatter_layer(size: tuple[int, int], liquid: Row, draws: Draws) -> Values:
    """Smoothed noise (loc, scale, sigma, threshold), zero where the lens stays dry."""
    loc, scale, sigma, threshold = liquid
    noise = loc + scale * draws.normals(size)
    layer = np.empty_like(noise)
    loops.gaussian_values(noise, gaussian_weights(sigma), 1, layer)
    layer[layer < threshold] = 0
    return layer


BOX = np.ones((3, 3), np.int64)
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def filtered(x: NDArray[np.generic], weights: NDArray[np.int64]) -> Values:
    """Sums over 3 x 3 pixels, borders reflected about the edge pixel; in double precision, and so exact for levels."""
    from scipy.ndimage import correlate

    return np.asarray(correlate(x, weights, output=np.float64, mode="mirror"))


def equalised_distance(layer: Pixels) -> Pixels:
    """How far each pixel is from an edge, at most 20 pixels, smoothed, with an equalised histogram."""
    distance = np.empty(layer.shape, np.float32)
    loops.edge_distance(layer, distance)
    levels = (filtered(distance, BOX) * (1 / 9)).astype(np.float32).astype(np.uint8)
    counts = np.bincount(levels.ravel(), minlength=256)
    first = int(levels.min())
    if counts[first] == levels.size:
        return levels
    below = np.cumsum(counts) - counts[first]
    scale = np.float32(255) / np.float32(levels.size - counts[first])
    table = np.rint(np.maximum(below, 0).astype(np.float32) * scale)
    return np.asarray(table[levels], np.uint8)


def water_drops(x: NDArray[np.float32], layer: Pixels, intensity: float) -> Pixels:
    light = np.clip(filtered(equalised_distance(layer).astype(np.int32), EMBOSS), 0, 255)
    drops = layer * np.rint(filtered(light, BOX) / 9).astype(np.float32)
    if not drops.max() > 0:  # a dry lens; the published code divides by zero here
        return np.asarray(x * 255).astype(np.uint8)
    drops = drops / drops.max() * np.float32(intensity)
    return np.asarray(np.clip(x + drops[..., None] * _WATER, 0, 1) * 255).astype(np.uint8)
