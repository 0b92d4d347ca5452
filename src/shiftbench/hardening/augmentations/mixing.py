"""Augmentations of batches: Mixup (Zhang et al. 2018), CutMix (Yun et al. 2019) and Noise2Net (000's published code).

Noise2Net sends every image through a random small Res2Net of its own. Half of each batch passes through four blocks,
each x + e * block(x). The weights are drawn anew for every batch and every image, which is one grouped convolution over
the batch. The blocks normalise each channel of each image, so e is a strength in units of the data's standard
deviation; hence pixels are normalised before and after. Unlike in the published code, kernels and dilations are drawn
with the weights, not once per epoch, and pixels are cut off at 0 and 1 in the end.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Generator, Tensor
from torch.nn import functional

from shiftbench.hardening.augmentations.base import BatchAugmentation, Concentration, Share, batch_augmentations
from shiftbench.io.schema import Probability


@batch_augmentations.register("mixup")
def mixup(alpha: Concentration = 1.0, probability: Probability = 1.0) -> BatchAugmentation:
    """share * x + (1 - share) * x of another image, and the same of the targets; share ~ Beta(alpha, alpha).

    One share and one permutation for a batch. ``alpha``: 1 for CIFAR, 0.2 for ImageNet.
    """

    def mixed(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        numbers = numpy_generator(generator)
        if numbers.random() >= probability:
            return images, targets
        share = float(numbers.beta(alpha, alpha))
        others = _others(images, numbers)
        return torch.lerp(images[others], images, share), torch.lerp(targets[others], targets, share)

    return mixed


@batch_augmentations.register("cutmix")
def cutmix(alpha: Concentration = 1.0, probability: Probability = 0.5) -> BatchAugmentation:
    """A box of another image pasted in; the targets are mixed by the area that is really seen of each.

    The box has the image's shape and a share 1 - s of its area, s ~ Beta(alpha, alpha), around a uniform centre;
    what falls outside is lost. ``probability``: 0.5 for CIFAR, 1 for ImageNet.
    """

    def mixed(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        numbers = numpy_generator(generator)
        if numbers.random() >= probability:
            return images, targets
        side = math.sqrt(1 - numbers.beta(alpha, alpha))
        ends = []
        for length in images.shape[-2:]:  # where the box begins and ends, cut off at the edges
            cut, centre = int(length * side), int(numbers.integers(length))
            ends += [max(centre - cut // 2, 0), min(centre + cut // 2, length)]
        top, bottom, left, right = ends
        others = _others(images, numbers)
        out = images.clone()
        out[..., top:bottom, left:right] = images[others, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / math.prod(images.shape[-2:])
        return out, torch.lerp(targets[others], targets, kept)

    return mixed


@batch_augmentations.register("mixup-cutmix")
def mixup_or_cutmix(
    mixup_alpha: Concentration = 0.8,
    cutmix_alpha: Concentration = 1.0,
    probability: Probability = 1.0,
    switch: Probability = 0.5,
) -> BatchAugmentation:
    """Mixup, or with the probability ``switch`` CutMix, drawn for each batch; the defaults are DeiT's."""
    kinds = mixup(mixup_alpha, probability), cutmix(cutmix_alpha, probability)

    def mixed(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        return kinds[numpy_generator(generator).random() < switch](images, targets, generator)

    return mixed


def numpy_generator(generator: Generator) -> np.random.Generator:
    """NumPy's distributions (torch draws no Beta from a generator), named by the next number of torch's."""
    word = torch.randint(2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    return np.random.default_rng(int(word))


def _others(images: Tensor, numbers: np.random.Generator) -> Tensor:
    return torch.from_numpy(numbers.permutation(len(images))).to(images.device)


# Noise2Net

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

    def noisy(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        count = int(len(images) * share)
        if not count:
            return images, targets
        with torch.no_grad():
            middle, scale = shift.to(images), spread.to(images)
            strength_now = float(numpy_generator(generator).uniform(strength / 2, strength))
            changed = _network((images[:count] - middle) / scale, strength_now, hidden, generator)
            return torch.cat([(changed * scale + middle).clamp(0, 1), images[count:]]), targets

    return noisy


def _network(x: Tensor, strength: float, width: int, generator: Generator) -> Tensor:
    for _ in range(BLOCKS):
        x = x + strength * _block(x, width, generator)
    return x


def _block(x: Tensor, width: int, generator: Generator) -> Tensor:
    """One Res2Net block: pieces of the channels, each convolved together with the result of the piece before."""
    shapes = numpy_generator(generator)
    hidden = functional.relu(_normalised(_convolved(x, SCALES * width, generator)))
    *pieces, last = torch.split(hidden, width, dim=1)
    done: list[Tensor] = []
    for piece in pieces:
        kernel, dilation = int(shapes.choice(KERNELS)), int(shapes.choice(DILATIONS))
        mixed = piece + done[-1] if done else piece
        convolved = _convolved(mixed, width, generator, kernel=kernel, dilation=dilation, bias=True)
        done.append(functional.relu(_normalised(convolved)))
    return _normalised(_convolved(torch.cat([*done, last], dim=1), x.shape[1], generator))


def _convolved(
    x: Tensor, outputs: int, generator: Generator, *, kernel: int = 1, dilation: int = 1, bias: bool = False
) -> Tensor:
    """A convolution of its own for every image, with PyTorch's first weights: U(-b, b), b = 1 / sqrt(fan in)."""
    count, inputs, height, width = x.shape
    bound = 1 / math.sqrt(inputs * kernel * kernel)
    weights = _uniform((count * outputs, inputs, kernel, kernel), bound, x, generator)
    biases = _uniform((count * outputs,), bound, x, generator) if bias else None
    padding = (kernel - 1) // 2 * dilation
    together = x.reshape(1, count * inputs, height, width)
    out = functional.conv2d(together, weights, biases, padding=padding, dilation=dilation, groups=count)
    return out.view(count, outputs, height, width)


def _normalised(x: Tensor) -> Tensor:
    """The published batch normalisation in training mode sees one image at a time, that is each channel alone."""
    if x.shape[-1] * x.shape[-2] == 1:  # one pixel has no spread
        return torch.zeros_like(x)
    return functional.instance_norm(x)


def _uniform(shape: tuple[int, ...], bound: float, like: Tensor, generator: Generator) -> Tensor:
    return torch.empty(shape, device=generator.device).uniform_(-bound, bound, generator=generator).to(like)
