"""Preprocessing as a description that travels with the classifier: geometry on uint8, then normalisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.geometry import Geometry, check_choice
from shiftbench.errors import ClassifierError
from shiftbench.io.schema import decode

Colour = tuple[float, float, float]
#: The weights of red, green and blue in grey, in units of 1/65536.
LUMA_WEIGHTS = (19595, 38470, 7471)
Layout = Literal["nchw", "nhwc"]
ColourOrder = Literal["rgb", "bgr", "grey"]


@dataclass(frozen=True)
class Normalisation:
    """uint8 RGB (N, H, W, 3) to the input of a network: (x * scale - mean) / std, per channel.

    ``mean`` and ``std`` are in the order of the output channels. The arithmetic is float32, as
    x * (scale / std) - mean / std: one multiplication and one subtraction that every engine rounds alike.

    Attributes:
        mean: Subtracted from each channel, after scaling.
        std: Each channel is divided by it.
        scale: Factor of the pixel values.
        colour_order: Order of the channels that the model expects; ``"grey"``: one channel, the luma, with the average
            of ``mean`` and of ``std``.
        layout: Order of the dimensions that the model expects.

    Example:
        >>> tf = Normalisation(mean=(127, 127, 127), std=(128, 128, 128), scale=1)
        >>> tf(np.full((1, 1, 1, 3), 255, np.uint8)).ravel()
        array([1., 1., 1.], dtype=float32)
    """

    mean: Colour = (0.485, 0.456, 0.406)
    std: Colour = (0.229, 0.224, 0.225)
    scale: float = 1 / 255
    colour_order: ColourOrder = "rgb"
    layout: Layout = "nchw"

    def __post_init__(self) -> None:
        check_choice("colour_order", self.colour_order, ("rgb", "bgr", "grey"))
        check_choice("layout", self.layout, ("nchw", "nhwc"))
        # The class is frozen, so its attributes are set past it.
        for attribute in ("mean", "std"):
            values = tuple(float(value) for value in getattr(self, attribute))
            if len(values) != 3:
                raise ClassifierError(
                    f"{attribute} needs one value for each channel",
                    found=values,
                    expected="3 numbers",
                )
            if self.colour_order == "grey":
                values = (round(sum(values) / 3, 12),) * 3
            object.__setattr__(self, attribute, values)
        object.__setattr__(self, "scale", float(self.scale))
        if 0 in self.std:
            raise ClassifierError("std must not be zero", found=self.std)

    @property
    def gain(self) -> NDArray[np.float32]:
        return np.divide(self.scale, self.std).astype(np.float32)[: self.channels]

    @property
    def offset(self) -> NDArray[np.float32]:
        return np.divide(self.mean, self.std).astype(np.float32)[: self.channels]

    @property
    def channels(self) -> int:
        return 1 if self.colour_order == "grey" else 3

    def __call__(self, images: Pixels) -> NDArray[np.float32]:
        if self.colour_order == "grey":
            images = luma(images)
        count, height, width, channels = images.shape
        order: Sequence[int] = (2, 1, 0) if self.colour_order == "bgr" else range(channels)
        planes = np.empty((count, channels, height, width), np.float32)
        # Each plane is computed from the uint8 pixels, which needs no float copy and no transposition of the batch.
        for plane, channel in enumerate(order):
            np.multiply(images[..., channel], self.gain[plane], out=planes[:, plane], dtype=np.float32)
            planes[:, plane] -= self.offset[plane]
        if self.layout == "nhwc":
            return np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        return planes


def in_colour_order(images: Pixels, order: ColourOrder) -> Pixels:
    """RGB images (N, H, W, 3) with their channels in another order, or as grey images (N, H, W, 1)."""
    if order == "grey":
        return luma(images)
    if order == "bgr":
        return images[..., ::-1]
    return images


def luma(images: Pixels) -> Pixels:
    """Grey images (N, H, W, 1) from RGB images (N, H, W, 3), as Pillow's "L" gives them: ITU-R 601-2 in integers."""
    grey = (images.astype(np.uint32) @ np.array(LUMA_WEIGHTS, np.uint32) + 0x8000) >> 16
    return grey.astype(np.uint8)[..., None]


@dataclass(frozen=True)
class Preprocessing:
    """Both halves, with the defaults of torchvision's ImageNet models.

    Attributes:
        geometry: Resize and crop, done once for all models that share it.
        normalisation: Scale, mean, deviation and order of channels.

    Example:
        >>> Preprocessing.from_dict(Preprocessing().describe()) == Preprocessing()
        True
    """

    geometry: Geometry = field(default_factory=Geometry)
    normalisation: Normalisation = field(default_factory=Normalisation)

    def __call__(self, pixels: Pixels) -> NDArray[np.float32]:
        """Turn an image of any size into the input of a network, as a plain script would do."""
        batch = self.normalisation(self.geometry(pixels)[None])
        return batch.reshape(batch.shape[1:])

    def describe(self) -> dict[str, object]:
        """JSON-able; ``from_dict`` reads it back."""
        return {"geometry": self.geometry.describe(), "normalisation": asdict(self.normalisation)}

    @classmethod
    def from_dict(cls, description: Mapping[str, object]) -> Preprocessing:
        """What ``describe`` gave, after JSON too; what is left out takes its default."""
        return decode(description, cls, "the preprocessing", ClassifierError)


#: (x - 127) / 128, the convention of TensorFlow's EfficientNet-Lite.
LITE_NORMALISATION = Normalisation(mean=(127, 127, 127), std=(128, 128, 128), scale=1)
#: BGR minus the means of ImageNet, the convention of Caffe.
CAFFE_NORMALISATION = Normalisation(mean=(103.939, 116.779, 123.68), std=(1, 1, 1), scale=1, colour_order="bgr")
