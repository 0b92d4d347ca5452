"""Options of a loader besides the spec, the same for every kind of model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Classifier, Outputs
from shiftbench.classifiers.description import (
    KEYS,
    PREPROCESSING_FACTS,
    Description,
    FactSource,
    flat_description,
    read_description,
    read_description_file,
    settled_by,
)
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError, argument, listed
from shiftbench.io.schema import Count, check_keys, decode
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space, label_spaces
from shiftbench.labels.space import LabelSpace, Scores

C = TypeVar("C", bound=Classifier)
#: The label space of a model whose classes nothing names.
UNKNOWN_CLASSES = "unknown"
Engine = Literal["auto", "onnxruntime", "torch"]
#: What a sidecar may contain besides the keys of a ``Description``.
_SIDECAR_KEYS = ("name", "labels", "preprocessing", "geometry", "normalisation")


@dataclass(frozen=True)
class Options:
    """The keyword arguments of ``load_classifier``, and what is known about the preprocessing so far.

    Attributes:
        labels: Label space of the outputs.
        default_labels: The classes of a model that names none and has as many outputs.
        preprocessing: The complete preprocessing, once it is known: a loader completes it by ``over``.
        name: The name that tables and provenance show.
        device: ``"auto"``, ``"cpu"``, ``"cuda"``, ``"cuda:1"``.
        engine: The engine that is to run the model.
        trust: Whether files that can run code may be loaded.
        threads: Threads per model; default: chosen by the engine.
        batch_size: Images per call; default: the model's own.
        outputs: ``"logits"`` or ``"probabilities"``.
        pretrained: Whether named models get their trained weights.
        check_images: Images in the model's geometry on which a faster engine must agree with the original.
        number_classes: Number the classes of a model whose classes nothing names, instead of raising an error.
        described: What is stated about the preprocessing, and by whom; later ones prevail.
        sources: Who states each fact.
        image_size: Gives (height, width) of the images to be classified, if all have the same.
    """

    labels: LabelSpace | None = None
    default_labels: LabelSpace | None = None
    preprocessing: Preprocessing | None = None
    name: str | None = None
    device: str = "auto"
    engine: Engine = "auto"
    trust: bool = False
    threads: int | None = None
    batch_size: int | None = None
    outputs: Outputs | None = None
    pretrained: bool = True
    check_images: Pixels | None = None
    number_classes: bool = False
    described: tuple[tuple[Description, FactSource], ...] = ()
    sources: Mapping[str, FactSource] = field(default_factory=dict)
    image_size: Callable[[], tuple[int, int] | None] | None = None

    @property
    def own_labels(self) -> LabelSpace | None:
        """The asked-for classes, or a dataset's own. A known dataset's are a guess: its model may have more."""
        own = self.default_labels
        return self.labels or (own if own is not None and own.name == FOLDERS else None)

    @classmethod
    def of(cls, labels: LabelsArgument, preprocessing: object, **others: Any) -> Options:
        """Options from keyword arguments, with names and files looked up."""
        checked = {key: others[key] for key in _Checked.__struct_fields__ if key in others}
        decode(checked, _Checked, "the options of load_classifier", ClassifierError)
        space = find_label_space(labels)
        if isinstance(space, str):
            raise ClassifierError(f"{space!r} names the classes of a dataset, not of a model", expected="a label space")
        sources: dict[str, FactSource] = {} if space is None else {"labels": "given"}
        options = cls(labels=space, sources=sources, **others)
        return options if preprocessing is None else options._stating(preprocessing)

    def _stating(self, preprocessing: object) -> Options:
        from shiftbench.classifiers.configs import understood

        stated = understood(preprocessing)
        if isinstance(stated, Preprocessing):
            given: dict[str, FactSource] = dict.fromkeys(PREPROCESSING_FACTS, "given")
            return replace(self, preprocessing=stated, sources={**self.sources, **given})
        return replace(self, outputs=self.outputs or stated.outputs, described=(*self.described, (stated, "given")))

    def over(self, base: Preprocessing, sources: FactSource | Mapping[str, FactSource] = "library") -> Options:
        """With the complete preprocessing: ``base``, and what the sidecar and the caller state in its place.

        Args:
            base: What the loader knows or assumes.
            sources: Who states it: one source for everything, or one for each fact ("library" for the rest).
        """
        if self.preprocessing is not None:
            return self
        found = dict.fromkeys(PREPROCESSING_FACTS, sources if isinstance(sources, str) else "library")
        if not isinstance(sources, str):
            found.update(sources)
        for description, source in self.described:
            base = description.over(base)
            found.update(dict.fromkeys(settled_by(description.stated), source))
        return replace(self, preprocessing=base, sources={**self.sources, **found})

    def _space(self, name: str, classes: int) -> LabelSpace:
        fitting = self.labels or (self.default_labels if len(self.default_labels or ()) == classes else None)
        if self.number_classes and fitting is None and classes != 1000:
            return LabelSpace(UNKNOWN_CLASSES, tuple(map(str, range(classes))))
        return space_for(name, classes, self.labels, self.default_labels)

    def finish(self, classifier: C, scores: Scores) -> C:
        """Give a classifier that was tried its preprocessing, label space and outputs, and note who states them."""
        assert self.preprocessing is not None
        classifier.preprocessing = self.preprocessing
        classifier.space = self._space(classifier.name, scores.shape[1])
        measured: Outputs = "probabilities" if looks_like_probabilities(scores) else "logits"
        classifier.outputs = self.outputs or measured
        noted: dict[str, FactSource] = {
            "labels": "library" if self.labels else "data" if classifier.space is self.default_labels else "measured",
            "outputs": "given" if self.outputs is not None else "measured",
        }
        classifier.sources = {**noted, **self.sources}
        return classifier


class _Checked(Struct):
    """The options with values that a user may get wrong."""

    engine: Engine = "auto"
    outputs: Outputs | None = None
    threads: Count | None = None
    batch_size: Count | None = None


def existing_file(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ClassifierError(f"file not found: {path}")
    return path


def with_sidecar(target: str, options: Options) -> Options:
    """Fill options that the caller left open from the file beside a model, if there is one.

    ``model.onnx.json`` (or ``model.json``) describes what ``model.onnx`` does not contain: any of ``name``, ``labels``
    (the name of a label space, a file beside it, or a list of classes) and the keys of ``Description``.
    """
    path = sidecar_of(target)
    if path is None:
        return options
    content = read_description_file(path)
    check_keys(content, (*_SIDECAR_KEYS, *KEYS), path.name, ClassifierError)
    nested = content.pop("preprocessing", None) or {}
    if not isinstance(nested, Mapping):
        raise ClassifierError(
            f"invalid value of preprocessing in {path.name}", found=repr(nested), expected="an object"
        )
    name, labels = content.pop("name", None), content.pop("labels", None)
    described = read_description({**content, **nested}, path.name)
    found: dict[str, Any] = {"described": ((described, "sidecar"), *options.described)}
    sources: dict[str, FactSource] = {}
    if options.labels is None and labels is not None:
        found["labels"], sources["labels"] = _sidecar_space(path, labels), "sidecar"
    if options.outputs is None and described.outputs is not None:
        found["outputs"], sources["outputs"] = described.outputs, "sidecar"
    return replace(options, name=options.name or name, sources={**options.sources, **sources}, **found)


def sidecar_path(target: str | Path) -> Path:
    """Where the sidecar of a model file is written: ``model.onnx.json``."""
    return Path(f"{target}.json")


def new_sidecar(model: str, force: bool = False) -> Path:
    """The path of a sidecar that may be written."""
    path = sidecar_path(model)
    if not Path(model).is_file():
        raise ClassifierError(f"{model} is not a file, so nothing can be written beside it", expected="a model file")
    if path.exists() and not force:
        raise ClassifierError(f"{path.name} exists", hint="edit it, or replace it with --force")
    return path


def write_sidecar(model: str, classifier: Classifier, force: bool = False) -> Path:
    """State what is known about a model beside its file, where loaders find it."""
    path = new_sidecar(model, force)
    content: dict[str, Any] = {} if classifier.name == Path(model).stem else {"name": classifier.name}
    if classifier.space.name in label_spaces:
        content["labels"] = classifier.space.name
    elif classifier.space.name != UNKNOWN_CLASSES:
        content["labels"] = list(classifier.space.keys)
    content["outputs"] = classifier.outputs
    content |= flat_description(classifier.preprocessing, pixels=classifier.takes_pixels)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return path


def sidecar_of(target: str | Path) -> Path | None:
    """The sidecar of a model file: ``model.onnx.json``, or ``model.json`` if it contains nothing else."""
    if (path := sidecar_path(target)).is_file():
        return path
    path = Path(target).with_suffix(".json")
    return path if path.is_file() and not foreign_keys(path) else None


def foreign_keys(path: Path) -> list[str]:
    """What makes a JSON file something else than a sidecar; empty for a sidecar."""
    try:
        content = read_description_file(path)
    except ClassifierError as error:
        return [str(error.found or error.message)]
    return [key for key in content if key not in (*_SIDECAR_KEYS, *KEYS)] or ([] if content else ["no keys"])


def _sidecar_space(path: Path, labels: object) -> LabelSpace:
    if isinstance(labels, list):
        return LabelSpace(path.name.split(".")[0], tuple(map(str, labels)))
    beside = path.parent / str(labels)
    return label_space(str(beside) if beside.is_file() else str(labels))


def available_threads() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def space_for(name: str, classes: int, labels: LabelSpace | None, default: LabelSpace | None = None) -> LabelSpace:
    """The asked-for label space if it fits ``classes`` outputs; else the default if it fits; else ImageNet's."""
    if labels is None:
        if default is not None and len(default) == classes:
            return default
        if classes == 1000:
            return label_space("imagenet-1k")
        raise ClassifierError(
            f"{name} has {classes} outputs of unknown classes",
            found=None if default is None else f"{len(default)} classes in the data: {listed(default.names)}",
            expected=None if default is None else "as many outputs as classes, or named classes",
            hint=f"{argument('labels')} with the model's classes: a known label space, or a file of them in order",
        )
    if len(labels) != classes:
        raise ClassifierError(
            f"{name} and the label space {labels.name!r} differ in the number of classes",
            found=f"{classes} outputs",
            expected=f"{len(labels)} classes",
            hint=f"choose the label space that the model was trained on: {argument('labels')}",
        )
    return labels


def looks_like_probabilities(scores: NDArray[np.floating]) -> bool:
    """Rows of non-negative numbers that sum to one: a softmax is already inside."""
    return bool((scores >= 0).all() and np.allclose(scores.sum(axis=1), 1, atol=1e-3))
