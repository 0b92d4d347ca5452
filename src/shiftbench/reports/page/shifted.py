"""What a classifier saw, made again from the description that its predictions carry.

A shift is deterministic, so its description and the picture's id give the same pixels as in the run. The rebuilt
shift must describe itself word for word as the run's did; a newer generator, other frost pictures or a plugin
that is not installed would give other pixels, and then there are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from shiftbench.errors import ShiftError
from shiftbench.shifts.base import NoShift, Shift
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions import Corruption
from shiftbench.shifts.corruptions.greyscale import Greyscale
from shiftbench.store.spec import canonical_json

Description = Mapping[str, Any]


def rebuild_shift(description: Description) -> Shift:
    """The shift that describes itself so (the run's seed apart), or a ShiftError that says why there is none.

    >>> rebuild_shift(Corruption("fog", 3).describe()).name
    'fog.3'
    """
    kind = str(description.get("shift"))
    if kind not in _BUILDERS:
        raise ShiftError(f"the pictures of a shift {kind!r} can't be made again from its description")
    about = {key: value for key, value in description.items() if key != "seed"}
    shift = _BUILDERS[kind](about)
    if canonical_json(shift.describe()) != canonical_json(about):
        differing = [key for key in {*about, *shift.describe()} if about.get(key) != shift.describe().get(key)]
        raise ShiftError(
            f"{shift.name} would not give the pixels of the run",
            found=f"another {', '.join(sorted(differing))}",
            hint="use the version of shiftbench, and for frost the pictures, that the run was made with",
        )
    return shift


def _corruption(about: Description) -> Shift:
    options = dict(about.get("options", {}))
    if str(about.get("frost", {}).get("textures", "")).startswith("procedural"):
        options["frost_textures"] = "procedural"
    shift: Shift = Corruption(about["corruption"], about["severity"], options)
    written = re.fullmatch(r"JPEG quality (\d+)", str(about.get("then", "")))
    return ThenJpeg(shift, int(written[1])) if written else shift


_BUILDERS: Mapping[str, Callable[[Description], Shift]] = {
    "none": lambda about: NoShift(),
    "corruption": _corruption,
    "greyscale": lambda about: Greyscale(),
}
