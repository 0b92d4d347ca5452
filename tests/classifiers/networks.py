"""Small networks and functions for tests, at module level so that they can be pickled."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.datasets.geometry import Geometry

SMALL = Preprocessing(Geometry(36, 32))


class Small(nn.Module):
    """Two convolutions and a linear layer: enough to have weights, shapes and a batch axis."""

    def __init__(self, classes: int = 3, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.features = nn.Sequential(
                nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()
            )
            self.head = nn.Linear(16, classes)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(x).mean(dim=(2, 3)))
        return scores


class Untraceable(Small):
    """A loop over the images with a branch that depends on their values: a trace of it is wrong for others."""

    def forward(self, x: Tensor) -> Tensor:
        rows = zip(x, super().forward(x), strict=True)
        return torch.stack([row * 2 if float(image.mean()) > 0 else row for image, row in rows])


class Attention(nn.Module):
    """Sixteen patches that look at each other: small matrix products, whose kernels depend on the batch size."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.query = nn.Linear(192, 192)
            self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.reshape(x.shape[0], 16, 192)
        weights = torch.softmax(self.query(patches) @ patches.transpose(1, 2) / 14, dim=-1)
        scores: Tensor = self.head((weights @ patches).mean(dim=1))
        return scores


class Dictionary(Small):
    def forward(self, x: Tensor) -> Any:
        return {"logits": super().forward(x), "features": x}


class Doubled(Small):
    """The weights and the structure of ``Small``, and another forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def mean_colours(images: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Scores over three classes: how red, green and blue the picture is."""
    colours: np.ndarray[Any, Any] = images.reshape(len(images), -1, 3).mean(axis=1)
    return colours
