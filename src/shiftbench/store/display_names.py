"""What a classifier is called in a table: its name, unless two different ones share it."""

from __future__ import annotations

from collections.abc import Sequence

from shiftbench.store.prediction_files import canonical_json
from shiftbench.store.workspace import Cell


def classifier_titles(cells: Sequence[Cell]) -> dict[str, str]:
    """By ``Cell.key``. A row is one classifier: other weights or preprocessing make another row."""
    variants: dict[str, dict[str, None]] = {}
    for cell in cells:
        variants.setdefault(cell.classifier, {})[_identity(cell)] = None
    return {cell.key: _title(cell, list(variants[cell.classifier])) for cell in cells}


def _title(cell: Cell, variants: Sequence[str]) -> str:
    if len(variants) == 1:
        return cell.classifier
    number = variants.index(_identity(cell)) + 1
    return f"{cell.classifier} #{number} ({cell.spec['classifier']['fingerprint'][:6]})"


def _identity(cell: Cell) -> str:
    return canonical_json(cell.spec["classifier"])
