"""Noise2Net (paper 000's published code): every image through a random small Res2Net of its own.

Half of each batch passes through four blocks, each x + e * block(x). The weights are drawn anew for every batch and
every image, which is one grouped convolution over the batch. The blocks normalise each channel of each image,
so e is a strength in units of the data's standard deviation; hence pixels are normalised before and after.

Differences from the published code: kernels and dilations are drawn with the weights, not once an epoch, and pixels
are cut off at 0 and 1 in the end.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from msgspec import Meta
from torch.nn import functional

from shiftbench.hardening.augmentations.base import BatchAugmentation, Share, batch_augmentations
from shiftbench.hardening.augmentations.mixing import numpy_generator
from shiftbench.io.schema import Probability

BLOCKS, SCALES, KERNELS, DILATIONS = 4, 4, (1, 3), (1, 2, 3)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@batch_augmentations.register("noise2net")
def noise2net(
    strength: Annotated[float, Meta(ge=0, le=100)] = 0.75,
    share: Probability = 0.5,
    hidden: Annotated[int, Meta(ge=1, le=1024)] = 16,
    mean: tuple[Probability, Probability, Probability] = IMAGENET_MEAN,
    std: tuple[Share, Share, Share] = IMAGENET_STD,
) -> BatchAugmentation:
    """The first ``share`` of a batch through random networks; e ~ U(strength / 2, strength), one for a batch.

    ``mean`` and ``std`` are those that the classifier normalises with; targets stay as they are.
    """
    shift, spread = (torch.tensor(values, dtype=torch.float32).view(1, 3, 1, 1) for values in (mean, std))

    def noisy(
        images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = int(len(images) * share)
        if not count:
            return images, targets
        with torch.no_grad():
            middle, scale = shift.to(images), spread.to(images)
            strength_now = float(numpy_generator(generator).uniform(strength / 2, strength))
            changed = _network((images[:count] - middle) / scale, strength_now, hidden, generator)
            return torch.cat([(changed * scale + middle).clamp(0, 1), images[count:]]), targets

    return noisy


def _network(x: torch.Tensor, strength: float, width: int, generator: torch.Generator) -> torch.Tensor:
    for _ in range(BLOCKS):
        x = x + strength * _block(x, width, generator)
    return x


def _block(x: torch.Tensor, width: int, generator: torch.Generator) -> torch.Tensor:
    """One Res2Net block: pieces of the channels, each convolved together with the result of the piece before."""
    shapes = numpy_generator(generator)
    hidden = functional.relu(_normalised(_convolved(x, SCALES * width, generator)))
    *pieces, last = torch.split(hidden, width, dim=1)
    done: list[torch.Tensor] = []
    for piece in pieces:
        kernel, dilation = int(shapes.choice(KERNELS)), int(shapes.choice(DILATIONS))
        mixed = piece + done[-1] if done else piece
        convolved = _convolved(mixed, width, generator, kernel=kernel, dilation=dilation, bias=True)
        done.append(functional.relu(_normalised(convolved)))
    return _normalised(_convolved(torch.cat([*done, last], dim=1), x.shape[1], generator))


def _convolved(
    x: torch.Tensor, outputs: int, generator: torch.Generator, *, kernel: int = 1, dilation: int = 1, bias: bool = False
) -> torch.Tensor:
    """A convolution of its own for every image, with PyTorch's first weights: U(-b, b), b = 1 / sqrt(fan in)."""
    count, inputs, height, width = x.shape
    bound = 1 / math.sqrt(inputs * kernel * kernel)
    weights = _uniform((count * outputs, inputs, kernel, kernel), bound, x, generator)
    biases = _uniform((count * outputs,), bound, x, generator) if bias else None
    padding = (kernel - 1) // 2 * dilation
    together = x.reshape(1, count * inputs, height, width)
    out = functional.conv2d(together, weights, biases, padding=padding, dilation=dilation, groups=count)
    return out.view(count, outputs, height, width)


def _normalised(x: torch.Tensor) -> torch.Tensor:
    """The published batch normalisation in training mode sees one image at a time, that is each channel alone."""
    if x.shape[-1] * x.shape[-2] == 1:  # one pixel has no spread
        return torch.zeros_like(x)
    return functional.instance_norm(x)


def _uniform(shape: tuple[int, ...], bound: float, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    drawn = torch.empty(shape, device=generator.device).uniform_(-bound, bound, generator=generator)
    return drawn.to(like)
