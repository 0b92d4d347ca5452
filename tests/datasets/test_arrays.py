"""Arrays: npy, npz, in memory; CIFAR in all its packings."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shiftbench.datasets import from_arrays, open_dataset
from shiftbench.datasets.arrays import ArrayDataset
from shiftbench.datasets.cifar import _FORMATS
from shiftbench.errors import DatasetError, LabelError
from shiftbench.labels import label_space
from tests.datasets.makers import assert_conforms, planes, small_images
from tests.raised import raises

IMAGES = small_images(40)
LABELS = np.arange(40) % 10


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIFTBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))


def write(folder: Path, kind: str) -> Path:
    folder.mkdir(exist_ok=True)
    if kind == "npy":
        np.save(folder / "set_data.npy", IMAGES)
        np.save(folder / "set_labels.npy", LABELS)
        return folder / "set_data.npy"
    save: Any = np.savez if kind == "npz" else np.savez_compressed
    save(folder / "set.npz", images=IMAGES, labels=LABELS)
    return folder / "set.npz"


@pytest.mark.parametrize("kind", ["npy", "npz", "compressed npz"])
def test_files(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path / "here", kind)
    dataset = open_dataset(path, space="cifar-10")
    assert len(dataset) == 40 and list(dataset.ids)[7] == "00007"
    np.testing.assert_array_equal(dataset.read(7).pixels, IMAGES[7])
    assert dataset.fingerprint == from_arrays(IMAGES, LABELS, space="cifar-10").fingerprint
    assert_conforms(dataset, reopen=lambda: open_dataset(path, space="cifar-10"))


@pytest.mark.parametrize("kind", ["npy", "compressed npz"])
def test_large_files_are_mapped_and_not_pickled(tmp_path: Path, kind: str) -> None:
    images = np.zeros((400, 32, 32, 3), dtype=np.uint8)
    images[:] = np.arange(400, dtype=np.uint8)[:, None, None, None]
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "labels.npy", np.arange(400) % 10)
    np.savez_compressed(tmp_path / "set.npz", images=images, labels=np.arange(400) % 10)
    dataset = open_dataset(tmp_path / ("images.npy" if kind == "npy" else "set.npz"), space="cifar-10")
    assert isinstance(dataset, ArrayDataset) and isinstance(dataset.array, np.memmap)
    stored = pickle.dumps(dataset)
    assert len(stored) < 10_000
    assert pickle.loads(stored).read(255).pixels.max() == 255


def test_grey_arrays() -> None:
    grey = IMAGES[..., 0]
    for array in (grey, grey[..., None]):
        dataset = from_arrays(array, LABELS, space="cifar-10")
        np.testing.assert_array_equal(dataset.read(3).pixels, np.repeat(grey[3][..., None], 3, axis=2))


def test_labels_by_name_and_missing() -> None:
    names = np.array([label_space("cifar-10").keys[i] for i in LABELS])
    assert from_arrays(IMAGES, names).labels.tolist() == LABELS.tolist()
    some = np.where(LABELS == 3, -1, LABELS)
    assert from_arrays(IMAGES, some, space="cifar-10").labels.tolist() == some.tolist()
    assert from_arrays(IMAGES, LABELS[:, None], space="cifar-10").labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(
    ("images", "labels", "space", "words"),
    [
        (IMAGES.astype(np.float32), LABELS, "cifar-10", "uint8"),
        (IMAGES.transpose(0, 3, 1, 2), LABELS, "cifar-10", "channels come first"),
        (IMAGES[0, 0], LABELS, "cifar-10", "not an array of images"),
        (IMAGES, LABELS[:-1], "cifar-10", "labels"),
        (IMAGES, LABELS + 1, "cifar-10", "0 to 9"),
        (IMAGES, LABELS, None, "a named label space"),
        (IMAGES, LABELS / 2, "cifar-10", "neither integers nor class names"),
    ],
)
def test_refused(images: Any, labels: Any, space: str | None, words: str) -> None:
    with pytest.raises((DatasetError, LabelError), match=words):
        from_arrays(images, labels, space=space)


def test_object_arrays_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", np.array([{"code": 1}], dtype=object), allow_pickle=True)
    np.save(tmp_path / "labels.npy", np.array([0]))
    with pytest.raises(DatasetError, match="not a readable npy"):
        open_dataset(tmp_path / "images.npy", space="cifar-10")


@pytest.mark.parametrize("name", ["broken.npy", "broken.npz"])
def test_broken_files(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x93NUMPY nonsense")
    np.save(tmp_path / "labels.npy", np.array([0]))
    with pytest.raises(DatasetError):
        open_dataset(tmp_path / name, space="cifar-10")


def test_no_labels_beside(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", IMAGES)
    with pytest.raises(DatasetError, match="no labels for"):
        open_dataset(tmp_path / "images.npy", space="cifar-10")
    np.save(tmp_path / "elsewhere.npy", LABELS)
    dataset = open_dataset(tmp_path / "images.npy", space="cifar-10", labels=tmp_path / "elsewhere.npy")
    assert dataset.labels.tolist() == LABELS.tolist()


def write_cifar10(folder: Path, kind: str) -> Path:
    """The official layouts, written from their description."""
    folder.mkdir()
    for part in ("test_batch", "data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"):
        images = IMAGES if part == "test_batch" else small_images(10, seed=int(part[-1]))
        labels = LABELS[: len(images)].tolist()
        if kind == "pickle":
            batch = {
                b"batch_label": b"testing batch 1 of 1",
                b"labels": labels,
                b"data": planes(images),
                b"filenames": [b"x.png"] * len(images),
            }
            (folder / part).write_bytes(pickle.dumps(batch, protocol=2))
        else:
            rows = np.concatenate([np.array(labels, np.uint8)[:, None], planes(images)], axis=1)
            (folder / f"{part}.bin").write_bytes(rows.tobytes())
    return folder


def test_official_cifar10_in_both_versions(tmp_path: Path) -> None:
    versions = [open_dataset(write_cifar10(tmp_path / kind, kind)) for kind in ("pickle", "binary")]
    for dataset in versions:
        assert dataset.space.name == "cifar-10" and dataset.name == "cifar-10-test"
        assert dataset.labels.tolist() == LABELS.tolist() and list(dataset.ids)[3] == "test/00003"
        np.testing.assert_array_equal(dataset.read(3).pixels, IMAGES[3])
        assert_conforms(dataset)
    assert versions[0].fingerprint == versions[1].fingerprint
    train = open_dataset(tmp_path / "pickle", split="train")
    assert len(train) == 50 and train.ids[0] == "train/00000"
    np.testing.assert_array_equal(train.read(12).pixels, small_images(10, seed=2)[2])


@pytest.mark.parametrize("kind", ["pickle", "binary"])
def test_official_cifar100(tmp_path: Path, kind: str) -> None:
    fine = (LABELS * 9).tolist()
    coarse = (LABELS // 2).tolist()
    if kind == "pickle":
        for part in ("test", "train"):
            batch = {b"data": planes(IMAGES), b"fine_labels": fine, b"coarse_labels": coarse}
            (tmp_path / part).write_bytes(pickle.dumps(batch, protocol=2))
        (tmp_path / "meta").write_bytes(pickle.dumps({b"fine_label_names": [b"apple"]}, protocol=2))
    else:
        head = np.array([coarse, fine], dtype=np.uint8).T
        (tmp_path / "test.bin").write_bytes(np.concatenate([head, planes(IMAGES)], axis=1).tobytes())
    dataset = open_dataset(tmp_path)
    assert dataset.space.name == "cifar-100" and dataset.labels.tolist() == fine
    np.testing.assert_array_equal(dataset.read(9).pixels, IMAGES[9])


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return (print, ("code from the pickle ran",))


@pytest.mark.parametrize("where", ["value", "instead"])
def test_a_hostile_pickle_does_not_run(tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]) -> None:
    batch: Any = {b"labels": [0], b"data": Hostile()} if where == "value" else Hostile()
    (tmp_path / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))
    with pytest.raises(DatasetError, match=r"names (builtins|__builtin__)\.print"):
        open_dataset(tmp_path)
    assert capsys.readouterr().out == ""


def test_damaged_batches(tmp_path: Path) -> None:
    whole = write_cifar10(tmp_path / "pickle", "pickle") / "test_batch"
    whole.write_bytes(whole.read_bytes()[:1000])
    with pytest.raises(DatasetError, match="not a batch of CIFAR"):
        open_dataset(tmp_path / "pickle")
    cut = write_cifar10(tmp_path / "binary", "binary") / "test_batch.bin"
    cut.write_bytes(cut.read_bytes()[:-1])
    with raises(DatasetError, found="122919 bytes", expected="a multiple of 3073"):
        open_dataset(tmp_path / "binary")
    with raises(DatasetError, expected="one of test, train, with all its files"):
        open_dataset(tmp_path / "binary", split="valid")
    with raises(DatasetError, found="the label space 'cifar-100'", expected="cifar-10"):
        open_dataset(tmp_path / "binary", split="train", space="cifar-100")


def test_layouts_do_not_overlap() -> None:
    for layout in _FORMATS:
        names = {f for files in layout.files.values() for f in files}
        assert [other for other in _FORMATS if other.complete(names)] == [layout]


@pytest.mark.parametrize(("version", "count"), [("v4", 2021), ("v6", 2000)])
def test_cifar10_1(tmp_path: Path, reference_data: Path, version: str, count: int) -> None:
    """Real labels; the pictures are stand-ins, as only the labels lie beside the checkout."""
    labels = reference_data / "cifar-10.1" / f"cifar10.1_{version}_labels.npy"
    (tmp_path / labels.name).write_bytes(labels.read_bytes())
    np.save(tmp_path / f"cifar10.1_{version}_data.npy", np.zeros((count, 32, 32, 3), dtype=np.uint8))
    dataset = open_dataset(tmp_path / f"cifar10.1_{version}_data.npy")
    assert dataset.name == f"cifar-10.1-{version}" and dataset.space.name == "cifar-10"
    assert len(dataset) == count and dataset.ids[0] == f"cifar10.1_{version}/00000"
    counts = np.bincount(dataset.labels).tolist()
    assert counts == ([200] * 10 if version == "v6" else [208, 212, 202, 212, 204, 218, 192, 210, 161, 202])


def test_cifar_c(tmp_path: Path) -> None:
    blocks = np.concatenate([IMAGES // s for s in range(1, 6)])
    for name in ("fog", "gaussian_noise"):
        np.save(tmp_path / f"{name}.npy", blocks)
    np.save(tmp_path / "labels.npy", np.tile(LABELS, 5))
    third = open_dataset(tmp_path / "fog.npy", severity=3)
    assert third.name == "fog.3" and len(third) == 40 and list(third.ids)[1] == "test/00001"
    np.testing.assert_array_equal(third.read(5).pixels, IMAGES[5] // 3)
    assert third.labels.tolist() == LABELS.tolist()
    assert_conforms(third)
    same = open_dataset(tmp_path, corruption="fog", severity=3)
    assert same.fingerprint == third.fingerprint
    whole = open_dataset(tmp_path / "fog.npy")
    assert len(whole) == 200 and list(whole.ids)[40] == "2/test/00000"
    with raises(DatasetError, found="fog, gaussian_noise"):
        open_dataset(tmp_path)
    with raises(DatasetError, expected="1 to 5"):
        open_dataset(tmp_path / "fog.npy", severity=6)
