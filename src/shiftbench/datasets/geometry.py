"""Resizing and cropping: any image to the uint8 input of a model, as Pillow or OpenCV does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.datasets.base import Decoding
from shiftbench.errors import BadImageError, ClassifierError, required
from shiftbench.native.loops import resample

#: Pillow's filters, which average over the pixels that a smaller image merges; OpenCV's, of which only "area" does.
Interpolation = Literal[
    "nearest",
    "bilinear",
    "bicubic",
    "lanczos",
    "box",
    "hamming",
    "opencv-nearest",
    "opencv-bilinear",
    "opencv-bicubic",
    "opencv-area",
]
ResizeRule = Literal["short", "exact", "fit", "cover"]
#: One side for a square, or (height, width).
Size = int | tuple[int, int]
Values = NDArray[np.float64]

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
        exif: Whether image files are turned as their EXIF data say: ``ignore`` or ``apply``. Datasets do it when they
            decode a file (``decoding``).
        alpha: What becomes of a transparent image file: ``drop`` its alpha channel, or lay it on ``white`` or
            ``black``.

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
    exif: Literal["ignore", "apply"] = "ignore"
    alpha: Literal["drop", "white", "black"] = "drop"

    def __post_init__(self) -> None:
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("resize_rule", self.resize_rule, ("short", "exact", "fit", "cover"))
        check_choice("crop_rounding", self.crop_rounding, ("round", "floor"))
        check_choice("exif", self.exif, ("ignore", "apply"))
        check_choice("alpha", self.alpha, ("drop", "white", "black"))
        object.__setattr__(self, "resize", _checked_size("resize", self.resize))
        object.__setattr__(self, "crop", _checked_size("crop", self.crop))
        object.__setattr__(self, "fill", tuple(int(value) for value in self.fill))
        if self.resize_rule == "short" and isinstance(self.resize, tuple):
            raise ClassifierError(
                "a short side is one number", found=self.resize, hint='use resize_rule="exact", "fit" or "cover"'
            )

    @property
    def decoding(self) -> Decoding:
        """How image files are decoded before this geometry is applied."""
        return Decoding(self.exif, self.alpha)

    def describe(self) -> dict[str, Any]:
        """The fields as JSON-able data.

        The treatment of EXIF data and transparency is left out where it is the default, so that results from before it
        could be chosen are found again.
        """
        description = asdict(self)
        for key, usual_value in asdict(Decoding()).items():
            if description[key] == usual_value:
                del description[key]
        return description

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        target = self.target(width, height)
        if target != (width, height):
            if target[0] * target[1] > MAX_RESIZED_PIXELS:
                reason = f"{width} x {height} pixels would be resized to {target[0]} x {target[1]}"
                raise BadImageError(f"an image can't be used: {reason}", found=reason)
            pixels = self._resized(np.ascontiguousarray(pixels), target)
        if self.crop is None:
            return np.ascontiguousarray(pixels)
        return centre_crop(pixels, self.crop, self.fill, self.crop_rounding)

    def _resized(self, pixels: Pixels, target: tuple[int, int]) -> Pixels:
        """Resized to Pillow's (width, height); of what the crop takes from the middle, only that is computed."""
        if self.interpolation in _OPENCV:
            cv2 = required("cv2", "opencv", f"the interpolation {self.interpolation!r}", "opencv-python-headless")
            return np.asarray(cv2.resize(pixels, target, interpolation=getattr(cv2, _OPENCV[self.interpolation])))
        height, width = pixels.shape[:2]
        # Since version 13 Pillow begins with the columns where the height loses more than twice as many pixels.
        tall = target[1] < height and height - target[1] > 2 * (width - target[0])
        if tall or self.interpolation not in _FILTERS:  # reducing_gap stays off, it changes pixels
            return np.asarray(Image.fromarray(pixels).resize(target, _RESAMPLING[self.interpolation]))
        crop = target[::-1] if self.crop is None else _pair(self.crop)

        def weights(size: int, whole: int, part: int) -> tuple[NDArray[Any], NDArray[Any]]:
            count = min(whole, part)
            return filter_weights(self.interpolation, size, whole, _margin(whole - count, self.crop_rounding), count)

        across = weights(width, target[0], crop[1])
        down = weights(height, target[1], crop[0])
        out = np.empty((len(down[0]), len(across[0]), 3), np.uint8)
        resample(pixels.reshape(len(pixels), -1), *across, *down, out.reshape(len(out), -1))
        return out

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


