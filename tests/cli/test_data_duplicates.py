"""`data duplicates`: pairs between two datasets, and accuracies without them, against a count by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow

import shiftbench as sb
from shiftbench.errors import ShiftbenchError
from shiftbench.testsets.near_duplicates import find_near_duplicates
from shiftbench.testsets.near_duplicates.find import duplicate_effect
from tests.commands import output
from tests.raised import raises
from tests.testsets.helpers import PETS, cifar


def saved(folder: Path, part: str, each: int, seed: int = 0) -> Path:
    images = cifar(part, each, seed=seed)
    for i, label in enumerate(images.labels.tolist()):
        path = folder / PETS.keys[label] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Pillow.fromarray(images.read(i).pixels).save(path)
    return folder


def test_planted_duplicates_and_accuracies_without_them(tmp_path: Path) -> None:
    test = saved(tmp_path / "test", "test", 6)
    train = saved(tmp_path / "train", "train", 6)
    planted = set()
    for path in sorted(train.rglob("*.png"))[:4]:
        copy = test / path.parent.name / f"copy-{path.stem}.jpg"
        Pillow.open(path).save(copy, quality=85)
        planted.add(f"{copy.parent.name}/{copy.name}")
    workspace = tmp_path / "w"
    run = sb.evaluate("demo:resnet8-cifar10", data=test, labels="cifar-10", workspace=workspace, progress=False)
    arguments = [
        "data",
        "duplicates",
        str(test),
        str(train),
        "-w",
        str(workspace),
        "--labels",
        "cifar-10",
        "-q",
        "--json",
    ]
    shown = output(*arguments)
    found = json.loads(shown)
    assert {pair["candidate"] for pair in found["duplicates"]["pairs"]} == planted
    (row,) = found["accuracy"]["rows"]
    stored = run.workspace.read(run.results[0])
    kept = np.array([image not in planted for image in stored.ids])
    assert (row["n"], row["unique_n"], row["duplicate_n"]) == (22, 18, 4)
    assert row["accuracy"] == pytest.approx(stored.correct.mean())
    assert row["unique_accuracy"] == pytest.approx(stored.correct[kept].mean())


def test_results_on_other_data_are_refused(tmp_path: Path) -> None:
    test = cifar("test", 2)
    other = cifar("train", 2)
    queue = find_near_duplicates(test, [other], within=False)
    sb.Workspace(tmp_path / "w")
    with raises(ShiftbenchError, found="0 results on other datasets"):
        duplicate_effect(test, queue, tmp_path / "w")
