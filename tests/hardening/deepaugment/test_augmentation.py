"""DeepAugment as an augmentation: sizes kept, one generator one image, in any order and with any workers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from shiftbench.classifiers import load_classifier
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import open_named
from shiftbench.datasets.subset import take
from shiftbench.hardening.augmentations.base import ImageAugmentation, make_image_augmentation, stream
from shiftbench.hardening.augmentations.deepaugment.cae import CompressiveAutoencoder
from shiftbench.hardening.augmentations.deepaugment.distortions import (
    Draw,
    body_signals,
    cae_codes,
    cae_weights,
    edsr_weights,
    head_signals,
)
from shiftbench.hardening.augmentations.deepaugment.edsr import EDSR
from shiftbench.hardening.augmentations.networks import network_for
from shiftbench.hardening.errors import AugmentationError, NetworkError
from shiftbench.metrics.intervals import clopper_pearson


@pytest.fixture(scope="module")
def cifar() -> Dataset:
    return take(open_named("cifar-10-test"), range(12))


@pytest.fixture(params=["deepaugment-edsr", "deepaugment-cae", "deepaugment"])
def augmentation(
    request: pytest.FixtureRequest, small_edsr: EDSR, small_cae: CompressiveAutoencoder
) -> ImageAugmentation:
    small_edsr.size = 32
    small_cae.size = 32
    networks: dict[str, dict[str, object]] = {
        "deepaugment-edsr": {"network": small_edsr},
        "deepaugment-cae": {"network": small_cae},
        "deepaugment": {"edsr": small_edsr, "cae": small_cae},
    }
    return make_image_augmentation(request.param, **networks[request.param])


def test_the_size_is_kept_and_the_input_unchanged(augmentation: ImageAugmentation) -> None:
    for seed, shape in enumerate([(32, 32), (33, 47), (20, 61), (97, 64)]):
        image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
        before = image.copy()
        out = augmentation(image, np.random.default_rng(seed))
        assert out.shape == image.shape
        assert out.dtype == np.uint8
        assert np.array_equal(image, before)


def test_the_generator_alone_decides(augmentation: ImageAugmentation, cifar: Dataset) -> None:
    images = [cifar.read(index).pixels for index in range(8)]
    forwards = [augmentation(image, np.random.default_rng(k)) for k, image in enumerate(images)]
    backwards = [augmentation(images[k], np.random.default_rng(k)) for k in reversed(range(8))][::-1]
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(lambda k: augmentation(images[k], np.random.default_rng(k)), range(8)))
    for one, other, third in zip(forwards, backwards, threads, strict=True):
        assert np.array_equal(one, other)
        assert np.array_equal(one, third)
    assert len({out.tobytes() for out in (augmentation(images[0], np.random.default_rng(k)) for k in range(6))}) > 3


def test_the_drawn_distortions_by_hand(small_edsr: EDSR, small_cae: CompressiveAutoencoder, cifar: Dataset) -> None:
    """The same draws from the tables, and the network run with the distorted weights copied into it."""
    image = cifar.read(3).pixels
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float() / 255
    for seed in range(6):
        generator = np.random.default_rng(seed)
        draw = Draw(generator)
        weights = dict(small_edsr.state_dict())
        for _ in range(3):
            list(edsr_weights.values())[generator.integers(17)](weights, draw)
        head = list(head_signals.values())[generator.integers(4)]
        body = list(body_signals.values())[generator.integers(5)]
        network = EDSR(**small_edsr.options)
        network.load_state_dict(weights)
        with torch.no_grad():
            x = network.head((pixels * 255) - 255 * torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1))
            x = head(x, draw)
            out = network.tail(body(network.body, x, draw) + x) / 255
            out = out + torch.tensor([0.4488, 0.4371, 0.4040]).view(1, 3, 1, 1)
        expected = torch.nn.functional.avg_pool2d((out.clamp(0, 1) * 255).round(), 2)[0].permute(1, 2, 0).numpy()
        actual = make_image_augmentation("deepaugment-edsr", network=small_edsr, size=32)(
            image, np.random.default_rng(seed)
        )
        assert np.abs(actual - expected).max() <= 1

        generator = np.random.default_rng(seed)
        draw = Draw(generator)
        weights = dict(small_cae.state_dict())
        list(cae_weights.values())[generator.integers(9)](weights, draw)
        name, code = list(cae_codes.items())[generator.integers(9)]
        uniform = torch.from_numpy(generator.random((1, 32, 8, 8), dtype=np.float32))
        coder = CompressiveAutoencoder(**small_cae.options)
        coder.load_state_dict(weights)
        with torch.no_grad():
            numbers = coder.encode(pixels)
            if name != "scale-bits":
                numbers = code(numbers, draw)
            bits = (uniform <= (1 + numbers) / 2).float()
            out = coder.decode(code(bits, draw) if name == "scale-bits" else bits)
        expected = (out.clamp(0, 1) * 255).round()[0].permute(1, 2, 0).numpy()
        actual = make_image_augmentation("deepaugment-cae", network=small_cae, size=32)(
            image, np.random.default_rng(seed)
        )
        assert np.abs(actual - expected).max() <= 1


def test_published_differs_and_never_draws_the_ninth(small_cae: CompressiveAutoencoder, cifar: Dataset) -> None:
    assert list(cae_weights)[8] == "largest-tap"
    image = cifar.read(0).pixels
    called: list[int] = []
    for published in (False, True):
        augment = make_image_augmentation("deepaugment-cae", network=small_cae, size=16, published=published)
        drawn = _Counting(np.random.default_rng(0), called)
        for _ in range(60):
            drawn.first = True
            augment(image, drawn)  # type: ignore[arg-type]
        assert max(called) == (7 if published else 8)
        called.clear()


class _Counting:
    """A generator that notes the first whole number that is asked of it for each image."""

    def __init__(self, generator: np.random.Generator, called: list[int]) -> None:
        self.generator = generator
        self.called = called
        self.first = True

    def __getattr__(self, name: str) -> object:
        return getattr(self.generator, name)

    def integers(self, high: int, size: int | None = None) -> object:
        value = self.generator.integers(high, size=size)
        if self.first:
            self.first = False
            self.called.append(int(value))
        return value


def test_bad_options_are_refused(small_edsr: EDSR, tmp_path: Path) -> None:
    for size in (8, 5000, 20.5):
        with pytest.raises(AugmentationError, match="of size"):
            make_image_augmentation("deepaugment-edsr", network=small_edsr, size=size)
    for name in ("deepaugment-edsr", "deepaugment-cae", "deepaugment"):
        with pytest.raises(NetworkError, match=f"{name} needs"):
            make_image_augmentation(name)
    with pytest.raises(NetworkError, match="file not found"):
        make_image_augmentation("deepaugment-cae", network=tmp_path / "none.safetensors")


@pytest.mark.soak
def test_a_real_classifier_still_knows_many_augmented_photographs() -> None:
    """The numbers of docs/deepaugment.md: ``pytest -m soak -s tests/hardening/deepaugment``."""
    photographs = open_named("demo")
    classifier = load_classifier("demo:efficientnet-lite0")
    # A third of the usual steps for EDSR, whose steps cost three times as much.
    steps = {"deepaugment-cae": 1000, "deepaugment-edsr": 300}
    networks = {name: network_for(name, train_on=photographs, steps=own, show=False) for name, own in steps.items()}
    right: dict[str, int] = {}
    for name in ("as they are", *networks):
        augment = make_image_augmentation(name, **networks[name]) if name in networks else None
        right[name] = 0
        for index, image_id in enumerate(photographs.ids):
            pixels = photographs.read(index).pixels
            if augment is not None:
                pixels = augment(pixels, stream(0, "augment", image_id, 0))
            scores = classifier.scores(classifier.preprocessing.geometry(pixels)[None])
            right[name] += int(np.argmax(scores) == photographs.labels[index])
        low, high = clopper_pearson(right[name], len(photographs))
        print(f"{name}: {right[name]} of {len(photographs)}, {100 * low:.1f} to {100 * high:.1f} %", flush=True)
    assert right["as they are"] >= 105
    # Many are still recognised, and many are not: the distortion is one.
    for name in networks:
        assert 0.2 < right[name] / len(photographs) < 0.95
