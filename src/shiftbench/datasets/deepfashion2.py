"""DeepFashion2, from which DeepFashion Remixed is made: its annotation files as one table, one row per garment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shiftbench.datasets.base import Dataset
from shiftbench.datasets.kind import DataReport, DatasetKind
from shiftbench.errors import DatasetError, listed
from shiftbench.io.paths import Location
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import AskedSpace

_FACTORS = ("scale", "occlusion", "viewpoint", "zoom_in")
#: Annotated images of the released parts.
_PARTS = {"train": 191_961, "validation": 32_153}


def is_deepfashion2(path: Location) -> bool:
    return any((path / part / "annos").is_dir() for part in _PARTS)


def open_deepfashion2(path: str | Path, *, space: AskedSpace = None, name: str | None = None) -> Dataset:
    """DeepFashion2, which is split into datasets by the suite deepfashion-remixed."""
    raise DatasetError(
        f"{path} is DeepFashion2, which is evaluated in the splits of DeepFashion Remixed",
        hint=f"--suite deepfashion-remixed --data deepfashion-remixed={path}, or one split: "
        f"--data factors:deepfashion-remixed:{path}/train",
    )


def check_deepfashion2(path: Location) -> DataReport:
    """Every annotation file needs its image, and both parts are needed."""
    role = "deepfashion-remixed"
    report = DataReport(str(path), "DeepFashion2", "annotation files beside images", role, suite=role)
    report.images_expected, report.classes_expected, report.space = sum(_PARTS.values()), 13, "deepfashion2-13"
    report.home = "GitHub, switchablenorms/DeepFashion2, which gives the password of the archives on request"
    for part, expected in _PARTS.items():
        annotated = {file.stem for file in (path / part / "annos").glob("*.json")}
        present = {file.stem for file in (path / part / "image").glob("*.jpg")}
        report.images += len(annotated & present)
        if without := sorted(annotated - present):
            report.missing.append(f"the images of {len(without):,} annotations of {part}: {listed(without, 3)}")
        if len(annotated) < expected:
            report.missing.append(f"{expected - len(annotated):,} of {expected:,} annotation files of {part}")
    report.notes.append(f"shiftbench data factors {path} {role} shows how many images are in each split")
    return report


KIND = DatasetKind(
    lambda path: "annotation files beside images" if is_deepfashion2(path) else None,
    open_deepfashion2,
    check_deepfashion2,
)


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
            f"{folder} has no annotations of DeepFashion2", expected="train/annos/*.json or validation/annos/*.json"
        )
    return rows


def _items(file: Location, part: str) -> list[dict[str, Any]]:
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
        raise DatasetError(f"{file} is not a valid annotation of DeepFashion2", found=found) from error


def _category(number: int) -> str:
    categories = label_space("deepfashion2-13").keys
    if not 1 <= number <= len(categories):
        raise ValueError(f"category_id {number} is not one of 1 to {len(categories)}")
    return categories[number - 1]
