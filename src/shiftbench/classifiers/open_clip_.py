"""Models of open_clip: ``open_clip:ViT-B-32@WEIGHTS``, with a file of weights or the name of published ones."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.configs import understood
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.classifiers.torch_ import import_torch
from shiftbench.classifiers.zero_shot import EncoderPair, split_prompts
from shiftbench.classifiers.zoo import import_torchvision, seeding
from shiftbench.errors import ClassifierError, UnknownNameError, required
from shiftbench.io.code_state import module_digest
from shiftbench.io.hashing import digest
from shiftbench.io.hub import without_vain_retries

if TYPE_CHECKING:
    from open_clip import CustomTextCLIP, HFTokenizer

_RANDOM = "?pretrained=false"


@dataclass(frozen=True)
class _Target:
    """``NAME@WEIGHTS``; weights that are None are random ones."""

    model: str
    weights: str | None

    @property
    def title(self) -> str:
        if self.weights is None:
            return f"{self.model} (random weights)"
        return f"{self.model}@{Path(self.weights).stem}" if self.weights else self.model


def load_open_clip(target: str, options: Options) -> Classifier:
    """Load a model and its tokenizer, and compare images with one text feature per class."""
    from shiftbench.classifiers.zero_shot_network import EncodesImages

    stem, prompts = split_prompts(target)
    import_torchvision("open-clip")
    open_clip: ModuleType = required("open_clip", "open-clip", "a zero-shot model")
    parsed = _parsed(open_clip, stem, options.pretrained)
    model, tokenizer = _created(open_clip, parsed, options.trust)
    bias = getattr(model, "logit_bias", None)
    pair = EncoderPair(
        EncodesImages(model, "encode_image"),
        lambda sentences: model.encode_text(tokenizer(sentences)),
        float(model.logit_scale.detach().exp()),
        0.0 if bias is None else float(bias.detach()),
        digest(module_digest(model), type(tokenizer).__name__),
    )
    return pair.classifier(options.over(_preprocessing(model)), prompts, parsed.title)


def _parsed(open_clip: ModuleType, stem: str, pretrained: bool) -> _Target:
    """The model and its weights; UnknownNameError, or ClassifierError if no weights are named."""
    pretrained = pretrained and not stem.endswith(_RANDOM)
    name, _, weights = stem.removesuffix(_RANDOM).partition("@")
    is_on_hub = ":" in name
    if not is_on_hub and name not in open_clip.list_models():
        raise UnknownNameError("open_clip model", name, open_clip.list_models())
    if not pretrained:
        return _Target(name, None)
    if not weights and not is_on_hub:
        tags = open_clip.list_pretrained_tags_by_model(name)
        raise ClassifierError(
            f"open_clip:{name} does not name its weights",
            expected=", ".join(["a file of weights", *tags]),
            hint=f"open_clip:{name}@WEIGHTS, or open_clip:{name}{_RANDOM} for random ones",
        )
    return _Target(name, weights)


def _created(open_clip: ModuleType, parsed: _Target, trust: bool) -> tuple[CustomTextCLIP, HFTokenizer]:
    """The model with all its weights, and its tokenizer."""
    torch = import_torch()
    try:
        # Random weights are the same in every process, so that runs can be resumed.
        with without_vain_retries(), seeding, torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = open_clip.create_model(
                parsed.model,
                pretrained=parsed.weights or None,
                require_pretrained=parsed.weights is not None,
                weights_only=not trust,
            )
            return model.eval(), open_clip.get_tokenizer(parsed.model)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        raise ClassifierError(
            f"open_clip cannot load {parsed.title}",
            found=f"{type(error).__name__}: {lines[0][:200]}",
            expected="a file of weights, weights in the cache of the hub, or a network connection",
        ) from error


def _preprocessing(model: CustomTextCLIP) -> Preprocessing:
    """What the model's own configuration states."""
    transforms = importlib.import_module("open_clip.transform")
    config = transforms.PreprocessCfg(**model.visual.preprocess_cfg)
    stated = understood(transforms.image_transform_v2(config, is_train=False))
    assert isinstance(stated, Preprocessing)
    return stated
