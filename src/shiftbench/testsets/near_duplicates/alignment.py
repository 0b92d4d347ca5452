"""How alike two pictures are once a small shift, zoom or stretch is undone.

l2 and SSIM compare pixel with pixel: at 32 pixels a crop of 80 % or a shift by three pixels costs them as much as
another picture would. Here the middle of the first picture, zoomed and stretched by a few factors, is laid over the
second at every place where it fits (up to an eighth of the side away from its own), and the best normalised
correlation of the detail counts. Detail is luminance minus its blur: without it all skies are alike. Brightness and
contrast drop out of a correlation. 1 is the same picture, distinct ones seldom exceed 0.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.errors import ShiftbenchError
from shiftbench.shifts.corruptions.kernels.compiling import compiled

_Floats = NDArray[np.float32]

#: (vertical, horizontal) magnification of the first picture; both ways, since either may be the crop.
_MAGNIFICATIONS = (
    (1.0, 1.0), (1.1, 1.1), (1.25, 1.25), (0.9, 0.9), (0.8, 0.8), (1.0, 1.2), (1.2, 1.0), (1.0, 0.83), (0.83, 1.0),
)  # fmt: skip
#: Side of the middle as a part of the picture's side.
_MIDDLE = 0.75
#: Standard deviation of the blur, for a side of 32.
_BLUR = 2.5
#: Grey levels: detail weaker than this is taken for noise, and correlates with nothing.
_NOISE = 1.5


def aligned_correlation(first: Pixels, second: Pixels) -> FloatArray:
    """The best correlation of each pair of (N, S, S, 3) uint8 pictures, from -1 to 1.

    >>> rng = np.random.default_rng(0)
    >>> noise = np.kron(rng.integers(0, 256, (1, 16, 16, 1), np.uint8), np.ones((1, 2, 2, 3), np.uint8))
    >>> bool(aligned_correlation(noise, np.roll(noise, 3, axis=2))[0] > 0.9)
    True
    """
    _check(first, second)
    side = first.shape[1]
    middle = round(_MIDDLE * side)
    blur = _blur(side, _BLUR * side / 32)
    tall = np.stack([_zoom(side, middle, factor) for factor, _ in _MAGNIFICATIONS])
    wide = np.stack([np.ascontiguousarray(_zoom(side, middle, factor).T) for _, factor in _MAGNIFICATIONS])
    # Where one picture is compared with several, as in a list of neighbours, its templates are cut once.
    fresh = np.append(True, (first[1:] != first[:-1]).any(axis=(1, 2, 3)))
    values = np.empty(len(first))
    _correlate(_luminance(first), _luminance(second), fresh, blur, np.ascontiguousarray(blur.T), tall, wide, values)
    return values


def _luminance(pictures: Pixels) -> _Floats:
    red, green, blue = (pictures[..., channel].astype(np.float32) for channel in range(3))
    return np.asarray(np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue)


@compiled
def _correlate(
    first: _Floats,
    second: _Floats,
    fresh: NDArray[np.bool_],
    blur: _Floats,
    blur_across: _Floats,
    tall: _Floats,
    wide: _Floats,
    values: FloatArray,
) -> None:
    side, middle = tall.shape[2], tall.shape[1]
    detail, half = np.empty((side, side), np.float32), np.empty((side, side), np.float32)
    part = np.empty((middle, side), np.float32)
    templates = np.empty((len(tall), middle, middle), np.float32)
    for i in range(len(first)):
        if fresh[i]:
            _sharpen(first[i], blur, blur_across, half, detail)
            for t in range(len(tall)):
                _multiply(tall[t], detail, part)
                _multiply(part, wide[t], templates[t])
                _centre(templates[t])
        _sharpen(second[i], blur, blur_across, half, detail)
        values[i] = _best(templates, detail)


@compiled
def _sharpen(light: _Floats, blur: _Floats, blur_across: _Floats, half: _Floats, out: _Floats) -> None:
    """The detail: light minus its blur."""
    _multiply(blur, light, half)
    _multiply(half, blur_across, out)
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = light[y, x] - out[y, x]


@compiled
def _multiply(a: _Floats, b: _Floats, out: _Floats) -> None:
    """out = a b, for matrices so small that a library's threads would cost more than they bring."""
    for y in range(out.shape[0]):
        for x in range(out.shape[1]):
            out[y, x] = np.float32(0)
        for k in range(a.shape[1]):
            for x in range(out.shape[1]):
                out[y, x] += a[y, k] * b[k, x]


@compiled
def _centre(template: _Floats) -> None:
    """Mean zero."""
    total = 0.0
    for y in range(template.shape[0]):
        for x in range(template.shape[1]):
            total += template[y, x]
    mean = np.float32(total / (template.shape[0] * template.shape[1]))
    for y in range(template.shape[0]):
        for x in range(template.shape[1]):
            template[y, x] -= mean


@compiled
def _best(templates: _Floats, detail: _Floats) -> float:
    """The greatest normalised correlation over templates and places.

    A window's own mean drops out of the products, since templates have mean zero, but not out of its length.
    """
    middle = templates.shape[1]
    places = detail.shape[0] - middle + 1
    under = np.empty(places * places, np.float32)
    sums, squares = np.zeros(places * places, np.float32), np.zeros(places * places, np.float32)
    products, lengths = np.zeros((len(templates), places * places), np.float32), np.zeros(len(templates))
    for y in range(middle):
        for x in range(middle):
            for down in range(places):  # what lies under this pixel of a template, at every place
                for across in range(places):
                    under[down * places + across] = detail[y + down, x + across]
            for place in range(places * places):
                sums[place] += under[place]
                squares[place] += under[place] * under[place]
            for t in range(len(templates)):
                weight = templates[t, y, x]
                lengths[t] += weight * weight
                for place in range(places * places):
                    products[t, place] += weight * under[place]
    count, best = middle * middle, -1.0
    floor = count * _NOISE * _NOISE
    for place in range(places * places):
        length = max(squares[place] - sums[place] * sums[place] / count, 0.0) + floor
        for t in range(len(templates)):
            best = max(best, products[t, place] / np.sqrt(length * (lengths[t] + floor)))
    return best


def _blur(side: int, sigma: float) -> _Floats:
    """(side, side): a Gaussian along one axis, normalised where it meets the border."""
    places = np.arange(side)
    taps = np.exp(-0.5 * ((places[:, None] - places[None, :]) / sigma) ** 2)
    return np.asarray(taps / taps.sum(axis=1, keepdims=True), np.float32)


def _zoom(side: int, middle: int, factor: float) -> _Floats:
    """(middle, side): the middle of a row magnified by ``factor``, by triangles that widen where it shrinks."""
    sources = (np.arange(middle) - (middle - 1) / 2) / factor + (side - 1) / 2
    width = max(1.0, 1 / factor)
    weights = np.maximum(0, 1 - np.abs(sources[:, None] - np.arange(side)[None, :]) / width)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _check(first: Pixels, second: Pixels) -> None:
    shapes = first.shape == second.shape and first.ndim == 4 and first.shape[1] == first.shape[2]
    if not shapes or first.dtype != np.uint8 or second.dtype != np.uint8 or first.shape[1] < 16:
        raise ShiftbenchError(
            "pictures are aligned in squares of one size, pair by pair",
            found=f"{first.dtype} {first.shape} and {second.dtype} {second.shape}",
            expected="uint8 (N, S, S, 3), twice the same, S at least 16",
        )
