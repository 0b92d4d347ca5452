"""OpenCV, an extra: few shifts and defences need it, and it is a quarter of what would be installed."""

from __future__ import annotations

import importlib.util
from types import ModuleType

from shiftbench.errors import MissingExtraError


def opencv(purpose: str) -> ModuleType:
    """The module ``cv2``.

    Raises:
        MissingExtraError: It is not installed; ``purpose`` says what needs it.
    """
    try:
        import cv2
    except ModuleNotFoundError as error:
        raise MissingExtraError("opencv-python-headless", "opencv", purpose) from error
    module: ModuleType = cv2
    return module


def has_opencv() -> bool:
    return importlib.util.find_spec("cv2") is not None
