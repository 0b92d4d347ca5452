"""How similar two small images are: structural similarity, and correlation after alignment.

SSIM (Wang et al. 2004): with local means m, variances v and covariance c under a Gaussian window of standard deviation
1.5 (11 x 11), and C1 = (0.01 * 255)², C2 = (0.03 * 255)²,

    SSIM = (2 m_a m_b + C1) (2 c + C2) / ((m_a² + m_b² + C1) (v_a + v_b + C2)),

averaged over all positions of the window and over the channels; 1 for equal images.

Aligned correlation: l2 and SSIM compare pixel by pixel, so at 32 pixels a crop of 80 % or a shift by three pixels costs
as much as a different image. Here the centre of the first image, zoomed and stretched by a few factors, is placed at
every position of the second within an eighth of the side, and the best normalised correlation of the detail is taken.
Detail is luminance minus its blur; without that, all skies look alike. Brightness and contrast cancel out. Pairs that
are somewhat alike are also compared with the first image rotated by up to eight degrees; such a correlation counts 0.1
less, because with more alignments distinct images match by chance more often. 1 is the same image; distinct images
rarely exceed 0.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbench import ShiftbenchError
from shiftbench.extend.registration import kernel
from shiftbench.extend.types import FloatArray, Pixels

_Floats = NDArray[np.float32]

#: Standard deviation and radius of the Gaussian window of SSIM.
_SIGMA = 1.5
_RADIUS = 5
_GAUSSIAN = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
_TAPS = (_GAUSSIAN / _GAUSSIAN.sum()).astype(np.float32)


def ssim(first: Pixels, second: Pixels) -> FloatArray:
    """One value for each pair of (N, H, W, 3) uint8 images."""
    _check(first, second, least=len(_TAPS))
    values = np.empty(len(first))
    count, height, width, channels = first.shape
    flat_shape = (count, height, width * channels)
    flat_first = np.ascontiguousarray(first).reshape(flat_shape)
    flat_second = np.ascontiguousarray(second).reshape(flat_shape)
    _structural_similarity(flat_first, flat_second, channels, _TAPS, values)
    return values


#: (vertical, horizontal) magnification of the first image; in both directions, since either may be the crop.
_MAGNIFICATIONS = (
    (1.0, 1.0),
    (1.1, 1.1),
    (1.25, 1.25),
    (0.9, 0.9),
    (0.8, 0.8),
    (1.0, 1.2),
    (1.2, 1.0),
    (1.0, 0.83),
    (0.83, 1.0),
)
#: Side of the template as a fraction of the image's side.
_TEMPLATE = 0.75
#: Standard deviation of the blur, for a side of 32.
_BLUR = 2.5
#: Grey levels: weaker detail counts as noise and correlates with nothing.
_NOISE = 1.5


#: Rotations in degrees that are also tried.
_ANGLES = (-8, -5, 5, 8)
#: What a correlation counts less after a rotation.
_ROTATION_PENALTY = 0.1
#: The correlation from which rotations are worth trying: most images rotated by ten degrees have it.
_SOMEWHAT_ALIKE = 0.4


def aligned_correlation(first: Pixels, second: Pixels) -> FloatArray:
    """The best correlation of each pair of (N, S, S, 3) uint8 images, from -1 to 1."""
    _check(first, second, least=16, square=True)
    values = _unrotated_correlation(first, second)
    alike = np.flatnonzero(values >= _SOMEWHAT_ALIKE)
    if not len(alike):
        return values
    for angle in _ANGLES:
        rotated = np.stack([_rotated(image, angle) for image in first[alike]])
        rotated_values = _unrotated_correlation(rotated, second[alike]) - _ROTATION_PENALTY
        values[alike] = np.maximum(values[alike], rotated_values)
    return values


def _rotated(image: Pixels, angle: float) -> Pixels:
    return np.asarray(Image.fromarray(image).rotate(angle, Image.Resampling.BICUBIC))


def _unrotated_correlation(first: Pixels, second: Pixels) -> FloatArray:
    """The best correlation over magnifications and places."""
    side = first.shape[1]
    template_side = round(_TEMPLATE * side)
    blur = _blur(side, _BLUR * side / 32)
    blur_across = np.ascontiguousarray(blur.T)
    tall = np.stack([_zoom(side, template_side, factor) for factor, _ in _MAGNIFICATIONS])
    wide = np.stack([np.ascontiguousarray(_zoom(side, template_side, factor).T) for _, factor in _MAGNIFICATIONS])
    # The neighbours of an image come one after another, so that its templates are computed once.
    fresh = np.append(True, (first[1:] != first[:-1]).any(axis=(1, 2, 3)))
    values = np.empty(len(first))
    _aligned_correlations(_luminance(first), _luminance(second), fresh, blur, blur_across, tall, wide, _NOISE, values)
    return values


def _luminance(images: Pixels) -> _Floats:
    red, green, blue = (images[..., channel].astype(np.float32) for channel in range(3))
    return np.asarray(np.float32(0.299) * red + np.float32(0.587) * green + np.float32(0.114) * blue)


def _blur(side: int, sigma: float) -> _Floats:
    """(side, side): a Gaussian along one axis, normalised at the border."""
    positions = np.arange(side)
    taps = np.exp(-0.5 * ((positions[:, None] - positions[None, :]) / sigma) ** 2)
    return np.asarray(taps / taps.sum(axis=1, keepdims=True), np.float32)


def _zoom(side: int, middle: int, factor: float) -> _Floats:
    """(middle, side): the centre of a row magnified by ``factor``, with triangles that widen as it shrinks."""
    sources = (np.arange(middle) - (middle - 1) / 2) / factor + (side - 1) / 2
    width = max(1.0, 1 / factor)
    weights = np.maximum(0, 1 - np.abs(sources[:, None] - np.arange(side)[None, :]) / width)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), np.float32)


def _check(first: Pixels, second: Pixels, *, least: int, square: bool = False) -> None:
    """Raise ShiftbenchError unless both are uint8 images of one shape, with sides of at least ``least`` pixels."""
    same_kind = first.shape == second.shape and first.dtype == second.dtype == np.uint8 and first.ndim == 4
    if not same_kind or min(first.shape[1:3]) < least or (square and first.shape[1] != first.shape[2]):
        sides = "S, S" if square else "H, W"
        raise ShiftbenchError(
            "cannot compare these images pair by pair",
            found=f"{first.dtype} {first.shape} and {second.dtype} {second.shape}",
            expected=f"two uint8 arrays (N, {sides}, 3) of the same shape, at least {least} pixels per side",
        )


@kernel("uint8[]", "uint8[]", "int", "float32[]", "float64[]")
def _structural_similarity(first: Pixels, second: Pixels, channels: int, taps: _Floats, values: FloatArray) -> None:
    """Write the mean over windows and channels for pairs of images (N, H, W * channels)."""


@kernel("float32[]", "float32[]", "bool[]", "float32[]", "float32[]", "float32[]", "float32[]", "float", "float64[]")
def _aligned_correlations(
    first: _Floats,
    second: _Floats,
    fresh: NDArray[np.bool_],
    blur: _Floats,
    blur_across: _Floats,
    tall: _Floats,
    wide: _Floats,
    noise: float,
    values: FloatArray,
) -> None:
    """Write the best correlation of each pair of luminances into ``values``.

    ``blur`` and ``blur_across`` blur columns and rows; detail weaker than ``noise`` correlates with nothing. ``tall``
    and ``wide`` magnify the centre of the first image in the two directions, one template for each magnification.
    ``fresh[i]`` tells that the first image of pair i is not that of pair i - 1, so that new templates are needed.
    """
