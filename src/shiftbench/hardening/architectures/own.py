"""A user's own network: any torch module, with the preprocessing and the outputs that it has.

A recipe can't describe such a network, so it names where the network came from. Loading it again runs the user's code,
which needs an explicit word (``trust``).
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from shiftbench import Classifier, LabelSpace, Normalisation, Preprocessing, load_classifier
from shiftbench.errors import ClassifierError
from shiftbench.extend.classifiers import LUMA_WEIGHTS, TorchClassifier, scores_of
from shiftbench.extend.errors import argument
from shiftbench.hardening.architectures.base import architectures
from shiftbench.hardening.errors import ArchitectureError

#: The architecture of a recipe whose network is a user's own.
OWN = "own"
#: Probabilities are clamped to this before their logarithm.
_LEAST_PROBABILITY = 1e-7


class Preprocessed(nn.Module):
    """A network that sees pixels in [0, 1] and has a normalisation of any kind."""

    gain: Tensor
    offset: Tensor

    def __init__(self, network: nn.Module, normalisation: Normalisation) -> None:
        super().__init__()
        self.network = network
        self.colour_order = normalisation.colour_order
        self.layout = normalisation.layout
        self.register_buffer("gain", torch.from_numpy(255 * normalisation.gain).view(1, -1, 1, 1))
        self.register_buffer("offset", torch.from_numpy(normalisation.offset).view(1, -1, 1, 1))

    def forward(self, pixels: Tensor) -> Tensor:
        if self.colour_order == "grey":
            weights = pixels.new_tensor(LUMA_WEIGHTS).view(1, 3, 1, 1) / sum(LUMA_WEIGHTS)
            pixels = (pixels * weights).sum(1, keepdim=True)
        elif self.colour_order == "bgr":
            pixels = pixels.flip(1)
        inputs = pixels * self.gain - self.offset
        if self.layout == "nhwc":
            inputs = inputs.permute(0, 2, 3, 1).contiguous()
        return self.network(inputs)  # type: ignore[no-any-return]


class OwnNetwork(nn.Module):
    """A module as the trainer and the exporter need it: one tensor of logits, whatever the module returns."""

    def __init__(self, module: nn.Module, classes: int, *, probabilities: bool = False, single: bool = False) -> None:
        super().__init__()
        self.module = module
        self.classes = classes
        #: Whether the module ends in a softmax or sigmoid.
        self.probabilities = probabilities
        #: Whether it has one output for two classes.
        self.single = single

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = scores_of(self.module(inputs), (1 if self.single else self.classes,))
        if self.single:
            second = scores.reshape(-1, 1)
            first = 1 - second if self.probabilities else torch.zeros_like(second)
            scores = torch.cat([first, second], dim=1)
        if self.probabilities:
            scores = scores.clamp_min(_LEAST_PROBABILITY).log()
        return scores


def own_network(classifier: TorchClassifier) -> OwnNetwork:
    """The module of a classifier as a network that can be trained."""
    return OwnNetwork(
        classifier.module,
        len(classifier.space),
        probabilities=classifier.outputs == "probabilities",
        single=classifier.single_output,
    )


@architectures.register(OWN)
def unknown_network(*, classes: int, source: str = "") -> nn.Module:
    """A network of the user's own, which no recipe can make."""
    raise ArchitectureError(
        "a recipe can't make the user's own network",
        found=f"{source or 'a Python object'} with {classes} classes",
        hint="train it by `shiftbench harden finetune` or `sb.harden`",
    )


def load_own(
    source: str, space: LabelSpace, preprocessing: Preprocessing, *, export: Path, trust: bool = False
) -> OwnNetwork:
    """The network that ``source`` loads, which is to get other weights.

    ``export`` is a graph of the trained network, which errors recommend if it is there.
    """
    instead = f"evaluate {export}, which contains no code" if export.is_file() else None
    if not source:
        raise ClassifierError(
            "the network was a Python object, which can't be made again from the folder",
            found=str(export.parent),
            hint=instead or "load the weights in model.safetensors into it",
        )
    if not trust:
        raise ClassifierError(
            "the network was not loaded: loading it runs code",
            found=source,
            expected=f"{argument('trust', True)}, if you trust its author",
            hint=instead,
        )
    classifier: Classifier = load_classifier(
        source, labels=space, preprocessing=preprocessing, engine="torch", trust=True, device="cpu"
    )
    if not isinstance(classifier, TorchClassifier):
        raise ClassifierError(f"{source} is no torch module any more", found=type(classifier).__name__)
    return own_network(classifier)
