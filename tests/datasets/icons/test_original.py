"""The released Icons-50: folders, the npy file, and what only looks like them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.datasets import open_dataset
from shiftbench.datasets.catalogue import recognise_path
from shiftbench.errors import DatasetError, LabelError
from tests.commands import call
from tests.datasets.icons.originals import CLASSES, NAMES, original_folder, original_npy
from tests.datasets.makers import assert_conforms, class_folders
from tests.raised import raises


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return original_folder(tmp_path_factory.mktemp("original") / "Icons-50")


def test_folders_become_classes_and_names_become_metadata(folder: Path) -> None:
    dataset = open_dataset(folder)
    assert_conforms(dataset, reopen=lambda: open_dataset(folder))
    assert recognise_path(folder) == ("icons", "Icons-50")
    assert dataset.space.name == "icons-50" and dataset.name == "Icons-50"
    found = zip(
        (dataset.space.keys[label] for label in dataset.labels),
        dataset.metadata["style"],
        (int(r) for r in dataset.metadata["rendition"]),
        dataset.metadata["subtype"],
        strict=True,
    )
    assert sorted(found) == sorted(NAMES)


def test_the_npy_file_is_the_same_data_set(folder: Path, tmp_path: Path) -> None:
    packed = open_dataset(original_npy(tmp_path / "Icons-50.npy"))
    assert_conforms(packed)
    loose = open_dataset(folder)
    place = {image_id: i for i, image_id in enumerate(loose.ids)}
    assert set(packed.ids) == set(loose.ids)
    for i in range(0, len(packed), 37):
        j = place[packed.ids[i]]
        assert packed.labels[i] == loose.labels[j]
        assert packed.metadata["subtype"][i] == loose.metadata["subtype"][j]
        np.testing.assert_array_equal(packed.read(i).pixels, loose.read(j).pixels)


class Hostile:
    """What a pickle of a stranger may hold."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.place),)


def test_a_hostile_npy_file_runs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "Icons-50.npy"
    np.save(path, {"class": Hostile(tmp_path / "made")}, allow_pickle=True)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match="is not Icons-50"):
        open_dataset(path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"image": np.zeros((3, 3, 32, 32), np.uint8)},
        {"image": np.zeros((len(NAMES), 32, 32, 3), np.uint8)},
        {"image": np.zeros((len(NAMES), 3, 32, 32), np.float32)},
        {"class": [50] * len(NAMES)},
        {"class": [-1] * len(NAMES)},
        {"subtype": ["duck"]},
    ],
)
def test_an_npy_file_of_other_shapes_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(DatasetError, match=r"Icons-50"):
        open_dataset(original_npy(tmp_path / "Icons-50.npy", **changes))


@pytest.mark.parametrize("value", [b"", b"\x93NUMPY\x01\x00", b"rubbish" * 20])
def test_a_damaged_npy_file_is_refused(tmp_path: Path, value: bytes) -> None:
    (tmp_path / "Icons-50.npy").write_bytes(value)
    with pytest.raises(DatasetError, match="is not Icons-50"):
        open_dataset(tmp_path / "Icons-50.npy")


def test_an_array_of_that_name_is_refused_with_the_reason(tmp_path: Path) -> None:
    np.save(tmp_path / "icons-50.npy", np.zeros((4, 32, 32, 3), np.uint8))
    with raises(DatasetError, found="ValueError: an array of uint8 (4, 32, 32, 3), not one object"):
        open_dataset(tmp_path / "icons-50.npy")


def test_other_folders_are_not_taken_for_icons(tmp_path: Path) -> None:
    """Some classes of the same names, or all of them with files of other names."""
    few = class_folders(tmp_path / "few", CLASSES[:10])
    assert recognise_path(few) == ("folder", "a folder of 10 class folders")
    other = class_folders(tmp_path / "other", CLASSES)
    assert recognise_path(other) == ("folder", "a folder of 50 class folders")
    assert len(open_dataset(other, space="icons-50")) == 100
    with raises(DatasetError, found="airplane/0.png", expected="<style>_<rendition>_<subtype>.png"):
        open_dataset(f"icons:{other}")
    with pytest.raises(LabelError):
        open_dataset(f"icons:{class_folders(tmp_path / 'cats', ['cats', 'dogs'])}")


def test_another_label_space_is_refused(folder: Path) -> None:
    assert len(open_dataset(folder, space="icons-50")) == len(NAMES)
    with raises(DatasetError, found="the label space 'cifar-10'", expected="icons-50"):
        open_dataset(folder, space="cifar-10")


def test_data_check_tells_what_is_missing(folder: Path, tmp_path: Path) -> None:
    result = call("data", "check", folder, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and report["what"] == "Icons-50" and report["classes"] == 50
    assert report["missing"] == [f"{10_000 - len(NAMES):,} of 10,000 images"]
    assert report["notes"] == ["styles: apple, emoji-one, google, microsoft"]
    assert report["role"] == "icons" and report["suite"] == "icons-style"
    result = call("data", "check", original_npy(tmp_path / "Icons-50.npy"), "--json")
    assert json.loads(result.stdout)["images"] == len(NAMES)
