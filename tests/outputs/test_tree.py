"""The ImageNet-C tree, read with Pillow and compared with what the published recipe says."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shiftbench.datasets.catalogue import open_dataset
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import DatasetError, ShiftbenchError, ShiftError, StoreError, UnknownNameError
from shiftbench.io.locks import file_lock
from shiftbench.io.paths import UnwritableError
from shiftbench.jobs.base import Executor
from shiftbench.jobs.executors import ThreadExecutor
from shiftbench.outputs.record import WORKSHOP
from shiftbench.shifts.compose import ThenJpeg
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.write import RECORD, preparation, write_corruptions
from tests.outputs.helpers import ODD_CLASSES, bytes_below, opened, picture_folder, scene
from tests.raised import raises

SMALL: dict[str, Any] = {"names": "fog,gaussian_noise", "severities": (1, 3), "size": 32}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return picture_folder(tmp_path_factory.mktemp("source") / "pictures")


def plainly_prepared(path: Path, resize: int, crop: int) -> NDArray[np.uint8]:
    """Resize and centre crop with Pillow alone, as torchvision defines them."""
    image = Image.open(path).convert("RGB")
    width, height = image.size
    short = min(width, height)
    image = image.resize((int(resize * width / short), int(resize * height / short)), Image.Resampling.BILINEAR)
    left = round((image.width - crop) / 2)
    top = round((image.height - crop) / 2)
    return np.asarray(image.crop((left, top, left + crop, top + crop)))


def test_every_file_has_the_pixels_of_the_published_recipe(source: Path, tmp_path: Path) -> None:
    written = write_corruptions(source, tmp_path / "c", lossless=True, seed=5, **SMALL)
    pictures = sorted(path for path in source.rglob("*") if path.is_file())
    assert written.written == 4 * len(pictures) and not written.skipped
    for path in pictures:
        place = path.relative_to(source)
        clean = plainly_prepared(path, 37, 32)
        for name in ("fog", "gaussian_noise"):
            for severity in (1, 3):
                file = tmp_path / "c" / name / str(severity) / place.with_suffix(".png")
                expected = corrupt(clean, name, severity, seed=5, image_id=place.as_posix())
                np.testing.assert_array_equal(opened(file), expected)
    assert len(list((tmp_path / "c").rglob("*.png"))) == 4 * len(pictures)


def test_lossless_files_hold_the_pixels_of_an_evaluation_in_memory(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "png", lossless=True, **SMALL)
    write_corruptions(source, tmp_path / "jpeg", **SMALL)
    clean = open_dataset(source, space="folders")
    images = np.stack([Geometry(37, 32)(clean.read(i).pixels) for i in range(len(clean))])
    shift = Corruption("fog", 3)
    for folder, kind in (("png", shift), ("jpeg", ThenJpeg(shift))):
        in_memory = kind.batch(images, image_ids=list(clean.ids), seed=0)
        on_disk = open_dataset(tmp_path / folder / "fog" / "3", space="folders")
        np.testing.assert_array_equal(on_disk.labels, clean.labels)
        assert [i.rsplit(".", 1)[0] for i in on_disk.ids] == [i.rsplit(".", 1)[0] for i in clean.ids]
        for i in range(len(clean)):
            np.testing.assert_array_equal(on_disk.read(i).pixels, in_memory[i])


def test_jpeg_files_are_those_that_pillow_writes_with_quality_85(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", **SMALL)
    path = next((source / "cat").glob("*.jpg"), None) or next((source / "cat").iterdir())
    place = path.relative_to(source)
    pixels = corrupt(plainly_prepared(path, 37, 32), "fog", 3, image_id=place.as_posix())
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=85, optimize=True)
    found = next((tmp_path / "c" / "fog" / "3" / "cat").glob(f"{path.stem}.*"))
    assert found.read_bytes() == file.getvalue()


def test_names_keep_their_folder_and_their_jpeg_suffix(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", names=["fog"], severities=[2], size=32)
    below = tmp_path / "c" / "fog" / "2"
    assert {folder.name for folder in below.iterdir()} == set(ODD_CLASSES)
    expected = {str(p.relative_to(source)) for p in source.rglob("*.*") if p.suffix in (".JPEG", ".jpg")}
    found = {str(path.relative_to(below)) for path in below.rglob("*.*") if path.is_file()}
    assert expected <= found
    assert {Path(name).suffix for name in found} == {".JPEG", ".jpg"}
    assert len(found) == 10


def test_two_pictures_that_would_share_a_name_keep_both(tmp_path: Path) -> None:
    folder = tmp_path / "s" / "cat"
    (folder / "inner").mkdir(parents=True)
    for name in ("a.png", "a.jpg", "b.png", "inner/a.png"):
        Image.fromarray(scene(len(name), 32, 32)).save(folder / name)
    write_corruptions(tmp_path / "s", tmp_path / "c", names="fog", severities=[1], resize=False)
    found = {str(p.relative_to(tmp_path / "c" / "fog" / "1")) for p in (tmp_path / "c").rglob("*.jpg")}
    assert found == {"cat/a.png.jpg", "cat/a.jpg", "cat/b.jpg", "cat/inner/a.jpg"}


def test_a_source_without_class_folders_gets_those_of_its_labels(tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(4):
        Image.fromarray(scene(i, 32, 32)).save(folder / f"{i}.png")
    rows = ["path,label", *(f"{i}.png,{i + 3}" for i in range(4))]
    (folder / "list.csv").write_text("\n".join(rows))
    dataset = open_dataset(folder / "list.csv", space="cifar-10")
    write_corruptions(dataset, tmp_path / "c", names="snow", severities=[1], resize=False, lossless=True)
    again = open_dataset(tmp_path / "c" / "snow" / "1", space="cifar-10")
    assert again.ids == [f"{dataset.space.keys[i + 3]}/{i}.png" for i in range(4)]
    assert again.labels.tolist() == [3, 4, 5, 6]


@pytest.mark.parametrize(("size", "side"), [(None, 224), (299, 299), (64, 64), (100, 100)])
def test_sizes(tmp_path: Path, size: int | None, side: int) -> None:
    (tmp_path / "s" / "cat").mkdir(parents=True)
    Image.fromarray(scene(3, 300, 421)).save(tmp_path / "s" / "cat" / "a.png")
    write_corruptions(tmp_path / "s", tmp_path / "c", names="brightness", severities=[1], size=size, lossless=True)
    found = opened(tmp_path / "c" / "brightness" / "1" / "cat" / "a.png")
    image = Image.fromarray(scene(3, 300, 421))
    if size == 299:
        image = image.crop((26, 19, 26 + 368, 19 + 262)).resize((299, 299), Image.Resampling.BILINEAR)
        plain = np.asarray(image)
    elif size == 64:
        plain = np.asarray(image.resize((64, 64), Image.Resampling.BILINEAR))
    else:
        plain = plainly_prepared(tmp_path / "s" / "cat" / "a.png", round(side * 256 / 224), side)
    np.testing.assert_array_equal(found, corrupt(plain, "brightness", 1, image_id="cat/a.png"))


def test_bad_pictures_are_named_and_left_out(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "s", classes=("cat", "dog"))
    whole = (source / "cat" / "img 00.JPEG").read_bytes()
    (source / "cat" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (source / "dog" / "empty.png").write_bytes(b"")
    (source / "dog" / "page.jpg").write_text("<html>not found</html>")
    Image.fromarray(scene(0, 1, 300)).save(source / "dog" / "line.png")
    first = write_corruptions(source, tmp_path / "c", names="fog", severities=[1, 2], resize=False)
    assert sorted(first.skipped) == ["cat/cut.jpg", "dog/empty.png", "dog/line.png", "dog/page.jpg"]
    assert (first.images, first.written) == (4, 8)
    record = json.loads((tmp_path / "c" / RECORD).read_text())
    assert [entry["id"] for entry in record["skipped"]] == sorted(first.skipped)
    assert "web page" in record["skipped"][3]["why"] and record["unfinished"] == []
    before = bytes_below(tmp_path / "c")
    again = write_corruptions(source, tmp_path / "c", names="fog", severities=[1, 2], resize=False)
    assert (again.written, again.already, again.skipped) == (0, 8, first.skipped)
    assert bytes_below(tmp_path / "c") == before


def test_no_usable_picture_at_all_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "s" / "cat").mkdir(parents=True)
    (tmp_path / "s" / "cat" / "a.jpg").write_bytes(b"")
    with raises(DatasetError, found="the file is empty"):
        write_corruptions(tmp_path / "s", tmp_path / "c", names="fog")


def test_a_picture_that_resizing_would_blow_up_is_left_out(tmp_path: Path) -> None:
    with raises(ShiftbenchError, found="30000 x 1 pixels would be resized to 7680000 x 256"):
        preparation(224)(np.zeros((1, 30_000, 3), np.uint8), "line.png")


@pytest.mark.parametrize("lossless", [False, True])
def test_one_and_two_workers_write_the_same_bytes(source: Path, tmp_path: Path, lossless: bool) -> None:
    for workers in (1, 2):
        options: dict[str, Any] = {"severities": (2,), "size": 40, "lossless": lossless}
        write_corruptions(source, tmp_path / str(workers), workers=workers, names="all", **options)
    assert bytes_below(tmp_path / "1") == bytes_below(tmp_path / "2")


def test_more_corruptions_and_severities_extend_a_tree(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "grown", names="fog", severities=[1], size=32)
    grown = write_corruptions(source, tmp_path / "grown", names="snow,fog", severities=[1, 2.5], size=32)
    assert (grown.written, grown.already) == (30, 10)
    write_corruptions(source, tmp_path / "whole", names="fog,snow", severities=[1, 2.5], size=32)
    assert bytes_below(tmp_path / "grown") == bytes_below(tmp_path / "whole")
    assert (tmp_path / "whole" / "snow" / "2.5").is_dir()


def textures(folder: Path) -> Path:
    folder.mkdir()
    for i, name in enumerate(("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")):
        Image.fromarray(scene(i, 340, 340)).save(folder / name)
    return folder


@pytest.mark.parametrize(
    ("change", "found", "expected"),
    [
        ({"seed": 1}, "0", "1"),
        ({"size": 40}, '"crop": 32', '"crop": 40'),
        ({"lossless": True}, "JPEG", "PNG"),
        ({"format": "shards", "labels": "folders"}, "tree", "shards"),
        ({"frost": True}, "procedural", "original pictures"),
        ({"source": True}, "fingerprint", "fingerprint"),
    ],
)
def test_another_recipe_is_refused_and_changes_nothing(
    tmp_path: Path, change: dict[str, Any], found: str, expected: str
) -> None:
    source = picture_folder(tmp_path / "s", per_class=1)
    options: dict[str, Any] = {"names": "frost", "severities": [1], "size": 32, "frost_textures": "procedural"}
    write_corruptions(source, tmp_path / "c", **options)
    before = bytes_below(tmp_path / "c")
    if change.pop("source", False):
        Image.fromarray(scene(77)).save(source / "cat" / "new.png")
    if change.pop("frost", False):
        change = {"frost_textures": textures(tmp_path / "textures"), "severities": [2]}
    with pytest.raises(StoreError, match="never holds both") as caught:
        write_corruptions(source, tmp_path / "c", **{**options, **change})
    assert found in str(caught.value.found) and expected in str(caught.value.expected)
    assert bytes_below(tmp_path / "c") == before


def test_another_version_of_the_generator_is_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corruptions(source, tmp_path / "c", **SMALL)
    monkeypatch.setattr("shiftbench.shifts.write.GENERATOR_VERSION", "next")
    with raises(StoreError, found='"1"'):
        write_corruptions(source, tmp_path / "c", **SMALL)


def test_a_source_that_only_moved_is_the_same_source(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "before", per_class=1)
    write_corruptions(source, tmp_path / "c", **SMALL)
    source.rename(tmp_path / "after")
    assert write_corruptions(tmp_path / "after", tmp_path / "c", **SMALL).written == 0


def test_destinations_that_are_refused(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "s", per_class=1)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(source)
    before = bytes_below(tmp_path)
    cases = {
        source: "inside the source",
        source / "cat" / "c": "inside the source",
        tmp_path / "link" / "c": "inside the source",
        tmp_path: "inside the destination",
        foreign: "holds other files",
        tmp_path / "file": "not a folder",
    }
    for target, words in cases.items():
        with pytest.raises(StoreError, match=words):
            write_corruptions(source, target, **SMALL)
    assert bytes_below(tmp_path) == before
    table = tmp_path / "table.csv"  # lists the images, so that copies may lie beside it, but not among them
    paths = sorted(path.relative_to(tmp_path) for path in source.rglob("*.*"))
    table.write_text("path,label\n" + "".join(f"{path},{path.parent.name}\n" for path in paths))
    with pytest.raises(StoreError, match="inside the source"):
        write_corruptions(str(table), source / "c", labels="folders", **SMALL)
    assert write_corruptions(str(table), tmp_path / "beside", labels="folders", **SMALL).written == 20
    (tmp_path / "empty").mkdir()
    assert write_corruptions(source, tmp_path / "empty", **SMALL).written == 20


def test_a_damaged_record_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"format": 1}')
    with pytest.raises(StoreError, match="not a valid record"):
        write_corruptions(source, tmp_path, **SMALL)
    (tmp_path / RECORD).write_text('{"format": 99, "recipe": {}, "corruptions": {}}')
    with raises(StoreError, found=99):
        write_corruptions(source, tmp_path, **SMALL)


def test_two_runs_do_not_write_at_once(source: Path, tmp_path: Path) -> None:
    with (
        file_lock(tmp_path / "c" / WORKSHOP / "1-of-1" / "lock", wait=False),
        pytest.raises(StoreError, match="another run"),
    ):
        write_corruptions(source, tmp_path / "c", **SMALL)


def test_impossible_wishes(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="fog"):
        write_corruptions(source, tmp_path / "c", names="fogg")
    with raises(ShiftError, found="6"):
        write_corruptions(source, tmp_path / "c", severities=[6])
    with raises(ShiftError, found="no severity"):
        write_corruptions(source, tmp_path / "c", severities=[])
    with raises(ShiftError, found=3):
        write_corruptions(source, tmp_path / "c", size=3)
    assert not (tmp_path / "c").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of file sizes are POSIX")
@pytest.mark.parametrize("executor", [None, ThreadExecutor(2)])
def test_a_full_disk_is_named_and_the_run_continues(executor: Executor | None, source: Path, tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(UnwritableError) as caught:
            write_corruptions(source, tmp_path / "c", lossless=True, executor=executor, **SMALL | {"size": 224})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(tmp_path / "c") in caught.value.message and caught.value.found == os.strerror(errno.EFBIG)
    write_corruptions(source, tmp_path / "c", lossless=True, **SMALL | {"size": 224})
    write_corruptions(source, tmp_path / "whole", lossless=True, **SMALL | {"size": 224})
    assert bytes_below(tmp_path / "c") == bytes_below(tmp_path / "whole")


def test_an_empty_file_left_by_a_power_failure_is_written_again(source: Path, tmp_path: Path) -> None:
    write_corruptions(source, tmp_path / "c", **SMALL)
    before = bytes_below(tmp_path / "c")
    victim = next((tmp_path / "c" / "fog" / "1" / "cat").iterdir())
    victim.write_bytes(b"")
    assert write_corruptions(source, tmp_path / "c", **SMALL).written == 1
    assert bytes_below(tmp_path / "c") == before


def test_classes_without_pictures_stay_classes(tmp_path: Path) -> None:
    source = picture_folder(tmp_path / "s", per_class=1, classes=("cat", "dog", "emu"))
    for path in (source / "dog").iterdir():
        path.unlink()
    write_corruptions(source, tmp_path / "c", **SMALL)
    again = open_folder(tmp_path / "c" / "fog" / "1", space="folders")
    assert again.space.keys == ("cat", "dog", "emu") and again.labels.tolist() == [0, 2]


def test_files_that_are_not_what_was_written_are_written_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "c"
    write_corruptions(source, target, **SMALL)
    expected = bytes_below(target)
    first, second, third = sorted(target.rglob("*.JPEG"))[:3]
    first.write_bytes(first.read_bytes()[:200])
    Image.new("RGB", (32, 32)).save(second, "JPEG")
    zeros = bytes(third.stat().st_size)
    third.write_bytes(zeros)
    # Sizes are compared by every run, bytes on demand.
    assert write_corruptions(source, target, **SMALL).written == 2
    assert third.read_bytes() == zeros
    assert write_corruptions(source, target, verify=True, **SMALL).written == 1
    assert bytes_below(target) == expected
    assert write_corruptions(source, target, verify=True, **SMALL).written == 0
