"""What a classifier is called in a table: its name, unless two different ones share it."""

from __future__ import annotations

from collections.abc import Sequence

from shiftbench.store.spec import ClassifierRecord
from shiftbench.store.workspace import Result


def classifier_titles(results: Sequence[Result]) -> dict[str, str]:
    """By ``Result.key``. A row is one classifier: other weights or preprocessing make another row."""
    variants: dict[str, dict[ClassifierRecord, None]] = {}
    for result in results:
        variants.setdefault(result.classifier, {})[result.spec.classifier] = None
    return {result.key: _title(result, list(variants[result.classifier])) for result in results}


def _title(result: Result, variants: Sequence[ClassifierRecord]) -> str:
    if len(variants) == 1:
        return result.classifier
    number = variants.index(result.spec.classifier) + 1
    return f"{result.classifier} #{number} ({result.spec.classifier.fingerprint[:6]})"
