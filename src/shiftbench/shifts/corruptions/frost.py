"""Frost textures: five images of our own making, or the original photographs where the user has them."""

from __future__ import annotations

import hashlib
import importlib.util
from functools import lru_cache
from pathlib import Path

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError

PROCEDURAL, PACKAGE = "procedural", "package"
PROCEDURAL_VERSION = "1"
ORIGINALS = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


def resolve_textures(choice: str | Path | None) -> str:
    """Which textures a choice means: a folder's path, ``"package"`` or ``"procedural"``.

    None means the original pictures if the ``imagecorruptions`` package that carries them is installed, and
    the procedural ones otherwise. The answer is part of a shift's description, because the pixels differ.
    """
    if choice is None:
        return PACKAGE if _package_folder() else PROCEDURAL
    if str(choice) in (PROCEDURAL, PACKAGE):
        return str(choice)
    return str(Path(choice).expanduser().resolve())


def texture_source(resolved: str) -> dict[str, str]:
    """Provenance of the textures, with a hash of the images' content."""
    if resolved == PROCEDURAL:
        return {"textures": f"procedural v{PROCEDURAL_VERSION}"}
    folder = _folder(resolved)
    digest = hashlib.blake2b(digest_size=8)
    for name in ORIGINALS:
        digest.update((folder / name).read_bytes())
    return {"textures": "original pictures", "content": digest.hexdigest()}


def texture(resolved: str, index: int, scale: float, height: int, width: int) -> Pixels:
    """Image ``index`` of 0-4 in RGB at ``scale``, enlarged if needed to be larger than (height, width)."""
    return _texture(resolved, index, scale, height, width)


@lru_cache(maxsize=20)
def _texture(resolved: str, index: int, scale: float, height: int, width: int) -> Pixels:
    import cv2

    original = picture(resolved, index)
    cover = max((height + 1) / original.shape[0], (width + 1) / original.shape[1])
    if scale == 1 and cover <= 1:
        return original
    if scale >= cover:
        return np.ascontiguousarray(cv2.resize(original, (0, 0), fx=scale, fy=scale))
    size = (max(round(original.shape[1] * cover), width + 1), max(round(original.shape[0] * cover), height + 1))
    return np.ascontiguousarray(cv2.resize(original, size))


@lru_cache(maxsize=12)
def picture(resolved: str, index: int) -> Pixels:
    """A whole frost image in RGB; of the originals there is a sixth, which only the testbed uses."""
    if resolved == PROCEDURAL:
        from shiftbench.shifts.corruptions.frost_texture import frost_texture

        return frost_texture(index)
    import cv2

    path = _folder(resolved) / (*ORIGINALS, "frost6.jpg")[index]
    pixels = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if pixels is None:
        raise ShiftError("a frost image cannot be read", found=path, expected="a PNG or JPEG image")
    return np.ascontiguousarray(np.asarray(pixels, np.uint8)[..., ::-1])


def _folder(resolved: str) -> Path:
    folder = _package_folder() if resolved == PACKAGE else Path(resolved)
    missing = [name for name in ORIGINALS if folder is None or not (folder / name).is_file()]
    if folder is None or missing:
        raise ShiftError(
            "the frost images were not found",
            found="no installed package that carries them" if folder is None else f"{folder} lacks {missing}",
            expected="a folder with " + ", ".join(ORIGINALS),
            hint='frost_textures="procedural" needs no images',
        )
    return folder


def _package_folder() -> Path | None:
    """The images' folder in an installed ``imagecorruptions``, found without importing the package."""
    spec = importlib.util.find_spec("imagecorruptions")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "frost"
        if all((folder / name).is_file() for name in ORIGINALS):
            return folder
    return None
