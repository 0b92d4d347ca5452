"""The published severity tables and the rule for what lies between and beyond them.

Hendrycks and Dietterich (2019) give five settings of every corruption for 224, 299, 64 and 32 px images.
The rule for every other request:

*Size.* The table whose side is nearest (as a ratio) to the image's shorter side is used. If that side is not
the table's own, every parameter that is a length in pixels is multiplied by (shorter side / table side);
parameters without a unit (noise levels, mixing weights, qualities, zoom factors) are kept.

*Severity.* Any real number from 1 to 5. At the five published points the table's row is used as it is;
between two rows every parameter is interpolated linearly, with these exceptions:

- whole-number parameters (glass_blur's displacement and iterations, JPEG quality) are rounded half up after
  interpolation and scaling;
- zoom_blur interpolates the end and the step of its range of factors, so the list's length changes too;
- spatter keeps the lower row between a water row and a mud row, whose numbers mean different things;
- saturate's table first takes colour away and then adds it: between 2 and 3 it passes through "no change".
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

Row = tuple[float, ...]
SIDES = (32, 64, 224, 299)

_SNOW_LARGE = (
    (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
    (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
    (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
    (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
    (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
)
_ZOOM_LARGE = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
_ZOOM_SMALL = ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01))
_FROST_LARGE = ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75))


def _snow_small(*mix: float) -> tuple[Row, ...]:
    flakes = (
        (0.1, 0.2, 1, 0.6, 8, 3),
        (0.1, 0.2, 1, 0.5, 10, 4),
        (0.15, 0.3, 1.75, 0.55, 10, 4),
        (0.25, 0.3, 2.25, 0.6, 12, 6),
        (0.3, 0.3, 1.25, 0.65, 14, 12),
    )
    return tuple((*row, m) for row, m in zip(flakes, mix, strict=True))


def _ones(*values: float) -> tuple[Row, ...]:
    return tuple((v,) for v in values)


def _elastic(unit: float, *rows: Row) -> tuple[Row, ...]:
    """Elastic parameters are published as multiples of a side (244, sic, for 224 px; 360 for 299 px)."""
    return tuple(tuple(unit * v for v in row) for row in rows)


_ELASTIC_LARGE = ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02))

TABLES: dict[int, dict[str, tuple[Row, ...]]] = {
    224: {
        "gaussian_noise": _ones(0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": _ones(60, 25, 12, 5, 3),
        "impulse_noise": _ones(0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": _ZOOM_LARGE,
        "snow": _SNOW_LARGE,
        "frost": _FROST_LARGE,
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": _ones(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _ones(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _elastic(244, *_ELASTIC_LARGE),
        "pixelate": _ones(0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": _ones(25, 18, 15, 10, 7),
        "speckle_noise": _ones(0.15, 0.2, 0.35, 0.45, 0.6),
        "gaussian_blur": _ones(1, 2, 3, 4, 6),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
    299: {
        "gaussian_noise": _ones(0.09, 0.13, 0.19, 0.27, 0.4),
        "shot_noise": _ones(50, 20, 10, 5, 3),
        "impulse_noise": _ones(0.04, 0.07, 0.1, 0.18, 0.28),
        "defocus_blur": ((4, 0.1), (5, 0.5), (7, 0.5), (10, 0.5), (12, 0.5)),
        "glass_blur": ((0.8, 1, 3), (1, 3, 1), (1.1, 2, 4), (1.2, 4, 2), (1.6, 5, 2)),
        "motion_blur": ((12, 4), (17, 6), (17, 9), (17, 13), (22, 16)),
        "zoom_blur": _ZOOM_LARGE,
        "snow": _SNOW_LARGE,
        "frost": _FROST_LARGE,
        "fog": ((1.5, 2), (2, 2), (2.5, 1.8), (2.5, 1.6), (3, 1.5)),
        "brightness": _ones(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _ones(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _elastic(360, *_ELASTIC_LARGE),
        "pixelate": _ones(0.5, 0.4, 0.3, 0.25, 0.2),
        "jpeg_compression": _ones(23, 16, 13, 8, 5),
        "speckle_noise": _ones(0.16, 0.21, 0.36, 0.46, 0.61),
        "gaussian_blur": _ones(1.5, 2.5, 3.5, 4.5, 6.5),
        "spatter": (
            (0.65, 0.3, 4, 0.69, 0.9, 0),
            (0.65, 0.3, 3.5, 0.68, 0.9, 0),
            (0.65, 0.3, 3, 0.68, 0.8, 0),
            (0.65, 0.3, 1.2, 0.65, 1.8, 1),
            (0.67, 0.4, 1.2, 0.65, 1.8, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
    64: {
        "gaussian_noise": _ones(0.04, 0.08, 0.12, 0.15, 0.18),
        "shot_noise": _ones(250, 100, 50, 30, 15),
        "impulse_noise": _ones(0.01, 0.02, 0.05, 0.08, 0.14),
        "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        "zoom_blur": _ZOOM_SMALL,
        "snow": _snow_small(0.8, 0.8, 0.7, 0.65, 0.6),
        "frost": ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        "brightness": _ones(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _ones(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _elastic(
            64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)
        ),
        "pixelate": _ones(0.9, 0.8, 0.7, 0.6, 0.5),
        "jpeg_compression": _ones(65, 58, 50, 40, 25),
        "speckle_noise": _ones(0.15, 0.2, 0.25, 0.3, 0.35),
        "gaussian_blur": _ones(0.5, 0.75, 1, 1.25, 1.5),
        "spatter": (
            (0.62, 0.1, 0.7, 0.7, 0.6, 0),
            (0.65, 0.1, 0.8, 0.7, 0.6, 0),
            (0.65, 0.3, 1, 0.69, 0.6, 0),
            (0.65, 0.1, 0.7, 0.68, 0.6, 1),
            (0.65, 0.1, 0.5, 0.67, 0.6, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
    },
    32: {
        "gaussian_noise": _ones(0.04, 0.06, 0.08, 0.09, 0.1),
        "shot_noise": _ones(500, 250, 100, 75, 50),
        "impulse_noise": _ones(0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": _ZOOM_SMALL,
        "snow": _snow_small(0.95, 0.9, 0.9, 0.85, 0.8),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": _ones(0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": _ones(0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": _elastic(
            32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
        ),
        "pixelate": _ones(0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": _ones(80, 65, 58, 50, 40),
        "speckle_noise": _ones(0.06, 0.1, 0.12, 0.16, 0.2),
        "gaussian_blur": _ones(0.4, 0.6, 0.7, 0.8, 1),
        "spatter": (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    },
}

# Which positions of a row are lengths in pixels, and which are whole numbers (with their least value).
_LENGTHS: dict[str, tuple[int, ...]] = {
    "defocus_blur": (0,),
    "glass_blur": (0, 1),
    "motion_blur": (0, 1),
    "snow": (2, 4, 5),
    "elastic_transform": (0, 1, 2),
    "gaussian_blur": (0,),
    "spatter": (2,),
}
_WHOLE: dict[str, tuple[int, ...]] = {"glass_blur": (1, 2), "jpeg_compression": (0,)}


class Parameters(NamedTuple):
    """What a corruption is run with: its row of numbers, and how they were found."""

    values: Row
    table: int
    ratio: float

    @property
    def rule(self) -> str:
        scaled = "as published" if self.ratio == 1 else f"lengths scaled by {self.ratio:.6g}"
        return f"{self.table} px table, {scaled}"


@lru_cache(maxsize=4096)
def parameters(name: str, severity: float, height: int, width: int) -> Parameters:
    """The parameters of a corruption for a severity from 1 to 5 and an image size (see the module's text).

    >>> parameters("gaussian_noise", 3, 224, 224).values
    (0.18,)
    >>> parameters("motion_blur", 2.5, 168, 200)
    Parameters(values=(11.25, 4.875), table=224, ratio=0.75)
    """
    side = min(height, width)
    table = min(SIDES, key=lambda s: abs(math.log(side / s)))
    ratio = side / table
    values = list(_between(name, TABLES[table][name], severity))
    if ratio != 1:
        lengths = _LENGTHS.get(name, ())
        if name == "spatter" and values[5]:
            lengths = (2, 4)  # the fifth number is a blur width for mud, an intensity for water
        for i in lengths:
            values[i] *= ratio
        if name == "snow":
            values[2] = max(values[2], 1.0)  # flakes are never smaller than a pixel
    for i in _WHOLE.get(name, ()):
        values[i] = max(1, math.floor(values[i] + 0.5))
    return Parameters(tuple(values), table, ratio)


def _between(name: str, rows: tuple[Row, ...], severity: float) -> Row:
    lower = min(int(severity), 5)
    part = severity - lower
    if part == 0:
        return rows[lower - 1]
    below, above = rows[lower - 1], rows[lower]
    if name == "spatter" and below[5] != above[5]:
        return below
    return tuple(a + part * (b - a) for a, b in zip(below, above, strict=True))
