"""The model that is to be hardened, and its data: opened, checked, and turned into something that can be trained."""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import nn

from shiftbench import Classifier, Dataset, LabelSpace, load_classifier, open_dataset
from shiftbench.errors import ClassifierError, LabelError
from shiftbench.extend.classifiers import TorchClassifier, ZooTarget, flat_description, unwrapped
from shiftbench.extend.datasets import FOLDERS, TrainedOn, common_image_size, find_label_space, sample_images
from shiftbench.extend.errors import argument, listed
from shiftbench.hardening.architectures.own import OWN, own_network
from shiftbench.hardening.classifier import read_finished
from shiftbench.hardening.errors import TrainingError
from shiftbench.hardening.recipe import Part, TrainingData
from shiftbench.hardening.training.loop import on_pixels

#: A dataset, or what ``open_dataset`` opens.
Images: TypeAlias = str | Path | Dataset


@dataclass(frozen=True)
class LoadOptions:
    """What the caller says about the model, as for ``load_classifier``."""

    name: str | None = None
    labels: object = None
    preprocessing: object = None
    trust: bool = False
    device: str = "auto"


@dataclass(frozen=True)
class OwnModel:
    """The model that is to be hardened."""

    #: As `eval` runs it.
    original: Classifier
    #: As torch runs it.
    classifier: TorchClassifier
    #: The network that is trained. It is copied before each training.
    network: nn.Module
    #: How the network is loaded again.
    architecture: Part

    @property
    def name(self) -> str:
        return self.original.name

    @property
    def size(self) -> int:
        """The side of the input."""
        side, _ = self.classifier.preprocessing.geometry.output or (0, 0)
        return side

    def training_data(self) -> TrainingData:
        """What a recipe says about the input of the network."""
        return TrainingData(size=self.size, preprocessing=flat_description(self.classifier.preprocessing))


class HardeningInputs(NamedTuple):
    """Everything that the caller names, opened and checked."""

    own: OwnModel
    train_set: Dataset
    val_set: Dataset


def open_inputs(model: object, data: Images, val: Images | None, options: LoadOptions) -> HardeningInputs:
    """Opens the model and its data; raises before anything takes time."""
    if val is None:
        raise TrainingError(
            "no validation images, so nobody would know what was gained",
            expected="images that the model is not trained on, in the same class folders",
            hint=argument("val", "FOLDER"),
        )
    stated = find_label_space(options.labels)  # type: ignore[arg-type]
    any_classes = _open_any(data, stated)
    if any_classes.label_sets is not None:
        raise TrainingError(f"images of {any_classes.name!r} have several labels", expected="one label per image")
    own = open_own_model(model, any_classes, options)
    train_set = _in_classes_of(own, data)
    val_set = _in_classes_of(own, val)
    _check_every_class(own, train_set)
    both = int(TrainedOn.of([train_set]).among(val_set).sum())
    if both:
        raise TrainingError(
            f"{both} of {len(val_set)} validation images are also training images",
            found=f"the same content in {train_set.name} and {val_set.name}",
            expected="none: the model would be judged by what it has learnt by heart",
            hint="remove them from one of the two; `shiftbench data duplicates` lists them, and near-duplicates",
        )
    return HardeningInputs(own, train_set, val_set)


def _open_any(data: Images, stated: LabelSpace | str | None) -> Dataset:
    """The data with whatever classes it has; ``stated`` are the classes that the caller names."""
    if isinstance(stated, str):  # the dataset's own, as "folders"
        return open_dataset(data, space=stated)
    try:
        return open_dataset(data)
    except LabelError:
        return open_dataset(data, space=FOLDERS)


def _in_classes_of(own: OwnModel, data: Images) -> Dataset:
    """The data over the classes of the model; raises if it has others."""
    space = own.classifier.space
    try:
        dataset = open_dataset(data, space=space)
        if dataset.space.keys == space.keys:
            return dataset
        classes = listed(list(dataset.space.names))
    except LabelError as error:
        classes = str(error.found or error.message)
    raise TrainingError(
        f"the classes of {own.name} and of the images differ",
        found=classes,
        expected=listed(list(space.names)),
        hint=f"{argument('labels', 'FILE')} with the model's classes in the order of its outputs, or train a model of "
        "these classes: shiftbench harden train",
    )


def _check_every_class(own: OwnModel, train_set: Dataset) -> None:
    space = own.classifier.space
    counts = np.bincount(train_set.labels[train_set.labels >= 0], minlength=len(space))
    empty = [space.names[i] for i in np.flatnonzero(counts == 0).tolist()]
    if empty:
        raise TrainingError(
            f"{len(empty)} of the {len(space)} classes of {own.name} have no training image, and would be forgotten",
            found=f"none of {listed(empty)}",
            expected="images of every class of the model",
        )


