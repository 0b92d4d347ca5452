"""Models of timm and torchvision: random weights said explicitly, weights from disk, no network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.check import check_classifier
from shiftbench.classifiers.zoo import import_timm, import_torchvision
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning, UnknownNameError
from shiftbench.labels.space import LabelSpace
from tests.commands import answer
from tests.raised import raises


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, own_cache: Path, tmp_path: Path) -> None:
    """Neither a connection nor anything downloaded before."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_timm_with_random_weights() -> None:
    model = "mobilenetv3_small_050"
    timm = import_timm()
    classifier = load_classifier(f"timm:{model}?pretrained=false")
    assert classifier.name == f"{model} (random weights)"
    assert classifier.space.name == "imagenet-1k"
    assert classifier.engine == "onnxruntime cpu"
    config = timm.get_pretrained_cfg(model)
    assert classifier.preprocessing.geometry.interpolation == config.interpolation
    assert load_classifier(f"timm:{model}", pretrained=False).fingerprint == classifier.fingerprint
    checks = check_classifier(classifier, sample_images(3))
    assert [check for check in checks if not check.ok] == []


def test_timm_with_weights_from_disk(tmp_path: Path, pets: LabelSpace) -> None:
    timm = import_timm()
    module = timm.create_model("resnet10t", num_classes=3).eval()
    torch.save({"state_dict": module.state_dict()}, tmp_path / "best.pth")
    spec = f"timm:resnet10t@{tmp_path / 'best.pth'}"
    with pytest.warns(ResultWarning):  # of someone's own training, perhaps on other inputs than the published weights
        classifier = load_classifier(spec, labels=pets, engine="torch")
    assert classifier.name == "resnet10t@best" and {"resize", "mean", "std"} <= set(classifier.assumed)
    images = sample_images(2, classifier.preprocessing.geometry.output or (0, 0))
    with torch.inference_mode():
        expected = module(torch.from_numpy(classifier.preprocessing.normalisation(images))).numpy()
    assert np.allclose(classifier.scores(images), expected, atol=1e-4)
    with pytest.raises(ClassifierError):
        load_classifier(f"{spec}?num_classes=4")


@pytest.mark.parametrize("zoo", ["timm:resnet10t", "torchvision:squeezenet1_1"])
@pytest.mark.parametrize("ending", [".pth", ".safetensors"])
def test_the_number_of_classes_is_read_from_the_file(tmp_path: Path, zoo: str, ending: str) -> None:
    module = make_module(zoo, 7)
    path = tmp_path / f"own{ending}"
    if ending == ".pth":
        torch.save({f"module.{name}": tensor for name, tensor in module.state_dict().items()}, path)
    else:
        pytest.importorskip("safetensors.torch").save_file(module.state_dict(), path)
    assert answer("describe", f"{zoo}@{path}")["classes"] == 7
    with pytest.warns(ResultWarning):
        stated = load_classifier(f"{zoo}@{path}?num_classes=7", labels=list("abcdefg"), engine="torch")
    assert len(stated.space) == 7


def make_module(zoo: str, classes: int) -> torch.nn.Module:
    library, _, name = zoo.partition(":")
    if library == "timm":
        module: torch.nn.Module = import_timm().create_model(name, num_classes=classes)
    else:
        module = import_torchvision().models.get_model(name, weights=None, num_classes=classes)
    return module


@pytest.mark.parametrize("change", ["missing", "other name", "extra"])
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, change: str) -> None:
    tensors = make_module("timm:resnet10t", 3).state_dict()
    head = tensors["fc.weight"]
    if change != "extra":
        del tensors["fc.weight"]
    if change != "missing":
        tensors["head.weight"] = head
    torch.save(tensors, tmp_path / "own.pth")
    with pytest.raises(ClassifierError) as caught:
        load_classifier(f"timm:resnet10t@{tmp_path / 'own.pth'}", labels=["a", "b", "c"])
    assert ("head.weight" if change == "extra" else "fc.weight") in str(caught.value.found)


@pytest.mark.parametrize("text", ["0", "seven", "-1"])
def test_an_invalid_number_of_classes(text: str) -> None:
    with pytest.raises(ClassifierError) as caught:
        load_classifier(f"timm:resnet10t?num_classes={text}&pretrained=false")
    assert text in str(caught.value.found)


def test_published_weights_have_their_own_number_of_classes() -> None:
    with pytest.raises(ClassifierError) as caught:
        load_classifier("timm:resnet10t?num_classes=7")
    assert "num_classes=7" in str(caught.value.found)


@pytest.mark.parametrize("zoo", ["timm", "torchvision"])
def test_without_a_network_the_message_says_what_to_do(zoo: str) -> None:
    with pytest.raises(ClassifierError, match=f"{zoo}:resnet18@weights.pth"):
        load_classifier(f"{zoo}:resnet18")


def test_torchvision_with_random_weights() -> None:
    classifier = load_classifier("torchvision:squeezenet1_1?pretrained=false", engine="torch")
    preset = import_torchvision().models.get_model_weights("squeezenet1_1").DEFAULT.transforms()
    assert classifier.preprocessing.geometry.resize == preset.resize_size[0]
    assert classifier.preprocessing.geometry.crop == preset.crop_size[0]
    images = sample_images(3)
    assert classifier.scores(images).shape == (3, 1000)


def test_torchvision_versions_of_weights() -> None:
    first = load_classifier("torchvision:squeezenet1_1.IMAGENET1K_V1?pretrained=false", engine="torch")
    assert first.preprocessing.geometry.resize == 256
    with raises(UnknownNameError, name="IMAGENET1K_V9"):
        load_classifier("torchvision:squeezenet1_1.IMAGENET1K_V9")


@pytest.mark.parametrize("spec", ["timm:resnet_18", "torchvision:resnet_18"])
def test_unknown_models_are_answered_with_near_ones(spec: str) -> None:
    with pytest.raises(UnknownNameError, match="resnet18"):
        load_classifier(spec)


def test_unknown_words_after_the_question_mark() -> None:
    with raises(ClassifierError, found="weights"):
        load_classifier("timm:resnet18?weights=x.pth")


@pytest.mark.parametrize("zoo", ["timm:test_resnet", "torchvision:squeezenet1_1"])
def test_preprocessing_of_weights_on_disk_is_assumed(zoo: str, tmp_path: Path) -> None:
    """Whoever trained the weights chose the preprocessing: the library's is that of its own weights."""
    library_name, _, model = zoo.partition(":")
    if library_name == "timm":
        module = import_timm().create_model(model)
    else:
        module = import_torchvision().models.get_model(model)
    torch.save(module.state_dict(), tmp_path / "released.pth")
    spec = f"{zoo}@{tmp_path / 'released.pth'}"
    released = load_classifier(spec)
    assert {"resize", "crop", "interpolation", "mean", "std", "colour order"} <= set(released.assumed)
    library = load_classifier(f"{zoo}?pretrained=false")
    assert released.preprocessing == library.preprocessing and "resize" not in library.assumed
    stated = load_classifier(
        spec,
        preprocessing={
            "resize": 256,
            "crop": 224,
            "interpolation": "bilinear",
            "mean": (0.485, 0.456, 0.406),
            "std": (0.229, 0.224, 0.225),
            "scale": 1 / 255,
            "colour": "rgb",
            "layout": "nchw",
            "outputs": "logits",
        },
    )
    assert not stated.assumed
