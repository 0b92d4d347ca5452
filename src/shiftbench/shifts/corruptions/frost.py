"""Frost textures: five images of our own making, or the original photographs where the user has them."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

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
    original = picture(resolved, index)
    cover = max((height + 1) / original.shape[0], (width + 1) / original.shape[1])
    if scale == 1 and cover <= 1:
        return original
    if scale >= cover:
        return _resized(original, [round(side * scale) for side in original.shape[:2]], [1 / scale] * 2)
    size = [max(round(original.shape[0] * cover), height + 1), max(round(original.shape[1] * cover), width + 1)]
    return _resized(original, size, [side / new for side, new in zip(original.shape[:2], size, strict=True)])


def _resized(image: Pixels, size: Sequence[int], steps: Sequence[float]) -> Pixels:
    """Bilinear in fixed point, as the published code's ``cv2.resize``: no smoothing where the image shrinks."""
    rows, columns = (_taps(side, new, step) for side, new, step in zip(image.shape[:2], size, steps, strict=True))
    (top, bottom, *by_row), (left, right, *by_column) = rows, columns
    wide = image.astype(np.int32)
    wide = wide[:, left] * by_column[0][:, None] + wide[:, right] * by_column[1][:, None]
    upper, lower = ((wide[row] >> 4) * by_row[i][:, None, None] >> 16 for i, row in enumerate((top, bottom)))
    return np.asarray((upper + lower + 2) >> 2, np.uint8)


def _taps(side: int, new: int, step: float) -> tuple[NDArray[np.int32], ...]:
    """Each new pixel's two neighbours along an axis, and their weights in 11 bits."""
    position = ((np.arange(new) + 0.5) * step - 0.5).astype(np.float32)
    first = np.floor(position).astype(np.int32)
    part = position - first.astype(np.float32)
    weights = [np.rint(share * np.float32(2048)).astype(np.int32) for share in (1 - part, part)]
    return np.clip(first, 0, side - 1), np.clip(first + 1, 0, side - 1), *weights


@lru_cache(maxsize=12)
def picture(resolved: str, index: int) -> Pixels:
    """A whole frost image in RGB; of the originals there is a sixth, which only the testbed uses."""
    if resolved == PROCEDURAL:
        from shiftbench.shifts.corruptions.frost_texture import frost_texture

        return frost_texture(index)
    from PIL import Image

    path = _folder(resolved) / (*ORIGINALS, "frost6.jpg")[index]
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except OSError as error:
        raise ShiftError("a frost image cannot be read", found=path, expected="a PNG or JPEG image") from error


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
