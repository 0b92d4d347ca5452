"""Writing as a process of its own, so that a test can kill it. Imported once by the server that forks it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.write import write_corruptions

NAMES = ("gaussian_noise", "fog", "motion_blur")


def warm_up() -> None:
    """Load the compiled kernels, so that every process that is forked from here starts at once."""
    for name in NAMES:
        Corruption(name, 1)(np.zeros((32, 32, 3), np.uint8), image_id="", seed=0)


def write_slowly(source: str, destination: str, options: dict[str, Any]) -> None:
    """Slow enough that there is always something to interrupt; the pixels are the real ones."""
    call = Corruption.__call__
    batch = Corruption.batch

    def slow_call(self: Corruption, image: Any, **rest: Any) -> Any:
        time.sleep(0.002)
        return call(self, image, **rest)

    def slow_batch(self: Corruption, images: Any, **rest: Any) -> Any:
        time.sleep(0.004)
        return batch(self, images, **rest)

    Corruption.__call__, Corruption.batch = slow_call, slow_batch  # type: ignore[method-assign]
    write_corruptions(source, destination, names=NAMES, severities=(1, 4), **options)


warm_up()
