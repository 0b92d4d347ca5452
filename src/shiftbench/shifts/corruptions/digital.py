"""Digital: contrast, elastic transform, pixelate, JPEG compression, saturation (Hendrycks and Dietterich 2019)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.geometry import filter_weights
from shiftbench.native import loops
from shiftbench.native.jpeg import compressed
from shiftbench.shifts.corruptions.blur import gaussian_weights, to_float32
from shiftbench.shifts.corruptions.catalogue import corruption
from shiftbench.shifts.corruptions.severities import Row
from shiftbench.shifts.seeds import Draws, PublishedDraws

Indices = NDArray[np.uint32]


@corruption("contrast", group="digital", tabled=True)
def contrast(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """(x - mean) * c + mean for each channel."""
    (factor,) = parameters
    out = np.empty_like(image)
    loops.contrast(image.reshape(-1), factor, out.reshape(-1))
    return out


@corruption("saturate", group="digital", tabled=True)
def saturate(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """S * c0 + c1 in the hue-saturation-value model, clipped."""
    factor, shift = parameters
    out = np.empty_like(image)
    loops.shift_hsv(image, factor, shift, 0.0, out)
    return out


@corruption("elastic_transform", group="digital", tabled=True)
def elastic_transform(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """A random affine map, then a smooth random displacement of every pixel (Simard et al. 2003).

    Three points move by U(-affine, affine); then dx and dy are alpha * gaussian(U(-1, 1), sigma), with mirrored
    borders; both steps are bilinear.
    """
    alpha, sigma, affine = parameters
    height, width = image.shape[:2]
    inverse = random_affine((height, width), affine, draws)
    dx, dy = displacement_fields((height, width), alpha, sigma, draws)
    warped = np.empty((height, 3 * width), np.float32)
    loops.affine_warp(to_float32(image).reshape(height, -1), inverse, width, warped)
    out = np.empty_like(image)
    loops.displace(warped, dx, dy, out.reshape(height, -1))
    return out


@corruption("pixelate", group="digital", tabled=True)
def pixelate(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Box-filtered down to a share c of the size and enlarged again, as Pillow's BOX resampling does."""
    (share,) = parameters
    height, width = image.shape[:2]
    small_height = max(int(height * share), 1)
    small_width = max(int(width * share), 1)
    out = np.empty_like(image)
    down = (*filter_weights("box", width, small_width), *filter_weights("box", height, small_height))
    back = (_box_up(small_width, width), _box_up(small_height, height))
    loops.box_pixelate(image.reshape(height, -1), *down, *back, out.reshape(height, -1))
    return out


@lru_cache(maxsize=128)
def _box_up(small: int, size: int) -> Indices:
    """The small pixel that each enlarged pixel repeats."""
    centre = (np.arange(size) + 0.5) * (small / size)
    return np.minimum(centre.astype(np.uint32), small - 1).astype(np.uint32)


@corruption("jpeg_compression", group="digital", tabled=True)
def jpeg_compression(image: Pixels, parameters: Row, draws: Draws) -> Pixels:
    """Saved as JPEG at quality c (chroma subsampled) and read again: the pixels that Pillow and OpenCV give."""
    return compressed(image, int(parameters[0]))


Values = NDArray[np.float64]
Field = NDArray[np.float32]
_NARROW = 5.0  # px; wider Gaussians are drawn in the cosine basis


def random_affine(size: tuple[int, int], reach: float, draws: Draws) -> Values:
    """The inverse (2, 3) of an affine map that moves three points around the centre by up to ``reach`` px.

    The published code takes (height, width) halves as (x, y) coordinates, which is the same for squares.
    """
    centre = np.array(size, np.float32) // 2
    half = np.float32(min(size) // 3)
    points = np.array([centre + half, [centre[0] + half, centre[1] - half], centre - half], np.float32)
    moved = points + (-reach + 2 * reach * draws.uniforms((3, 2))).astype(np.float32)
    system = np.column_stack([points.astype(np.float64), np.ones(3)])
    m = np.linalg.solve(system, moved.astype(np.float64)).T
    scale = 1.0 / (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0])
    a = m[1, 1] * scale
    b = m[0, 1] * -scale
    c = m[1, 0] * -scale
    d = m[0, 0] * scale
    return np.array([[a, b, -a * m[0, 2] - b * m[1, 2]], [c, d, -c * m[0, 2] - d * m[1, 2]]])


def displacement_fields(size: tuple[int, int], alpha: float, sigma: float, draws: Draws) -> tuple[Field, Field]:
    """dx and dy: uniform noise on (-1, 1), smoothed with mirrored borders and multiplied by alpha.

    From the keyed stream, wide filters are not computed at all: noise smoothed over more than a few pixels is
    a Gaussian field, whose few cosine coefficients are drawn directly.
    """
    if isinstance(draws, PublishedDraws):
        fields = [-1.0 + 2.0 * draws.uniforms(size) for _ in range(2)]
        if max(size) > 1024:
            from scipy.ndimage import gaussian_filter

            smooth = [np.asarray(gaussian_filter(field, sigma, mode="reflect", truncate=3.0)) for field in fields]
        else:
            smooth = [_smoother(size[0], sigma) @ field @ _smoother(size[1], sigma).T for field in fields]
        dx, dy = ((field * alpha).astype(np.float32) for field in smooth)
        return dx, dy
    out: tuple[Field, Field] = np.zeros(size, np.float32), np.zeros(size, np.float32)
    if not alpha:
        return out
    for field in out:
        if sigma <= _NARROW:
            noise = draws.symmetric(size, alpha)
            loops.smooth_mirrored(noise, gaussian_weights(sigma, 3.0).astype(np.float32), field)
        else:  # the filter is diagonal in the cosine basis; U(-1, 1) has the variance 1/3 along every basis vector
            basis_y = _cosines(size[0], sigma)
            basis_x = _cosines(size[1], sigma)
            amplitudes = draws.normals((len(basis_y), len(basis_x))) * (alpha / np.sqrt(3.0))
            loops.cosine_field(amplitudes, basis_y, basis_x, field)
    return out


@lru_cache(maxsize=16)
def _cosines(n: int, sigma: float) -> Values:
    """Orthonormal cosines times the filter's response, as many as carry all but 2e-5 of the variance."""
    radius = int(3.0 * sigma + 0.5)
    x = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (x / sigma) ** 2)
    kernel /= kernel.sum()
    order = np.arange(n)
    response = np.empty(n)
    for k in order:
        # Each sum is taken by itself: a matrix product would add in another order, and change the last bits.
        response[k] = np.sum(kernel * np.cos(np.pi * k / n * x))
    share = np.cumsum(response[::-1] ** 2)[::-1] / np.sum(response**2)
    modes = max(int(np.count_nonzero(share > 2e-5)), 1)
    basis = np.cos(np.pi / n * np.outer(order[:modes], order + 0.5)) * np.sqrt(2.0 / n)
    basis[0] /= np.sqrt(2.0)
    return np.asarray(basis * response[:modes, None])


@lru_cache(maxsize=16)
def _smoother(n: int, sigma: float) -> Values:
    """The Gaussian filter with mirrored borders, cut at three widths, as a matrix."""
    from scipy.ndimage import gaussian_filter1d

    if sigma <= 0:
        return np.eye(n)
    return np.asarray(gaussian_filter1d(np.eye(n), sigma, axis=0, mode="reflect", truncate=3.0))
