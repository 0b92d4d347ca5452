"""The network of a zero-shot model: an image encoder, compared with one text feature per class."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class ZeroShotNetwork(nn.Module):
    """From normalised images to one logit per class: ``scale * cosine(image, text of the class) + bias``."""

    text_features: Tensor
    scale: Tensor
    bias: Tensor

    def __init__(self, image_encoder: nn.Module, text_features: Tensor, scale: float, bias: float) -> None:
        super().__init__()
        self.image_encoder = image_encoder
        self.register_buffer("text_features", text_features)
        self.register_buffer("scale", torch.tensor(scale))
        self.register_buffer("bias", torch.tensor(bias))

    def forward(self, images: Tensor) -> Tensor:
        features = self.image_encoder(images)
        features = features / features.norm(dim=-1, keepdim=True)
        logits: Tensor = self.scale * features @ self.text_features.T.to(features.dtype) + self.bias
        return logits


class EncodesImages(nn.Module):
    """The image half of a model that encodes images and texts, by the name of its method."""

    def __init__(self, model: nn.Module, method: str) -> None:
        super().__init__()
        self.model = model
        self.method = method

    def forward(self, images: Tensor) -> Tensor:
        return feature_tensor(getattr(self.model, self.method)(images))


def feature_tensor(output: object) -> Tensor:
    """The features among what an encoder returns: a tensor, or an object with ``pooler_output``."""
    features = getattr(output, "pooler_output", output)
    if not isinstance(features, Tensor):
        raise TypeError(f"an encoder returned {type(output).__name__} instead of a tensor of features")
    return features


def class_features(encode: Callable[[list[str]], object], texts: Sequence[Sequence[str]]) -> Tensor:
    """One feature of length 1 per class: the mean of the features of its sentences, each of length 1 before."""
    rows: list[Tensor] = []
    with torch.inference_mode():
        for sentences in texts:
            features = torch.as_tensor(feature_tensor(encode(list(sentences)))).float()
            features = features / features.norm(dim=-1, keepdim=True)
            mean = features.mean(dim=0)
            rows.append(mean / mean.norm())
    return torch.stack(rows).clone()
