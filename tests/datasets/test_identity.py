"""The bytes that are decoded are the bytes that were fingerprinted; odd files are named, never opened."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets import Subset, open_dataset
from shiftbench.datasets.catalogue import copy_remarks, inspect_data
from shiftbench.datasets.geometry import Geometry
from shiftbench.datasets.stored import ContentDataset
from shiftbench.errors import BadImageError, DatasetError
from tests.raised import raises
from tests.runs.helpers import colour_folder

FOLDERS: Any = {"space": "folders"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return colour_folder(tmp_path / "colours", per_class=4)


def replace_image(path: Path) -> None:
    Image.fromarray(np.full((40, 40, 3), 7, np.uint8)).save(path)


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("damage", [Path.unlink, replace_image, lambda path: path.write_bytes(path.read_bytes()[:99])])
def test_images_that_change_after_the_fingerprint_are_no_bad_images(folder: Path, damage: Any, workers: bool) -> None:
    dataset = open_dataset(folder, **FOLDERS)
    before = dataset.read(1).pixels
    fingerprint = dataset.fingerprint
    dataset = pickle.loads(pickle.dumps(dataset)) if workers else dataset
    damage(folder / dataset.ids[1])
    with pytest.raises(DatasetError) as raised:
        dataset.read(1)
    assert dataset.ids[1] in raised.value.message
    assert dataset.read(2).pixels.shape == (40, 42, 3)
    assert open_dataset(folder, **FOLDERS).fingerprint != fingerprint
    Image.fromarray(before).save(folder / dataset.ids[1])  # restored, to the byte
    assert np.array_equal(dataset.read(1).pixels, before)


def test_broken_and_missing_when_opened_are_bad_images_of_different_content(folder: Path) -> None:
    broken = folder / "blue/000.png"
    missing = folder / "blue/001.png"
    broken.write_bytes(b"no image")
    missing.unlink()
    missing.symlink_to("nowhere.png")
    dataset = open_dataset(folder, **FOLDERS)
    first, second = cast(ContentDataset, dataset).digests([0, 1])
    assert any(first) and not any(second)
    for index, reason in ((0, "no known image format"), (1, "No such file")):
        with pytest.raises(BadImageError, match=reason):
            dataset.read(index)
    missing.unlink()
    replace_image(missing)
    with raises(DatasetError, found="other bytes"):
        dataset.read(1)


def test_a_subset_checks_its_images_too(folder: Path) -> None:
    part = Subset(open_dataset(folder, **FOLDERS), [5, 1])
    _ = part.fingerprint
    replace_image(folder / part.ids[1])
    with pytest.raises(DatasetError):
        part.read(1)


def test_an_array_file_that_changes_in_place(tmp_path: Path) -> None:
    path = tmp_path / "test.npz"
    images = np.arange(4 * 300, dtype=np.uint8).reshape(4, 10, 10, 3)
    np.savez(path, images=images, labels=np.arange(4))
    dataset = open_dataset(path, space="cifar-10")
    _ = dataset.fingerprint
    assert np.array_equal(dataset.read(2).pixels, images[2])
    dataset.array[2] = 0  # type: ignore[attr-defined]
    with pytest.raises(DatasetError):
        dataset.read(2)


def test_a_failing_machine_is_not_a_bad_image(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_dataset(folder, **FOLDERS)
    real = os.stat

    def stat(path: Any, *args: Any, **options: Any) -> os.stat_result:
        if str(path).endswith("green/002.png"):
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *args, **options)

    monkeypatch.setattr(os, "stat", stat)
    with raises(DatasetError, found="Input/output error"):
        _ = dataset.fingerprint


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_and_devices_are_skipped_by_name_and_never_opened(folder: Path, tmp_path: Path) -> None:
    expected = open_dataset(folder, **FOLDERS).fingerprint
    os.mkfifo(folder / "red/pipe.png")
    (folder / "red/zero.png").symlink_to("/dev/zero")
    dataset = open_dataset(folder, **FOLDERS)
    assert dataset.fingerprint == expected and len(dataset) == 12
    assert any("2 pipes, sockets or devices" in remark for remark in dataset.remarks)
    assert any("2 pipes, sockets or devices" in note for note in inspect_data(folder, **FOLDERS).notes)
    rows = "path,label\nred/pipe.png,red\nred/zero.png,red\nred/001.png,red\n"
    (folder / "list.csv").write_text(rows)
    listed = open_dataset(folder / "list.csv", allow_outside=True, **FOLDERS)
    assert listed.fingerprint
    for index in (0, 1):
        with raises(BadImageError, found="it is a pipe, socket or device"):
            listed.read(index)


def test_link_loops_are_not_followed_and_links_to_outside_are_named(folder: Path, tmp_path: Path) -> None:
    (folder / "red/loop").symlink_to("..")
    (folder / "red/self.png").symlink_to("self.png")
    replace_image(tmp_path / "elsewhere.png")
    (folder / "blue/linked.png").symlink_to(tmp_path / "elsewhere.png")
    (folder / "blue/near.png").symlink_to("000.png")
    dataset = open_dataset(folder, **FOLDERS)
    assert len(dataset) == 15 and sum("/loop/" in one for one in dataset.ids) == 0
    for remarks in (dataset.remarks, inspect_data(folder, **FOLDERS).notes):
        assert any("red/loop" in remark and "not followed" in remark for remark in remarks)
        assert any(
            remark.startswith("1 links lead to files outside") and "blue/linked.png" in remark for remark in remarks
        )


def test_images_of_formats_that_are_not_read_are_named(folder: Path) -> None:
    (folder / "red/moving.GIF").write_bytes(b"GIF89a")
    (folder / "red/about.txt").write_text("not an image")
    dataset = open_dataset(folder, **FOLDERS)
    assert len(dataset) == 12 and [
        remark for remark in dataset.remarks if remark.startswith("1 ") and "red/moving.GIF" in remark
    ]


def test_copies_and_images_in_two_classes_are_counted(folder: Path) -> None:
    assert copy_remarks(open_dataset(folder, **FOLDERS)) == []
    for i in range(3):
        (folder / f"red/copy{i}.png").write_bytes((folder / "red/000.png").read_bytes())
    (folder / "green/other.png").write_bytes((folder / "blue/002.png").read_bytes())
    dataset = open_dataset(folder, **FOLDERS)
    copies, classes = copy_remarks(dataset)
    assert copies.startswith("4 images are exact copies") and "green/other.png" in copies
    assert classes.startswith("1 images appear in several classes") and "green/other.png" in classes
    assert copies in inspect_data(folder, **FOLDERS).notes
    once = dataset.ids.index("red/000.png")
    assert copy_remarks(Subset(dataset, [once, once, once])) == []


def test_a_line_is_refused_before_it_is_resized() -> None:
    with pytest.raises(BadImageError) as raised:
        Geometry()(np.zeros((1, 20_000, 3), np.uint8))
    assert raised.value.found == "20000 x 1 pixels would be resized to 5120000 x 256"
    assert Geometry()(np.zeros((10, 2_000, 3), np.uint8)).shape == (224, 224, 3)
