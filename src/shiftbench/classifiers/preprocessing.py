"""Preprocessing as a description that travels with the classifier: geometry on uint8, then normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.errors import ClassifierError
from shiftbench.io.schema import decode

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
ResizeRule = Literal["short", "exact", "fit", "cover"]
#: One side for a square, or (height, width).
Size = int | tuple[int, int]
Colour = tuple[float, float, float]

_RESAMPLING: dict[str, Image.Resampling] = {mode.name.lower(): mode for mode in Image.Resampling}


@dataclass(frozen=True)
class Geometry:
    """Any image to the uint8 input of a classifier; resizing is Pillow's own, to the bit.

    ``resize`` is read by ``resize_rule``; None keeps the size:

    * ``short``: the short side becomes ``resize``, the long one is truncated (torchvision's rule);
    * ``exact``: both sides, regardless of aspect ("squash", BiT);
    * ``fit``: the largest size that fits into ``resize``, sides rounded (timm's "border");
    * ``cover``: the smallest size that covers ``resize``, sides rounded (timm's non-square inputs).

    ``crop`` takes the middle and fills what the image lacks with ``fill``. A middle that falls between two
    pixels goes to the even one ("round", torchvision) or to the smaller one ("floor", Hugging Face).

    Equal geometries are interchangeable, so the runner resizes once for all classifiers that share one.

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
        _check_choice("interpolation", self.interpolation, tuple(_RESAMPLING))
        _check_choice("resize_rule", self.resize_rule, ("short", "exact", "fit", "cover"))
        _check_choice("crop_rounding", self.crop_rounding, ("round", "floor"))
        for what in ("resize", "crop"):
            object.__setattr__(self, what, _size(what, getattr(self, what)))
        object.__setattr__(self, "fill", tuple(int(value) for value in self.fill))
        if self.resize_rule == "short" and isinstance(self.resize, tuple):
            raise ClassifierError(
                "a short side is one number", found=self.resize, hint='use resize_rule="exact", "fit" or "cover"'
            )

    def __call__(self, pixels: Pixels) -> Pixels:
        height, width = pixels.shape[:2]
        if self.resize is not None and (target := self.target(width, height)) != (width, height):
            # fromarray needs no copy of a contiguous array; reducing_gap stays off, it changes pixels.
            image = Image.fromarray(np.ascontiguousarray(pixels))
            pixels = np.asarray(image.resize(target, _RESAMPLING[self.interpolation]))
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


def centre_crop(
    pixels: Pixels,
    size: Size,
    fill: tuple[int, int, int] = (0, 0, 0),
    rounding: Literal["round", "floor"] = "round",
) -> Pixels:
    """The middle of an image; a smaller one is padded, the odd pixel as torchvision or Hugging Face do.

    >>> centre_crop(np.arange(75, dtype=np.uint8).reshape(5, 5, 3), 2)[0, 0]
    array([36, 37, 38], dtype=uint8)
    """
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


@dataclass(frozen=True)
class Normalisation:
    """uint8 RGB (N, H, W, 3) to what the network eats: (x * scale - mean) / std, per channel.

    ``mean`` and ``std`` are in the order of the output channels. The arithmetic is float32, as
    x * (scale / std) - mean / std: one multiplication and one subtraction that every engine rounds alike.

    >>> tf = Normalisation(mean=(127, 127, 127), std=(128, 128, 128), scale=1)
    >>> tf(np.full((1, 1, 1, 3), 255, np.uint8)).ravel()
    array([1., 1., 1.], dtype=float32)
    """

    mean: Colour = (0.485, 0.456, 0.406)
    std: Colour = (0.229, 0.224, 0.225)
    scale: float = 1 / 255
    colour_order: Literal["rgb", "bgr"] = "rgb"
    layout: Literal["nchw", "nhwc"] = "nchw"

    def __post_init__(self) -> None:
        _check_choice("colour_order", self.colour_order, ("rgb", "bgr"))
        _check_choice("layout", self.layout, ("nchw", "nhwc"))
        for what in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, what))
            if len(values) != 3:
                raise ClassifierError(f"{what} needs one value for each channel", found=values, expected="3 numbers")
            object.__setattr__(self, what, values)
        object.__setattr__(self, "scale", float(self.scale))
        if 0 in self.std:
            raise ClassifierError("std must not be zero", found=self.std)

    @property
    def gain(self) -> NDArray[np.float32]:
        return np.divide(self.scale, self.std).astype(np.float32)

    @property
    def offset(self) -> NDArray[np.float32]:
        return np.divide(self.mean, self.std).astype(np.float32)

    def __call__(self, images: Pixels) -> NDArray[np.float32]:
        count, height, width, _ = images.shape
        planes = np.empty((count, 3, height, width), np.float32)
        channels = (2, 1, 0) if self.colour_order == "bgr" else (0, 1, 2)
        # Plane by plane: no float copy of the batch, no transposition of floats.
        for plane, channel in enumerate(channels):
            np.multiply(images[..., channel], self.gain[plane], out=planes[:, plane], dtype=np.float32)
            planes[:, plane] -= self.offset[plane]
        return planes if self.layout == "nchw" else np.ascontiguousarray(planes.transpose(0, 2, 3, 1))


@dataclass(frozen=True)
class Preprocessing:
    """Both halves, with the defaults of torchvision's ImageNet models.

    >>> Preprocessing.from_dict(Preprocessing().describe()) == Preprocessing()
    True
    """

    geometry: Geometry = field(default_factory=Geometry)
    normalisation: Normalisation = field(default_factory=Normalisation)

    def __call__(self, pixels: Pixels) -> NDArray[np.float32]:
        """One image of any size to one network input: what a plain script would do."""
        batch = self.normalisation(self.geometry(pixels)[None])
        return batch.reshape(batch.shape[1:])

    def describe(self) -> dict[str, object]:
        """JSON-able; ``from_dict`` reads it back."""
        return {"geometry": asdict(self.geometry), "normalisation": asdict(self.normalisation)}

    @classmethod
    def from_dict(cls, description: Mapping[str, object]) -> Preprocessing:
        """What ``describe`` gave, after JSON too; what is left out takes its default."""
        return decode(description, cls, "the preprocessing", ClassifierError)


def _pair(size: Size) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else size


def _size(what: str, size: Any) -> Size | None:
    """(s, s) and s are one geometry, so they are written alike."""
    if size is None:
        return None
    sides = (size, size) if np.isscalar(size) else tuple(size)
    if len(sides) != 2 or any(int(side) != side or side < 1 for side in sides):
        raise ClassifierError(f"{what} is a side or (height, width)", found=size, expected="positive integers")
    height, width = int(sides[0]), int(sides[1])
    return height if height == width else (height, width)


def _check_choice(what: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ClassifierError(f"unknown {what} {value!r}", expected=" or ".join(choices))


#: (x - 127) / 128, the convention of TensorFlow's EfficientNet-Lite.
LITE_NORMALISATION = Normalisation(mean=(127, 127, 127), std=(128, 128, 128), scale=1)
#: BGR minus the means of ImageNet, the convention of Caffe.
CAFFE_NORMALISATION = Normalisation(mean=(103.939, 116.779, 123.68), std=(1, 1, 1), scale=1, colour_order="bgr")
