"""Checks that the factories share: an option out of range is told before any picture is touched."""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shiftbench.errors import ShiftbenchError


class AugmentationError(ShiftbenchError):
    """An augmentation asked for with impossible options."""


def number(option: str, value: Any, low: float, high: float, *, positive: bool = False) -> float:
    """``value`` as a float within [low, high]; ``positive`` leaves zero out.

    >>> number("probability", 2, 0, 1)
    Traceback (most recent call last):
    shiftbench.hardening.augmentations.options.AugmentationError: the option 'probability' is out of range
      found:    2
      expected: a number from 0 to 1
    """
    fits = _is_number(value) and low <= value <= high and not (positive and value == 0)
    if not fits:
        lower = f"above {low:g}" if positive and low == 0 else f"from {low:g}"
        upper = f" to {high:g}" if math.isfinite(high) else ""
        raise AugmentationError(
            f"the option {option!r} is out of range", found=repr(value), expected=f"a number {lower}{upper}"
        )
    return float(value)


def whole(option: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int within [low, high]; 3.0 passes, because a TOML file may say so."""
    if not _is_number(value) or value != int(value) or not low <= value <= high:
        raise AugmentationError(
            f"the option {option!r} is out of range",
            found=repr(value),
            expected=f"a whole number from {low} to {high}",
        )
    return int(value)


def span(option: str, value: Any, low: float, high: float, *, positive: bool = False) -> tuple[float, float]:
    """Two numbers, the lower one first."""
    values = numbers(option, value, low, high, positive=positive)
    if len(values) != 2 or values[0] > values[1]:
        raise AugmentationError(
            f"the option {option!r} is not a range", found=repr(value), expected="two numbers, the lower one first"
        )
    return values[0], values[1]


def numbers(option: str, value: Any, low: float, high: float, *, positive: bool = False) -> tuple[float, ...]:
    """One number or a list of them, as a tuple; each within [low, high]."""
    values = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    if not values:
        raise AugmentationError(f"the option {option!r} is empty", expected="at least one number")
    return tuple(number(option, single, low, high, positive=positive) for single in values)


def colour(option: str, value: Any) -> tuple[float, ...]:
    """A grey level, or three for red, green and blue."""
    levels = numbers(option, value, 0, 255)
    if len(levels) not in (1, 3):
        raise AugmentationError(
            f"the option {option!r} is no colour", found=repr(value), expected="one grey level, or three numbers"
        )
    return levels * 3 if len(levels) == 1 else levels


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def checked_options(factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a factory, the given ones over the defaults; an unknown one is refused with the nearest name."""
    known = {key: parameter.default for key, parameter in inspect.signature(factory).parameters.items()}
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
            raise AugmentationError(
                f"the augmentation {name!r} has no such option",
                found=key,
                expected=", ".join(known) or "no options",
                hint=f"did you mean {near[0]!r}?" if near else None,
            )
    chosen = {**known, **options}
    for key, value in chosen.items():
        if value is inspect.Parameter.empty:
            raise AugmentationError(f"the augmentation {name!r} needs the option {key!r}", expected=f"{key}=VALUE")
    return chosen
