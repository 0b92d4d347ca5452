"""Dense local descriptors: gradient histograms as in SIFT, and colour statistics, of 4 x 4 cells around every place.

OpenCV's SIFT would go through keypoints one by one, and its cells grow with a keypoint's scale; here the side of a
cell is said in pixels, so that it can suit images of 32, and a batch is described at once. Descriptors of several
sides follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.hardening.architectures.baselines.classifier import Floats

#: Cells along a descriptor's side.
CELLS = 4
ORIENTATIONS = 8
GRADIENT_VALUES = CELLS**2 * ORIENTATIONS
COLOUR_VALUES = CELLS**2 * 3 * 2
#: SIFT's: no orientation of one cell may rule a descriptor (Lowe 2004).
_CLIP = 0.2
#: Flat places, in grey levels: their direction is noise, so they stay near zero.
_FAINT = 1.0
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def centres(size: int, cells: Sequence[int], step: int) -> Floats:
    """(T, 2): where the descriptors' middles lie, rows first, each side of the image from -0.5 to 0.5."""
    found = []
    for cell in cells:
        along = (np.arange(0, size - CELLS * cell + 1, step) + CELLS * cell / 2) / size - 0.5
        found.append(np.stack(np.meshgrid(along, along, indexing="ij"), axis=-1).reshape(-1, 2))
    return np.concatenate(found).astype(np.float32)


def gradient_histograms(images: Pixels, cells: Sequence[int], step: int) -> Floats:
    """(N, T, 128): the gradient's strength by direction, in each cell; unit length, clipped, unit length again."""
    down, right = np.gradient(images @ _LUMA, axis=(1, 2))
    integral = _integral(_by_orientation(np.hypot(down, right), np.arctan2(down, right)))
    found = np.concatenate([_descriptors(_cell_sums(integral, cell), cell, step) for cell in cells], axis=1)
    return _unit(np.minimum(_unit(found, _FAINT), _CLIP), 1e-6)


def colour_statistics(images: Pixels, cells: Sequence[int], step: int) -> Floats:
    """(N, T, 96): mean and standard deviation of each colour in each cell, from 0 to 1."""
    values = images / 255
    integrals = [_integral(values), _integral(values**2)]
    found = []
    for cell in cells:
        means, squares = (_cell_sums(integral, cell) / cell**2 for integral in integrals)
        spread = np.sqrt(np.maximum(squares - means**2, 0))
        found.append(_descriptors(np.concatenate([means, spread], axis=-1), cell, step))
    return np.concatenate(found, axis=1)


def _by_orientation(strength: Floats, angle: Floats) -> Floats:
    """(N, H, W, 8): each gradient shared between the two nearest of eight directions."""
    turn = angle * np.float32(ORIENTATIONS / (2 * np.pi))
    gap = np.abs(turn[..., None] - np.arange(ORIENTATIONS, dtype=np.float32)) % ORIENTATIONS
    gap = np.minimum(gap, ORIENTATIONS - gap)
    return np.asarray(strength[..., None] * np.maximum(1 - gap, 0), np.float32)


def _integral(planes: NDArray[np.floating]) -> NDArray[np.float64]:
    """Sums over all that lies above and to the left; in float64, for differences of them are asked for."""
    return np.pad(planes.cumsum(axis=1, dtype=np.float64).cumsum(axis=2), ((0, 0), (1, 0), (1, 0), (0, 0)))


def _cell_sums(integral: NDArray[np.float64], cell: int) -> NDArray[np.float64]:
    """(N, H, W, C): at every pixel the sums over the cell that begins there."""
    rows = integral[:, cell:] - integral[:, :-cell]
    return np.asarray(rows[:, :, cell:] - rows[:, :, :-cell])


def _descriptors(cells: NDArray[np.float64], cell: int, step: int) -> Floats:
    """(N, T, 4 * 4 * C): the values of 4 x 4 cells side by side, at every ``step`` pixels."""
    reach = (CELLS - 1) * cell + 1
    windows = sliding_window_view(cells.astype(np.float32), (reach, reach), axis=(1, 2))
    windows = windows[:, ::step, ::step, :, ::cell, ::cell].transpose(0, 1, 2, 4, 5, 3)
    return windows.reshape(len(cells), windows.shape[1] * windows.shape[2], -1)


def _unit(values: Floats, faint: float) -> Floats:
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.asarray(values / np.maximum(lengths, np.float32(faint)), np.float32)
