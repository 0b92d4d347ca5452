"""CIFAR-C arrays, read with NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.errors import DatasetError, StoreError
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.write import write_corruptions
from tests.outputs.helpers import bytes_below, cifar_like, picture_folder, scene
from tests.raised import raises

TWO: dict[str, Any] = {"names": "fog,shot_noise", "labels": "cifar-10"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return cifar_like(tmp_path_factory.mktemp("arrays") / "source")


def test_arrays_are_those_of_cifar_c(source: Path, tmp_path: Path) -> None:
    written = write_corruptions(source, tmp_path / "c", seed=3, **TWO)
    assert (written.format, written.written) == ("arrays", 40 * 2 * 5)
    images = np.load(source)
    ids = [f"{i:05d}" for i in range(40)]
    labels = np.load(tmp_path / "c" / "labels.npy")
    np.testing.assert_array_equal(labels, np.tile(np.arange(40) % 10, 5))
    for name in ("fog", "shot_noise"):
        array = np.load(tmp_path / "c" / f"{name}.npy")
        assert (array.shape, array.dtype) == ((200, 32, 32, 3), np.uint8)
        for severity in (1, 2, 3, 4, 5):
            block = array[40 * (severity - 1) : 40 * severity]
            np.testing.assert_array_equal(block, corrupt(images, name, severity, seed=3, image_id=ids))
    visible = {path.name for path in (tmp_path / "c").iterdir() if not path.name.startswith(".")}
    assert visible == {"fog.npy", "shot_noise.npy", "labels.npy", "shiftbench-corruptions.json"}
    third = open_dataset(tmp_path / "c" / "fog.npy", severity=3)
    assert third.labels.tolist() == [i % 10 for i in range(40)]
    np.testing.assert_array_equal(third.read(7).pixels, corrupt(images[7], "fog", 3, seed=3, image_id="00007"))


def test_one_and_two_workers_write_the_same_bytes(source: Path, tmp_path: Path) -> None:
    names = "gaussian_noise,glass_blur,frost,elastic_transform"
    for workers in (1, 2):
        write_corruptions(
            source, tmp_path / str(workers), names=names, severities=[4], labels="cifar-10", workers=workers
        )
    assert bytes_below(tmp_path / "1") == bytes_below(tmp_path / "2")


def test_no_array_appears_before_it_is_complete(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corruptions(source, tmp_path / "whole", **TWO)
    calls = []
    real = Corruption.batch

    def failing(self: Corruption, images: Any, **options: Any) -> Any:
        calls.append(len(images))
        if len(calls) > 63:
            raise MemoryError("the machine is full")
        return real(self, images, **options)

    monkeypatch.setattr(Corruption, "batch", failing)
    with pytest.raises(MemoryError):
        write_corruptions(source, tmp_path / "c", workers=1, **TWO)
    assert not list((tmp_path / "c").glob("fog.npy"))
    monkeypatch.setattr(Corruption, "batch", real)
    rest = write_corruptions(source, tmp_path / "c", **TWO)
    # six pieces of three images were complete: 2 corruptions x 5 severities of each are not made again
    assert (rest.already, rest.written) == (180, 220)
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")


def test_more_corruptions_extend_arrays_but_other_severities_do_not(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", names="fog", labels="cifar-10")
    assert write_corruptions(source, tmp_path / "c", **TWO).written == 200
    write_corruptions(source, tmp_path / "whole", **TWO)
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")
    with pytest.raises(StoreError, match="different severities"):
        write_corruptions(source, tmp_path / "c", severities=[1, 2], **TWO)


def test_pictures_become_arrays_without_the_bad_ones(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "s", per_class=2, classes=("cat", "dog"))
    (source / "cat" / "bad.png").write_bytes(b"nothing")
    written = write_corruptions(
        source, tmp_path / "c", names="fog", severities=[2, 1], format="arrays", size=32, labels="folders"
    )
    assert list(written.skipped) == ["cat/bad.png"] and written.images == 4
    assert np.load(tmp_path / "c" / "fog.npy").shape == (8, 32, 32, 3)
    assert np.load(tmp_path / "c" / "labels.npy").tolist() == [0, 0, 1, 1] * 2


def test_pictures_of_several_sizes_are_no_array(tmp_path: Path) -> None:
    (tmp_path / "s" / "cat").mkdir(parents=True)
    for size in (32, 33):
        Image.fromarray(scene(size, size, 32)).save(tmp_path / "s" / "cat" / f"{size}.png")
    with raises(DatasetError, found="cat/32.png (32, 32, 3), cat/33.png (33, 32, 3)"):
        write_corruptions(tmp_path / "s", tmp_path / "c", format="arrays", resize=False, labels="folders")
    assert not list((tmp_path / "c").rglob("*"))
