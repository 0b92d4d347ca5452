"""Zero-shot models against the libraries' own scores, and a real one against plain NumPy."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from shiftbench import zero_shot_classifier  # noqa: E402
from shiftbench.classifiers import load_classifier  # noqa: E402
from shiftbench.classifiers.base import Classifier  # noqa: E402
from shiftbench.classifiers.zoo import import_torchvision  # noqa: E402
from shiftbench.datasets.samples import sample_images  # noqa: E402
from shiftbench.errors import ClassifierError, LabelError, UnknownNameError  # noqa: E402

IMAGES = sample_images(4, (32, 32))
NAMES = ["cat", "dog", "great fish"]
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def hugging_face() -> Any:
    transformers = pytest.importorskip("transformers")
    import_torchvision("hf")
    return transformers


def normalised(classifier: Classifier) -> Any:
    return torch.from_numpy(classifier.preprocessing.normalisation(IMAGES))


# -- transformers ----------------------------------------------------------------------------------------------------


def tokenizer_of_letters(folder: Path) -> Any:
    """A fast tokenizer whose tokens are letters, as a folder of transformers has it."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = hugging_face()
    tokens = ["<pad>", "<end>", *"abcdefghijklmnopqrstuvwxyz .,"]
    letters = tokenizers.Tokenizer(tokenizers.models.BPE({token: i for i, token in enumerate(tokens)}, []))
    letters.post_processor = tokenizers.processors.TemplateProcessing(single="$A <end>", special_tokens=[("<end>", 1)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=letters, pad_token="<pad>", eos_token="<end>")
    fast.save_pretrained(folder)
    return fast


def make_pair(folder: Path, kind: str) -> Any:
    transformers = hugging_face()
    torch.manual_seed(0)
    text = {**SIZES, "vocab_size": 40, "max_position_embeddings": 48, "pad_token_id": 0, "eos_token_id": 1}
    vision = {**SIZES, "image_size": 32, "patch_size": 8}
    config = getattr(transformers, f"{kind}Config")(text_config=text, vision_config=vision)
    module = getattr(transformers, f"{kind}Model")(config).eval()
    with torch.no_grad():
        module.logit_scale.fill_(2.5)
        if kind == "Siglip":
            module.logit_bias.fill_(-3.0)
    module.save_pretrained(folder)
    processor = transformers.SiglipImageProcessor if kind == "Siglip" else transformers.CLIPImageProcessor
    side = {"height": 32, "width": 32}
    processor(size=side if kind == "Siglip" else {"shortest_edge": 32}, crop_size=side).save_pretrained(folder)
    return module


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_scores_are_those_of_transformers(tmp_path: Path, own_cache: Path, kind: str) -> None:
    folder = tmp_path / kind
    module = make_pair(folder, kind)
    tokenizer = tokenizer_of_letters(folder)
    classifier = load_classifier(f"hf:{folder}", labels=NAMES, engine="torch")
    texts = [f"a photo of a {name}." for name in NAMES]
    padding: Any = "max_length" if kind == "Siglip" else True
    tokens = tokenizer(texts, return_tensors="pt", padding=padding, max_length=48, truncation=True)
    tokens.pop("token_type_ids", None)
    with torch.inference_mode():
        expected = module(**tokens, pixel_values=normalised(classifier)).logits_per_image.numpy()
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-5)
    assert classifier.outputs == "logits" and classifier.assumed == ()
    assert classifier.describe()["prompts"].startswith("one@")
    assert len(list((own_cache / "texts").iterdir())) == 1


def test_prompts_are_part_of_the_model(tmp_path: Path, own_cache: Path) -> None:
    folder = tmp_path / "clip"
    make_pair(folder, "CLIP")
    tokenizer_of_letters(folder)
    (tmp_path / "mine.txt").write_text("the {}\nan old {}\n")
    one = load_classifier(f"hf:{folder}", labels=NAMES, engine="torch")
    mine = load_classifier(f"hf:{folder}?prompts={tmp_path / 'mine.txt'}", labels=NAMES, engine="torch")
    assert one.fingerprint != mine.fingerprint
    assert "mine.txt@" in str(next(fact.value for fact in mine.facts if fact.name == "prompts"))
    again = pickle.loads(pickle.dumps(mine))
    assert np.array_equal(again.scores(IMAGES), mine.scores(IMAGES)) and again.prompts == mine.prompts


