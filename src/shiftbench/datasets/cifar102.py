"""CIFAR-10.2 (Lu et al. 2020): ``cifar102_test.npz`` with 2,000 images, ``cifar102_train.npz`` with 10,000."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from shiftbench.datasets.arrays import ArrayDataset, NpzMember, array_labels
from shiftbench.errors import DatasetError, LabelError
from shiftbench.io.cache import local_copy
from shiftbench.io.paths import place
from shiftbench.labels.catalogue import label_space
from shiftbench.labels.space import LabelSpace


def open_cifar10_2(path: str | Path, *, space: LabelSpace | str | None = None, name: str | None = None) -> ArrayDataset:
    """The arrays ``images`` and ``labels`` of the npz file; ``label_names`` must say the order of CIFAR-10."""
    file = place(path)
    target = label_space("cifar-10")
    asked = label_space(space) if isinstance(space, str) else space
    if asked is not None and asked.keys != target.keys:
        raise DatasetError("this file holds the classes of CIFAR-10", found=f"the label space {asked.name!r}")
    _check_names(file, target)
    target, labels = array_labels(NpzMember(file, "labels").open(), target, file.stem)
    split = "train" if "train" in file.stem else "test"
    ids = [f"cifar10.2_{split}/{i:05d}" for i in range(len(labels))]
    return ArrayDataset(name or f"cifar-10.2-{split}", target, NpzMember(file, "images"), labels, ids=ids)


def _check_names(file: Path, target: LabelSpace) -> None:
    """The file says what its labels mean; a list in another order would give every class a wrong name."""
    with np.load(local_copy(file), allow_pickle=False) as arrays:
        if "label_names" not in arrays.files:
            return
        try:
            names = tuple(str(name) for name in np.asarray(arrays["label_names"]).tolist())
        except ValueError:  # a list of Python objects, which would have to be unpickled: left unread
            return
    if names != target.keys:
        raise LabelError(
            f"{file.name} names its labels in another order than CIFAR-10",
            found=", ".join(names[:4]),
            expected=", ".join(target.keys[:4]),
        )
