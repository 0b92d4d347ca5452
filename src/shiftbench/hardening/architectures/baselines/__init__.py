"""The classifiers of paper 004 that are not deep: random features and Fisher vectors, each with a linear layer.

``fit_baseline`` makes classifiers like any other; ``save_baseline`` and ``load_baseline`` keep them in npz files
without pickles.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from shiftbench import LabelSpace
from shiftbench.errors import ClassifierError
from shiftbench.extend.io import write_atomically
from shiftbench.hardening.architectures.baselines.classifier import (
    BaselineClassifier,
    Linear,
    check_arrays,
    checked_options,
    fit_baseline,
)
from shiftbench.hardening.architectures.baselines.fisher_vectors import FisherVectorOptions
from shiftbench.hardening.architectures.baselines.random_features import RandomFeatureOptions

__all__ = ["BASELINES", "fit_baseline", "load_baseline", "save_baseline"]

#: The options of each kind of baseline, which know how to fit it.
BASELINES: dict[str, type[RandomFeatureOptions] | type[FisherVectorOptions]] = {
    "random-features": RandomFeatureOptions,
    "fisher-vectors": FisherVectorOptions,
}
#: Raised when older files can no longer be read.
VERSION = 1


class _About(msgspec.Struct, forbid_unknown_fields=True):
    """The description in a file, beside the arrays."""

    version: Literal[1]
    kind: Literal["random-features", "fisher-vectors"]
    name: str
    space: str
    keys: tuple[str, ...]
    names: tuple[str, ...]
    options: dict[str, Any]


def save_baseline(classifier: BaselineClassifier, path: str | Path) -> None:
    """Writes a file whole or not at all. It is not compressed, so that it is no larger in memory than on disk."""
    features = classifier.features
    space = classifier.space
    description = {
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
            np.savez(file, about=np.array(json.dumps(description)), **arrays)  # type: ignore[arg-type]

    write_atomically(Path(path), write)


def load_baseline(path: str | Path, *, name: str | None = None) -> BaselineClassifier:
    """Reads what ``save_baseline`` wrote; raises for any other file."""
    path = Path(path)
    if not path.is_file():
        raise ClassifierError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            compressed = [entry.filename for entry in archive.infolist() if entry.compress_type != zipfile.ZIP_STORED]
        if compressed:
            raise ValueError(f"{compressed[0]} is compressed")
        with np.load(path, allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored.files}
        description = msgspec.json.decode(str(arrays["about"]), type=_About)
        kind = BASELINES[description.kind]
        if set(description.options) != {option.name for option in fields(kind)}:
            raise ValueError(f"options {', '.join(sorted(description.options))}")
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile, msgspec.DecodeError) as error:
        raise ClassifierError(
            f"{path.name} is not a saved baseline",
            found=error,
            expected=f"what save_baseline wrote: version {VERSION} of {' or '.join(BASELINES)}",
        ) from error
    features = checked_options(kind, description.options, path.name).features(arrays)
    space = LabelSpace(description.space, description.keys, description.names)
    check_arrays(path.name, arrays, {"head_weights": (features.count, len(space)), "head_bias": (len(space),)})
    head = Linear(arrays["head_weights"], arrays["head_bias"])
    return BaselineClassifier(features, head, space=space, name=name or description.name)
