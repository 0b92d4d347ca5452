"""Images of any kind as the uint8 arrays that corruptions work on, and back.

Frameworks are recognised only if the caller has imported them; nothing heavy is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.errors import ShiftError

MIN_SIDE = 8
_CHANNELS = (1, 3, 4)
_PIL_MODES = ("L", "RGB", "RGBA", "I;16")
#: Interpolation may leave [0, 1] by a rounding error, a normalised image leaves it by more.
_TOLERANCE = 1e-3
_Array = NDArray[Any]


@dataclass(frozen=True)
class Unpacked:
    """An image or a batch as uint8 without alpha, and how to make the caller's kind of image from such an array."""

    #: (H, W) or (H, W, 3); a batch (N, H, W) or (N, H, W, 3).
    pixels: Pixels
    batch: bool
    pack: Callable[[Pixels], object]

    def map(self, change: Callable[[Pixels, int], Pixels]) -> Any:
        """The caller's kind of image after ``change(image, number)`` of each image."""
        if not self.batch:
            return self.pack(change(self.pixels, 0))
        changed = np.empty(self.pixels.shape, np.uint8)
        for i, image in enumerate(self.pixels):
            changed[i] = change(image, i)
        return self.pack(changed)


def unpack(image: object) -> Unpacked:
    """Read a PIL image, a NumPy array or a torch tensor.

    The kernels work on 8 bits: 16-bit values are divided by 257 and floats on [0, 1] multiplied by 255, rounded
    to the nearest level, and scaled back afterwards. An alpha channel passes unchanged. No side may be shorter than
    ``MIN_SIDE``, so that an axis of 1, 3 or 4 is always the channels, wherever it stands.

    >>> grey = unpack(np.ones((1, 16, 16), np.float32))
    >>> grey.pixels.shape, int(grey.pixels[0, 0]), grey.pack(grey.pixels).shape
    ((16, 16), 255, (1, 16, 16))
    """
    if isinstance(image, np.ndarray):
        return _from_array(image)
    # A library that was not imported cannot have made the image.
    torch = sys.modules.get("torch")
    pil = sys.modules.get("PIL.Image")
    if torch is not None and isinstance(image, torch.Tensor):
        return _from_tensor(torch, image)
    if pil is not None and isinstance(image, pil.Image):
        return _from_pil(pil, image)
    raise ShiftError(
        "not an image", found=type(image).__name__, expected="a PIL image, a NumPy array or a torch tensor"
    )


def _from_pil(pil: Any, image: Any) -> Unpacked:
    if image.mode not in _PIL_MODES:
        raise ShiftError(
            "unsupported mode of a PIL image",
            found=image.mode,
            expected=", ".join(_PIL_MODES),
            hint="image.convert('RGB')",
        )
    unpacked = _from_array(np.asarray(image))
    return Unpacked(unpacked.pixels, unpacked.batch, lambda pixels: pil.fromarray(unpacked.pack(pixels)))


def _from_tensor(torch: Any, image: Any) -> Unpacked:
    plain = image.detach().cpu().as_subclass(torch.Tensor)
    if image.dtype == torch.bfloat16:
        plain = plain.float()  # NumPy has no bfloat16
    unpacked = _from_array(plain.numpy())

    def pack(pixels: Pixels) -> object:
        # A subclass is an image of torchvision.tv_tensors.
        return torch.from_numpy(unpacked.pack(pixels)).to(image.device, image.dtype).as_subclass(type(image))

    return Unpacked(unpacked.pixels, unpacked.batch, pack)


def _channel_axis(array: _Array) -> int | None:
    """Where the channels are, last or before height and width; None if there are none."""
    if array.ndim not in (3, 4):
        return None
    for axis in (-1, -3):
        if array.shape[axis] in _CHANNELS:
            return axis
    return None


def _from_array(array: _Array) -> Unpacked:
    axis = _channel_axis(array)
    if axis is None and array.ndim != 2:
        raise ShiftError(
            "not an image or a batch of images",
            found=f"shape {tuple(array.shape)}",
            expected="(H, W), (H, W, C), (C, H, W), (N, H, W, C) or (N, C, H, W) with C of 1, 3 or 4",
        )
    planes = array[..., None] if axis is None else np.moveaxis(array, axis, -1)
    sides = planes.shape[-3:-1]
    if min(sides) < MIN_SIDE:
        raise ShiftError(
            "the image is too small to corrupt",
            found=" x ".join(map(str, sides)) + " px",
            expected=f"at least {MIN_SIDE} px on each side",
        )
    colour = planes[..., :3] if planes.shape[-1] > 1 else planes[..., 0]
    alpha = planes[..., 3:]

    def pack(pixels: Pixels) -> _Array:
        out = _from_levels(pixels, array.dtype)
        if axis is None:
            return out
        if colour.ndim < planes.ndim:
            out = out[..., None]
        if alpha.shape[-1]:
            out = np.concatenate([out, alpha], axis=-1)
        return np.ascontiguousarray(np.moveaxis(out, -1, axis))

    return Unpacked(_to_levels(colour), array.ndim == 4, pack)


def _to_levels(array: _Array) -> Pixels:
    if array.dtype == np.uint8:
        return array
    if array.dtype == np.uint16:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)
    if array.dtype.kind != "f":
        raise ShiftError(
            "unsupported type of pixel values", found=array.dtype, expected="uint8, uint16, or floats on [0, 1]"
        )
    low = float(array.min(initial=np.inf))
    high = float(array.max(initial=-np.inf))
    if not (low >= -_TOLERANCE and high <= 1 + _TOLERANCE):  # NaN compares as False
        raise ShiftError(
            "float images must be on [0, 1]",
            found=f"values from {low:g} to {high:g}",
            expected="0 to 1",
            hint="corrupt before Normalize, or divide by 255, or clip to [0, 1]",
        )
    return np.rint(np.clip(array, 0, 1).astype(np.float64) * 255).astype(np.uint8)


def _from_levels(pixels: Pixels, dtype: np.dtype[Any]) -> _Array:
    if dtype == np.uint8:
        return pixels
    if dtype == np.uint16:
        return pixels.astype(np.uint16) * np.uint16(257)
    return (pixels / 255).astype(dtype)
