"""The random fields of the elastic transform."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from shiftbench.shifts.corruptions.blur_tables import gaussian_weights
from shiftbench.shifts.corruptions.randomness import Draws

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
    forward = np.linalg.solve(system, moved.astype(np.float64)).T
    return _inverse(forward)


def _inverse(m: Values) -> Values:
    scale = 1.0 / (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0])
    a, b, c, d = m[1, 1] * scale, m[0, 1] * -scale, m[1, 0] * -scale, m[0, 0] * scale
    return np.array([[a, b, -a * m[0, 2] - b * m[1, 2]], [c, d, -c * m[0, 2] - d * m[1, 2]]])


def displacement_fields(size: tuple[int, int], alpha: float, sigma: float, draws: Draws) -> tuple[Field, Field]:
    """dx and dy: uniform noise on (-1, 1), smoothed with mirrored borders and multiplied by alpha.

    From the keyed stream, wide filters are not computed at all: noise smoothed over more than a few pixels is
    a Gaussian field, whose few cosine coefficients are drawn directly.
    """
    if alpha == 0 and not draws.published:
        return np.zeros(size, np.float32), np.zeros(size, np.float32)
    if draws.published:
        fields = [-1.0 + 2.0 * draws.uniforms(size) for _ in range(2)]
        smooth = [(_smoothed(f, sigma) * alpha).astype(np.float32) for f in fields]
        return smooth[0], smooth[1]
    one = _narrow_field if sigma <= _NARROW else _wide_field
    return one(size, alpha, sigma, draws), one(size, alpha, sigma, draws)


def _narrow_field(size: tuple[int, int], alpha: float, sigma: float, draws: Draws) -> Field:
    from shiftbench.shifts.corruptions.kernels import smooth_mirrored

    noise = (draws.uniforms(size) * (2 * alpha) - alpha).astype(np.float32)
    out = np.empty(size, np.float32)
    smooth_mirrored(noise, gaussian_weights(sigma, 3.0).astype(np.float32), out)
    return out


def _wide_field(size: tuple[int, int], alpha: float, sigma: float, draws: Draws) -> Field:
    """The filter is diagonal in the cosine basis; U(-1, 1) has the variance 1/3 along every basis vector."""
    from shiftbench.shifts.corruptions.kernels import cosine_field

    basis_y, basis_x = _cosines(size[0], sigma), _cosines(size[1], sigma)
    amplitudes = draws.normals((len(basis_y), len(basis_x))) * (alpha / np.sqrt(3.0))
    out = np.empty(size, np.float32)
    cosine_field(amplitudes, basis_y, basis_x, out)
    return out


@lru_cache(maxsize=16)
def _cosines(n: int, sigma: float) -> Values:
    """Orthonormal cosines times the filter's response, as many as carry all but 2e-5 of the variance."""
    radius = int(3.0 * sigma + 0.5)
    x = np.arange(-radius, radius + 1)
    kernel = np.exp(-0.5 * (x / sigma) ** 2)
    kernel /= kernel.sum()
    order = np.arange(n)
    response = np.array([np.sum(kernel * np.cos(np.pi * k / n * x)) for k in order])
    share = np.cumsum(response[::-1] ** 2)[::-1] / np.sum(response**2)
    modes = max(int(np.count_nonzero(share > 2e-5)), 1)
    basis = np.cos(np.pi / n * np.outer(order[:modes], order + 0.5)) * np.sqrt(2.0 / n)
    basis[0] /= np.sqrt(2.0)
    return np.asarray(basis * response[:modes, None])


def _smoothed(field: Values, sigma: float) -> Values:
    if max(field.shape) > 1024:
        from scipy.ndimage import gaussian_filter

        return np.asarray(gaussian_filter(field, sigma, mode="reflect", truncate=3.0))
    rows, columns = _smoother(field.shape[0], sigma), _smoother(field.shape[1], sigma)
    return rows @ field @ columns.T


@lru_cache(maxsize=16)
def _smoother(n: int, sigma: float) -> Values:
    """The Gaussian filter with mirrored borders, cut at three widths, as a matrix."""
    from scipy.ndimage import gaussian_filter1d

    if sigma <= 0:
        return np.eye(n)
    return np.asarray(gaussian_filter1d(np.eye(n), sigma, axis=0, mode="reflect", truncate=3.0))
