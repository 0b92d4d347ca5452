"""Zero-shot models: pairs of an image and a text encoder, such as CLIP and SigLIP.

The texts of the classes are encoded once. What is left is a network from images to one logit per class, which is
treated like every torch module: engines, gradients, fingerprints. The prompts are part of the provenance.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from shiftbench.classifiers.base import Classifier
from shiftbench.classifiers.options import Options
from shiftbench.classifiers.torch_ import from_module, import_torch
from shiftbench.errors import ClassifierError, argument, raising
from shiftbench.io.cache import cache_folder, cached_array
from shiftbench.io.code_state import module_digest
from shiftbench.io.hashing import digest
from shiftbench.labels.catalogue import LabelsArgument
from shiftbench.labels.prompts import Prompts, prompt_set
from shiftbench.labels.space import LabelSpace

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase

#: This number is part of the key of cached text features; raise it when their computation changes.
FEATURES_VERSION = 1
DEFAULT_PROMPTS = "one"
#: Models of transformers whose text encoders were trained on texts of one length.
_PADDED_TO_THE_END = ("siglip", "siglip2")

#: The files in which tokenizers have their words.
_TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "tokenizer.model")

EncodeTexts = Callable[[list[str]], object]


def zero_shot_classifier(
    image_encoder: nn.Module,
    encode_texts: EncodeTexts,
    labels: LabelsArgument,
    *,
    preprocessing: object = None,
    prompts: str = DEFAULT_PROMPTS,
    scale: float = 100.0,
    bias: float = 0.0,
    name: str | None = None,
    engine: str = "auto",
) -> Classifier:
    """A classifier from any pair of an image and a text encoder.

    A class's score is ``scale`` times the cosine of the image's features and the mean of the features of its sentences,
    plus ``bias``. Accuracy does not depend on the scale; confidences and calibration do, so pass the one that was
    learnt (``model.logit_scale.exp()``).

    Args:
        image_encoder: A torch module from normalised images (N, 3, H, W) to features (N, D).
        encode_texts: A function from a list of sentences to features (len, D), a tensor.
        labels: The classes; their names fill the prompts.
        preprocessing: As for ``load_classifier``.
        prompts: "one", "clip-80", or a file of templates with ``{}`` for the name.
        scale: Factor of the cosine.
        bias: Added to each score.
        name: Name in tables and reports.
        engine: As for ``load_classifier``.

    Raises:
        LabelError: The classes have no names, or two have the same one.
    """
    options = Options.of(labels, preprocessing, name=name, engine=engine)
    pair = EncoderPair(image_encoder, encode_texts, scale, bias, encoder_id=None)
    return pair.classifier(options, prompt_set(prompts), name or "zero-shot")


class EncoderPair:
    """An image and a text encoder that were trained together.

    ``encoder_id`` identifies the text encoder, so that its features are kept in the cache; None if nothing does.
    """

    def __init__(
        self, image_encoder: nn.Module, encode_texts: EncodeTexts, scale: float, bias: float, encoder_id: str | None
    ) -> None:
        self.image_encoder = image_encoder
        self.encode_texts = encode_texts
        self.scale = scale
        self.bias = bias
        self.encoder_id = encoder_id

    def classifier(self, options: Options, prompts: Prompts, name: str) -> Classifier:
        """The classifier for the classes of the model or, if nobody states them, those of the data."""
        from shiftbench.classifiers.zero_shot_network import ZeroShotNetwork

        space = options.labels or options.default_labels
        if space is None:
            raise ClassifierError(
                f"{name} is a zero-shot model, which needs the names of the classes",
                hint=f"{argument('labels')} with a label space or a file of names",
            )
        features = self._class_features(prompts, space)
        network = ZeroShotNetwork(self.image_encoder, features, self.scale, self.bias)
        # Cosines times a scale are logits, even where a few of them happen to lie between 0 and 1.
        settled = replace(options, labels=space, outputs="logits")
        classifier = from_module(network.eval(), settled, name=name)
        classifier.prompts = f"{prompts}: {len(prompts.templates)} per class, {prompts.templates[0]!r}"
        sources = {**classifier.sources, "outputs": "library"}
        if options.labels is None:
            sources["labels"] = "data"
        classifier.sources = sources
        return classifier

    def _class_features(self, prompts: Prompts, space: LabelSpace) -> Tensor:
        """One text feature per class; from the cache, if they were computed before."""
        from shiftbench.classifiers.zero_shot_network import class_features

        texts = prompts.texts(space)
        if self.encoder_id is None:
            return class_features(self.encode_texts, texts)
        torch = import_torch()
        path = cache_folder("texts") / f"{digest(FEATURES_VERSION, self.encoder_id, texts)}.npz"
        features = cached_array(path, lambda: class_features(self.encode_texts, texts).numpy())
        return cast("Tensor", torch.from_numpy(features))


def split_prompts(target: str) -> tuple[str, Prompts]:
    """A spec without its option ``?prompts=NAME``, and the prompt set that it names."""
    stem, _, query = target.partition("?")
    entries = dict(urllib.parse.parse_qsl(query))
    prompts = prompt_set(entries.pop("prompts", DEFAULT_PROMPTS))
    if entries:
        stem = f"{stem}?{urllib.parse.urlencode(entries)}"
    return stem, prompts


def transformers_pair(transformers: ModuleType, module: Any, folder: Path, trust: bool) -> EncoderPair:
    """The encoders of a CLIP, SigLIP or similar model of transformers."""
    from shiftbench.classifiers.zero_shot_network import EncodesImages

    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        # Transformers would make a tokenizer without words, and all texts would be alike to the encoder.
        raise ClassifierError(
            f"{folder.name} has no tokenizer, which turns the names of the classes into the input of the text encoder",
            expected=f"one of {', '.join(_TOKENIZER_FILES)}",
        )
    with raising(ClassifierError, f"the tokenizer of {folder.name} cannot be loaded", OSError, ValueError, ImportError):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust)
    text_config = module.config.text_config
    padding: dict[str, object] = {
        "padding": True,
        "truncation": True,
        "max_length": text_config.max_position_embeddings,
    }
    if module.config.model_type in _PADDED_TO_THE_END:
        padding["padding"] = "max_length"

    def encode_texts(sentences: list[str]) -> object:
        tokens = tokenizer(sentences, return_tensors="pt", **padding)
        return module.get_text_features(**tokens)

    bias = getattr(module, "logit_bias", None)
    return EncoderPair(
        EncodesImages(module, "get_image_features"),
        encode_texts,
        float(module.logit_scale.detach().exp()),
        0.0 if bias is None else float(bias.detach()),
        digest(module_digest(module), _tokenizer_state(tokenizer)),
    )


def _tokenizer_state(tokenizer: PreTrainedTokenizerBase) -> str:
    """What decides the tokens of a text."""
    if getattr(tokenizer, "is_fast", False):
        return str(tokenizer.backend_tokenizer.to_str())
    return repr(sorted(tokenizer.get_vocab().items()))
