"""Descriptions read from timm, torchvision and Hugging Face give the pixels of their own transforms."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.configs import from_hf, from_timm, from_torchvision, understood
from shiftbench.classifiers.preprocessing import Normalisation, Preprocessing
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning
from tests.raised import raises

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
    with raises(ClassifierError, found="Resize after CenterCrop"):
        understood(v1.Compose([v1.CenterCrop(32), v1.Resize(40), v1.ToTensor()]))


def test_configurations_are_recognised() -> None:
    values = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    hf = {"do_resize": True, "size": {"height": 32, "width": 32}, "resample": 3, **values}
    assert understood(hf) == from_hf(hf)
    timm = {"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.9, "interpolation": "box"}
    assert understood(timm) == from_timm(timm)


@pytest.mark.parametrize(
    ("config", "assumed"),
    [
        ({"do_resize": True, "size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3}, {"interpolation", "std"}),
        ({"do_resize": True, "size": {"height": 32, "width": 32}, "resample": 2}, {"mean", "std"}),
        ({"do_resize": False, "do_normalize": False}, set()),
        ({"input_size": (3, 32, 32), "mean": (0.5,) * 3, "std": (0.5,) * 3}, {"interpolation", "resize"}),
        ({"input_size": (3, 32, 32), "crop_pct": 1, "interpolation": "bicubic"}, {"mean", "std"}),
    ],
)
def test_what_a_configuration_leaves_out_is_assumed(config: dict[str, Any], assumed: set[str]) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(3, 2))
    # Scores that happen to lie between 0 and 1 would be taken for probabilities, which is another assumption.
    module[2].bias.data = torch.tensor([-5.0, 5.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResultWarning)
        classifier = load_classifier(module, labels=["a", "b"], preprocessing=config)
    whole = from_timm(config) if "input_size" in config else from_hf(config)
    assert classifier.preprocessing == whole
    assert set(classifier.assumed) == assumed


class MaybeConvertMode:
    """As in open_clip."""

    def __init__(self, mode: str = "RGB") -> None:
        self.mode = mode

    def __call__(self, image: Image.Image) -> Image.Image:
        return image.convert(self.mode)


class MaybeToTensor:
    """As in open_clip."""

    def __call__(self, image: Image.Image) -> Any:
        return import_torchvision().transforms.functional.to_tensor(image)


def _convert_to_rgb(image: Image.Image) -> Image.Image:
    """As in open_clip."""
    return image.convert("RGB")


@pytest.mark.parametrize("convert", [MaybeConvertMode(), _convert_to_rgb])
def test_transforms_of_open_clip(convert: Any) -> None:
    """The classes and the function stand in for open_clip's, which have the same names, attributes and behaviour."""
    v1 = import_torchvision().transforms
    resize = v1.Resize(48, v1.InterpolationMode.BICUBIC)
    steps = [resize, v1.CenterCrop((48, 48)), convert, MaybeToTensor(), v1.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))]
    transform = v1.Compose(steps)
    ours = understood(transform)
    assert isinstance(ours, Preprocessing)
    for pixels in IMAGES:
        assert np.abs(ours(pixels) - transform(Image.fromarray(pixels)).numpy()).max() < 1e-5


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("size", [48, (40, 56)])
def test_open_clip_itself(mode: str, size: int | tuple[int, int]) -> None:
    import_torchvision()
    image_transform = pytest.importorskip("open_clip.transform").image_transform
    transform = image_transform(size, is_train=False, resize_mode=mode)
    ours = understood(transform)
    assert isinstance(ours, Preprocessing)
    for pixels in IMAGES:
        assert np.abs(ours(pixels) - transform(Image.fromarray(pixels)).numpy()).max() < 1e-5


def test_tensors_of_torchvision() -> None:
    """The order that torchvision's documentation recommends: a uint8 tensor is resized, then made float."""
    import_torchvision()
    torch = pytest.importorskip("torch")
    pytest.importorskip("cv2")
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    by_kind = {tv_tensors.Image: torch.float32, "others": None}
    for filters, dtype in (
        (v2.Resize((40, 50), antialias=True), torch.float32),
        (v2.Resize((40, 50), v2.InterpolationMode.BICUBIC, antialias=True), by_kind),
        (v2.Resize((40, 50), antialias=False), torch.float32),
        (v2.Resize((40, 50), v2.InterpolationMode.BICUBIC, antialias=False), torch.float32),
        (v2.Resize((40, 50), v2.InterpolationMode.NEAREST), torch.float32),
    ):
        first = [v2.ToImage(), v2.ToDtype(torch.uint8, scale=True), filters, v2.CenterCrop(32)]
        transform = v2.Compose([*first, v2.ToDtype(dtype, scale=True), v2.Normalize([0.5], [0.25])])
        ours = understood(transform)
        assert isinstance(ours, Preprocessing)
        for pixels in IMAGES:
            # Torch and OpenCV round weights differently, by a few of 255 levels at most.
            apart = 255 * 0.25 * np.abs(ours(pixels) - np.asarray(transform(Image.fromarray(pixels))))
            assert apart.max() < 6 and apart.mean() < 0.5


def test_a_step_after_normalisation_is_refused() -> None:
    v1 = import_torchvision().transforms
    steps = [v1.ToTensor(), v1.Normalize([0.5] * 3, [0.5] * 3)]
    for last in (v1.CenterCrop(8), v1.Resize(8)):
        with pytest.raises(ClassifierError) as refused:
            understood(v1.Compose([*steps, last]))
        assert "Normalize" in str(refused.value.found)
