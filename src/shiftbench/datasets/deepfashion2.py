"""The annotation files of DeepFashion2 as one table, a row an item of clothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shiftbench.errors import DatasetError
from shiftbench.labels.space import LabelSpace

CATEGORIES = LabelSpace(
    "deepfashion2-13",
    (
        "short sleeve top",
        "long sleeve top",
        "short sleeve outwear",
        "long sleeve outwear",
        "vest",
        "sling",
        "shorts",
        "trousers",
        "skirt",
        "short sleeve dress",
        "long sleeve dress",
        "vest dress",
        "sling dress",
    ),
)
_FACTORS = ("scale", "occlusion", "viewpoint", "zoom_in")


def deepfashion2_rows(root: str | Path) -> list[dict[str, Any]]:
    """``<root>/{train,validation}/annos/*.json`` to rows for ``open_splits(rows, "deepfashion-remixed", root=root)``.

    Columns: path, part, category, and the factors scale, occlusion, viewpoint and zoom_in with values 1 to 3.
    """
    folder = Path(root)
    rows = []
    for part in ("train", "validation"):
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
                "category": CATEGORIES.keys[int(item["category_id"]) - 1],
                **{factor: int(item[factor]) for factor in _FACTORS},
            }
            for item in items
        ]
    except (OSError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise DatasetError(f"{file} is no annotation of DeepFashion2", found=error) from error
