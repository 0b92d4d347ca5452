"""EDSR (Lim et al. 2017), the super-resolution network of DeepAugment's first branch.

The names of the layers are those of the authors' files, so that their weights load as they are. ``EDSR()`` is the
published baseline: 16 residual blocks, 64 features, four times the size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, l1_loss

from shiftbench.hardening.augmentations.networks import ImageNetwork, image_networks, psnr
from shiftbench.hardening.errors import AugmentationError

#: The mean colour of DIV2K, which the published weights were trained to expect.
_MEAN = (0.4488, 0.4371, 0.4040)
_RANGE = 255

Signal = Callable[[Tensor], Tensor]
#: A function from the body's modules and its input to its output.
BodyRun = Callable[[nn.Sequential, Tensor], Tensor]


def _convolution(inputs: int, outputs: int) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, padding=1)


class _MeanShift(nn.Conv2d):
    """Subtracts or adds the mean colour. It is a convolution only because the published files hold it as one."""

    def __init__(self, sign: int) -> None:
        super().__init__(3, 3, 1)
        self.requires_grad_(False)
        self.weight.copy_(torch.eye(3).view(3, 3, 1, 1))
        assert self.bias is not None
        self.bias.copy_(sign * _RANGE * torch.tensor(_MEAN))


class _Block(nn.Module):
    """A residual block."""

    def __init__(self, features: int) -> None:
        super().__init__()
        second = _convolution(features, features)
        # Blocks begin near the identity, so that a deep body learns within minutes.
        with torch.no_grad():
            second.weight.mul_(0.1)
        self.body = nn.Sequential(_convolution(features, features), nn.ReLU(), second)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)  # type: ignore[no-any-return]


@image_networks.register("edsr")
class EDSR(ImageNetwork):
    """Pixels in [0, 1] in, ``scale`` times as wide and high out."""

    kind = "edsr"
    size = 128
    crop = 64
    steps = 1000
    rate = 2e-3

    def __init__(self, scale: int = 4, blocks: int = 16, features: int = 64) -> None:
        super().__init__(scale=scale, blocks=blocks, features=features)
        if scale not in (2, 3, 4, 8) or not 2 <= blocks <= 64 or not 4 <= features <= 512:
            raise AugmentationError(
                "invalid size of an EDSR",
                found=f"scale={scale}, blocks={blocks}, features={features}",
                expected="scale 2, 3, 4 or 8, 2 to 64 blocks, 4 to 512 features",
            )
        self.scale = scale
        self.sub_mean = _MeanShift(-1)
        self.add_mean = _MeanShift(1)
        self.head = nn.Sequential(_convolution(3, features))
        self.body = nn.Sequential(*(_Block(features) for _ in range(blocks)), _convolution(features, features))
        # The image grows by a factor of 3 at once, or of 2 as often as needed.
        factors = [3] if scale == 3 else [2] * (scale.bit_length() - 1)
        enlarging: list[nn.Module] = []
        for factor in factors:
            enlarging += [_convolution(features, factor**2 * features), nn.PixelShuffle(factor)]
        self.tail = nn.Sequential(nn.Sequential(*enlarging), _convolution(features, 3))

    def forward(self, pixels: Tensor, after_head: Signal | None = None, body_run: BodyRun | None = None) -> Tensor:
        x = self.head(self.sub_mean(pixels * _RANGE))
        if after_head is not None:
            x = after_head(x)
        change = self.body(x) if body_run is None else body_run(self.body, x)
        x = x + change
        return self.add_mean(self.tail(x)) / _RANGE  # type: ignore[no-any-return]

    @classmethod
    def options_of(cls, weights: Mapping[str, Tensor]) -> dict[str, object] | None:
        if "head.0.weight" not in weights or "tail.1.weight" not in weights:
            return None
        features = len(weights["head.0.weight"])
        enlarging = [name for name in weights if name.startswith("tail.0.") and name.endswith("weight")]
        steps = [len(weights[name]) // features for name in enlarging]
        blocks = sum(name.startswith("body.") and name.endswith(".body.0.weight") for name in weights)
        return {"scale": round(float(np.prod(np.sqrt(steps)))), "blocks": blocks, "features": features}

    @classmethod
    def suited(cls, side: int) -> tuple[dict[str, object], int]:
        """Half the paper's depth and width, which minutes on a processor can train; small images are not reduced."""
        if side < cls.size:
            return {"scale": 2, "blocks": 8, "features": 32}, side
        return {"scale": 4, "blocks": 8, "features": 32}, cls.size

    def training_side(self, size: int, side: int) -> int:
        """Sharp images as large as the network's output, if the images are that large."""
        return min(size * self.scale, max(size, side))

    def loss(self, images: Tensor, generator: np.random.Generator) -> Tensor:
        small, large = self._pair(images)
        return l1_loss(self(small), large)

    def measure(self, images: Tensor, generator: np.random.Generator) -> dict[str, float]:
        small, large = self._pair(images)
        bicubic = interpolate(small, scale_factor=self.scale, mode="bicubic", align_corners=False)
        return {"psnr": psnr(self(small), large), "psnr of bicubic enlargement": psnr(bicubic, large)}

    def _pair(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The reduced images, and the images themselves with sides that are multiples of the scale."""
        height = images.shape[2] // self.scale * self.scale
        width = images.shape[3] // self.scale * self.scale
        large = images[:, :, :height, :width]
        small = interpolate(large, scale_factor=1 / self.scale, mode="bicubic", antialias=True, align_corners=False)
        return small.clamp(0, 1), large
