"""Pictures without labels: of no known class, for detection."""

from __future__ import annotations

from pathlib import Path

import pytest

from shiftbench.datasets.catalogue import open_dataset, recognise_path
from shiftbench.errors import DatasetError
from tests.datasets.makers import assert_conforms, png
from tests.raised import raises


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.png", "deep/er/a.PNG", "deep/c.jpg", "notes.txt", ".hidden.png"):
        (tmp_path / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "pictures" / name).write_bytes(png(len(name)))
    return tmp_path / "pictures"


def test_every_picture_below_the_folder_counts_and_has_no_label(folder: Path) -> None:
    found = open_dataset(f"unlabelled:{folder}", space="cifar-10")
    assert list(found.ids) == ["b.png", "deep/c.jpg", "deep/er/a.PNG"]
    assert found.labels.tolist() == [-1, -1, -1] and found.space.name == "cifar-10" and found.name == "pictures"
    assert_conforms(found)


def test_it_is_never_guessed(folder: Path) -> None:
    kind = recognise_path(folder)
    assert kind is None or kind[0] != "unlabelled"


def test_the_classes_must_be_named(folder: Path, tmp_path: Path) -> None:
    for space in (None, "folders"):
        with raises(DatasetError, expected="the label space of the labelled images", hint="labels='imagenet-1k'"):
            open_dataset(f"unlabelled:{folder}", space=space)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="no images"):
        open_dataset(f"unlabelled:{tmp_path / 'empty'}", space="cifar-10")
    with raises(DatasetError, found="nothing there"):
        open_dataset(f"unlabelled:{tmp_path / 'nowhere'}", space="cifar-10")
