"""Data sets by URL: the ids, labels, pixels and fingerprint of the local copy, with few requests."""

from __future__ import annotations

import io
import pickle
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets import webdataset
from shiftbench.datasets.base import Dataset
from shiftbench.datasets.catalogue import describe_path, inspect_data, open_dataset
from shiftbench.datasets.manifest import open_manifest
from shiftbench.errors import BadImageError, DatasetError, StoreError
from shiftbench.io.cache import local_copy
from shiftbench.io.paths import place
from tests.io.objects.server import Bucket
from tests.raised import raises
from tests.runs.helpers import COLOURS, colour_folder


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    local_copy.cache_clear()


def folder(root: Path) -> str:
    colour_folder(root / "photos", per_class=4)
    (root / "photos" / "red" / "deep").mkdir()
    (root / "photos" / "red" / "000.png").rename(root / "photos" / "red" / "deep" / "é 1.png")
    (root / "photos" / "notes.txt").write_text("no picture")
    (root / "photos" / "blue" / ".hidden.png").write_bytes(b"")
    return "photos"


def unlabelled(root: Path) -> str:
    return f"unlabelled:{folder(root)}"


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (600, 32, 32, 3), dtype=np.uint8), rng.integers(0, 3, 600)


def npy(root: Path) -> str:
    images, labels = arrays()
    np.save(root / "x_images.npy", images)
    np.save(root / "x_labels.npy", labels)
    return "x_images.npy"


def npz(root: Path) -> str:
    images, labels = arrays()
    np.savez(root / "both.npz", images=images, labels=labels)
    return "both.npz"


def npy_folder(root: Path) -> str:
    images, labels = arrays()
    (root / "set").mkdir()
    np.save(root / "set" / "images.npy", images)
    np.save(root / "set" / "labels.npy", labels)
    return "set"


