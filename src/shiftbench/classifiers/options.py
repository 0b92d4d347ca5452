"""Options of a loader besides the spec, the same for every kind of model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.classifiers.base import Outputs
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError, argument, listed
from shiftbench.io.schema import Count, decode
from shiftbench.labels.catalogue import FOLDERS, LabelsArgument, find_label_space, label_space
from shiftbench.labels.space import LabelSpace

Engine = Literal["auto", "onnxruntime", "torch"]
_SIDECAR_KEYS = ("name", "labels", "outputs", "preprocessing")


@dataclass(frozen=True)
class Options:
    """The keyword arguments of ``load_classifier``."""

    labels: LabelSpace | None = None
    #: The classes of a model that names none and has as many outputs.
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
    #: Images in the classifier's geometry on which a faster engine must agree with the original.
    check_images: Pixels | None = None

    @property
    def own_labels(self) -> LabelSpace | None:
        """The asked-for classes, or a dataset's own. A known dataset's are a guess: its model may have more."""
        own = self.default_labels
        return self.labels or (own if own is not None and own.name == FOLDERS else None)

    @classmethod
    def of(
        cls, labels: LabelsArgument, preprocessing: Preprocessing | Mapping[str, object] | None, **others: Any
    ) -> Options:
        space = find_label_space(labels)
        if isinstance(space, str):
            raise ClassifierError(f"{space!r} names the classes of a dataset, not of a model", expected="a label space")
        if isinstance(preprocessing, Mapping):
            preprocessing = Preprocessing.from_dict(preprocessing)
        checked = {key: others[key] for key in _Checked.__struct_fields__ if key in others}
        decode(checked, _Checked, "the options of load_classifier", ClassifierError)
        return cls(labels=space, preprocessing=preprocessing, **others)


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
    """Fill options that the caller left open from ``TARGET.json``, if there is one.

    ``model.onnx.json`` describes what ``model.onnx`` does not contain: any of ``name``, ``labels`` (the name of a label
    space, or a file beside it), ``outputs`` ("logits" or "probabilities") and ``preprocessing`` (as
    ``Preprocessing.describe`` gives it).
    """
    path = Path(f"{target}.json")
    if not path.is_file():
        return options
    try:
        content: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ClassifierError(f"{path.name} is not valid JSON", found=error) from error
    unknown = set(content) - set(_SIDECAR_KEYS)
    if unknown or content.get("outputs") not in (None, "logits", "probabilities"):
        raise ClassifierError(
            f"{path.name} has an unknown key or value",
            found=", ".join(sorted(unknown)) or f"outputs {content['outputs']!r}",
            expected=", ".join(_SIDECAR_KEYS),
        )
    found: dict[str, Any] = {key: value for key, value in content.items() if getattr(options, key) is None}
    if "labels" in found:
        beside = path.parent / found["labels"]
        found["labels"] = label_space(str(beside) if beside.is_file() else found["labels"])
    if "preprocessing" in found:
        found["preprocessing"] = Preprocessing.from_dict(found["preprocessing"])
    return replace(options, **found)


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