def test_cached_texts_are_not_encoded_again(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "clip"
    make_pair(folder, "CLIP")
    tokenizer_of_letters(folder)
    first = load_classifier(f"hf:{folder}", labels=NAMES, engine="torch")
    kind = hugging_face().CLIPModel
    monkeypatch.setattr(kind, "get_text_features", lambda *_, **__: pytest.fail("the texts were encoded again"))
    second = load_classifier(f"hf:{folder}", labels=NAMES, engine="torch")
    assert np.array_equal(first.scores(IMAGES), second.scores(IMAGES))


def test_folders_that_cannot_be_zero_shot_models(tmp_path: Path, own_cache: Path) -> None:
    make_pair(tmp_path / "clip", "CLIP")
    with pytest.raises(ClassifierError, match="tokenizer"):
        load_classifier(f"hf:{tmp_path / 'clip'}", labels=NAMES)
    tokenizer_of_letters(tmp_path / "clip")
    with pytest.raises(ClassifierError, match="names of the classes"):
        load_classifier(f"hf:{tmp_path / 'clip'}")
    with pytest.raises(UnknownNameError):
        load_classifier(f"hf:{tmp_path / 'clip'}?prompts=clip-81", labels=NAMES)
    with pytest.raises(LabelError):
        load_classifier(f"hf:{tmp_path / 'clip'}", labels=["0", "1"])


# -- open_clip -------------------------------------------------------------------------------------------------------

TINY = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}


@pytest.fixture
def tiny(tmp_path: Path) -> Any:
    """A small open_clip model with weights in a file."""
    pytest.importorskip("timm")
    import_torchvision("open_clip")
    open_clip = pytest.importorskip("open_clip", reason="the extra open_clip is not installed")
    (tmp_path / "tiny-test.json").write_text(json.dumps(TINY))
    open_clip.add_model_config(tmp_path / "tiny-test.json")
    torch.manual_seed(1)
    model = open_clip.create_model("tiny-test").eval()
    torch.save(model.state_dict(), tmp_path / "tiny.pt")
    return open_clip, model, tmp_path / "tiny.pt"


@pytest.mark.parametrize("prompts", ["one", "clip-80"])
def test_scores_are_those_of_open_clip(tiny: Any, own_cache: Path, prompts: str) -> None:
    open_clip, model, weights = tiny
    classifier = load_classifier(f"open_clip:tiny-test@{weights}?prompts={prompts}", labels=NAMES, engine="torch")
    templates: Any = ["a photo of a {}."] if prompts == "one" else open_clip.OPENAI_IMAGENET_TEMPLATES
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = open_clip.build_zero_shot_classifier(model, open_clip.get_tokenizer("tiny-test"), NAMES, templates)
        features = model.encode_image(normalised(classifier), normalize=True)
        expected = (model.logit_scale.exp() * features @ table).numpy()
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-5)
    assert classifier.name == "tiny-test@tiny" and classifier.assumed == ()
    assert classifier.preprocessing.geometry.output == (32, 32)
    assert classifier.preprocessing.geometry.interpolation == "bicubic"


def test_specs_of_open_clip_that_cannot_be_loaded(tiny: Any, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        load_classifier("open_clip:ViT-B-33@x.pt", labels=NAMES)
    with pytest.raises(ClassifierError) as unnamed:
        load_classifier("open_clip:ViT-B-32", labels=NAMES)
    assert "laion2b_s34b_b79k" in str(unnamed.value.expected)
    torch.save({"visual.proj": torch.zeros(2, 2)}, tmp_path / "other.pt")
    with pytest.raises(ClassifierError, match="cannot load"):
        load_classifier(f"open_clip:tiny-test@{tmp_path / 'other.pt'}", labels=NAMES)


# -- any pair of encoders --------------------------------------------------------------------------------------------


class Colours(torch.nn.Module):  # type: ignore[name-defined,misc]
    """The mean colour of an image as its features."""

    def forward(self, images: Any) -> Any:
        return images.mean(dim=(2, 3))


def encode_colours(sentences: list[str]) -> Any:
    words = ("red", "green", "blue")
    return torch.tensor([[float(word in sentence) for word in words] for sentence in sentences])


def test_pair_in_python() -> None:
    classifier = zero_shot_classifier(
        Colours(),
        encode_colours,
        ["red", "green", "blue"],
        preprocessing={"size": 32, "mean": 0.0, "std": 1.0, "scale": "1/255"},
        scale=20.0,
        bias=1.0,
    )
    colours = IMAGES.mean(axis=(1, 2)) / 255
    expected = 20 * colours / np.linalg.norm(colours, axis=1, keepdims=True) + 1
    np.testing.assert_allclose(classifier.scores(IMAGES), expected, atol=1e-4)