def shards(root: Path) -> str:
    photos = colour_folder(root / "photos", per_class=5)
    (root / "tars").mkdir()
    for number in range(2):
        with tarfile.open(root / "tars" / f"s-{number}.tar", "w") as archive:
            for i, path in enumerate(sorted(photos.rglob("*.png"))[number::2]):
                for ending, data in (("png", path.read_bytes()), ("cls", path.parent.name.encode())):
                    member = tarfile.TarInfo(f"{i:03d}.{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return "tars"


def shard_pattern(root: Path) -> str:
    return f"{shards(root)}/s-{{0..1}}.tar"


def manifest(root: Path) -> str:
    photos = colour_folder(root / "photos", per_class=3)
    lines = [f"photos/{path.relative_to(photos)},{path.parent.name},7" for path in sorted(photos.rglob("*.png"))]
    (root / "list.csv").write_text("\n".join(["path,label,cage", *lines, "photos/none.png,red,8"]))
    return "list.csv"


def cifar_c(root: Path) -> str:
    images, _ = arrays()
    np.save(root / "fog.npy", images)
    np.save(root / "labels.npy", np.tile(np.arange(10), 60))
    return "fog.npy"


def cifar10_1(root: Path) -> str:
    images, _ = arrays()
    np.save(root / "cifar10.1_v6_data.npy", images)
    np.save(root / "cifar10.1_v6_labels.npy", np.arange(600) % 10)
    return "cifar10.1_v6_data.npy"


def cifar10_2(root: Path) -> str:
    images, _ = arrays()
    np.savez(root / "cifar102_test.npz", images=images, labels=np.arange(600) % 10)
    return "cifar102_test.npz"


def objectnet(root: Path) -> str:
    for number, name in enumerate(("backpack", "banana", "umbrella")):
        (root / "objectnet-1.0" / "images" / name).mkdir(parents=True)
        picture = Image.new("RGB", (40, 30), (number, 9, 9))
        picture.save(root / "objectnet-1.0" / "images" / name / "1.png")
    return "objectnet-1.0"


KINDS: list[Callable[[Path], str]] = [
    folder,
    unlabelled,
    npy,
    npz,
    npy_folder,
    shards,
    shard_pattern,
    manifest,
    cifar_c,
    cifar10_1,
    cifar10_2,
    objectnet,
]


def same(here: Dataset, there: Dataset) -> None:
    assert (here.name, list(here.ids), here.labels.tolist()) == (there.name, list(there.ids), there.labels.tolist())
    assert here.space == there.space and dict(here.metadata) == dict(there.metadata)
    assert here.fingerprint == there.fingerprint
    again = pickle.loads(pickle.dumps(there))  # as a worker gets it
    for index in (0, len(here) // 2):
        np.testing.assert_array_equal(here.read(index).pixels, again.read(index).pixels)


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_a_data_set_by_url_is_that_of_the_disk(make: Callable[[Path], str], bucket: Bucket, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    kind, _, name = make(root).rpartition(":")
    bucket.put_folder(root, "data")
    prefix = f"{kind}:" if kind else ""
    space = None if make in (cifar_c, cifar10_1, cifar10_2, objectnet) else COLOURS
    here = open_dataset(f"{prefix}{root / name}", space=space)
    there = open_dataset(f"{prefix}{bucket.url}/data/{name}", space=space)
    same(here, there)


def test_a_tree_is_listed_once_and_each_picture_fetched_once(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=12), "photos")
    before = len(bucket.server.requests())
    dataset = open_dataset(url, space=COLOURS)
    assert len(bucket.server.requests()) - before < 12, "however many folders and pictures"
    before = len(bucket.server.requests())
    dataset.read(5)
    assert [line.split()[0] for line in bucket.server.requests()[before:]] == ["HEAD", "GET"]


def test_unchanged_objects_are_not_fetched_again_for_the_fingerprint(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shiftbench.datasets.stored.SETTLED_NS", -(10**18))
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=4), "photos")
    first = open_dataset(url, space=COLOURS).fingerprint
    before = len(bucket.server.requests())
    assert open_dataset(url, space=COLOURS).fingerprint == first
    assert not [line for line in bucket.server.requests()[before:] if line.endswith(".png")]
    picture = io.BytesIO()
    Image.new("RGB", (40, 40)).save(picture, "png")
    bucket.put("photos/red/001.png", picture.getvalue())
    assert open_dataset(url, space=COLOURS).fingerprint != first


def test_folders_that_a_console_made_change_nothing(bucket: Bucket, tmp_path: Path) -> None:
    """Such tools put an empty object whose name ends in a slash."""
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=2), "photos")
    for marker in ("photos/", "photos/red/"):
        bucket.put(marker, b"")
    same(open_dataset(tmp_path / "photos", space=COLOURS), open_dataset(url, space=COLOURS))


def test_shards_are_fetched_once_and_then_read_by_ranges(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "SETTLED_NS", -(10**18))  # Objects that were just written count as settled.
    shards(tmp_path)
    url = bucket.put_folder(tmp_path / "tars", "tars")
    here = open_dataset(tmp_path / "tars", space=COLOURS)
    whole = re.compile(rf"GET /{bucket.name}/tars/s-0\.tar HTTP/1\.1[^ ]* 200")
    ranges = re.compile(rf"GET /{bucket.name}/tars/s-0\.tar HTTP/1\.1[^ ]* 206")
    logs = []
    for _ in range(2):
        before = len(bucket.server.log.read_text())
        dataset = open_dataset(url, space=COLOURS)
        assert dataset.fingerprint == here.fingerprint
        for number in (3, 0, 1):
            assert np.array_equal(dataset.read(number).pixels, here.read(number).pixels)
        logs.append(_without_colours(bucket.server.log.read_text()[before:]))
    fetched = [len(whole.findall(log)) + len(ranges.findall(log)) for log in logs]
    # The second start asks for three images and nothing else; neither leaves a copy.
    assert len(ranges.findall(logs[1])) == 3 and fetched[1] == 3 and fetched[0] <= 5
    kept = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(kept) == 4 and all(name.endswith(".json") for name in kept)  # the indexes of both places


