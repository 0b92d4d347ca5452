"""How similar two small images are: structural similarity, and correlation after alignment.

SSIM (Wang et al. 2004): with local means m, variances v and covariance c under a Gaussian window of standard deviation
1.5 (11 x 11), and C1 = (0.01 * 255)², C2 = (0.03 * 255)²,

    SSIM = (2 m_a m_b + C1) (2 c + C2) / ((m_a² + m_b² + C1) (v_a + v_b + C2)),

averaged over all positions of the window and over the channels; 1 for equal images.

Aligned correlation: l2 and SSIM compare pixel by pixel, so at 32 pixels a crop of 80 % or a shift by three pixels costs
as much as a different image. Here the centre of the first image, zoomed and stretched by a few factors, is placed at
every position of the second within an eighth of the side, and the best normalised correlation of the detail is taken.
Detail is luminance minus its blur; without that, all skies look alike. Brightness and contrast cancel out.
1 is the same image; distinct images rarely exceed 0.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import BoolArray, FloatArray, Pixels
from shiftbench.errors import ShiftbenchError
from shiftbench.shifts.corruptions.kernels.compiling import compiled

_Floats = NDArray[np.float32]

_SIGMA, _RADIUS = 1.5, 5
_TAPS = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
_TAPS = (_TAPS / _TAPS.sum()).astype(np.float32)
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
#: Subtracted from all values, so that variances are not small differences of large numbers in float32.
_MIDDLE = 128.0


def ssim(first: Pixels, second: Pixels) -> FloatArray:
    """One value for each pair of (N, H, W, 3) uint8 images.

    >>> grey = np.full((1, 16, 16, 3), 100, np.uint8)
    >>> ssim(grey, grey).tolist(), ssim(grey, grey + 50).round(3).tolist()
    ([1.0], [0.923])
    """
    _check(first, second, least=len(_TAPS))
    values = np.empty(len(first))
    _ssim(np.ascontiguousarray(first), np.ascontiguousarray(second), _TAPS, values)
    return values


@compiled
def _ssim(first: Pixels, second: Pixels, taps: _Floats, values: FloatArray) -> None:
    height, width, channels = first.shape[1:]
    moments = np.empty((5, height, width), np.float32)
    local = np.empty((5, height - len(taps) + 1, width - len(taps) + 1), np.float32)
    rows = np.empty((local.shape[1], width), np.float32)
    for i in range(len(first)):
        total = 0.0
        for channel in range(channels):
            _moments(first[i, :, :, channel], second[i, :, :, channel], moments)
            for m in range(5):
                _window_means(moments[m], taps, rows, local[m])
            total += _mean_similarity(local)
        values[i] = total / channels


@compiled
def _moments(a: Pixels, b: Pixels, out: _Floats) -> None:
    """a, b, a², b² and ab, relative to mid-grey."""
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            u, v = np.float32(a[y, x]) - np.float32(_MIDDLE), np.float32(b[y, x]) - np.float32(_MIDDLE)
            out[0, y, x], out[1, y, x], out[2, y, x], out[3, y, x], out[4, y, x] = u, v, u * u, v * v, u * v


@compiled
def _window_means(values: _Floats, taps: _Floats, rows: _Floats, out: _Floats) -> None:
    """Columns first, then rows; the innermost loops run over contiguous memory, so they vectorise."""
    rows[:] = np.float32(0)
    out[:] = np.float32(0)
    for y in range(rows.shape[0]):
        for k in range(len(taps)):
            for x in range(rows.shape[1]):
                rows[y, x] += taps[k] * values[y + k, x]
        for k in range(len(taps)):
            for x in range(out.shape[1]):
                out[y, x] += taps[k] * rows[y, x + k]


@compiled
def _mean_similarity(local: _Floats) -> np.float64:
    total = np.float64(0)
    for y in range(local.shape[1]):
        for x in range(local.shape[2]):
            mean_a, mean_b = np.float64(local[0, y, x]), np.float64(local[1, y, x])
            variances = local[2, y, x] + local[3, y, x] - mean_a * mean_a - mean_b * mean_b
            covariance = local[4, y, x] - mean_a * mean_b
            mean_a, mean_b = mean_a + _MIDDLE, mean_b + _MIDDLE
            top = (2 * mean_a * mean_b + _C1) * (2 * covariance + _C2)
            total += top / ((mean_a * mean_a + mean_b * mean_b + _C1) * (variances + _C2))
    return np.float64(total / (local.shape[1] * local.shape[2]))


#: (vertical, horizontal) magnification of the first image; in both directions, since either may be the crop.
_MAGNIFICATIONS = (
    (1.0, 1.0), (1.1, 1.1), (1.25, 1.25), (0.9, 0.9), (0.8, 0.8), (1.0, 1.2), (1.2, 1.0), (1.0, 0.83), (0.83, 1.0),
)  # fmt: skip
#: Side of the template as a fraction of the image's side.
_TEMPLATE = 0.75
#: Standard deviation of the blur, for a side of 32.
_BLUR = 2.5
#: Grey levels: weaker detail counts as noise and correlates with nothing.
_NOISE = 1.5


def aligned_correlation(first: Pixels, second: Pixels) -> FloatArray:
    """The best correlation of each pair of (N, S, S, 3) uint8 images, from -1 to 1.

    >>> rng = np.random.default_rng(0)
    >>> noise = np.kron(rng.integers(0, 256, (1, 16, 16, 1), np.uint8), np.ones((1, 2, 2, 3), np.uint8))
    >>> bool(aligned_correlation(noise, np.roll(noise, 3, axis=2))[0] > 0.9)
    True
    """
    _check(first, second, least=16, square=True)
    side = first.shape[1]
    middle = round(_TEMPLATE * side)
    blur = _blur(side, _BLUR * side / 32)
    tall = np.stack([_zoom(side, middle, factor) for factor, _ in _MAGNIFICATIONS])
    wide = np.stack([np.ascontiguousarray(_zoom(side, middle, factor).T) for _, factor in _MAGNIFICATIONS])
    # Neighbours of one image come one after another: its templates are computed once.
    fresh = np.append(True, (first[1:] != first[:-1]).any(axis=(1, 2, 3)))
    values = np.empty(len(first))
    _correlate(_luminance(first), _luminance(second), fresh, blur, np.ascontiguousarray(blur.T), tall, wide, values)
    return values


def _luminance(images: Pixels) -> _Floats:
    red, green, blue = (images[..., channel].astype(np.float32) for channel in range(3))
    return np.asarray(np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue)


@compiled
def _correlate(
    first: _Floats,
    second: _Floats,
    fresh: BoolArray,
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
    """out = a b, for matrices too small for a multithreaded library."""
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

    A window's own mean cancels in the products, since templates have mean zero, but not in its norm.
    """
    middle = templates.shape[1]
    places = detail.shape[0] - middle + 1
    under = np.empty(places * places, np.float32)
    sums, squares = np.zeros(places * places, np.float32), np.zeros(places * places, np.float32)
    products, lengths = np.zeros((len(templates), places * places), np.float32), np.zeros(len(templates))
    for y in range(middle):
        for x in range(middle):
            for down in range(places):  # the pixels under this template pixel, at every position
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
    """(side, side): a Gaussian along one axis, normalised at the border."""
    places = np.arange(side)
    taps = np.exp(-0.5 * ((places[:, None] - places[None, :]) / sigma) ** 2)
    return np.asarray(taps / taps.sum(axis=1, keepdims=True), np.float32)


def _zoom(side: int, middle: int, factor: float) -> _Floats:
    """(middle, side): the centre of a row magnified by ``factor``, with triangles that widen as it shrinks."""
    sources = (np.arange(middle) - (middle - 1) / 2) / factor + (side - 1) / 2
    width = max(1.0, 1 / factor)
    weights = np.maximum(0, 1 - np.abs(sources[:, None] - np.arange(side)[None, :]) / width)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _check(first: Pixels, second: Pixels, *, least: int, square: bool = False) -> None:
    alike = first.shape == second.shape and first.dtype == second.dtype == np.uint8 and first.ndim == 4
    if not alike or min(first.shape[1:3]) < least or (square and first.shape[1] != first.shape[2]):
        side = "S, S" if square else "H, W"
        raise ShiftbenchError(
            "cannot compare these images pair by pair",
            found=f"{first.dtype} {first.shape} and {second.dtype} {second.shape}",
            expected=f"two uint8 arrays (N, {side}, 3) of the same shape, at least {least} pixels per side",
        )