def _checked_size(what: str, size: Any) -> Size | None:
    """A size as one side, or as (height, width); (s, s) and s are one geometry, so they are written alike."""
    if size is None:
        return None
    sides = (size, size) if np.isscalar(size) else tuple(size)
    if len(sides) != 2 or any(int(side) != side or side < 1 for side in sides):
        raise ClassifierError(f"{what} is a side or (height, width)", found=size, expected="positive integers")
    height = int(sides[0])
    width = int(sides[1])
    return height if height == width else (height, width)


def available_interpolations() -> tuple[Interpolation, ...]:
    """The filters that run here: OpenCV's need its extra."""
    opencv_installed = find_spec("cv2") is not None
    return tuple(name for name in INTERPOLATIONS if name not in _OPENCV or opencv_installed)


def centre_crop(
    pixels: Pixels, size: Size, fill: tuple[int, int, int] = (0, 0, 0), rounding: Literal["round", "floor"] = "round"
) -> Pixels:
    """The middle of an image; a smaller one is padded, the odd pixel as torchvision or Hugging Face do."""
    tall, wide = _pair(size)
    height, width = pixels.shape[:2]
    if height < tall or width < wide:
        # Where the surplus is odd, torchvision puts the extra pixel below and to the right, Hugging Face above.
        extra = 1 if rounding == "floor" else 0
        top = (max(tall - height, 0) + extra) // 2
        left = (max(wide - width, 0) + extra) // 2
        canvas = np.empty((max(tall, height), max(wide, width), 3), np.uint8)
        canvas[:] = np.asarray(fill, np.uint8)
        canvas[top : top + height, left : left + width] = pixels
        pixels = canvas
        height, width = canvas.shape[:2]
    top = _margin(height - tall, rounding)
    left = _margin(width - wide, rounding)
    return np.ascontiguousarray(pixels[top : top + tall, left : left + wide])


def _margin(surplus: int, rounding: Literal["round", "floor"]) -> int:
    return surplus // 2 if rounding == "floor" else round(surplus / 2)


def _bicubic(x: Values) -> Values:
    outer = (((x - 5) * x + 8) * x - 4) * -0.5
    return np.where(x < 1.0, (1.5 * x - 2.5) * x * x + 1, np.where(x < 2.0, outer, 0.0))


#: Pillow's filters that need no more than additions and multiplications: reach, and weight by distance.
_FILTERS: dict[str, tuple[float, Callable[[Values], Values]]] = {
    "box": (0.5, np.ones_like),
    "bilinear": (1.0, lambda x: np.maximum(1.0 - x, 0.0)),
    "bicubic": (2.0, _bicubic),
}


@lru_cache(maxsize=1024)
def filter_weights(
    interpolation: str, size: int, target: int, first: int = 0, count: int | None = None
) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """How Pillow makes ``target`` pixels of ``size``, or ``count`` of them from ``first``; see ``loops.resample``.

    Returns:
        The first source pixel of each, and the weights of it and its followers in units of 2**-22.
    """
    reach, filtered = _FILTERS[interpolation]
    scale = size / target
    stretch = max(scale, 1.0)
    centre = (np.arange(first, first + (target if count is None else count)) + 0.5) * scale
    start = np.maximum((centre - reach * stretch + 0.5).astype(np.int64), 0)
    stop = np.minimum((centre + reach * stretch + 0.5).astype(np.int64), size)
    position = start[:, None] + np.arange((stop - start).max())
    offset = (position - centre[:, None] + 0.5) * (1.0 / stretch)
    weight = np.where(position < stop[:, None], filtered(np.abs(offset)), 0.0)
    if interpolation == "box":
        weight[(offset <= -0.5) | (offset > 0.5)] = 0.0
    weight /= np.cumsum(weight, axis=1)[:, -1:]  # in this order: a plain sum rounds otherwise
    whole = np.trunc(weight * (1 << 22) + np.copysign(0.5, weight))
    return start.astype(np.uint32), whole.astype(np.int32)


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ClassifierError(f"unknown {what} {value!r}", expected=" or ".join(choices))
