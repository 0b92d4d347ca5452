"""The networks of the demo classifiers as one writes them in torch: what their graphs are compared with."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from shiftbench.classifiers.demo import CIFAR_CLASSIFIERS, DEMO_CLASSIFIERS, keras_archive, keras_file
from shiftbench.classifiers.weights import fill, load_weights
from shiftbench.hardening.augmentations.stylize import Fire

#: Squeeze channels of fire modules 2 to 9; each expands to eight times as many.
_SQUEEZE = (16, 16, 32, 32, 48, 48, 64, 64)
#: Fire modules with a pool in front.
_POOLED = (2, 4, 6)
#: Keras' default, and what the file's own description of the network says; torch's is 1e-5.
_EPSILON = 1e-3
#: Channels of the three blocks; each but the first halves the image.
_CHANNELS = (16, 32, 64)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 (Iandola et al. 2016): no padding at the stem, pools that round down, the last rectifier before
    the global mean."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 3, stride=2)
        channels = 64
        for number, squeeze in enumerate(_SQUEEZE, start=2):
            self.add_module(f"fire{number}", Fire(channels, squeeze))
            channels = 8 * squeeze
        self.conv10 = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.conv1(x))
        for number in range(2, 2 + len(_SQUEEZE)):
            if number in _POOLED:
                x = max_pool2d(x, 3, 2)
            x = self.get_submodule(f"fire{number}")(x)
        return relu(self.conv10(x)).mean(dim=(2, 3))


def _same(channels: int, filters: int, size: int, stride: int = 1) -> nn.Sequential:
    """Keras' padding "same", for sides that the stride divides, which 32, 16 and 8 are: where the stride leaves an odd
    surplus, the extra pixel is below and to the right."""
    before = max(size - stride, 0) // 2
    after = -(-max(size - stride, 0) // 2)
    return nn.Sequential(nn.ZeroPad2d((before, after, before, after)), nn.Conv2d(channels, filters, size, stride))


class ResidualBlock(nn.Module):
    """Two 3x3 filters beside a shortcut, which is a bare 1x1 filter where the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _same(channels, filters, 3, stride)
        self.norm1 = nn.BatchNorm2d(filters, eps=_EPSILON)
        self.conv2 = _same(filters, filters, 3)
        self.norm2 = nn.BatchNorm2d(filters, eps=_EPSILON)
        self.shortcut = _same(channels, filters, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(self.shortcut(x) + y)


class ResNet8(nn.Module):
    """ResNet-8 for CIFAR-10, from MLPerf Tiny, up to its logits; the file's own ends in a softmax."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv = _same(3, _CHANNELS[0], 3)
        self.norm = nn.BatchNorm2d(_CHANNELS[0], eps=_EPSILON)
        before = (_CHANNELS[0], *_CHANNELS)
        self.blocks = nn.Sequential(
            *(ResidualBlock(before[i], filters, stride=1 if i == 0 else 2) for i, filters in enumerate(_CHANNELS))
        )
        self.dense = nn.Linear(_CHANNELS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(relu(self.norm(self.conv(x))))
        scores: Tensor = self.dense(x.mean(dim=(2, 3)))
        return scores


#: What Keras calls the layers of each kind.
_KINDS: dict[type[nn.Module], str] = {nn.Conv2d: "conv2d", nn.BatchNorm2d: "batch_normalization", nn.Linear: "dense"}


def load_lite(path: Path, number: int) -> nn.Module:
    """EfficientNet-Lite as its package builds it."""
    import efficientnet_lite_pytorch

    module: nn.Module = efficientnet_lite_pytorch.EfficientNet.from_name(f"efficientnet-lite{number}")
    fill(module, load_weights(path), path.name)
    return module


def network(name: str) -> nn.Module:
    """A demo classifier's, with its weights."""
    path = (DEMO_CLASSIFIERS | CIFAR_CLASSIFIERS)[name].weights()
    if name == "squeezenet1_1":
        return load_squeezenet(path)
    return load_resnet8(path) if name == "resnet8-cifar10" else load_lite(path, int(name[-1]))


def load_squeezenet(path: Path) -> SqueezeNet:
    """SqueezeNet with the weights of an HDF5 file of Keras."""
    module = SqueezeNet()
    module.load_state_dict({name: torch.from_numpy(array) for name, array in keras_file(path).items()})
    return module


def load_resnet8(archive: Path) -> ResNet8:
    """ResNet-8 with the weights of the HDF5 file in the archive.

    Keras numbers the layers of a kind in the order in which they were made, which is the order here too.
    """
    module = ResNet8()
    arrays = keras_archive(archive)
    for kind, word in _KINDS.items():
        for number, layer in enumerate(part for part in module.modules() if type(part) is kind):
            prefix = f"{word}_{number}." if number else f"{word}."
            names = [name for name in arrays if name.startswith(prefix)]
            state = {name.removeprefix(prefix): torch.from_numpy(arrays.pop(name)) for name in names}
            layer.load_state_dict(state, strict=False)  # not in the file: how many batches a norm has seen
    assert not arrays
    return module
