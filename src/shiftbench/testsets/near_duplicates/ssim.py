"""Structural similarity (Wang et al. 2004) of many pairs of small pictures.

With local means m, variances v and covariance c under a Gaussian window of standard deviation 1.5 (11 x 11), and
C1 = (0.01 * 255)², C2 = (0.03 * 255)²,

    SSIM = (2 m_a m_b + C1) (2 c + C2) / ((m_a² + m_b² + C1) (v_a + v_b + C2)),

averaged over the places where the window fits and over the colours; 1 for equal pictures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import FloatArray, Pixels
from shiftbench.errors import ShiftbenchError
from shiftbench.shifts.corruptions.kernels.compiling import compiled

_Floats = NDArray[np.float32]

_SIGMA, _RADIUS = 1.5, 5
_TAPS = np.exp(-0.5 * (np.arange(-_RADIUS, _RADIUS + 1) / _SIGMA) ** 2)
_TAPS = (_TAPS / _TAPS.sum()).astype(np.float32)
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
#: Taken from all values, so that variances are not small differences of large numbers in float32.
_MIDDLE = 128.0


def ssim(first: Pixels, second: Pixels) -> FloatArray:
    """One value for each pair of (N, H, W, 3) uint8 pictures.

    >>> grey = np.full((1, 16, 16, 3), 100, np.uint8)
    >>> ssim(grey, grey).tolist(), ssim(grey, grey + 50).round(3).tolist()
    ([1.0], [0.923])
    """
    _check(first, second)
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
    """a, b, a², b² and ab, about the middle grey."""
    for y in range(a.shape[0]):
        for x in range(a.shape[1]):
            u, v = np.float32(a[y, x]) - np.float32(_MIDDLE), np.float32(b[y, x]) - np.float32(_MIDDLE)
            out[0, y, x], out[1, y, x], out[2, y, x], out[3, y, x], out[4, y, x] = u, v, u * u, v * v, u * v


@compiled
def _window_means(values: _Floats, taps: _Floats, rows: _Floats, out: _Floats) -> None:
    """Down the columns, then along the rows; the innermost loops are over neighbours, so that they vectorise."""
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


def _check(first: Pixels, second: Pixels) -> None:
    if first.shape != second.shape or first.ndim != 4 or first.dtype != np.uint8 or second.dtype != np.uint8:
        raise ShiftbenchError(
            "structural similarity compares pictures of one size, pair by pair",
            found=f"{first.dtype} {first.shape} and {second.dtype} {second.shape}",
            expected="uint8 (N, H, W, 3), twice the same",
        )
    if min(first.shape[1:3]) < len(_TAPS):
        raise ShiftbenchError(
            "the pictures are smaller than the window", found=first.shape[1:3], expected=f"{len(_TAPS)} pixels or more"
        )
