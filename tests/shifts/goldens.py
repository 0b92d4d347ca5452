"""Outputs of the published corruption code (scripts/make_goldens.py), and how they are keyed and seeded."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from shiftbench.arrays import Pixels

FILE = Path(__file__).with_name("goldens.npz")


@cache
def golden(key: str) -> Pixels:
    """One array of the file: ``input.224``, or ``32.fog.3`` with one corrupted image per input image."""
    with np.load(FILE) as arrays:
        return np.asarray(arrays[key])


def key(side: int, name: str, severity: int) -> str:
    """Where the outputs of one corruption are stored."""
    return f"{side}.{name}.{severity}"


def seed(name: str, severity: int, index: int) -> int:
    """The seed before the published function was called; different for every corruption, severity and image."""
    return sum(name.encode()) * 100 + severity * 10 + index


def rows(side: int, severity: int) -> slice:
    """Which rows are kept: all at 32 px, at 224 px every fifth, so that the five severities cover the image."""
    return slice(None) if side == 32 else slice(severity - 1, None, 5)
