"""How a corrupted picture becomes bytes, and which suffix its file gets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from shiftbench.arrays import Pixels
from shiftbench.datasets.folder import EXTENSIONS
from shiftbench.errors import ShiftError


@dataclass(frozen=True)
class Encoding:
    """JPEG of quality 85, optimised, Pillow's default chroma subsampling, as published; or PNG.

    >>> Encoding().renamed("n01440764/a.JPEG"), Encoding().renamed("cat/a.png")
    ('n01440764/a.JPEG', 'cat/a.jpg')
    >>> Encoding(lossless=True).renamed("a.jpg")
    'a.png'
    """

    lossless: bool = False
    quality: int = 85

    def __call__(self, pixels: Pixels) -> bytes:
        import cv2

        # OpenCV, because Pillow holds the interpreter lock while it writes JPEG. The bytes of a JPEG are those of
        # Pillow's save(quality=85, optimize=True); a PNG is smaller than Pillow's and quicker to write.
        settings = [cv2.IMWRITE_JPEG_QUALITY, self.quality, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
        if self.lossless:
            settings = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_RLE]
        done, data = cv2.imencode(f".{self.ending}", cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), settings)
        if not done:
            raise ShiftError(f"a picture could not be written as {self.ending}", found=f"an array {pixels.shape}")
        encoded: bytes = data.tobytes()
        return encoded

    @property
    def ending(self) -> str:
        return "png" if self.lossless else "jpg"

    def renamed(self, name: str) -> str:
        """A picture's name with a suffix that tells its new format; ``.JPEG`` and the like stay for JPEG."""
        suffix = PurePosixPath(name).suffix
        if not self.lossless and suffix.lower() in (".jpg", ".jpeg"):
            return name
        return f"{without_picture_suffix(name)}.{self.ending}"

    def describe(self) -> dict[str, Any]:
        if self.lossless:
            return {"format": "PNG"}
        return {"format": "JPEG", "quality": self.quality, "optimised": True, "chroma": "default (4:2:0)"}


def without_picture_suffix(name: str) -> str:
    """
    >>> without_picture_suffix("a/b.c.PNG"), without_picture_suffix("v1.2")
    ('a/b.c', 'v1.2')
    """
    suffix = PurePosixPath(name).suffix
    return name[: -len(suffix)] if suffix.lower() in EXTENSIONS else name
