"""Folders of transformers, written by transformers itself."""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shiftbench.classifiers import load_classifier
from shiftbench.classifiers.configs import space_of
from shiftbench.classifiers.zoo import import_torchvision
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.samples import sample_images
from shiftbench.errors import ClassifierError, ResultWarning
from shiftbench.labels import label_space
from shiftbench.labels.space import LabelSpace
from tests.raised import raises

LABELS = {0: "cat", 1: "dog", 2: "fish"}


def hugging_face() -> Any:
    """transformers, which takes three seconds to import: not when tests are collected."""
    import_torchvision()
    return pytest.importorskip("transformers")


def make_vit(folder: Path) -> Any:
    transformers = hugging_face()
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        id2label=LABELS,
    )
    module = transformers.ViTForImageClassification(config).eval()
    module.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}, resample=3).save_pretrained(folder)
    return module


def make_resnet(folder: Path) -> Any:
    transformers = hugging_face()
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", id2label=LABELS
    )
    module = transformers.ResNetForImageClassification(config).eval()
    module.save_pretrained(folder)
    transformers.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875).save_pretrained(folder)
    return module


@pytest.mark.parametrize("make", [make_vit, make_resnet])
def test_a_folder(tmp_path: Path, own_cache: Path, make: Any) -> None:
    module = make(tmp_path / "pets")
    classifier = load_classifier(f"hf:{tmp_path / 'pets'}")
    assert (classifier.name, classifier.space.keys) == ("pets", ("cat", "dog", "fish"))
    geometry = classifier.preprocessing.geometry
    assert geometry.output == ((32, 32) if make is make_vit else (64, 64))
    assert geometry.resize == (32 if make is make_vit else 73)
    images = sample_images(3, geometry.output)
    with torch.inference_mode():
        expected = module(torch.from_numpy(classifier.preprocessing.normalisation(images))).logits.numpy()
    assert np.allclose(classifier.scores(images), expected, atol=1e-4 * np.abs(expected).max() + 1e-6)
    assert classifier.engine == "onnxruntime cpu"


class Trap:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.path}",)


def test_a_folder_needs_no_torchvision(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_vit(tmp_path / "vit")
    monkeypatch.setitem(sys.modules, "torchvision", None)  # as if it were not installed
    classifier = load_classifier(f"hf:{tmp_path / 'vit'}", engine="torch")
    assert classifier.preprocessing.geometry.output == (32, 32)


def test_a_module_in_memory_names_its_classes(tmp_path: Path, own_cache: Path, pets: LabelSpace) -> None:
    """Whatever the order of the folders."""
    module = make_vit(tmp_path / "pets")
    module.config.id2label = {0: "fish", 1: "cat", 2: "dog"}
    stated = {"size": 32, "mean": 0.5, "std": 0.5}
    classifier = load_classifier(module, default_labels=pets, preprocessing=stated)
    assert classifier.space.keys == ("fish", "cat", "dog")
    assert load_classifier(module, labels=pets, preprocessing=stated).space is pets


def test_pickled_weights_that_would_run_code(tmp_path: Path) -> None:
    make_vit(tmp_path / "pets")
    (tmp_path / "pets" / "model.safetensors").unlink()
    torch.save({"weights": Trap(tmp_path / "sprung")}, tmp_path / "pets" / "pytorch_model.bin")
    with pytest.raises(ClassifierError, match="trust=True"):
        load_classifier(f"hf:{tmp_path / 'pets'}")
    assert not (tmp_path / "sprung").exists()


def test_another_safetensors_file_does_not_let_pickles_in(tmp_path: Path) -> None:
    module = make_vit(tmp_path / "pets")
    (tmp_path / "pets" / "model.safetensors").rename(tmp_path / "pets" / "unused.safetensors")
    torch.save(module.state_dict(), tmp_path / "pets" / "pytorch_model.bin")
    with pytest.raises(ClassifierError) as caught:
        load_classifier(f"hf:{tmp_path / 'pets'}")
    assert "safetensors" in str(caught.value.found)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_kernels_from_a_hub_need_trust(tmp_path: Path, key: str) -> None:
    make_vit(tmp_path / "pets")
    path = tmp_path / "pets" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "nested": [{key: "someone/kernel"}]}))
    with pytest.raises(ClassifierError) as caught:
        load_classifier(f"hf:{tmp_path / 'pets'}")
    assert key in str(caught.value.found)
    assert "trust=True" in str(caught.value.hint)


def test_code_of_an_image_processor_is_not_run_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_vit(tmp_path / "pets")
    sprung = tmp_path / "sprung"
    (tmp_path / "pets" / "mine.py").write_text(f"open({str(sprung)!r}, 'w')\nclass Mine: pass\n")
    path = tmp_path / "pets" / "preprocessor_config.json"
    auto_map = {"AutoImageProcessor": "mine.Mine"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "image_processor_type": "M", "auto_map": auto_map}))
    questions = []

    def answer_yes(*words: object) -> str:
        questions.append(words)
        return "y"

    monkeypatch.setattr("builtins.input", answer_yes)
    load_classifier(f"hf:{tmp_path / 'pets'}")
    assert questions == []
    assert not sprung.exists()


