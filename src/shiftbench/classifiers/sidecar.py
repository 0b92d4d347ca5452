"""``model.onnx.json``: metadata that a model file does not contain, in a small file beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from shiftbench.classifiers.options import Options
from shiftbench.classifiers.preprocessing import Preprocessing
from shiftbench.errors import ClassifierError
from shiftbench.labels import label_space

_WORDS = ("name", "labels", "outputs", "preprocessing")


def with_sidecar(target: str, options: Options) -> Options:
    """Fill options that the caller left open from ``TARGET.json``, if there is one.

    It holds any of ``name``, ``labels`` (the name of a label space, or a file beside it), ``outputs`` ("logits" or
    "probabilities") and ``preprocessing`` (as ``Preprocessing.describe`` gives it).
    """
    path = Path(f"{target}.json")
    if not path.is_file():
        return options
    try:
        words: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ClassifierError(f"{path.name} is not valid JSON", found=error) from error
    unknown = set(words) - set(_WORDS)
    if unknown or words.get("outputs") not in (None, "logits", "probabilities"):
        raise ClassifierError(
            f"{path.name} has an unknown key or value",
            found=", ".join(sorted(unknown)) or f"outputs {words['outputs']!r}",
            expected=", ".join(_WORDS),
        )
    found: dict[str, Any] = {key: value for key, value in words.items() if getattr(options, key) is None}
    if "labels" in found:
        beside = path.parent / found["labels"]
        found["labels"] = label_space(str(beside) if beside.is_file() else found["labels"])
    if "preprocessing" in found:
        found["preprocessing"] = Preprocessing.from_dict(found["preprocessing"])
    return replace(options, **found)
