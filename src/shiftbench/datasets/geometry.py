"""Resizing and cropping: any image to the uint8 input of a model, as Pillow or OpenCV does it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.errors import BadImageError, ClassifierError, required

#: Pillow's filters, which average over the pixels that a smaller image merges; OpenCV's, of which only "area" does.
Interpolation = Literal[
    "nearest", "bilinear", "bicubic", "lanczos", "box", "hamming",
    "opencv-nearest", "opencv-bilinear", "opencv-bicubic", "opencv-area",
]  # fmt: skip
ResizeRule = Literal["short", "exact", "fit", "cover"]
#: One side for a square, or (height, width).
Size = int | tuple[int, int]

#: Larger results of a resize are refused: a line of 20,000 x 1 pixels would grow to gigabytes.
MAX_RESIZED_PIXELS = 1 << 25
_RESAMPLING: dict[str, Image.Resampling] = {mode.name.lower(): mode for mode in Image.Resampling}
_OPENCV = {
    "opencv-nearest": "INTER_NEAREST",
    "opencv-bilinear": "INTER_LINEAR",
    "opencv-bicubic": "INTER_CUBIC",
    "opencv-area": "INTER_AREA",
}
INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)


@dataclass(frozen=True)
class Geometry:
    """Any image to the uint8 input of a classifier; resizing is Pillow's own (or OpenCV's), to the bit.

    ``resize`` is read by ``resize_rule``; None keeps the size:

    * ``short``: the short side becomes ``resize``, the long one is truncated (torchvision's rule);
    * ``exact``: both sides, regardless of aspect ("squash", BiT);
    * ``fit``: the largest size that fits into ``resize``, sides rounded (timm's "border");
    * ``cover``: the smallest size that covers ``resize``, sides rounded (timm's non-square inputs).

    ``crop`` takes the middle and fills what the image lacks with ``fill``. A middle that falls between two
    pixels goes to the even one ("round", torchvision) or to the smaller one ("floor", Hugging Face).

    Equal geometries are interchangeable, so the runner resizes once for all classifiers that share one.

    Attributes:
        resize: One side, or (height, width); None keeps the size.
        crop: Size of the centre crop, or (height, width); None: not cropped.
        resize_rule: How ``resize`` is read: ``short``, ``exact``, ``fit`` or ``cover``.
        interpolation: Pillow's filter; OpenCV's as ``opencv-bilinear`` and so on, which do not antialias.
        fill: Colour around an image that is smaller than the crop.
        crop_rounding: How the margins of the crop are rounded.

    Example:
        >>> Geometry(resize=256, crop=224)(np.zeros((300, 400, 3), np.uint8)).shape
        (224, 224, 3)
        >>> Geometry(resize=256, crop=224).target(width=400, height=300)
        (341, 256)
    """

    resize: Size | None = 256
    crop: Size | None = 224
    resize_rule: ResizeRule = "short"
    interpolation: Interpolation = "bilinear"
    fill: tuple[int, int, int] = (0, 0, 0)
    crop_rounding: Literal["round", "floor"] = "round"

    def __post_init__(self) -> None:
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("resize_rule", self.resize_rule, ("short", "exact", "fit", "cover"))
        check_choice("crop_rounding", self.crop_rounding, ("round", "floor"))
        for what in ("resize", "crop"):
            size: Any = getattr(self, what)
            if size is not None:
                sides = (size, size) if np.isscalar(size) else tuple(size)
                if len(sides) != 2 or any(int(side) != side or side < 1 for side in sides):
                    message = f"{what} is a side or (height, width)"
                    raise ClassifierError(message, found=size, expected="positive integers")
                height, width = int(sides[0]), int(sides[1])
                # (s, s) and s are one geometry, so they are written alike
                object.__setattr__(self, what, height if height == width else (height, width))
        object.__setattr__(self, "fill", tuple(int(value) for value in self.fill))
        if self.resize_rule == "short" and isinstance(self.resize, tuple):
            raise ClassifierError(
                "a short side is one number", found=self.resize, hint='use resize_rule="exact", "fit" or "cover"'
            )

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if self.resize is not None and (target := self.target(width, height)) != (width, height):
            if target[0] * target[1] > MAX_RESIZED_PIXELS:
                reason = f"{width} x {height} pixels would be resized to {target[0]} x {target[1]}"
                raise BadImageError(f"an image can't be used: {reason}", found=reason)
            pixels = np.ascontiguousarray(pixels)
            if self.interpolation in _OPENCV:
                cv2 = required("cv2", "opencv", f"the interpolation {self.interpolation!r}", "opencv-python-headless")
                pixels = np.asarray(cv2.resize(pixels, target, interpolation=getattr(cv2, _OPENCV[self.interpolation])))
            else:  # fromarray needs no copy of a contiguous array; reducing_gap stays off, it changes pixels
                pixels = np.asarray(Image.fromarray(pixels).resize(target, _RESAMPLING[self.interpolation]))
        if self.crop is None:
            return np.ascontiguousarray(pixels)
        return centre_crop(pixels, self.crop, self.fill, self.crop_rounding)

    @property
    def output(self) -> tuple[int, int] | None:
        """(height, width) of every result, or None where it depends on the image."""
        if self.crop is not None:
            return _pair(self.crop)
        return _pair(self.resize) if self.resize is not None and self.resize_rule == "exact" else None

    def target(self, width: int, height: int) -> tuple[int, int]:
        """Pillow's (width, height) after the resize, before the crop."""
        if self.resize is None:
            return (width, height)
        tall, wide = _pair(self.resize)
        if self.resize_rule == "exact":
            return (wide, tall)
        if self.resize_rule == "short":
            if width <= height:
                return (wide, max(1, int(wide * height / width)))
            return (max(1, int(wide * width / height)), wide)
        pick = max if self.resize_rule == "fit" else min
        ratio = pick(height / tall, width / wide)
        return (max(1, round(width / ratio)), max(1, round(height / ratio)))


def available_interpolations() -> tuple[Interpolation, ...]:
    """Those that run here: OpenCV's need its extra."""
    return tuple(one for one in INTERPOLATIONS if one not in _OPENCV or find_spec("cv2"))


def centre_crop(
    pixels: Pixels, size: Size, fill: tuple[int, int, int] = (0, 0, 0), rounding: Literal["round", "floor"] = "round"
) -> Pixels:
    """The middle of an image; a smaller one is padded, the odd pixel as torchvision or Hugging Face do."""
    tall, wide = _pair(size)
    height, width = pixels.shape[:2]
    if height < tall or width < wide:
        spare = max(tall - height, 0), max(wide - width, 0)
        # Where the surplus is odd, torchvision puts the extra pixel below and to the right, Hugging Face above.
        top, left = ((n + 1) // 2 if rounding == "floor" else n // 2 for n in spare)
        canvas = np.empty((max(tall, height), max(wide, width), 3), np.uint8)
        canvas[:] = np.asarray(fill, np.uint8)
        canvas[top : top + height, left : left + width] = pixels
        pixels, (height, width) = canvas, canvas.shape[:2]
    if rounding == "floor":
        top, left = (height - tall) // 2, (width - wide) // 2
    else:
        top, left = round((height - tall) / 2), round((width - wide) / 2)
    return np.ascontiguousarray(pixels[top : top + tall, left : left + wide])


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ClassifierError(f"unknown {what} {value!r}", expected=" or ".join(choices))
