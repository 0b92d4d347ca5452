"""Class folders: labels, ids, order, fingerprints."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shiftbench.datasets import open_dataset, stored
from shiftbench.datasets.folder import list_classes, open_folder
from shiftbench.errors import DatasetError, LabelError
from shiftbench.labels import label_space
from tests.datasets.makers import CIFAR_NAMES, assert_conforms, class_folders, pixels, png
from tests.raised import raises


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


def test_wnid_folders(tmp_path: Path) -> None:
    class_folders(tmp_path / "val", ["n01443537", "n01440764"])
    dataset = open_dataset(tmp_path / "val")
    assert dataset.name == "val" and dataset.space.name == "imagenet-1k"
    assert list(dataset.ids) == ["n01440764/0.png", "n01440764/1.png", "n01443537/0.png", "n01443537/1.png"]
    assert dataset.labels.tolist() == [0, 0, 1, 1] and dataset.labels.dtype == np.int32
    np.testing.assert_array_equal(dataset.read(2).pixels, pixels(0))
    assert_conforms(dataset, reopen=lambda: open_dataset(tmp_path / "val"))


def test_imagenetv2_layout_is_not_sorted_as_text(tmp_path: Path) -> None:
    class_folders(tmp_path, map(str, range(1000)), each=1)
    dataset = open_dataset(tmp_path)
    assert dataset.space is label_space("imagenet-1k")
    assert dataset.labels.tolist() == list(range(1000))
    assert [int(image_id.split("/")[0]) for image_id in dataset.ids] == list(range(1000))


def test_names_and_own_classes(tmp_path: Path) -> None:
    class_folders(tmp_path / "named", [n.title() for n in CIFAR_NAMES], each=1)
    assert open_dataset(tmp_path / "named").space.name == "cifar-10"
    class_folders(tmp_path / "own", ["good", "bad"])
    with raises(LabelError, found="2 folders: bad, good"):
        open_dataset(tmp_path / "own")
    own = open_dataset(tmp_path / "own", space="folders")
    assert own.space.keys == ("bad", "good") and own.labels.tolist() == [0, 0, 1, 1]
    (tmp_path / "classes.txt").write_text("good\nbad\nugly\n")
    ordered = open_dataset(tmp_path / "own", space=str(tmp_path / "classes.txt"))
    assert ordered.labels.tolist() == [0, 0, 1, 1] and ordered.ids[0] == "good/0.png"


def test_what_is_listed(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "set", ["cat", "dog"], each=1)
    (root / "cat" / "notes.txt").write_text("no picture")
    (root / "cat" / "UPPER.JPEG").write_bytes(png(1))
    (root / "cat" / "._0.png").write_bytes(b"resource fork")
    (root / "cat" / "folder.jpg").mkdir()
    (root / "cat" / "more").mkdir()
    (root / "cat" / "more" / "a.png").write_bytes(png(2))
    (root / ".hidden").mkdir()
    (root / ".hidden" / "x.png").write_bytes(png(3))
    (root / "readme.md").write_text("hello")
    (root / "empty").mkdir()
    (root / "dog" / "loop").symlink_to(root / "dog")
    (root / "dog" / "self.jpg").symlink_to(root / "dog" / "self.jpg")
    (root / "self").symlink_to(root / "self")
    listing = list_classes(root)
    assert listing.classes == {"cat": ["0.png", "UPPER.JPEG", "more/a.png"], "dog": ["0.png", "self.jpg"], "empty": []}
    assert sorted(listing.other_files) == ["cat/notes.txt", "readme.md", "self"]


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    class_folders(tmp_path / "split" / "val", ["n01440764"])
    class_folders(tmp_path / "c" / "fog" / "1", ["n01440764"])
    for path, words in [
        (tmp_path / "empty", "an empty folder"),
        (tmp_path / "nothing", "no file or folder"),
        (tmp_path / "split", "open one split"),
        (tmp_path / "c", "ImageNet-C"),
    ]:
        with pytest.raises(DatasetError, match=words):
            open_dataset(path)
    with raises(DatasetError, found="0 folders, 0 other files"):
        open_folder(tmp_path / "empty")
    with raises(DatasetError, found="nothing there"):
        open_folder(tmp_path / "nothing")


def test_a_tar_file_left_beside_the_classes(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "val", ["n01440764"])
    (root / "ILSVRC2012_img_val.tar").write_bytes(b"")
    assert len(open_dataset(root)) == 2


def test_a_folder_that_may_not_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = class_folders(tmp_path / "val", ["n01440764", "n01443537"])
    listing = os.scandir

    def refuse(path: Path) -> object:
        if Path(path).name == "n01443537":
            raise PermissionError(13, "Permission denied")
        return listing(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with raises(DatasetError, found="Permission denied"):
        open_dataset(root)


def test_moving_the_folder_keeps_the_fingerprint(tmp_path: Path) -> None:
    class_folders(tmp_path / "here", ["n01440764", "n01443537"])
    first = open_dataset(tmp_path / "here").fingerprint
    shutil.copytree(tmp_path / "here", tmp_path / "there" / "deep")
    assert open_dataset(tmp_path / "there" / "deep").fingerprint == first


@pytest.mark.parametrize("change", ["byte", "rename", "class", "added", "removed", "space"])
def test_every_change_changes_the_fingerprint(tmp_path: Path, change: str) -> None:
    root = class_folders(tmp_path / "set", ["n01440764", "n01443537"])
    first = open_dataset(root).fingerprint
    file = root / "n01440764" / "0.png"
    space = None
    if change == "byte":
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    elif change == "rename":
        file.rename(file.with_name("9.png"))
    elif change == "class":
        file.rename(root / "n01443537" / "9.png")
    elif change == "added":
        (root / "n01440764" / "7.png").write_bytes(png(7))
    elif change == "removed":
        file.unlink()
    else:
        space = "folders"
    assert open_dataset(root, space=space).fingerprint != first


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10**6), value=st.integers(1, 255))
def test_any_byte_counts(tmp_path: Path, position: int, value: int) -> None:
    root = tmp_path / f"{position}-{value}"
    class_folders(root, ["n01440764"], each=1)
    first = open_dataset(root).fingerprint
    file = root / "n01440764" / "0.png"
    data = bytearray(file.read_bytes())
    data[position % len(data)] ^= value
    file.write_bytes(data)
    assert open_dataset(root).fingerprint != first
    shutil.rmtree(root)


def test_hashes_are_kept_between_runs_and_only_for_unchanged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = class_folders(tmp_path / "set", ["n01440764"], each=3)
    monkeypatch.setattr(stored, "SETTLED_NS", 0)
    first = open_dataset(root).fingerprint
    [store] = Path(os.environ["SHIFTBENCH_CACHE"]).rglob("hashes/*.json")
    known = json.loads(store.read_text())
    assert len(known) == 3
    # a tampered cache shows that it is used for files that did not change
    store.write_text(json.dumps({name: [*entry[:3], "0" * 32] for name, entry in known.items()}))
    assert open_dataset(root).fingerprint != first
    for broken in ("{", "[]", '{"a": []}', '{"a": 1}'):
        store.write_text(broken)
        assert open_dataset(root).fingerprint == first
    # same size and same mtime, other content
    file = root / "n01440764" / "1.png"
    before = file.stat()
    time.sleep(0.02)
    file.write_bytes(bytes(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert open_dataset(root).fingerprint != first


def test_a_file_that_was_misread_when_it_was_hashed_is_hashed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = class_folders(tmp_path / "set", ["n01440764"], each=3)
    monkeypatch.setattr(stored, "SETTLED_NS", 0)
    fingerprint = open_dataset(root).fingerprint
    [store] = Path(os.environ["SHIFTBENCH_CACHE"]).rglob("hashes/*.json")
    known = json.loads(store.read_text())
    known["n01440764/1.png"][3] = "ab" * 16
    store.write_text(json.dumps(known))
    misread = open_dataset(root)
    assert misread.fingerprint != fingerprint
    with pytest.raises(DatasetError):
        misread.read(1)
    again = open_dataset(root)
    assert again.fingerprint == fingerprint
    assert again.read(1).pixels.size


def test_a_file_that_is_misread_once_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset: Any = open_dataset(class_folders(tmp_path / "set", ["n01440764"], each=1))
    assert dataset.fingerprint
    correct = dataset._bytes(0)
    answers = iter([correct[:-1] + b"?", correct])
    monkeypatch.setattr(dataset, "_bytes", lambda index: next(answers))
    assert dataset.read(0).pixels.size


def test_a_fresh_file_is_not_kept(tmp_path: Path) -> None:
    class_folders(tmp_path / "set", ["n01440764"])
    assert open_dataset(tmp_path / "set").fingerprint
    assert list(Path(os.environ["SHIFTBENCH_CACHE"]).rglob("hashes/*")) == []


def test_without_a_writable_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "file" / "cache"))
    class_folders(tmp_path / "set", ["n01440764"])
    assert len(open_dataset(tmp_path / "set").fingerprint) == 32


def test_a_name_that_is_no_text(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "set", ["n01440764"], each=1)
    odd = os.fsencode(root / "n01440764") + b"/caf\xe9.png"
    try:
        with open(odd, "wb") as file:  # noqa: PTH123
            file.write(png(5))
    except OSError:
        pytest.skip("this file system wants text")
    dataset = open_dataset(root)
    assert list(dataset.ids) == ["n01440764/0.png", "n01440764/caf\\xe9.png"]
    np.testing.assert_array_equal(dataset.read(1).pixels, pixels(5))
    assert_conforms(dataset)


def test_pickles_small_and_without_the_pictures(tmp_path: Path) -> None:
    dataset = open_dataset(class_folders(tmp_path / "set", ["n01440764"]))
    assert len(pickle.dumps(dataset.labels)) < len(pickle.dumps(dataset)) < 60_000


def test_renditions_of_imagenet_r_are_a_column(tmp_path: Path) -> None:
    """Released files are called art_0.jpg, cartoon_12.jpg; no other folder gets such a column."""
    from shiftbench.labels.catalogue import label_space

    for root in ("imagenet-r", "mine"):
        for number, wnid in enumerate(label_space("imagenet-r-200").keys):
            (tmp_path / root / wnid).mkdir(parents=True)
            (tmp_path / root / wnid / f"{('art', 'video_game')[number % 2]}_{number}.jpg").touch()
    found = open_folder(tmp_path / "imagenet-r")
    assert list(found.metadata["style"]) == ["art", "video_game"] * 100
    if "style" in open_folder(tmp_path / "mine").metadata:  # recognised by its classes, too
        assert open_folder(tmp_path / "mine").metadata == found.metadata
    (tmp_path / "imagenet-r" / label_space("imagenet-r-200").keys[0] / "other.jpg").touch()
    assert open_folder(tmp_path / "imagenet-r").metadata == {}
