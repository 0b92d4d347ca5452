"""WebDataset shards and Hugging Face tables, read with tarfile and with the packages that define them."""

from __future__ import annotations

import io
import shutil
import tarfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import LabelError
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.write import Format, preparation, write_corruptions
from tests.outputs.helpers import bytes_below, picture_folder, scene
from tests.runs.helpers import colour_folder

SHARDS: dict[str, Any] = {
    "names": "fog,snow",
    "severities": [1, 3],
    "format": "shards",
    "size": 32,
    "labels": "folders",
    "shard_size": 4,
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_folder(tmp_path_factory.mktemp("source") / "pictures")


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        infos = archive.getmembers()
        assert {(m.mtime, m.uid, m.gid, m.uname, m.gname, m.mode) for m in infos} <= {(0, 0, 0, "", "", 0o644)}
        return {m.name: archive.extractfile(m).read() for m in infos}  # type: ignore[union-attr]


def test_members_hold_picture_and_label(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", lossless=True, **SHARDS)
    folder = tmp_path / "c" / "snow" / "3"
    assert sorted(path.name for path in folder.iterdir()) == ["000000.tar", "000001.tar", "000002.tar"]
    found = {name: data for path in sorted(folder.iterdir()) for name, data in members(path).items()}
    clean = open_dataset(source, space="folders")
    assert len(found) == 2 * len(clean)
    for i, image_id in enumerate(clean.ids):
        key = image_id.rsplit(".", 1)[0]
        expected = corrupt(preparation(32)(clean.read(i).pixels, ""), "snow", 3, image_id=image_id)
        np.testing.assert_array_equal(np.asarray(Image.open(io.BytesIO(found[f"{key}.png"]))), expected)
        assert found[f"{key}.cls"] == str(clean.labels[i]).encode()


def test_our_reader_and_the_webdataset_package_read_them(source: Path, tmp_path: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    write_corruptions(source, tmp_path / "c", **SHARDS)
    folder = tmp_path / "c" / "fog" / "1"
    ours = open_dataset(folder, space="folders")
    pattern = str(folder / "{000000..000002}.tar")
    theirs = list(webdataset.WebDataset(pattern, shardshuffle=False, empty_check=False).decode("rgb8"))
    assert [sample["__key__"] for sample in theirs] == list(ours.ids)
    assert [sample["cls"] for sample in theirs] == ours.labels.tolist()
    for i, sample in enumerate(theirs):
        np.testing.assert_array_equal(sample["jpg"], ours.read(i).pixels)


def test_one_and_two_workers_write_the_same_bytes(source: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        write_corruptions(source, tmp_path / str(workers), workers=workers, **SHARDS)
    assert bytes_below(tmp_path / "1") == bytes_below(tmp_path / "2")


def test_a_lost_shard_is_written_again_with_the_same_bytes(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", **SHARDS)
    before = bytes_below(tmp_path / "c")
    (tmp_path / "c" / "fog" / "3" / "000001.tar").unlink()
    again = write_corruptions(source, tmp_path / "c", **SHARDS)
    assert (again.written, again.already) == (4, 36)
    assert bytes_below(tmp_path / "c") == before


def test_pictures_skipped_before_an_interruption_stay_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures = picture_folder(tmp_path / "s", classes=("a", "z"))
    for name in ("a", "z"):
        (pictures / name / "bad.jpg").write_text("<html>")
    calls = []
    real = Corruption.__call__

    def failing(self: Corruption, image: Any, **rest: Any) -> Any:
        if rest["image_id"] != "probe":  # applied to each corruption before anything is written
            calls.append(self.name)
        if len(calls) > 10:  # two pictures under four shifts are the first shard, and under one a file of the second
            raise MemoryError
        return real(self, image, **rest)

    options = {**SHARDS, "shard_size": 3, "workers": 1}
    monkeypatch.setattr(Corruption, "__call__", failing)
    with pytest.raises(MemoryError):
        write_corruptions(pictures, tmp_path / "c", **options)
    monkeypatch.setattr(Corruption, "__call__", real)
    rest = write_corruptions(pictures, tmp_path / "c", **options)
    assert (rest.written, list(rest.skipped)) == (6, ["a/bad.jpg", "z/bad.jpg"])


def test_dots_in_names_do_not_cut_keys_short(tmp_path: Path) -> None:
    (tmp_path / "s" / "v1.0").mkdir(parents=True)
    for i, name in enumerate(("a.1.png", "a.2.png", "a_2.jpg")):
        Image.fromarray(scene(i, 32, 32)).save(tmp_path / "s" / "v1.0" / name)
    (tmp_path / "s" / "v1.0" / "bad.jpg").write_bytes(b"-")
    written = write_corruptions(tmp_path / "s", tmp_path / "c", **SHARDS)
    assert list(written.skipped) == ["v1.0/bad.jpg"]
    names = set(members(tmp_path / "c" / "fog" / "1" / "000000.tar"))
    keys = {"v1.0/a_1", "v1.0/a_2__00000001", "v1.0/a_2__00000002"}
    assert names == {f"{key}.{ending}" for key in keys for ending in ("jpg", "cls")}
    assert len(open_dataset(tmp_path / "c" / "fog" / "1", space="folders")) == 3


def test_numbers_for_classes_need_a_label_space(source: Path, tmp_path: Path) -> None:
    with pytest.raises(LabelError):
        write_corruptions(source, tmp_path / "c", **{**SHARDS, "labels": None})


def test_tables_are_those_of_the_datasets_package(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    options = {**SHARDS, "lossless": True}
    write_corruptions(source, tmp_path / "shards", **options)
    written = write_corruptions(source, tmp_path / "tables", **{**options, "format": "huggingface"})
    assert (written.written, written.format) == (40, "huggingface")
    folder = tmp_path / "tables" / "snow" / "3"
    table = datasets.load_dataset(str(folder), cache_dir=str(tmp_path / "cache"))["test"]
    expected = open_dataset(tmp_path / "shards" / "snow" / "3", space="folders")
    assert [row["label"] for row in table] == expected.labels.tolist()
    for i, row in enumerate(table):
        np.testing.assert_array_equal(np.asarray(row["image"]), expected.read(i).pixels)
    assert len(open_dataset(folder)) == len(table) == 10


@pytest.mark.parametrize("layout", ["arrays", "shards", "huggingface"])
def test_files_that_are_not_what_was_written_are_written_again(layout: Format, tmp_path: Path) -> None:
    """A cut file is noticed by every run, other bytes by a run that verifies; labels are files as well."""
    source = colour_folder(tmp_path / "source", per_class=3, size=32)
    copies = partial(
        write_corruptions, source, tmp_path / "c", names=("fog",), severities=(1, 2), size=32, format=layout
    )
    copies(labels="folders", shard_size=4)
    expected = bytes_below(tmp_path / "c")
    files = [path for path in sorted((tmp_path / "c").rglob("*.*")) if path.suffix in (".npy", ".tar", ".parquet")]
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-7])
        copies(labels="folders", shard_size=4)
        assert bytes_below(tmp_path / "c") == expected
        path.write_bytes(bytes(len(content)))
        copies(labels="folders", shard_size=4, verify=True)
        assert bytes_below(tmp_path / "c") == expected
    assert copies(labels="folders", shard_size=4, verify=True).written == 0


def test_a_damaged_piece_of_an_array_is_made_again(tmp_path: Path) -> None:
    """A run that was killed leaves pieces: a flipped bit, and a copy that another program made of one."""
    source = colour_folder(tmp_path / "source", per_class=3, size=32)
    copies = partial(write_corruptions, source, names=("fog",), severities=(1,), size=32, format="arrays")
    copies(tmp_path / "whole", labels="folders")
    copies(tmp_path / "c", labels="folders", shard="1/2")
    pieces = sorted((tmp_path / "c").glob(".*/**/fog/*.npy"))
    assert len(pieces) >= 2
    content = bytearray(pieces[0].read_bytes())
    content[-1] ^= 1
    pieces[0].write_bytes(content)
    shutil.copy(pieces[1], pieces[1].with_name(f"{pieces[1].stem} (conflicted copy).npy"))
    copies(tmp_path / "c", labels="folders", shard="1/2")
    copies(tmp_path / "c", labels="folders", shard="2/2")
    assert (tmp_path / "c" / "fog.npy").read_bytes() == (tmp_path / "whole" / "fog.npy").read_bytes()
