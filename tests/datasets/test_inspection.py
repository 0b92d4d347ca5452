"""What ``shiftbench data check`` makes of each official layout, and of what users make of them."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from shiftbench.datasets.base import DataReport
from shiftbench.datasets.catalogue import inspect_data, open_dataset
from shiftbench.datasets.official import official_datasets
from shiftbench.errors import DatasetError
from shiftbench.labels import label_space
from tests.commands import call
from tests.datasets import official_trees as trees
from tests.datasets.factor_trees import deepfashion2_tree
from tests.datasets.makers import small_images

FULL = label_space("imagenet-1k").keys
A_CLASSES = label_space("imagenet-a-200").keys
TITLES = {official.role: official.title for official in reversed(official_datasets())} | {
    "objectnet": "ObjectNet",
    "imagenet-vid-robust": "ImageNet-Vid-Robust",
    "ytbb-robust": "YTBB-Robust",
}


def tree(root: Path, classes: Iterable[str], each: int = 1) -> Path:
    """Empty files: names and counts are all that is looked at."""
    for key in classes:
        (root / key).mkdir(parents=True)
        for i in range(each):
            (root / key / f"{i}.jpg").touch()
    return root


def missing(report: DataReport) -> str:
    assert not report.ok
    return "; ".join(report.missing)


@pytest.mark.parametrize("role", trees.MAKERS)
def test_every_layout_is_known_and_what_is_missing_told(role: str, tmp_path: Path) -> None:
    truth = trees.MAKERS[role](tmp_path / role, trees.photographs()[:60:5])
    report = inspect_data(tmp_path / role)
    assert (report.what, report.role) == (TITLES[role], role)
    # The frames of a video set are counted once; YTBB's truth names each, too.
    assert report.images == len(truth) and not report.ok
    assert report.home, "where a user gets the rest"
    told = " ".join(report.missing)
    assert " of " in told and any(word in told for word in ("images", "anchors"))


@pytest.mark.parametrize("role", ["imagenet-a", "imagenetv2-matched-frequency-format-val", "objectnet"])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_folder_too_many(role: str, levels: int, tmp_path: Path) -> None:
    outer = tmp_path / role
    inner = outer.joinpath(*[role] * levels)
    trees.MAKERS[role](inner, trees.photographs()[:60:5])
    (outer / "README.txt").touch()
    report = inspect_data(outer)
    assert report.what == TITLES[role] and report.path == str(inner)
    assert str(inner) in report.notes[0]
    shown = call("data", "check", outer).stdout
    assert f"--data {role}={inner}" in " ".join(shown.split())


def test_a_folder_too_many_among_other_data_sets_and_when_it_is_opened(tmp_path: Path) -> None:
    tree(tmp_path / "imagenet-a" / "imagenet-a", A_CLASSES)
    tree(tmp_path / "imagenet-sketch", FULL)
    report = inspect_data(tmp_path)
    assert {part.path for part in report.parts} == {
        str(tmp_path / "imagenet-a" / "imagenet-a"),
        str(tmp_path / "imagenet-sketch"),
    }
    with pytest.raises(DatasetError, match="one folder deeper"):
        open_dataset(tmp_path / "imagenet-a")


def test_folders_0_to_999_are_read_by_value_whatever_the_set_is(tmp_path: Path) -> None:
    """Sorted as text, 10 comes before 2; padded with zeros, 002 is still 2."""
    for folders in (map(str, range(1000)), (f"{i:04d}" for i in range(1000))):
        root = tree(tmp_path / str(len(list(tmp_path.iterdir()))) / "imagenet-val", folders)
        report = inspect_data(root)
        assert report.what == "ImageNet val" and report.classes == 1000
        assert "folders 0 to 999: read as integers, never sorted as text" in report.notes
        counts = ["50 images in each of 1000 classes", "49,000 of 50,000 images"]
        assert [text.split(":")[0] for text in report.missing] == counts, "no class is missing or unknown"
    dataset = open_dataset(root)
    assert dataset.ids[2].startswith("0002/") and dataset.labels.tolist() == list(range(1000))


def test_folders_that_count_from_one(tmp_path: Path) -> None:
    root = tree(tmp_path / "imagenetv2-top-images", map(str, range(1, 1001)), 10)
    told = missing(inspect_data(root))
    assert "the folders count from 1" in told and "a known class for 1 folders: 1000" in told


def test_numbers_for_200_classes_say_nothing(tmp_path: Path) -> None:
    report = inspect_data(tree(tmp_path / "imagenet-r", map(str, range(200))))
    assert report.what is None and report.space == "folders" and "do not identify the classes" in report.notes[0]


@pytest.mark.parametrize(
    ("name", "classes", "each", "expected"),
    [
        ("imagenet-a", A_CLASSES[4:], 1, f"4 of 200 classes: {', '.join(A_CLASSES[:4])}"),
        ("imagenet-a", [*A_CLASSES, "tench"], 1, "a known class for 1 folders: tench"),
        ("imagenet-r", label_space("imagenet-r-200").keys, 3, "29,400 of 30,000 images"),
        ("imagenet-o", label_space("imagenet-o-200").keys, 9, "200 of 2,000 images"),
        ("imagenet-sketch", FULL[:999], 1, f"1 of 1000 classes: {FULL[999]}"),
        ("imagenetv2-threshold0.7", map(str, range(1000)), 9, "10 images in each of 1000 classes: 0 has 9"),
        ("stylized-imagenet", FULL, 1, f"50 images in each of 1000 classes: {FULL[0]} has 1"),
        ("blurry_images", FULL[:99], 10, "10 of 1,000 images"),
        ("imagenet-val", FULL[:10], 50, "990 of 1000 classes"),
    ],
)
def test_missing_classes_and_wrong_counts(
    name: str, classes: Iterable[str], each: int, expected: str, tmp_path: Path
) -> None:
    assert expected in missing(inspect_data(tree(tmp_path / name, classes, each)))


def test_more_than_the_official_count_is_told_and_no_fault(tmp_path: Path) -> None:
    report = inspect_data(tree(tmp_path / "imagenet-o", label_space("imagenet-o-200").keys, 11))
    assert report.ok and report.notes == ["200 images more than the official 2,000"]


@pytest.mark.parametrize("name", ["imagenet-vid-robust", "ytbb-robust"])
def test_frames_without_annotations(name: str, tmp_path: Path) -> None:
    trees.MAKERS[name](tmp_path / name, trees.photographs()[:60:5])
    metadata = next(tmp_path.rglob("*metadata"))
    for file in metadata.iterdir():
        file.unlink()
    report = inspect_data(tmp_path / name)
    assert "lacks the annotations" in missing(report) and "src/eval_settings" in (report.home or "")


def test_cifar_of_which_a_batch_is_missing(tmp_path: Path) -> None:
    for number in (1, 2, 4):
        (tmp_path / f"data_batch_{number}").touch()
    report = inspect_data(tmp_path)
    assert report.what == "CIFAR-10" and "the test set: no test_batch" in missing(report)
    assert report.notes == ["the train set: no data_batch_3, data_batch_5"]


def test_cifar_10_1_without_its_labels_or_cut_off(tmp_path: Path) -> None:
    for version, size in (("v4", 2021), ("v6", 2000)):
        np.save(tmp_path / f"cifar10.1_{version}_data.npy", small_images(size))
    data = tmp_path / "cifar10.1_v6_data.npy"
    data.write_bytes(data.read_bytes()[:-1000])
    told = missing(inspect_data(tmp_path))
    assert "v4: cifar10.1_v4_labels.npy, the labels of cifar10.1_v4_data.npy" in told
    assert "v6: 2,000 images; cifar10.1_v6_data.npy has no readable array" in told


def archive(path: Path, mode: str = "w", names: Iterable[str] | None = None) -> bytes:
    rng = np.random.default_rng(0)
    with tarfile.open(path, mode) as opened:  # type: ignore[call-overload]
        for name in names or [f"imagenet-a/{key}/{i}.jpg" for key in A_CLASSES[:3] for i in range(2)]:
            data = rng.bytes(3000)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            opened.addfile(member, io.BytesIO(data))
    return path.read_bytes()


@pytest.mark.parametrize(
    ("name", "mode", "what"),
    [
        ("imagenet-a.tar", "w", "ImageNet-A"),
        ("imagenetv2-matched-frequency.tar.gz", "w:gz", "ImageNetV2 MatchedFrequency"),
        ("ILSVRC2012_img_val.tar", "w", "ImageNet val"),
        ("blurry_images.tar", "w", "Real Blurry Images"),
        ("cifar-100-python.tar.gz", "w:gz", "CIFAR-100"),
    ],
)
def test_an_archive_in_place_of_a_folder(name: str, mode: str, what: str, tmp_path: Path) -> None:
    whole = archive(tmp_path / name, mode)
    for path in (tmp_path / name, tmp_path):
        report = inspect_data(path)
        report = report.parts[0] if report.parts else report
        assert report.what == what and report.images == 6 and report.suite is None and report.home
        assert f"not unpacked; tar -xf {name}" in missing(report)
    for size in (len(whole) // 2, 300, 0):
        (tmp_path / name).write_bytes(whole[:size])
        report = inspect_data(tmp_path / name)
        assert "the rest of the archive: it ends" in missing(report) and report.images < 6


def test_a_tar_file_cut_off_between_two_files(tmp_path: Path) -> None:
    """No file is torn, only the mark of the end is gone: 512 bytes of head and 3,072 of data a file."""
    whole = archive(tmp_path / "imagenet-a.tar")
    (tmp_path / "imagenet-a.tar").write_bytes(whole[: 3 * (512 + 3072)])
    report = inspect_data(tmp_path / "imagenet-a.tar")
    assert report.images == 3 and f"it ends after imagenet-a/{A_CLASSES[1]}/0.jpg" in missing(report)


def test_the_zip_file_of_objectnet(tmp_path: Path) -> None:
    path = tmp_path / "objectnet-1.0.zip"
    with zipfile.ZipFile(path, "w") as opened:
        opened.writestr("objectnet-1.0/images/banana/0.png", b"picture")
    assert "unzip objectnet-1.0.zip" in missing(inspect_data(path))
    path.write_bytes(path.read_bytes()[:-30])
    assert "table of contents" in missing(inspect_data(path))


def test_an_archive_beside_its_folder_has_done_its_work(tmp_path: Path) -> None:
    archive(tmp_path / "imagenet-a.tar")
    tree(tmp_path / "imagenet-a", A_CLASSES)
    assert [part.path for part in inspect_data(tmp_path).parts] == [str(tmp_path / "imagenet-a")]


def test_shards_of_samples_are_no_official_archive(tmp_path: Path) -> None:
    names = [f"{i:04d}.{ending}" for i in range(3) for ending in ("jpg", "cls")]
    for name in ("imagenet-a.tar", "shard-0000.tar"):
        archive(tmp_path / name, names=names)
        assert inspect_data(tmp_path / name).what is None


def test_the_command_as_json_names_the_mistake(tmp_path: Path) -> None:
    archive(tmp_path / "imagenet-a.tar")
    result = call("data", "check", tmp_path / "imagenet-a.tar", "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1 and report["seen"] == "an archive, tar" and not report["ok"]
    assert "natural-adv-examples" in report["home"]


def test_deepfashion2_without_some_of_its_pictures(tmp_path: Path) -> None:
    for part, names in (("train", "abc"), ("validation", "de")):
        for name in names:
            for folder, ending in (("annos", "json"), ("image", "jpg")):
                (tmp_path / part / folder).mkdir(parents=True, exist_ok=True)
                (tmp_path / part / folder / f"{name}.{ending}").write_bytes(b"{}")
    (tmp_path / "train" / "image" / "b.jpg").unlink()
    report = inspect_data(tmp_path)
    assert (report.what, report.images, report.suite) == ("DeepFashion2", 4, "deepfashion-remixed")
    assert "1 annotations of train: b" in missing(report)
    assert "191,958 of 191,961 annotation files of train" in missing(report)


def test_images_of_several_labels_are_labelled(tmp_path: Path) -> None:
    tree = deepfashion2_tree(tmp_path / "df", train=40, validation=5)
    report = inspect_data(f"factors:deepfashion-remixed:{tree}/train")
    sets = open_dataset(f"factors:deepfashion-remixed:{tree}/train").label_sets
    assert sets is not None and any(len(own) > 1 for own in sets)
    assert report.classes == len({label for own in sets for label in own})
    assert not any("no label" in note for note in report.notes)
