"""SqueezeNet 1.1 as Keras' weights of it expect: no padding at the stem, pools that round down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from shiftbench.errors import MissingExtraError

#: Squeeze channels of fire modules 2 to 9; each expands to eight times as many.
_SQUEEZE = (16, 16, 32, 32, 48, 48, 64, 64)
#: Fire modules with a pool in front.
_POOLED = (2, 4, 6)


class Fire(nn.Module):
    """Squeeze to few channels, then expand by 1x1 and 3x3 filters side by side."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        self.squeeze1x1 = nn.Conv2d(channels, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, 4 * squeeze, 1)
        self.expand3x3 = nn.Conv2d(squeeze, 4 * squeeze, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.squeeze1x1(x))
        return torch.cat([relu(self.expand1x1(x)), relu(self.expand3x3(x))], dim=1)


class SqueezeNet(nn.Module):
    """SqueezeNet 1.1 (Iandola et al. 2016); the last rectifier stands before the global mean."""

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


def load_keras_weights(module: SqueezeNet, path: Path) -> None:
    """Fill the module from an HDF5 file of Keras; its filters are (height, width, in, out)."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py", "demo", "reading the weights of SqueezeNet") from error
    state: dict[str, Tensor] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        # "conv1/conv1_W:0" and "fire2/expand1x1/fire2/expand1x1_W:0"
        *folders, leaf = name.split("/")
        layer, kind = leaf.removesuffix(":0").rsplit("_", 1)
        stem = layer if folders[0] == layer else f"{folders[0]}.{layer}"
        array = np.asarray(item[()], np.float32)
        if kind == "W":
            array = array.transpose(3, 2, 0, 1)
        state[f"{stem}.{'weight' if kind == 'W' else 'bias'}"] = torch.from_numpy(np.ascontiguousarray(array))

    with h5py.File(path) as file:
        file.visititems(visit)
    module.load_state_dict(state)
