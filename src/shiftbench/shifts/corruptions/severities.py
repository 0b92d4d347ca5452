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

import csv
import math
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

Row = tuple[float, ...]
SIDES = (32, 64, 224, 299)


def _row(text: str) -> Row:
    return tuple(int(value) if value.isdigit() else float(value) for value in text.split())


def _tables() -> dict[int, dict[str, tuple[Row, ...]]]:
    """Side to corruption to its five rows. Elastic parameters are published as multiples of a side: 244, sic, for
    224 px, and 360 for 299 px."""
    text = resources.files("shiftbench.shifts.corruptions").joinpath("severities.csv").read_text("utf-8")
    tables: dict[int, dict[str, tuple[Row, ...]]] = {}
    for side, name, *rows in list(csv.reader(text.splitlines()))[1:]:
        tables.setdefault(int(side), {})[name] = tuple(map(_row, rows))
    return tables


TABLES = _tables()

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
