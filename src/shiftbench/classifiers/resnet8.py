"""ResNet-8 for CIFAR-10, the image classifier of MLPerf Tiny, as Keras' weights of it expect."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from shiftbench.errors import ClassifierError, MissingExtraError

#: Keras' default, and what the file's own description of the network says; torch's is 1e-5.
_EPSILON = 1e-3
#: Channels of the three blocks; each but the first halves the image.
_CHANNELS = (16, 32, 64)
#: The weights inside the archive.
_MEMBER = "image_classification.h5"


class Same(nn.Conv2d):
    """Keras' padding "same": where the stride leaves an odd surplus, the extra pixel is below and to the right."""

    def __init__(self, channels: int, filters: int, size: int, stride: int = 1) -> None:
        super().__init__(channels, filters, size, stride)
        # For sides that the stride divides, which 32, 16 and 8 are.
        surplus = max(size - stride, 0)
        self.before, self.after = surplus // 2, surplus - surplus // 2

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(pad(x, (self.before, self.after, self.before, self.after)))


class Block(nn.Module):
    """Two 3x3 filters beside a shortcut, which is a bare 1x1 filter where the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = Same(channels, filters, 3, stride)
        self.norm1 = nn.BatchNorm2d(filters, eps=_EPSILON)
        self.conv2 = Same(filters, filters, 3)
        self.norm2 = nn.BatchNorm2d(filters, eps=_EPSILON)
        self.shortcut = Same(channels, filters, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(self.shortcut(x) + y)


class ResNet8(nn.Module):
    """The network up to its logits; the file's own ends in a softmax."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv = Same(3, _CHANNELS[0], 3)
        self.norm = nn.BatchNorm2d(_CHANNELS[0], eps=_EPSILON)
        before = (_CHANNELS[0], *_CHANNELS)
        self.blocks = nn.Sequential(
            *(Block(before[i], filters, stride=1 if i == 0 else 2) for i, filters in enumerate(_CHANNELS))
        )
        self.dense = nn.Linear(_CHANNELS[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(relu(self.norm(self.conv(x))))
        scores: Tensor = self.dense(x.mean(dim=(2, 3)))
        return scores


#: What Keras calls the layers of each kind, and their arrays in torch's words.
_KINDS: dict[type[nn.Module], tuple[str, dict[str, str]]] = {
    Same: ("conv2d", {"weight": "kernel", "bias": "bias"}),
    nn.BatchNorm2d: (
        "batch_normalization",
        {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"},
    ),
    nn.Linear: ("dense", {"weight": "kernel", "bias": "bias"}),
}


def load_keras_weights(module: ResNet8, archive: Path) -> None:
    """Fill the module from the HDF5 file in the archive.

    Keras numbers the layers of a kind in the order in which they were made, which is the order here too.
    """
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "demo", "reading the weights of ResNet-8") from error
    with zipfile.ZipFile(archive) as opened:
        data = io.BytesIO(opened.read(_MEMBER))
    with h5py.File(data) as file:
        _fill(module, file["model_weights"], archive.name)


def _fill(module: ResNet8, groups: Any, title: str) -> None:
    used = []
    for kind, (word, arrays) in _KINDS.items():
        for number, layer in enumerate(part for part in module.modules() if type(part) is kind):
            name = f"{word}_{number}" if number else word
            used.append(name)
            state = {ours: _torch(groups[f"{name}/{name}/{theirs}:0"][()]) for ours, theirs in arrays.items()}
            layer.load_state_dict(state, strict=False)  # not in the file: how many batches a norm has seen
    unused = {name for name, group in groups.items() if len(group)} - set(used)
    if unused:
        raise ClassifierError(f"{title} holds another network", found=f"also {', '.join(sorted(unused))}")


def _torch(array: Any) -> Tensor:
    """Keras' filters are (height, width, in, out), its matrices (in, out)."""
    axes = {4: (3, 2, 0, 1), 2: (1, 0)}.get(array.ndim, (0,))
    return torch.from_numpy(np.ascontiguousarray(array.transpose(axes), np.float32))
