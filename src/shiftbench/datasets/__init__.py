"""Datasets: folders, arrays, shards and tables of labelled images behind one interface."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shiftbench.datasets.arrays import from_arrays
    from shiftbench.datasets.base import Dataset, DecodedImage
    from shiftbench.datasets.catalogue import dataset_kinds, named_datasets, open_dataset
    from shiftbench.datasets.check import check_dataset
    from shiftbench.datasets.inspection import describe_path, inspect_data
    from shiftbench.datasets.kind import DataReport, DatasetKind
    from shiftbench.datasets.subset import Subset, of_classes, per_class, sample, take, with_classes

_HOMES = {
    "arrays": ("from_arrays",),
    "base": ("Dataset", "DecodedImage"),
    "catalogue": ("dataset_kinds", "named_datasets", "open_dataset"),
    "check": ("check_dataset",),
    "inspection": ("describe_path", "inspect_data"),
    "kind": ("DataReport", "DatasetKind"),
    "subset": ("Subset", "of_classes", "per_class", "sample", "take", "with_classes"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "DataReport",
    "Dataset",
    "DatasetKind",
    "DecodedImage",
    "Subset",
    "check_dataset",
    "dataset_kinds",
    "describe_path",
    "from_arrays",
    "inspect_data",
    "named_datasets",
    "of_classes",
    "open_dataset",
    "per_class",
    "sample",
    "take",
    "with_classes",
]


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used."""
    if name in _HOME:
        return getattr(importlib.import_module(f"shiftbench.datasets.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
