"""Networks of the published size, untrained: what a distortion does to weights needs no training to be seen."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shiftbench.hardening.augmentations.deepaugment.cae import CompressiveAutoencoder
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR


@pytest.fixture(scope="session")
def edsr() -> EDSR:
    torch.manual_seed(0)
    return EDSR().eval().requires_grad_(False)


@pytest.fixture(scope="session")
def thin_edsr() -> EDSR:
    """All blocks of the published network, which decide what is drawn, with few features."""
    torch.manual_seed(0)
    return EDSR(features=8).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def small_edsr() -> EDSR:
    torch.manual_seed(1)
    return EDSR(scale=2, blocks=4, features=8).eval().requires_grad_(False)


@pytest.fixture(scope="session")
def cae() -> CompressiveAutoencoder:
    torch.manual_seed(2)
    return CompressiveAutoencoder().eval().requires_grad_(False)


@pytest.fixture(scope="session")
def small_cae() -> CompressiveAutoencoder:
    torch.manual_seed(3)
    return CompressiveAutoencoder(features=16).eval().requires_grad_(False)


@pytest.fixture
def generator() -> np.random.Generator:
    return np.random.default_rng(0)
