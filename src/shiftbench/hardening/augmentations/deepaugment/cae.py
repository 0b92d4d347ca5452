"""The compressive auto-encoder of DeepAugment's second branch: 32 random bits for each four by four pixels.

The names of the layers are those of the published files. ``CompressiveAutoencoder()`` is the published one; a
smaller ``features`` narrows every layer but the code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from shiftbench.hardening.augmentations.networks import ImageNetwork, image_networks, psnr
from shiftbench.hardening.errors import AugmentationError

BITS = 32
#: Sides of images are multiples of this, because the borders would be lost otherwise.
STRIDE = 4
_GREY = 0.45
#: The deviation, before the hyperbolic tangent, with which most bits are nearly certain.
_DECIDED = 3.0
#: The layers, in the order in which an image passes through them.
LAYERS = (
    "e_conv_1.1",
    "e_conv_2.1",
    "e_block_1.1",
    "e_block_1.4",
    "e_block_2.1",
    "e_block_2.4",
    "e_block_3.1",
    "e_block_3.4",
    "e_conv_3.0",
    "d_up_conv_1.0",
    "d_up_conv_1.3",
    "d_block_1.1",
    "d_block_1.4",
    "d_block_2.1",
    "d_block_2.4",
    "d_block_3.1",
    "d_block_3.4",
    "d_up_conv_2.0",
    "d_up_conv_2.3",
    "d_up_conv_3.0",
    "d_up_conv_3.3",
)
TRANSPOSED = ("d_up_conv_1.3", "d_up_conv_2.3")

Code = Callable[[Tensor], Tensor]


@image_networks.register("cae")
class CompressiveAutoencoder(ImageNetwork):
    """Pixels in [0, 1] in and out; sides are multiples of four."""

    kind = "cae"
    size = 512
    crop = 32
    steps = 1000
    rate = 1.5e-3

    def __init__(self, features: int = 128) -> None:
        super().__init__(features=features)
        if not 8 <= features <= 512 or features % 8:
            raise AugmentationError("invalid auto-encoder", found=f"features={features}", expected="8, 16, 24, ... 512")

        def downward(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(nn.ZeroPad2d((1, 2, 1, 2)), nn.Conv2d(inputs, outputs, 5, stride=2), nn.LeakyReLU())

        def block() -> nn.Sequential:
            first = nn.Conv2d(features, features, 3)
            second = nn.Conv2d(features, features, 3)
            return nn.Sequential(nn.ZeroPad2d(1), first, nn.LeakyReLU(), nn.ZeroPad2d(1), second)

        def upward(inputs: int, middle: int, outputs: int) -> nn.Sequential:
            narrow = nn.Conv2d(inputs, middle, 3)
            wide = nn.ConvTranspose2d(middle, outputs, 2, stride=2)
            return nn.Sequential(narrow, nn.LeakyReLU(), nn.ZeroPad2d(1), wide)

        # These are the published widths at 128 features; fewer than 16 would be too few for colours.
        quarter = max(16, features // 4)
        eighth = max(16, features // 8)
        self.e_conv_1 = downward(3, features // 2)
        self.e_conv_2 = downward(features // 2, features)
        self.e_block_1 = block()
        self.e_block_2 = block()
        self.e_block_3 = block()
        self.e_conv_3 = nn.Sequential(nn.Conv2d(features, BITS, 5, padding=2), nn.Tanh())
        self.d_up_conv_1 = upward(BITS, features // 2, features)
        self.d_block_1 = block()
        self.d_block_2 = block()
        self.d_block_3 = block()
        self.d_up_conv_2 = upward(features, quarter, 2 * features)
        narrow = nn.Conv2d(2 * features, eighth, 3)
        colours = nn.Conv2d(eighth, 3, 3)
        self.d_up_conv_3 = nn.Sequential(narrow, nn.LeakyReLU(), nn.ReflectionPad2d(2), colours, nn.Tanh())

    def forward(self, pixels: Tensor, uniform: Tensor, before: Code | None = None, after: Code | None = None) -> Tensor:
        """``uniform`` has the code's shape and decides its bits; ``before`` distorts the code, ``after`` the bits."""
        code = self.encode(pixels)
        if before is not None:
            code = before(code)
        bits = binarise(code, uniform)
        if after is not None:
            bits = after(bits)
        return self.decode(bits)

    def encode(self, pixels: Tensor) -> Tensor:
        """The code of the images, (N, 32, H / 4, W / 4) in [-1, 1]."""
        return self.e_conv_3(self._features(pixels))  # type: ignore[no-any-return]

    def _features(self, pixels: Tensor) -> Tensor:
        """The signal before the convolution that makes the code."""
        x: Tensor = self.e_conv_2(self.e_conv_1(pixels))
        for block in (self.e_block_1, self.e_block_2, self.e_block_3):
            x = x + block(x)
        return x

    def decode(self, bits: Tensor) -> Tensor:
        x = self.d_up_conv_1(bits * 2 - 1)
        for block in (self.d_block_1, self.d_block_2, self.d_block_3):
            x = x + block(x)
        return self.d_up_conv_3(self.d_up_conv_2(x))  # type: ignore[no-any-return]

    def prepare(self, images: Tensor) -> None:
        """Sets weights from which minutes of training lead far.

        Signals keep their strength, blocks begin near the identity, the bits of these images' codes are as often one as
        zero, and the output is grey.
        """
        parameters = dict(self.named_parameters())
        for layer in LAYERS:
            # The second convolution of a block, whose name ends in 4, makes the block nearly the identity.
            parameters[f"{layer}.weight"].mul_(0.1 if layer.endswith(".4") else 2.0)
        deviations, means = torch.std_mean(self.e_conv_3[:1](self._features(images)), dim=(0, 2, 3))
        parameters["e_conv_3.0.weight"].mul_(_DECIDED / deviations.view(-1, 1, 1, 1))
        parameters["e_conv_3.0.bias"].sub_(means).mul_(_DECIDED / deviations)
        parameters["d_up_conv_3.3.bias"].fill_(math.atanh(_GREY))

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor]) -> dict[str, object] | None:
        first = weights.get("e_conv_2.1.weight")
        return None if first is None else {"features": len(first)}

    @classmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """A quarter of the paper's width; small images are fed at twice their size, as 512 is twice the usual 256."""
        return {"features": 32}, cls.size if side > 128 else 2 * side

    def loss(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        return mse_loss(self(images, uniform_for(images, generator)), images)

    def measure(self, images: Tensor, generator: np.random.Generator) -> dict[str, float]:
        return {"psnr": psnr(self(images, uniform_for(images, generator)), images)}


def uniform_for(images: Tensor, generator: np.random.Generator) -> Tensor:
    """The random numbers that decide the bits of these images' codes."""
    count, _, height, width = images.shape
    shape = (count, BITS, height // STRIDE, width // STRIDE)
    return torch.from_numpy(generator.random(shape, dtype=np.float32)).to(images.device)


def binarise(code: Tensor, uniform: Tensor) -> Tensor:
    """One with probability (1 + code) / 2, else zero; the gradient passes as if it were (1 + code) / 2 itself."""
    expected = (1 + code) / 2
    bits = (uniform <= expected).to(code.dtype)
    if not code.requires_grad:
        return bits
    return expected + (bits - expected).detach()
