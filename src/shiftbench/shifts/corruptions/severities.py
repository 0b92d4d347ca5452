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

Row = tuple[float, ...]
SIDES = (32, 64, 224, 299)


#: Side to corruption to its five rows. Elastic parameters are published as multiples of a side: 244, sic, for 224 px,
#: and 360 for 299 px.
TABLES: dict[int, dict[str, tuple[Row, ...]]] = {side: {} for side in (224, 299, 64, 32)}
_CSV = resources.files("shiftbench.shifts.corruptions").joinpath("severities.csv").read_text("utf-8")


def _numbers(text: str) -> Row:
    """The parameters of one severity; those that are written as whole numbers stay whole."""
    parameters: list[int | float] = []
    for word in text.split():
        if word.isdigit():
            parameters.append(int(word))
        else:
            parameters.append(float(word))
    return tuple(parameters)


for _side, _name, *_rows in list(csv.reader(_CSV.splitlines()))[1:]:
    TABLES[int(_side)][_name] = tuple(map(_numbers, _rows))

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


@lru_cache(maxsize=4096)
def parameters(name: str, severity: float, height: int, width: int) -> Row:
    """The parameters of a corruption for a severity from 1 to 5 and an image size (see the module's text)."""
    side = min(height, width)
    table = min(SIDES, key=lambda s: abs(math.log(side / s)))
    ratio = side / table
    rows = TABLES[table][name]
    lower = min(int(severity), 5)
    below = rows[lower - 1]
    above = rows[min(lower, 4)]
    fraction = severity - lower
    if fraction == 0 or (name == "spatter" and below[5] != above[5]):
        values = list(below)
    else:
        values = [a + fraction * (b - a) for a, b in zip(below, above, strict=True)]
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
    return tuple(values)