def _without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_an_image_that_changes_in_a_shard_is_noticed(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webdataset, "SETTLED_NS", -(10**18))
    shards(tmp_path)
    url = bucket.put_folder(tmp_path / "tars", "tars")
    dataset = open_dataset(url, space=COLOURS)
    assert dataset.fingerprint
    content = bytearray((tmp_path / "tars" / "s-0.tar").read_bytes())
    with tarfile.open(tmp_path / "tars" / "s-0.tar") as archive:
        image = next(member for member in archive if member.name.endswith("png"))
    content[image.offset_data + image.size // 2] ^= 255
    bucket.put("tars/s-0.tar", bytes(content))
    with pytest.raises(DatasetError, match="changed or vanished"):
        dataset.read(0)


def test_a_shard_that_was_replaced_is_fetched_again(bucket: Bucket, tmp_path: Path) -> None:
    """By the same process, too, such as a notebook."""
    shards(tmp_path)
    url = bucket.put_folder(tmp_path / "tars", "tars")
    before = open_dataset(url, space=COLOURS).fingerprint
    content = (tmp_path / "tars" / "s-0.tar").read_bytes()
    bucket.put("tars/s-0.tar", content + bytes(10_240))  # the same samples
    assert open_dataset(url, space=COLOURS).fingerprint == before
    with tarfile.open(tmp_path / "tars" / "s-0.tar") as archive:
        first = archive.getmembers()[0]
    changed = bytearray(content)
    changed[first.offset_data + first.size // 2] ^= 255
    bucket.put("tars/s-0.tar", bytes(changed) + bytes(20_480))
    assert open_dataset(url, space=COLOURS).fingerprint != before


@pytest.mark.parametrize("key", ["photos/red/../../../etc/x.png", "photos/red//x.png"])
def test_keys_that_lead_elsewhere_are_refused(bucket: Bucket, tmp_path: Path, key: str) -> None:
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=1), "photos")
    bucket.put(key, b"x")
    with pytest.raises(StoreError):
        open_dataset(url, space=COLOURS)


def test_a_manifest_does_not_lead_out_of_its_folder(bucket: Bucket) -> None:
    bucket.put("lists/a.csv", b"path,label\n../secret.png,red\n")
    with raises(DatasetError, found="../secret.png"):
        open_manifest(f"{bucket.url}/lists/a.csv", space=COLOURS)


def test_a_picture_bomb_is_refused_as_on_a_disk(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=1), "photos")
    picture = io.BytesIO()
    Image.new("1", (20_000, 20_000)).save(picture, "png")
    bucket.put("photos/red/bomb.png", picture.getvalue())
    dataset = open_dataset(url, space=COLOURS)
    with pytest.raises(BadImageError, match="decompression bomb"):
        dataset.read(list(dataset.ids).index("red/bomb.png"))


def test_kinds_that_need_a_disk_say_so(bucket: Bucket) -> None:
    bucket.put("cifar/test_batch", b"x")
    with pytest.raises(DatasetError, match="is read from a disk") as caught:
        open_dataset(f"{bucket.url}/cifar")
    assert "folder" in str(caught.value.expected) and "copy" in str(caught.value.hint)


def test_a_url_is_described_and_what_is_not_there_is_told(bucket: Bucket, tmp_path: Path) -> None:
    url = bucket.put_folder(colour_folder(tmp_path / "photos", per_class=2), "photos")
    found = describe_path(url, space=COLOURS)
    assert (found.path, found.kind, found.images, found.classes, found.ok) == (url, "folder", 6, 3, True)
    with pytest.raises(DatasetError, match="nothing was found"):
        open_dataset(f"{bucket.url}/nothing")
    assert str(place(url).parent) == bucket.url


def test_published_datasets_are_checked_by_url(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("fog", "labels"):
        np.save(tmp_path / f"{name}.npy", np.zeros((50_000, *((1, 1, 3) if name == "fog" else ())), np.uint8))
    with tarfile.open(tmp_path / "imagenet-a.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("imagenet-a/n01498041/1.jpg"))
    arrays = inspect_data(bucket.put_folder(tmp_path, "CIFAR-10-C"))
    assert (arrays.kind, arrays.what) == ("cifar-c", "CIFAR-10-C")
    packed = inspect_data(f"{bucket.url}/CIFAR-10-C/imagenet-a.tar")
    assert packed.kind == "archive" and not packed.ok and "archive" in packed.missing[0]
