"""The classifiers of paper 004 that are not deep: random features and Fisher vectors, each with a linear layer.

``fit_random_features`` and ``fit_fisher_vectors`` make classifiers like any other; ``save_baseline`` and
``load_baseline`` keep them in npz files without pickles.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from shiftbench.errors import ClassifierError
from shiftbench.hardening.architectures.baselines.classifier import (
    BaselineClassifier,
    FittedFeatures,
    Linear,
    check_arrays,
    checked_options,
)
from shiftbench.hardening.architectures.baselines.fisher_vectors import (
    FisherVectorOptions,
    FisherVectors,
    fit_fisher_vectors,
)
from shiftbench.hardening.architectures.baselines.random_features import (
    RandomFeatureOptions,
    RandomFeatures,
    fit_random_features,
)
from shiftbench.io.atomic import write_atomically
from shiftbench.labels.space import LabelSpace

__all__ = [
    "FisherVectorOptions",
    "RandomFeatureOptions",
    "fit_fisher_vectors",
    "fit_random_features",
    "load_baseline",
    "save_baseline",
]

T = TypeVar("T")
#: Changes when older files cannot be read any more.
VERSION = 1
_ABOUT = "about"
_KEYS = ("version", "kind", "name", "space", "keys", "names", "options")


def save_baseline(classifier: BaselineClassifier, path: str | Path) -> None:
    """Whole or not at all; not compressed, so that a file is never larger in memory than on disk."""
    features, space = classifier.features, classifier.space
    about = {
        "version": VERSION,
        "kind": features.kind,
        "name": classifier.name,
        "space": space.name,
        "keys": space.keys,
        "names": space.names,
        "options": asdict(features.options),
    }
    arrays = {**features.arrays, "head_weights": classifier.head.weights, "head_bias": classifier.head.bias}

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, **{_ABOUT: np.array(json.dumps(about))}, **arrays)  # type: ignore[arg-type]

    write_atomically(Path(path), write)


def load_baseline(path: str | Path, *, name: str | None = None) -> BaselineClassifier:
    """What ``save_baseline`` wrote; a file that is anything else is refused."""
    path = Path(path)
    arrays = _read(path)
    about = _about(path, arrays)
    features = _features(about["kind"], about["options"], arrays, path)
    space = LabelSpace(about["space"], tuple(about["keys"]), tuple(about["names"]))
    shapes = {"head_weights": (features.count, len(space)), "head_bias": (len(space),)}
    check_arrays(path.name, arrays, shapes)
    head = Linear(arrays["head_weights"], arrays["head_bias"])
    return BaselineClassifier(features, head, space=space, name=name or about["name"])


def _features(
    kind: str, options: Mapping[str, object], arrays: Mapping[str, NDArray[np.generic]], path: Path
) -> FittedFeatures:
    if kind == RandomFeatures.kind:
        return RandomFeatures.from_arrays(_options(RandomFeatureOptions, options, path), arrays)
    if kind == FisherVectors.kind:
        return FisherVectors.from_arrays(_options(FisherVectorOptions, options, path), arrays)
    raise _no_baseline(path, f"the kind {kind!r}")


def _options(kind: type[T], values: Mapping[str, object], path: Path) -> T:
    if set(values) != {option.name for option in fields(kind)}:  # type: ignore[arg-type]
        raise _no_baseline(path, f"options {', '.join(sorted(map(str, values)))}")
    return checked_options(kind, values, path.name)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise ClassifierError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            packed = [entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
        if packed:
            raise _no_baseline(path, f"{packed[0]} is compressed")
        with np.load(path, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile) as error:
        raise _no_baseline(path, error) from error


def _about(path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Any]:
    try:
        about = json.loads(str(arrays[_ABOUT]))
    except (KeyError, ValueError) as error:
        raise _no_baseline(path, f"arrays {', '.join(arrays)}") from error
    if not isinstance(about, dict) or set(about) != set(_KEYS):
        raise _no_baseline(path, "another description")
    if about["version"] != VERSION:
        raise _no_baseline(path, f"version {about['version']}")
    texts = [about["kind"], about["name"], about["space"], *about["keys"], *about["names"]]
    if not all(isinstance(text, str) for text in texts) or not isinstance(about["options"], dict):
        raise _no_baseline(path, "a description that is damaged")
    return about


def _no_baseline(path: Path, found: object) -> ClassifierError:
    return ClassifierError(
        f"{path.name} is not a saved baseline",
        found=found,
        expected=f"what save_baseline wrote: version {VERSION} of {RandomFeatures.kind} or {FisherVectors.kind}",
    )