def open_own_model(model: object, data: Dataset, options: LoadOptions) -> OwnModel:
    """The model as a network that can be trained; raises TrainingError if it can't."""
    spec = str(model) if isinstance(model, str | Path) else ""
    if not spec:
        if not isinstance(model, nn.Module):
            raise _not_trainable(type(model).__name__, "it is no torch module")
        model = copy.deepcopy(unwrapped(model))
    stated = find_label_space(options.labels)  # type: ignore[arg-type]
    load = partial(
        load_classifier,
        default_labels=data.space,
        image_size=lambda: common_image_size([data]),
        name=options.name,
        labels=stated if isinstance(stated, LabelSpace) else None,
        preprocessing=options.preprocessing,
        trust=options.trust,
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # They are shown when the original is loaded.
            classifier = load(copy.deepcopy(model), engine="torch", device="cpu")
    except ClassifierError as error:
        if spec.lower().endswith(".onnx"):
            raise _not_trainable(Path(spec).name, "an ONNX graph, which is made for inference") from error
        raise
    if not isinstance(classifier, TorchClassifier):
        raise _not_trainable(classifier.name, f"{type(classifier).__name__}, which holds no torch module")
    _settle_input_size(classifier, data)
    network, architecture = _network_of(classifier, spec)
    _check_trainable(classifier, network)
    return OwnModel(load(model, device=options.device), classifier, network, architecture)


def _not_trainable(name: str, reason: str) -> TrainingError:
    return TrainingError(
        f"{name} can't be trained",
        found=reason,
        expected="a torch module with weights",
        hint="give the model that it was made from: timm:NAME@weights.pth, module.py:factory, or in Python "
        "sb.harden(module, ...)",
    )


def _settle_input_size(classifier: TorchClassifier, data: Dataset) -> None:
    """Gives the classifier a square input of a known size, which batches need; raises if it has another."""
    output = classifier.preprocessing.geometry.output
    if output is None:
        output = common_image_size([data])
        if output is not None:
            geometry = replace(classifier.preprocessing.geometry, resize=output, resize_rule="exact")
            classifier.preprocessing = replace(classifier.preprocessing, geometry=geometry)
    if output is None or output[0] != output[1]:
        raise TrainingError(
            f"the input of {classifier.name} is not square, and training needs squares",
            found="images of any size" if output is None else f"{output[0]} x {output[1]}",
            hint=argument("preprocessing", "size=224", flag="--preprocess"),
        )


def _network_of(classifier: TorchClassifier, spec: str) -> tuple[nn.Module, Part]:
    """What is trained, and the architecture by which a recipe loads it again."""
    if spec.startswith("hardened:"):
        finished = read_finished(spec.removeprefix("hardened:"))
        assert finished is not None
        return classifier.module, finished.recipe.architecture
    if spec.startswith("timm:") and classifier.outputs == "logits":
        model = ZooTarget.parse(spec.removeprefix("timm:")).model
        if ":" not in model:  # The configuration of a hub's model is not in timm.
            return classifier.module, Part("timm", {"model": model})
    source = "" if classifier.origin is None else classifier.origin[0]
    return own_network(classifier), Part(OWN, {"source": source})


def _check_trainable(classifier: TorchClassifier, network: nn.Module) -> None:
    """Tries one backward pass; raises if it fails or no weight gets a gradient."""
    name = classifier.name
    parameters = list(network.parameters())
    if not any(weight.requires_grad for weight in parameters):
        reason = f"all of its {len(parameters)} parameters are frozen" if parameters else "it has no parameters"
        raise _not_trainable(name, reason)
    if classifier.has_fixed_batch:
        raise TrainingError(
            f"{name} can't be trained: it takes batches of one size only",
            found=f"batches of {classifier.batch_size}",
            hint="export it with a dynamic batch: torch.export.export(model, (images,), "
            'dynamic_shapes=({0: torch.export.Dim("batch")},))',
        )
    trial = copy.deepcopy(network)
    images = sample_images(4, classifier.preprocessing.geometry.output or (224, 224))
    model = on_pixels(
        trial, TrainingData(size=images.shape[1], preprocessing=flat_description(classifier.preprocessing))
    )
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    try:
        with torch.random.fork_rng(), torch.enable_grad():
            model.train()
            model(pixels).softmax(dim=1)[:, 0].sum().backward()
    except RuntimeError as error:
        first_line = str(error).strip().splitlines()[0][:200]
        raise _not_trainable(name, f"a backward pass fails: {first_line}") from error
    gradients = [weight.grad for weight in trial.parameters() if weight.grad is not None]
    if not any(bool((gradient != 0).any()) for gradient in gradients):
        raise _not_trainable(name, "its scores do not depend on its weights by gradients")
