"""Augmentations of batches: Mixup (Zhang et al. 2018), CutMix (Yun et al. 2019) and Noise2Net (000's published code).

Noise2Net sends every image through a random small Res2Net of its own. Half of each batch passes through four blocks,
each x + e * block(x). The weights are drawn anew for every batch and every image, which is one grouped convolution over
the batch. The blocks normalise each channel of each image, so e is a strength in units of the data's standard
deviation; hence pixels are normalised before and after. Unlike in the published code, kernels and dilations are drawn
with the weights, not once per epoch, and pixels are cut off at 0 and 1 in the end.

timm's Mixup class draws from NumPy's global generator. Here the step's own generator decides, so that a run which is
continued, or divided among devices, mixes the same images.
"""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta
from torch import Generator, Tensor
from torch.nn import functional

from shiftbench.extend.options import Probability
from shiftbench.hardening.augmentations.base import BatchAugmentation, Concentration, Share, batch_augmentations


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
        partners = _partners(images, numbers)
        return torch.lerp(images[partners], images, share), torch.lerp(targets[partners], targets, share)

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
        height, width = images.shape[-2:]
        top, bottom = _interval(height, side, numbers)
        left, right = _interval(width, side, numbers)
        partners = _partners(images, numbers)
        out = images.clone()
        out[..., top:bottom, left:right] = images[partners, :, top:bottom, left:right]
        kept = 1 - (bottom - top) * (right - left) / math.prod(images.shape[-2:])
        return out, torch.lerp(targets[partners], targets, kept)

    return mixed


def _interval(length: int, share: float, numbers: np.random.Generator) -> tuple[int, int]:
    """Where a box begins and ends along one axis, around a random centre and cut off at the edges."""
    cut = int(length * share)
    centre = int(numbers.integers(length))
    return max(centre - cut // 2, 0), min(centre + cut // 2, length)


@batch_augmentations.register("mixup-cutmix")
def mixup_or_cutmix(
    mixup_alpha: Concentration = 0.8,
    cutmix_alpha: Concentration = 1.0,
    probability: Probability = 1.0,
    switch: Probability = 0.5,
) -> BatchAugmentation:
    """Mixup, or with the probability ``switch`` CutMix, drawn for each batch; the defaults are DeiT's."""
    mix = mixup(mixup_alpha, probability)
    cut = cutmix(cutmix_alpha, probability)

    def mixed(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        augment = cut if numpy_generator(generator).random() < switch else mix
        return augment(images, targets, generator)

    return mixed


def numpy_generator(generator: Generator) -> np.random.Generator:
    """A NumPy generator that the next number of torch's generator seeds, because torch's own draw no Beta."""
    word = torch.randint(2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    return np.random.default_rng(int(word))


def on_device(generator: Generator, device: torch.device) -> Generator:
    """A generator on the device, seeded by the next number of ``generator``; on a CPU it is that generator itself.

    Many numbers are drawn where they are needed, because copying them to a GPU takes longer. A GPU draws other numbers
    than a CPU; a network that is trained there has other weights anyway, by rounding.
    """
    if generator.device.type == device.type:
        return generator
    word = torch.randint(2**63 - 1, (), dtype=torch.int64, generator=generator, device=generator.device)
    return Generator(device).manual_seed(int(word))


def _partners(images: Tensor, numbers: np.random.Generator) -> Tensor:
    """For each image of a batch, the number of the image that it is mixed with."""
    return torch.from_numpy(numbers.permutation(len(images))).to(images.device)


# Noise2Net

BLOCKS = 4
#: Number of pieces into which a block divides its channels.
SCALES = 4
KERNELS = (1, 3)
DILATIONS = (1, 2, 3)
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


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
    channel_means = torch.tensor(mean, dtype=torch.float32).view(1, 3, 1, 1)
    channel_stds = torch.tensor(std, dtype=torch.float32).view(1, 3, 1, 1)

    def noisy(images: Tensor, targets: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        count = int(len(images) * share)
        if not count:
            return images, targets
        with torch.no_grad():
            means = channel_means.to(images)
            stds = channel_stds.to(images)
            batch_strength = float(numpy_generator(generator).uniform(strength / 2, strength))
            changed = _network((images[:count] - means) / stds, batch_strength, hidden, generator)
            return torch.cat([(changed * stds + means).clamp(0, 1), images[count:]]), targets

    return noisy


def _network(x: Tensor, strength: float, width: int, generator: Generator) -> Tensor:
    for _ in range(BLOCKS):
        x = x + strength * _block(x, width, generator)
    return x


def _block(x: Tensor, width: int, generator: Generator) -> Tensor:
    """A Res2Net block: pieces of the channels, each convolved together with the result of the piece before."""
    shapes = numpy_generator(generator)
    hidden = functional.relu(_normalised(_convolved(x, SCALES * width, generator)))
    *pieces, last = torch.split(hidden, width, dim=1)
    results: list[Tensor] = []
    for piece in pieces:
        kernel = int(shapes.choice(KERNELS))
        dilation = int(shapes.choice(DILATIONS))
        mixed = piece + results[-1] if results else piece
        convolved = _convolved(mixed, width, generator, kernel=kernel, dilation=dilation, bias=True)
        results.append(functional.relu(_normalised(convolved)))
    return _normalised(_convolved(torch.cat([*results, last], dim=1), x.shape[1], generator))


def _convolved(
    x: Tensor, outputs: int, generator: Generator, *, kernel: int = 1, dilation: int = 1, bias: bool = False
) -> Tensor:
    """A separate convolution for every image, with PyTorch's initial weights: U(-b, b), b = 1 / sqrt(fan in)."""
    count, inputs, height, width = x.shape
    bound = 1 / math.sqrt(inputs * kernel * kernel)
    weights = _uniform((count * outputs, inputs, kernel, kernel), bound, x, generator)
    biases = _uniform((count * outputs,), bound, x, generator) if bias else None
    padding = (kernel - 1) // 2 * dilation
    # The images become groups of channels of a single image, so that one grouped convolution computes all of them.
    grouped = x.reshape(1, count * inputs, height, width)
    out = functional.conv2d(grouped, weights, biases, padding=padding, dilation=dilation, groups=count)
    return out.view(count, outputs, height, width)


def _normalised(x: Tensor) -> Tensor:
    """Normalises each channel of each image: the published batch norm, in training mode, sees one image at a time."""
    if x.shape[-1] * x.shape[-2] == 1:  # A single pixel has no spread.
        return torch.zeros_like(x)
    return functional.instance_norm(x)


def _uniform(shape: tuple[int, ...], bound: float, like: Tensor, generator: Generator) -> Tensor:
    local = on_device(generator, like.device)
    return torch.empty(shape, device=local.device).uniform_(-bound, bound, generator=local).to(like)
