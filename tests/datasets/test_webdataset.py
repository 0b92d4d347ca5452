"""WebDataset shards, those that the webdataset library writes first of all."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.datasets import open_dataset, webdataset
from shiftbench.datasets.webdataset import expand_braces, find_shards
from shiftbench.errors import BadImageError, DatasetError, LabelError
from tests.datasets.makers import CIFAR_NAMES, assert_conforms, pixels, png
from tests.raised import raises


def write_tar(path: Path, members: list[tuple[str, bytes]], form: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def samples(count: int, start: int = 0) -> list[tuple[str, bytes]]:
    out = []
    for i in range(start, start + count):
        out += [(f"{i:04d}.png", png(i)), (f"{i:04d}.cls", str(i % 10).encode())]
    return out


@pytest.mark.parametrize("label", ["cls", "json"])
def test_shards_of_the_webdataset_library(tmp_path: Path, label: str) -> None:
    webdataset = pytest.importorskip("webdataset")
    with webdataset.ShardWriter(f"{tmp_path}/set-%04d.tar", maxcount=8, verbose=0) as sink:
        for i in range(20):
            sample: dict[str, Any] = {"__key__": f"sample{i:03d}", "png": pixels(i)}
            if label == "cls":
                sample["cls"] = i % 10
            else:
                sample["json"] = {"label": i % 10, "photographer": f"p{i}"}
            sink.write(sample)
    dataset = open_dataset(f"{tmp_path}/set-{{0000..0002}}.tar", space="cifar-10", name="set")
    assert len(dataset) == 20 and list(dataset.ids)[9] == "sample009"
    assert dataset.labels.tolist() == [i % 10 for i in range(20)]
    for i in (0, 7, 8, 19):
        np.testing.assert_array_equal(dataset.read(i).pixels, pixels(i))
    if label == "json":
        assert dataset.metadata["photographer"][3] == "p3"
    assert_conforms(dataset, reopen=lambda: open_dataset(tmp_path, space="cifar-10"))
    # and the library reads the same from them
    read = webdataset.WebDataset(str(tmp_path / "set-0001.tar"), shardshuffle=False).decode("rgb8")
    for i, sample in enumerate(read):
        np.testing.assert_array_equal(sample["png"], dataset.read(8 + i).pixels)


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT])
def test_formats_of_tar(tmp_path: Path, form: int) -> None:
    long = "f/" * 40 + "key" if form == tarfile.USTAR_FORMAT else "folder/" * 40 + "key"
    members = [(f"{long}.seg.png", png(8)), (f"{long}.PNG", png(1)), (f"{long}.cls", b"3\n"), *samples(2)]
    dataset = open_dataset(write_tar(tmp_path / "a.tar", members, form), space="cifar-10")
    assert list(dataset.ids) == [long, "0000", "0001"] and dataset.labels.tolist() == [3, 0, 1]
    np.testing.assert_array_equal(dataset.read(0).pixels, pixels(1))


def test_resharding_keeps_the_fingerprint(tmp_path: Path) -> None:
    write_tar(tmp_path / "one.tar", samples(12))
    (tmp_path / "many").mkdir()
    for i in range(3):
        write_tar(tmp_path / "many" / f"{i}.tar", samples(4, 4 * i))
    one = open_dataset(tmp_path / "one.tar", space="cifar-10")
    assert one.fingerprint == open_dataset(tmp_path / "many", space="cifar-10").fingerprint
    assert len(pickle.dumps(one)) < 10_000


def test_the_same_key_in_two_shards(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_tar(tmp_path / f"{name}.tar", samples(2))
    assert list(open_dataset(tmp_path, space="cifar-10").ids) == ["a/0000", "a/0001", "b/0000", "b/0001"]


def test_labels_by_name_and_missing(tmp_path: Path) -> None:
    members: list[tuple[str, bytes]] = []
    for i, name in enumerate(CIFAR_NAMES):
        members += [(f"{i}.jpg", png(i)), (f"{i}.json", json.dumps({"class": name}).encode())]
    members += [("extra.jpg", png(99)), ("text_only.txt", b"no picture")]
    dataset = open_dataset(write_tar(tmp_path / "a.tar", members))
    assert dataset.space.name == "cifar-10"
    assert dataset.labels.tolist() == [*range(10), -1]


def test_integer_labels_need_a_space(tmp_path: Path) -> None:
    with raises(LabelError, found="10 folders from 0 to 9"):
        open_dataset(write_tar(tmp_path / "a.tar", samples(10)))


def test_nothing_escapes_and_links_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as archive:
        for name, data in [("../../evil.png", png(1)), ("../../evil.cls", b"1"), ("/abs.png", png(2))]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("link.png")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        archive.addfile(link)
    dataset = open_dataset(path, space="cifar-10")
    assert list(dataset.ids) == ["../../evil", "abs"]
    assert dataset.read(0).pixels.shape == (12, 16, 3)
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.tar", "in"]


def test_damaged_shards(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "whole.tar", samples(4)).read_bytes()
    (tmp_path / "junk.tar").write_bytes(b"junk" * 1000)
    with pytest.raises(DatasetError, match="damaged"):
        open_dataset(tmp_path / "junk.tar", space="cifar-10")
    dataset = open_dataset(tmp_path / "whole.tar", space="cifar-10")
    (tmp_path / "whole.tar").write_bytes(whole[:2000])  # cut after it was opened
    with raises(BadImageError, found="the shard whole.tar ends inside it"):
        dataset.read(3)
    assert len(dataset.fingerprint) == 32
    (tmp_path / "whole.tar").unlink()
    with pytest.raises(DatasetError, match="changed or vanished"):
        dataset.read(0)
    with pytest.raises(BadImageError, match="0003"):  # it was unreadable when the dataset was fingerprinted, too
        dataset.read(3)


def test_bad_pictures_are_named(tmp_path: Path) -> None:
    members = [("a.jpg", b""), ("a.cls", b"0"), ("b.jpg", b"no picture"), ("b.cls", b"1")]
    dataset = open_dataset(write_tar(tmp_path / "a.tar", members), space="cifar-10")
    for i, name in enumerate("ab"):
        with pytest.raises(BadImageError, match=f"^{name} can't be used"):
            dataset.read(i)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([("a.txt", b"x")], "endings txt"),
        ([("a.png", b"x")], "no labels"),
        ([("a.png", b"x"), ("a.json", b"{")], "not JSON"),
        ([("a.png", b"x"), ("a.cls", b"17")], "0 to 9"),
    ],
)
def test_refused(tmp_path: Path, members: list[tuple[str, bytes]], words: str) -> None:
    with pytest.raises((DatasetError, LabelError), match=words):
        open_dataset(write_tar(tmp_path / "a.tar", members), space="cifar-10")


def test_missing_and_compressed_shards(tmp_path: Path) -> None:
    write_tar(tmp_path / "s-0.tar", samples(1))
    with pytest.raises(DatasetError, match="1 of 2 shards are missing"):
        find_shards(f"{tmp_path}/s-{{0..1}}.tar")
    (tmp_path / "s.tar.gz").write_bytes(b"x")
    with raises(DatasetError, found="s.tar.gz", expected=".tar"):
        find_shards(tmp_path / "s.tar.gz")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a.tar", ["a.tar"]),
        ("a-{000..010}.tar", [f"a-{i:03d}.tar" for i in range(11)]),
        ("a-{9..11}.tar", ["a-9.tar", "a-10.tar", "a-11.tar"]),
        ("{x,y}-{0..1}", ["x-0", "x-1", "y-0", "y-1"]),
        ("{2..0}", ["2", "1", "0"]),
    ],
)
def test_braces(pattern: str, expected: list[str]) -> None:
    assert expand_braces(pattern) == expected
    braceexpand = pytest.importorskip("braceexpand")
    assert expand_braces(pattern) == list(braceexpand.braceexpand(pattern))


def test_the_index_of_a_shard_is_kept_until_the_shard_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    shard = write_tar(tmp_path / "a.tar", samples(3))
    scanned = []
    scan = webdataset._scan

    def noting(path: Path) -> Any:
        scanned.append(path)
        return scan(path)

    monkeypatch.setattr(webdataset, "_scan", noting)

    def opened(**options: str) -> list[str]:
        dataset = open_dataset(shard, space="cifar-10", **options)
        assert dataset.read(0).pixels.size
        return list(dataset.ids)

    opened()
    opened()
    assert len(scanned) == 2  # A file that was just written may change again within the clock's resolution.
    monkeypatch.setattr(webdataset, "SETTLED_NS", -(10**18))
    first = opened()
    assert opened() == first and len(scanned) == 3
    opened(label="cls")
    assert len(scanned) == 4  # Another question has another index.
    write_tar(shard, samples(4))
    assert len(opened()) == 4 and len(scanned) == 5
    for file in (tmp_path / "cache" / "shards").glob("*.json"):
        file.write_text("{")
    assert len(opened()) == 4 and len(scanned) == 6


def test_a_flipped_bit_in_a_kept_index_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(webdataset, "SETTLED_NS", -(10**18))
    shard = write_tar(tmp_path / "a.tar", samples(3))

    def opened() -> tuple[list[str], list[int], str]:
        dataset = open_dataset(shard, space="cifar-10")
        return list(dataset.ids), dataset.labels.tolist(), dataset.fingerprint

    expected = opened()
    (file,) = (tmp_path / "cache" / "shards").glob("*.json")
    content = file.read_bytes()
    for bit in range(0, len(content) * 8, 19):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        file.write_bytes(flipped)
        assert opened() == expected
        assert file.read_bytes() == content
