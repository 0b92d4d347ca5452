"""CIFAR-10 and its successors end to end: real images in the official files, a real classifier; CIFAR-100 likewise.

All go through ``shiftbench eval``; every accuracy is counted a second time by hand.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from tests.commands import answer
from tests.datasets import official_trees as trees
from tests.runs import by_hand

#: Which of the real test images stand for which set.
PARTS = {
    "cifar-10": slice(0, 300),
    "cifar-10.1-v4": slice(300, 500),
    "cifar-10.1-v6": slice(500, 700),
    "cifar-10.2": slice(700, 900),
}


def evaluated(*arguments: str) -> dict[str, Any]:
    return {row["setting"]: row for row in answer("eval", *arguments, "--quiet")["scores"]}


@pytest.mark.parametrize("packing", [trees.cifar_python, trees.cifar_binary])
def test_cifar_10_in_both_versions_and_the_new_test_sets(tmp_path: Path, packing: Callable[..., None]) -> None:
    images, labels = trees.cifar_10_test()
    packing(tmp_path / "cifar-10", images[PARTS["cifar-10"]], labels[PARTS["cifar-10"]])
    for version in ("v4", "v6"):
        part = PARTS[f"cifar-10.1-{version}"]
        trees.cifar_10_1(tmp_path / "cifar-10.1", version, images[part], labels[part])
    trees.cifar_10_2(tmp_path / "cifar-10.2", images[PARTS["cifar-10.2"]], labels[PARTS["cifar-10.2"]])
    workspace = str(tmp_path / "w")
    found = evaluated("demo:resnet8-cifar10", "--suite", "cifar", "--data", str(tmp_path), "-w", workspace)
    assert set(found) == set(PARTS)
    for name, part in PARTS.items():
        right = by_hand.resnet8(images[part]).argmax(axis=1) == labels[part]
        assert (found[name]["n"], found[name]["value"]) == (len(right), right.mean()), name
        assert right.mean() > 0.75, "82 % on the whole test set"


@pytest.mark.parametrize("packing", [trees.cifar_python, trees.cifar_binary])
def test_cifar_100_in_both_versions(tmp_path: Path, packing: Callable[..., None]) -> None:
    """Its fine classes, by the nearest of mirrored copies of real pictures; no package carries a better model."""
    images, labels = trees.cifar_100_pictures()
    packing(tmp_path / "cifar-100", images, labels, hundred=True)
    rows = images.reshape(len(images), -1).astype(np.float32)
    model = KNeighborsClassifier(1).fit(images[:, :, ::-1].reshape(len(images), -1).astype(np.float32), labels)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))
    options = ["--suite", "cifar-100", "--labels", "cifar-100", "--trust", "-w", str(tmp_path / "w")]
    found = evaluated(str(tmp_path / "model.pkl"), "--data", str(tmp_path / "cifar-100"), *options)
    right = model.predict(rows) == labels
    assert (found["cifar-100"]["n"], found["cifar-100"]["value"]) == (20, right.mean())
    assert 0.2 <= right.mean() < 1, "some are right and some are not, or nothing is shown"
