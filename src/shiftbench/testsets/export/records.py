"""The pictures of a frozen set, one by one, with all that is known about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shiftbench.datasets.manifest import read_rows
from shiftbench.testsets.frozen import FrozenSet


@dataclass(frozen=True)
class Record:
    path: Path
    class_key: str
    label: int
    details: Mapping[str, Any]


def read_records(frozen: FrozenSet) -> list[Record]:
    """In the set's own random order, so that any first part of it is a fair sample."""
    rows = sorted(read_rows(frozen.folder / "images.jsonl"), key=lambda row: int(row["position"]))
    return [
        Record(
            frozen.folder / "images" / row["path"],
            row["label"],
            frozen.space.index(row["label"]),
            {name: value for name, value in row.items() if name not in ("path", "label", "position")},
        )
        for row in rows
    ]
