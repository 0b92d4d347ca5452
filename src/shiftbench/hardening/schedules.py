"""Learning rates as functions of the step: nothing to store, nothing to resume.

The warm-up rises in a straight line to the full rate; ``cosine`` then falls at every step, ``step`` by a factor at
each milestone, which is counted in epochs from the beginning, warm-up included (as in 003). ``poly`` (of power
0.5) and ``tanh`` are timm's, in steps.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from shiftbench.hardening.errors import RecipeError
from shiftbench.io.schema import NonNegative


class Schedule(Struct, frozen=True):
    """The shape of the learning rate; ``epochs`` may be fractions."""

    name: Literal["constant", "cosine", "step", "poly", "tanh"] = "cosine"
    warmup_epochs: NonNegative = 0.0
    #: cosine, poly, tanh: the learning rate at the end.
    floor: NonNegative = 1e-6
    #: step: the epochs at which the rate falls, and by what factor.
    milestones: tuple[float, ...] = ()
    factor: Annotated[float, Meta(gt=0, le=1)] = 0.1

    def __post_init__(self) -> None:
        if self.name == "step" and list(self.milestones) != sorted(self.milestones):
            raise RecipeError("invalid schedule.milestones", found=self.milestones, expected="ascending epochs")

    def rate(self, step: int, *, highest: float, epochs: int, steps_per_epoch: int) -> float:
        """The learning rate of a step, counted from 0.

        >>> cosine = Schedule("cosine", floor=0.0)
        >>> [round(cosine.rate(s, highest=1.0, epochs=2, steps_per_epoch=2), 3) for s in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        warm = self.warmup_epochs * steps_per_epoch
        if step < warm:
            return highest * (step + 1) / math.ceil(warm)
        shape = _SHAPES[self.name]
        return shape(self, step, highest, warm, epochs * steps_per_epoch, steps_per_epoch)


def _constant(schedule: Schedule, step: int, highest: float, warm: float, total: int, per_epoch: int) -> float:
    return highest


def _cosine(schedule: Schedule, step: int, highest: float, warm: float, total: int, per_epoch: int) -> float:
    done = (step - warm) / max(1.0, total - warm)
    return schedule.floor + (highest - schedule.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def _step(schedule: Schedule, step: int, highest: float, warm: float, total: int, per_epoch: int) -> float:
    passed = sum(step >= epoch * per_epoch for epoch in schedule.milestones)
    return float(highest * schedule.factor**passed)


def _of_timm(schedule: Schedule, step: int, highest: float, warm: float, total: int, per_epoch: int) -> float:
    made = _timm_schedule(schedule.name, highest, schedule.floor, max(1, int(total - warm)))
    return float(made._get_lr(int(step - warm))[0])


@lru_cache(maxsize=8)
def _timm_schedule(name: str, highest: float, floor: float, steps: int) -> Any:
    import torch

    from shiftbench.classifiers.zoo import import_timm

    import_timm()
    factory = importlib.import_module("timm.scheduler").create_scheduler_v2
    return factory(torch.optim.SGD([torch.zeros(1)], highest), name, num_epochs=steps, min_lr=floor, decay_rate=0.5)[0]


_SHAPES: dict[str, Callable[[Schedule, int, float, float, int, int], float]] = {
    "constant": _constant,
    "cosine": _cosine,
    "step": _step,
    "poly": _of_timm,
    "tanh": _of_timm,
}
