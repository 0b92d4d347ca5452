"""Style transfer: the mathematics of AdaIN, the real encoder, styles from folders, sizes, bad input."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.hardening.augmentations.base import make_image_augmentation
from shiftbench.hardening.augmentations.networks import load_network, save_network, train_network
from shiftbench.hardening.augmentations.stylize import AdaIn
from shiftbench.hardening.errors import AugmentationError, NetworkError
from tests.classifiers import keras_networks


@pytest.fixture(scope="module")
def cifar() -> Dataset:
    return take(open_named("cifar-10-test"), range(40))


@pytest.fixture(scope="module")
def network(cifar: Dataset) -> AdaIn:
    trained = train_network("adain", cifar, steps=8, size=32, show=False)
    assert isinstance(trained, AdaIn)
    return trained


def test_adain_gives_the_code_the_other_ones_statistics() -> None:
    rng = np.random.default_rng(0)
    content = rng.normal(3, 2, (1, 5, 6, 7))
    style = rng.normal(-1, 4, (1, 5, 9, 4))
    wanted = np.stack(
        [
            (c - c.mean()) / np.sqrt(c.var() + 1e-5) * np.sqrt(s.var() + 1e-5) + s.mean()
            for c, s in zip(content[0], style[0], strict=True)
        ]
    )
    adain = AdaIn()
    out = adain.with_statistics(torch.from_numpy(content), adain.statistics(torch.from_numpy(style)))
    np.testing.assert_allclose(out[0].numpy(), wanted, atol=1e-9)
    own = adain.with_statistics(torch.from_numpy(content), adain.statistics(torch.from_numpy(content)))
    np.testing.assert_allclose(own.numpy(), content, atol=1e-9)


def test_the_encoder_is_the_real_squeezenet(network: AdaIn) -> None:
    squeezenet = keras_networks.network("squeezenet1_1")
    conv1, fire2, fire3 = (squeezenet.get_submodule(name) for name in ("conv1", "fire2", "fire3"))
    for name, weight in network.encoder.state_dict().items():
        assert torch.equal(weight, squeezenet.state_dict()[name])
    # Away from the border, where ours adds a row and a column, the codes are the classifier's own.
    pixels = torch.rand(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    caffe = (pixels * 255).flip(1) - torch.tensor([103.939, 116.779, 123.68]).view(1, 3, 1, 1)
    with torch.no_grad():
        x = torch.relu(conv1(caffe))
        x = fire3(fire2(torch.nn.functional.max_pool2d(x, 3, 2)))
        ours = network.encode(pixels)
    assert ours.shape == (1, 128, 16, 16)
    assert torch.allclose(ours[:, :, :12, :12], x[:, :, :12, :12], atol=1e-3)


def test_training_draws_pictures_and_moves_towards_the_style(network: AdaIn, cifar: Dataset) -> None:
    assert network.description["psnr"] > network.description["psnr untrained"] + 3
    assert network.style_means.shape == (36, 128)
    augment = make_image_augmentation("stylize", network=network)
    image = cifar.read(0).pixels
    pictures = {augment(image, np.random.default_rng(seed)).tobytes() for seed in range(5)}
    assert len(pictures) > 2


def test_no_style_is_the_picture_in_its_own(network: AdaIn, cifar: Dataset) -> None:
    image = cifar.read(1).pixels
    augment = make_image_augmentation("stylize", network=network, alpha=0)
    outs = {augment(image, np.random.default_rng(seed)).tobytes() for seed in range(4)}
    assert len(outs) == 1
    with torch.no_grad():
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
        plain = network.decode(network.encode(pixels)).clamp(0, 1)[0].permute(1, 2, 0).numpy() * 255
    assert np.abs(np.frombuffer(outs.pop(), np.uint8).reshape(32, 32, 3) - plain).max() <= 0.51


def test_styles_of_a_folder(network: AdaIn, cifar: Dataset, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    Image.fromarray(np.full((40, 50, 3), (200, 30, 30), np.uint8)).save(tmp_path / "b.png")
    Image.fromarray(cifar.read(5).pixels).save(tmp_path / "deep" / "a.png")
    (tmp_path / "notes.txt").write_text("no image")
    image = cifar.read(2).pixels
    augment = make_image_augmentation("stylize", network=network, styles=tmp_path)
    outs = [augment(image, np.random.default_rng(seed)) for seed in range(12)]
    assert len({out.tobytes() for out in outs}) == 2
    again = pickle.loads(pickle.dumps(augment))
    assert np.array_equal(again(image, np.random.default_rng(3)), outs[3])


@pytest.mark.parametrize("shape", [(32, 32), (33, 47), (61, 20)])
def test_sizes_are_kept(shape: tuple[int, int], network: AdaIn) -> None:
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    out = make_image_augmentation("stylize", network=network)(image, np.random.default_rng(0))
    assert out.shape == image.shape
    assert out.dtype == np.uint8


def test_the_file_keeps_encoder_and_styles(network: AdaIn, cifar: Dataset, tmp_path: Path) -> None:
    path = save_network(network, tmp_path / "adain.safetensors")
    assert load_network(path, AdaIn).options == {"styles": 36}
    image = cifar.read(0).pixels
    one, other = (make_image_augmentation("stylize", network=given) for given in (network, path))
    assert np.array_equal(one(image, np.random.default_rng(1)), other(image, np.random.default_rng(1)))


def test_bad_wishes_are_refused(network: AdaIn, tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="stylize needs"):
        make_image_augmentation("stylize")
    with pytest.raises(AugmentationError, match="of alpha"):
        make_image_augmentation("stylize", network=network, alpha=1.5)
    with pytest.raises(AugmentationError, match="no images of styles"):
        make_image_augmentation("stylize", network=network, styles=tmp_path)
    with pytest.raises(AugmentationError, match="remembers no styles"):
        make_image_augmentation("stylize", network=AdaIn())
    (tmp_path / "broken.png").write_bytes(b"no image at all")
    augment = make_image_augmentation("stylize", network=network, styles=tmp_path)
    with pytest.raises(AugmentationError, match=r"broken\.png"):
        augment(np.zeros((32, 32, 3), np.uint8), np.random.default_rng(0))