def test_folders_that_lack_something(tmp_path: Path) -> None:
    with raises(ClassifierError, found="no such folder"):
        load_classifier("hf:some-model")
    make_vit(tmp_path / "pets")
    (tmp_path / "pets" / "preprocessor_config.json").unlink()
    with pytest.warns(ResultWarning):
        classifier = load_classifier(f"hf:{tmp_path / 'pets'}")
    assert "mean" in classifier.assumed
    size = json.loads((tmp_path / "pets" / "config.json").read_text())["image_size"]
    assert classifier.preprocessing.geometry == Geometry(size, None, "exact")


def test_defaults_that_the_file_leaves_out(tmp_path: Path, own_cache: Path) -> None:
    make_resnet(tmp_path / "pets")
    path = tmp_path / "pets" / "preprocessor_config.json"
    short = {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 64}}
    path.write_text(json.dumps(short))
    geometry = load_classifier(f"hf:{tmp_path / 'pets'}").preprocessing.geometry
    assert (geometry.resize, geometry.crop) == (73, 64)  # crop_pct is 0.875 where nobody says otherwise


def test_spaces() -> None:
    imagenet = label_space("imagenet-1k")
    assert space_of(dict(enumerate(imagenet.names)), "mine") is imagenet
    assert space_of({i: f"LABEL_{i}" for i in range(1000)}, "mine") is imagenet
    assert space_of({i: f"thing {i}" for i in range(1000)}, "mine").name == "mine"
    assert space_of({"10": "b", "9": "a", "11": "b"}, "mine").keys == ("a", "b (1)", "b (2)")


def test_a_pipeline_is_its_model_with_its_image_processor(tmp_path: Path) -> None:
    make_vit(tmp_path / "pets")
    pipeline = hugging_face().pipeline("image-classification", model=str(tmp_path / "pets"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResultWarning)  # nothing is assumed
        classifier = load_classifier(pipeline)
    assert classifier.space.keys == tuple(LABELS.values())
    images = sample_images(4, (40, 48))
    prepared = np.stack([classifier.preprocessing.geometry(image) for image in images])
    ours = torch.tensor(classifier.scores(prepared)).softmax(1)
    for image, scores in zip(images, ours, strict=True):
        theirs = {answer["label"]: answer["score"] for answer in pipeline(Image.fromarray(image))}
        assert [theirs[name] for name in LABELS.values()] == pytest.approx(scores.tolist(), abs=2e-3)


def make_headless(folder: Path) -> None:
    """A body without a classifier, but with the classes in its config."""
    make_vit(folder)
    transformers = hugging_face()
    transformers.ViTModel.from_pretrained(folder).save_pretrained(folder)


def make_other_head(folder: Path) -> None:
    """The last layer under another name."""
    from safetensors.torch import load_file, save_file

    make_vit(folder)
    tensors = load_file(folder / "model.safetensors")
    renamed = {name.replace("classifier.", "fc."): tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", {"format": "pt"})


def make_other_size(folder: Path) -> None:
    """More classes in the config than in the weights."""
    make_vit(folder)
    config = json.loads((folder / "config.json").read_text())
    config["id2label"]["3"] = "bird"
    config["label2id"] = {name: int(number) for number, name in config["id2label"].items()}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("make", "tensor"),
    [(make_headless, "classifier.weight"), (make_other_head, "fc.weight"), (make_other_size, "classifier.weight")],
)
def test_a_folder_without_all_weights_is_refused(tmp_path: Path, make: Any, tensor: str) -> None:
    make(tmp_path / "vit")
    with pytest.raises(ClassifierError) as caught:
        load_classifier(f"hf:{tmp_path / 'vit'}")
    assert "classifier.bias" in str(caught.value.found) and tensor in str(caught.value.found)
    assert "save_pretrained" in str(caught.value.hint)


def make_clip(folder: Path) -> Any:
    transformers = hugging_face()
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.CLIPConfig(
        text_config={**sizes, "vocab_size": 64, "max_position_embeddings": 16},
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        projection_dim=8,
    )
    module = transformers.CLIPModel(config).eval()
    module.save_pretrained(folder)
    return module


def test_a_classifier_on_an_encoder_is_loaded(tmp_path: Path, own_cache: Path) -> None:
    transformers = hugging_face()
    clip = make_clip(tmp_path / "clip")
    clip.config.id2label = LABELS
    transformers.CLIPForImageClassification(clip.config).save_pretrained(tmp_path / "fine-tuned")
    with pytest.warns(ResultWarning):  # nothing states its preprocessing
        classifier = load_classifier(f"hf:{tmp_path / 'fine-tuned'}", preprocessing={"size": 32}, engine="torch")
    assert classifier.space.keys == ("cat", "dog", "fish")
