"""Descriptions read from timm, torchvision and Hugging Face give the pixels of their own transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.classifiers.configs import from_hf, from_timm, from_torchvision, understood
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.classifiers.samples import sample_images
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ClassifierError

IMAGES = [sample_images(1, size)[0] for size in ((375, 500), (401, 333), (90, 120))]


@pytest.mark.parametrize(
    "config",
    [
        {"input_size": (3, 224, 224), "crop_pct": 0.875, "interpolation": "bilinear"},
        {"input_size": (3, 224, 224), "crop_pct": 0.95, "interpolation": "bicubic"},
        {"input_size": (3, 288, 288), "crop_pct": 1.0, "interpolation": "bicubic", "crop_mode": "squash"},
        {"input_size": (3, 256, 256), "crop_pct": 0.9, "interpolation": "bicubic", "crop_mode": "border"},
        {"input_size": (3, 160, 224), "crop_pct": 0.9, "interpolation": "bicubic"},
    ],
)
def test_timm(config: dict[str, Any]) -> None:
    import_torchvision()
    factory = pytest.importorskip("timm.data.transforms_factory")
    config = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.3, 0.4), **config}
    theirs = factory.transforms_imagenet_eval(
        config["input_size"][1:] if config["input_size"][1] != config["input_size"][2] else config["input_size"][1],
        **{key: value for key, value in config.items() if key != "input_size"},
    )
    ours = from_timm(config)
    for pixels in IMAGES:
        assert np.abs(ours(pixels) - theirs(Image.fromarray(pixels)).numpy()).max() < 1e-5


@pytest.mark.parametrize("model", ["resnet50", "squeezenet1_1", "efficientnet_b1", "vit_b_16", "swin_v2_t"])
def test_torchvision(model: str) -> None:
    models = import_torchvision().models
    for weights in models.get_model_weights(model):
        preset = weights.transforms()
        ours = from_torchvision(preset)
        for pixels in IMAGES:
            assert np.abs(ours(pixels) - preset(Image.fromarray(pixels)).numpy()).max() < 1e-5


@pytest.mark.parametrize(
    ("processor", "arguments"),
    [
        ("ViTImageProcessorPil", {"size": {"height": 64, "width": 80}, "resample": 2}),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 224}, "crop_pct": 0.875, "resample": 3}),
        ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 384}, "crop_pct": 0.875, "resample": 3}),
        ("CLIPImageProcessorPil", {"size": {"shortest_edge": 225}, "crop_size": {"height": 224, "width": 224}}),
        ("MobileNetV2ImageProcessorPil", {"size": {"shortest_edge": 257}, "crop_size": {"height": 224, "width": 224}}),
    ],
)
def test_hugging_face(processor: str, arguments: dict[str, Any]) -> None:
    import_torchvision()
    transformers = pytest.importorskip("transformers")
    if not hasattr(transformers, processor):
        pytest.skip(f"this transformers has no {processor}")
    theirs = getattr(transformers, processor)(**arguments)
    ours = from_hf({key: value for key, value in theirs.to_dict().items() if value is not None})
    for pixels in IMAGES:
        expected = np.asarray(theirs(Image.fromarray(pixels), return_tensors="np")["pixel_values"][0])
        found = ours(pixels)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 1e-5


def test_hugging_face_files_of_early_versions() -> None:
    described = from_hf({"size": 224, "resample": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3})
    assert described.geometry == Geometry(224, None, "exact", crop_rounding="floor")
    assert described.normalisation == Normalisation((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


@pytest.mark.parametrize("mode", ["center", "squash", "border"])
def test_transforms_of_timm(mode: str) -> None:
    import_torchvision()
    data = pytest.importorskip("timm.data")
    config = {"input_size": (3, 64, 64), "crop_pct": 0.9, "interpolation": "bicubic", "crop_mode": mode}
    transform = data.create_transform(**config, is_training=False)
    ours = understood(transform)
    assert isinstance(ours, Preprocessing)
    for pixels in IMAGES:
        assert np.abs(ours(pixels) - transform(Image.fromarray(pixels)).numpy()).max() < 1e-5


def test_transforms_of_torchvision() -> None:
    vision = import_torchvision()
    torch = pytest.importorskip("torch")
    from torchvision.transforms import v2

    v1 = vision.transforms
    steps = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.25])]
    for transform in (
        v1.Compose([v1.Resize(40, v1.InterpolationMode.BICUBIC), v1.CenterCrop(32), v1.ToTensor()]),
        v1.Compose([v1.Resize((40, 50)), v1.ToTensor(), v1.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]),
        v2.Compose([v2.Compose([v2.CenterCrop(32)]), *steps]),
        vision.models.ResNet18_Weights.DEFAULT.transforms,
    ):
        ours = understood(transform)
        assert isinstance(ours, Preprocessing)
        theirs = transform() if transform is vision.models.ResNet18_Weights.DEFAULT.transforms else transform
        for pixels in IMAGES:
            assert np.abs(ours(pixels) - np.asarray(theirs(Image.fromarray(pixels)))).max() < 1e-5


def test_transforms_that_cannot_be_represented_are_named() -> None:
    v1 = import_torchvision().transforms
    for step, name in ((v1.RandomCrop(32), "RandomCrop"), (v1.Grayscale(3), "Grayscale")):
        with pytest.raises(ClassifierError, match=name):
            understood(v1.Compose([step, v1.ToTensor()]))
    with pytest.raises(ClassifierError, match="Resize"):
        understood(v1.Compose([v1.CenterCrop(32), v1.Resize(40), v1.ToTensor()]))


def test_configurations_are_recognised() -> None:
    hf = {"do_resize": True, "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    assert understood(hf) == from_hf(hf)
    timm = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3}
    assert understood(timm) == from_timm(timm)
