"""A small training: two classes by brightness, eight photographs each, a network with dropout and batch norm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import shiftbench as sb
from shiftbench.classifiers.zoo import import_torchvision

# Lightning imports torchvision, which fails by itself if it was built for another torch.
import_torchvision()

PER_CLASS = 12
#: What the network wants: 16 px as they are, scaled to [0, 1].
PREPROCESSING = sb.Preprocessing(
    sb.Geometry(resize=None, crop=None), sb.Normalisation(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training") / "photos"
    rng = np.random.default_rng(0)
    for name, level in (("dark", 60), ("light", 190)):
        (folder / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            pixels = np.clip(rng.normal(level, 40, (16, 16, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")
    return folder


class Network(torch.nn.Module):
    #: Images that any instance has seen: a clock that knows no load.
    seen = 0

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3),
            torch.nn.BatchNorm2d(4),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Dropout(0.5),
            torch.nn.Linear(4, 2),
        )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        Network.seen += len(images)
        scores: torch.Tensor = self.layers(images)
        return scores


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    return Network()


@pytest.fixture
def settings(photographs: Path, tmp_path: Path) -> dict[str, Any]:
    """Arguments of a monitor with three settings: clean, and two corruptions at one severity."""
    return {
        "data": photographs,
        "labels": "folders",
        "preprocessing": PREPROCESSING,
        "corruptions": ("contrast", "gaussian_noise"),
        "severities": (3,),
        "workspace": tmp_path / "workspace",
        "name": "net",
    }


@pytest.fixture
def monitor(settings: dict[str, Any]) -> sb.Monitor:
    return sb.Monitor(**settings)
