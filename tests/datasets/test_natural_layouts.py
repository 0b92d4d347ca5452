"""The official layouts of natural test sets, read from small trees of the same make."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets.catalogue import open_dataset, recognise_path
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.official import Borderless, find_objectnet, open_objectnet
from shiftbench.errors import BadImageError, DatasetError, LabelError
from shiftbench.labels import label_space
from shiftbench.labels.builtin import objectnet_folders
from tests.datasets.makers import CIFAR_NAMES, assert_conforms, class_folders, small_images
from tests.raised import raises


def framed(path: Path, height: int = 20, width: int = 30) -> Path:
    """A grey picture in a red frame of two pixels."""
    pixels = np.full((height, width, 3), (255, 0, 0), np.uint8)
    pixels[2:-2, 2:-2] = 128
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return path


def test_imagenetv2_as_released_is_read_by_integer(tmp_path: Path) -> None:
    root = class_folders(tmp_path / "imagenetv2-matched-frequency-format-val", ["0", "1", "10", "100", "2", "999"])
    assert recognise_path(root) == ("imagenetv2", "ImageNetV2, folders 0 to 999")
    dataset = open_dataset(root)
    assert dataset.space.name == "imagenet-1k" and dataset.name == root.name
    assert dict(zip((i.split("/")[0] for i in dataset.ids), dataset.labels.tolist(), strict=True)) == {
        "0": 0,
        "1": 1,
        "2": 2,
        "10": 10,
        "100": 100,
        "999": 999,
    }
    assert_conforms(dataset, lambda: open_dataset(root))


def test_the_wnid_re_packing_of_imagenetv2_says_so_in_its_name(tmp_path: Path) -> None:
    keys = label_space("imagenet-1k").keys
    root = class_folders(tmp_path / "imagenetv2-matched-frequency-format-val", [keys[5], keys[900]])
    dataset = open_dataset(root)
    assert dataset.labels.tolist() == [5, 5, 900, 900]
    assert dataset.name == "imagenetv2-matched-frequency-format-val (wnid folders)"
    assert recognise_path(root) == ("imagenetv2", "ImageNetV2, wnid folders")


def test_a_folder_of_integers_by_another_name_is_left_to_the_guard(tmp_path: Path) -> None:
    with raises(LabelError, found="3 folders from 0 to 2"):
        open_dataset(class_folders(tmp_path / "numbers", ["0", "1", "2"]))


def test_objectnet_loses_its_border_and_the_classes_imagenet_lacks(tmp_path: Path) -> None:
    root = tmp_path / "objectnet-1.0" / "images"
    for folder in ("umbrella", "alarm_clock", "air_freshener"):
        framed(root / folder / "a.png")
    dataset = open_dataset(root.parent)
    assert isinstance(dataset, Borderless)
    assert list(dataset.ids) == ["alarm_clock/a.png", "umbrella/a.png"]
    assert [dataset.space.keys[i] for i in dataset.labels] == ["alarm_clock", "umbrella"]
    picture = dataset.read(0).pixels
    assert picture.shape == (16, 26, 3) and (picture == 128).all()
    assert "2 px border cropped" in dataset.name and "2 pixels" in dataset.describe()["cropped"]
    assert_conforms(dataset, lambda: open_dataset(root.parent))
    kept = open_objectnet(root, border=0)
    assert kept.read(0).pixels.shape == (20, 30, 3)
    assert kept.fingerprint != dataset.fingerprint, "another border, other images"


def test_a_picture_that_is_all_border_is_a_bad_image(tmp_path: Path) -> None:
    class_folders(tmp_path / "own", ["a", "b"], each=1)
    dataset = Borderless(open_folder(tmp_path / "own", space="folders"), 6)
    with raises(BadImageError, found="16 x 12 pixels are all border"):
        dataset.read(0)


def test_objectnet_is_known_by_its_name_or_nearly_all_its_folders(tmp_path: Path) -> None:
    own = class_folders(tmp_path / "shop", ["umbrella", "backpack"], each=1)
    assert find_objectnet(own) is None and recognise_path(own) == ("folder", "a folder of 2 class folders")
    for folder in objectnet_folders()[:300]:
        (tmp_path / "unpacked" / folder).mkdir(parents=True)
    assert find_objectnet(tmp_path / "unpacked") == tmp_path / "unpacked"
    assert open_dataset(f"objectnet:{own}").space.name == "objectnet-113"


def test_objectnet_refuses_foreign_folders_and_spaces(tmp_path: Path) -> None:
    root = tmp_path / "objectnet"
    framed(root / "umbrella" / "a.png")
    assert open_dataset(root, space="imagenet-1k").space.name == "objectnet-113", "said of the classifier"
    with pytest.raises(LabelError):
        open_dataset(root, space="cifar-10")
    framed(root / "tench" / "a.png")
    with pytest.raises(DatasetError, match="tench"):
        open_dataset(root)


def cifar102(path: Path, names: list[str]) -> Path:
    np.savez(
        path,
        images=small_images(20),
        labels=np.arange(20) % 10,
        label_names=np.array(names),
        ti_indices=np.arange(20),
        keywords=np.array(["word"] * 20),
    )
    return path


def test_cifar_10_2_with_its_five_arrays(tmp_path: Path) -> None:
    path = cifar102(tmp_path / "cifar102_test.npz", CIFAR_NAMES)
    dataset = open_dataset(path)
    assert recognise_path(path) == ("cifar-10.2", "CIFAR-10.2")
    assert dataset.name == "cifar-10.2-test" and dataset.ids[3] == "cifar10.2_test/00003"
    assert dataset.space.name == "cifar-10" and dataset.labels.tolist() == [i % 10 for i in range(20)]
    np.testing.assert_array_equal(dataset.read(3).pixels, small_images(20)[3])
    assert_conforms(dataset, lambda: open_dataset(path))


def test_cifar_10_2_in_another_order_is_refused(tmp_path: Path) -> None:
    path = cifar102(tmp_path / "cifar102_train.npz", sorted(CIFAR_NAMES, reverse=True))
    with raises(LabelError, found="truck, ship, horse, frog and 6 more"):
        open_dataset(path)
