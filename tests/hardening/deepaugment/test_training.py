"""Networks trained on real images learn to restore them, the same for the same seed; bad wishes get clear words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.hardening.augmentations.base import image_augmentations
from shiftbench.hardening.augmentations.deepaugment.cae import CompressiveAutoencoder
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from shiftbench.hardening.augmentations.networks import (
    NEEDS,
    image_networks,
    load_network,
    network_for,
    train_network,
)
from shiftbench.hardening.errors import NetworkError


@pytest.fixture(scope="module")
def cifar() -> Dataset:
    return take(open_named("cifar-10-test"), range(60))


def test_a_brief_training_restores_pictures_better(cifar: Dataset) -> None:
    edsr = train_network("edsr", cifar, steps=25, show=False, blocks=2, features=16)
    assert edsr.description["steps"] == 25
    assert edsr.description["psnr"] > edsr.description["psnr untrained"] + 4
    cae = train_network("cae", cifar, steps=40, show=False, size=32)
    assert cae.description["psnr"] > cae.description["psnr untrained"] + 1.5
    for network in (edsr, cae):
        assert network.description["fingerprint"] == cifar.fingerprint
        assert not network.training
        assert not any(weight.requires_grad for weight in network.parameters())


def test_the_same_seed_gives_the_same_network(cifar: Dataset) -> None:
    state = torch.random.get_rng_state()
    one, again, other = (
        train_network("edsr", cifar, steps=3, seed=seed, show=False, blocks=2, features=8).state_dict()
        for seed in (1, 1, 2)
    )
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_budget_of_seconds_ends(cifar: Dataset) -> None:
    network = train_network("edsr", cifar, seconds=0.3, show=False, blocks=2, features=8)
    assert network.description["steps"] >= 1


def test_networks_are_kept_and_used_again(cifar: Dataset, tmp_path: Path) -> None:
    options = network_for("deepaugment", train_on=cifar, folder=tmp_path, steps=1, show=False)
    assert set(options) == {"edsr", "cae"}
    before = {path: Path(path).stat().st_mtime_ns for path in options.values()}
    assert network_for("deepaugment", train_on=cifar, folder=tmp_path, steps=1, show=False) == options
    assert {path: Path(path).stat().st_mtime_ns for path in options.values()} == before
    assert load_network(options["edsr"], EDSR).description["steps"] == 1
    assert network_for("deepaugment", tmp_path) == options
    augmentation = image_augmentations.get("deepaugment")(**options)
    image = cifar.read(0).pixels
    assert augmentation(image, np.random.default_rng(0)).shape == image.shape


def test_what_needs_no_network_gets_none() -> None:
    assert network_for("flip") == {}
    assert set(NEEDS) <= set(image_augmentations.names())
    assert {kind for needs in NEEDS.values() for kind in needs.values()} == set(image_networks.names())


def test_wishes_that_cannot_be_met(cifar: Dataset, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="--train-network"):
        network_for("deepaugment-cae")
    with pytest.raises(NetworkError, match="two networks"):
        network_for("deepaugment", tmp_path / "one.pt")
    with pytest.raises(NetworkError, match="no network of the kind 'edsr'"):
        network_for("deepaugment", tmp_path)
    with pytest.raises(NetworkError, match="too few images"):
        train_network("edsr", take(cifar, range(3)), show=False)
    for budget in ({"steps": 0}, {"seconds": -1.0}, {"steps": 1, "seconds": 1.0}):
        with pytest.raises(NetworkError, match="bad budget"):
            train_network("edsr", cifar, show=False, **budget)


def test_a_diverging_loss_is_told_and_nothing_is_saved(
    cifar: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverging(self: CompressiveAutoencoder, pictures: Tensor, generator: np.random.Generator) -> Tensor:
        return self.encode(pictures).sum() * float("nan")

    monkeypatch.setattr(CompressiveAutoencoder, "loss", diverging)
    with pytest.raises(NetworkError, match="diverged"):
        network_for("deepaugment-cae", train_on=cifar, folder=tmp_path, steps=2, show=False)
    assert not list(tmp_path.glob("*.safetensors"))
