"""How many images a time budget allows: measured on growing samples, once per training."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from shiftbench.errors import SettingError

_DURATION = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(s|sec|m|min|h)?\s*")
_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, None: 1.0}
#: A sample that takes the first share of the budget tells the speed well enough. One image alone does not tell what
#: is spent on it and what on every call; a second sample does, if it can be afforded.
_SHARE, _AFFORDED, _GROWTH = 0.125, 0.4, 4


def seconds_of(budget: str | float) -> float:
    """Seconds of a duration.

    >>> seconds_of("20s"), seconds_of("1.5 min"), seconds_of(90)
    (20.0, 90.0, 90.0)
    """
    match = _DURATION.fullmatch(str(budget))
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if seconds <= 0:
        raise SettingError("invalid budget", found=repr(budget), expected='a duration such as "20s", "2min" or 20')
    return seconds


@dataclass(frozen=True)
class Speed:
    """Seconds of an evaluation of n images (in every setting): ``fixed + n * per_image``."""

    fixed: float
    per_image: float

    def images(self, budget: float) -> int:
        """As many images as the budget allows, at least one."""
        return max(1, int((budget - self.fixed) / self.per_image))


def measure(evaluate: Callable[[int], float], budget: float, most: int) -> Speed:
    """Time samples that grow until one takes an eighth of the budget.

    Args:
        evaluate: Evaluates a number of images from scratch and returns the seconds it took.
        budget: Seconds.
        most: The number of images there are.

    >>> measure(lambda n: 2 + 0.25 * n, budget=20, most=1000)
    Speed(fixed=2.0, per_image=0.25)
    """
    evaluate(1)  # compiles kernels and fills caches, once
    n, took = 1, evaluate(1)
    speed = Speed(0.0, took)
    while took < (_SHARE if n > 1 else _AFFORDED) * budget and n < most:
        before, n = (n, took), min(n * _GROWTH, most)
        took = evaluate(n)
        slope = (took - before[1]) / (n - before[0])
        # Where nothing but noise grew, the mean is a cautious estimate.
        speed = Speed(max(0.0, took - slope * n), slope) if slope > 0 else Speed(0.0, took / n)
    return speed if speed.per_image > 0 else Speed(0.0, budget / most)
