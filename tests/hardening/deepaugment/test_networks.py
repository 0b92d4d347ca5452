"""The networks themselves, and their files: published names, our own, and files that are none."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from shiftbench.hardening.augmentations.deepaugment.cae import CompressiveAutoencoder, binarise, uniform_for
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from shiftbench.hardening.augmentations.networks import (
    as_pixels,
    as_tensor,
    fed_size,
    load_network,
    psnr,
    save_network,
)
from shiftbench.hardening.errors import AugmentationError, NetworkError


def test_edsr_is_the_published_baseline(edsr: EDSR) -> None:
    # Table 1 of Lim et al. 2017 gives 1.5 million weights; the two shifts of the mean colour add 24.
    assert sum(weight.numel() for weight in edsr.parameters()) == 1_517_571 + 24
    assert edsr(torch.rand(1, 3, 7, 10)).shape == (1, 3, 28, 40)


def test_an_edsr_that_does_nothing_gives_the_mean_colour(small_edsr: EDSR) -> None:
    zeros = {name: torch.zeros_like(w) for name, w in small_edsr.named_parameters() if "mean" not in name}
    out = torch.func.functional_call(small_edsr, zeros, (torch.rand(1, 3, 4, 4),))
    assert torch.allclose(out[0, :, 0, 0], torch.tensor([0.4488, 0.4371, 0.4040]), atol=1e-6)


@pytest.mark.parametrize("scale", [2, 3, 4])
def test_published_files_of_edsr_load_by_their_names(scale: int, tmp_path: Path) -> None:
    torch.manual_seed(scale)
    network = EDSR(scale=scale, blocks=3, features=8)
    path = tmp_path / f"edsr_x{scale}.pt"
    torch.save(network.state_dict(), path)
    names = set(network.state_dict())
    assert {"sub_mean.weight", "head.0.weight", "body.2.body.2.bias", "body.3.weight", "tail.0.0.weight"} <= names
    loaded = load_network(path, EDSR)
    assert loaded.options == {"scale": scale, "blocks": 3, "features": 8}
    assert loaded.size == 128
    pixels = torch.rand(1, 3, 5, 6)
    assert torch.equal(loaded(pixels), network(pixels))


def test_published_files_of_the_auto_encoder_load_too(small_cae: CompressiveAutoencoder, tmp_path: Path) -> None:
    path = tmp_path / "model_final.state"
    torch.save(small_cae.state_dict(), path)
    loaded = load_network(path, CompressiveAutoencoder)
    assert loaded.options == {"features": 16}
    assert loaded.size == 512
    assert all(torch.equal(weight, small_cae.state_dict()[name]) for name, weight in loaded.state_dict().items())


def test_our_own_files_keep_the_description(small_edsr: EDSR, tmp_path: Path) -> None:
    small_edsr.size = 32
    small_edsr.description = {"steps": 7}
    path = save_network(small_edsr, tmp_path / "own.safetensors")
    loaded = load_network(path, EDSR)
    assert (loaded.size, loaded.description) == (32, {"steps": 7})
    assert [file.name for file in tmp_path.iterdir()] == ["own.safetensors"]
    with pytest.raises(NetworkError, match=r"ends in \.safetensors"):
        save_network(small_edsr, tmp_path / "own.pt")


def test_files_without_a_network_are_refused(
    small_edsr: EDSR, small_cae: CompressiveAutoencoder, tmp_path: Path
) -> None:
    with pytest.raises(NetworkError, match="file not found"):
        load_network(tmp_path / "missing.pt", EDSR)
    save_network(small_cae, tmp_path / "cae.safetensors")
    with pytest.raises(NetworkError, match="a network of the kind 'cae'"):
        load_network(tmp_path / "cae.safetensors", EDSR)
    torch.save({"fc.weight": torch.zeros(3)}, tmp_path / "other.pt")
    with pytest.raises(NetworkError, match=r"weights named fc\.weight"):
        load_network(tmp_path / "other.pt", CompressiveAutoencoder)
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "cae.safetensors").read_bytes()[:1000])
    with pytest.raises(NetworkError, match="safetensors"):
        load_network(tmp_path / "cut.safetensors", CompressiveAutoencoder)
    lame = {name: weight for name, weight in small_edsr.state_dict().items() if name != "body.1.body.2.weight"}
    torch.save(lame, tmp_path / "lame.pt")
    with pytest.raises(NetworkError, match=r"body\.1\.body\.2\.weight"):
        load_network(tmp_path / "lame.pt", EDSR)
    save_file(small_edsr.state_dict(), tmp_path / "odd.safetensors", metadata={"shiftbench": "[not json"})
    with pytest.raises(NetworkError, match="description"):
        load_network(tmp_path / "odd.safetensors", EDSR)


class Trap:
    ran = False

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (exec, ("from tests.hardening.deepaugment.test_networks import Trap; Trap.ran = True",))


def test_pickled_code_is_not_run(tmp_path: Path) -> None:
    torch.save({"head.0.weight": Trap()}, tmp_path / "trap.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Trap(), protocol=2))
    for name in ("trap.pt", "plain.pt"):
        with pytest.raises(NetworkError, match="holds no network"):
            load_network(tmp_path / name, EDSR)
    assert not Trap.ran


def test_impossible_networks_are_refused() -> None:
    for options in ({"scale": 5}, {"blocks": 1}, {"features": 2}):
        with pytest.raises(AugmentationError, match="size of an EDSR"):
            EDSR(**options)
    with pytest.raises(AugmentationError, match="features=12"):
        CompressiveAutoencoder(features=12)


def test_the_auto_encoder_keeps_the_size_of_pictures(cae: CompressiveAutoencoder) -> None:
    pixels = torch.rand(1, 3, 12, 20)
    uniform = uniform_for(pixels, np.random.default_rng(0))
    assert uniform.shape == cae.encode(pixels).shape == (1, 32, 3, 5)
    assert cae(pixels, uniform).shape == pixels.shape


def test_bits_are_drawn_with_their_probability_and_pass_the_gradient() -> None:
    code = torch.tensor([-1.0, -0.5, 0.0, 0.8, 1.0, 3.0]).repeat(20_000, 1)
    bits = binarise(code, torch.rand(code.shape, generator=torch.Generator().manual_seed(0)))
    assert set(bits.flatten().tolist()) == {0.0, 1.0}
    np.testing.assert_allclose(bits.mean(dim=0), [0, 0.25, 0.5, 0.9, 1, 1], atol=0.01)
    learnt = code[:1].clone().requires_grad_()
    [gradient] = torch.autograd.grad(binarise(learnt, torch.full(learnt.shape, 0.5)).sum(), learnt)
    assert torch.equal(gradient, torch.full(learnt.shape, 0.5))


def test_psnr_and_conversions_by_hand() -> None:
    one = torch.zeros(2, 3, 4, 4)
    other = one.clone()
    other[0] += 0.1
    other[1] += 0.01
    assert psnr(other, one) == pytest.approx((20 + 40) / 2, abs=1e-3)
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    assert np.array_equal(as_pixels(as_tensor(image)), image)
    assert as_pixels(torch.tensor([math.nan, math.inf, -math.inf]).view(1, 3, 1, 1)).tolist() == [[[0, 255, 0]]]
    assert fed_size(np.zeros((30, 91, 3), np.uint8), 16, 4) == (16, 48)
