"""The annotation files of DeepFashion2 as one table, a row an item of clothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shiftbench.errors import DatasetError
from shiftbench.labels.catalogue import label_space

_FACTORS = ("scale", "occlusion", "viewpoint", "zoom_in")
_PARTS = ("train", "validation")


def is_deepfashion2(path: Path) -> bool:
    return any((path / part / "annos").is_dir() for part in _PARTS)


def deepfashion2_rows(root: str | Path) -> list[dict[str, Any]]:
    """``<root>/{train,validation}/annos/*.json`` to rows for ``open_splits(rows, "deepfashion-remixed", root=root)``.

    Columns: path, part, category, and the factors scale, occlusion, viewpoint and zoom_in with values 1 to 3.
    """
    folder = Path(root)
    rows = []
    for part in _PARTS:
        for file in sorted((folder / part / "annos").glob("*.json")):
            rows += _items(file, part)
    if not rows:
        raise DatasetError(
            f"{folder} holds no annotations of DeepFashion2", expected="train/annos/*.json or validation/annos/*.json"
        )
    return rows


def _items(file: Path, part: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(file.read_text("utf-8"))
        items = [item for key, item in value.items() if key.startswith("item")]
        return [
            {
                "path": f"{part}/image/{file.stem}.jpg",
                "part": part,
                "category": _category(int(item["category_id"])),
                **{factor: int(item[factor]) for factor in _FACTORS},
            }
            for item in items
        ]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        found = f"{type(error).__name__}: {error}"
        raise DatasetError(f"{file} is no annotation of DeepFashion2", found=found) from error


def _category(number: int) -> str:
    categories = label_space("deepfashion2-13").keys
    if not 1 <= number <= len(categories):
        raise ValueError(f"category_id {number} is not one of 1 to {len(categories)}")
    return categories[number - 1]
