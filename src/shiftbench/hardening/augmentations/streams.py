"""The generator of one augmentation of one picture."""

from __future__ import annotations

import numpy as np

from shiftbench.shifts.seeds import derive_key


def stream(seed: int, *parts: str | int) -> np.random.Generator:
    """Numbers that belong to (seed, parts) alone, on every machine and in any order.

    >>> float(stream(0, "cat.jpg", 1).random()) == float(stream(0, "cat.jpg", 1).random())
    True
    """
    return np.random.Generator(np.random.Philox(key=np.array(derive_key(seed, *parts), np.uint64)))
