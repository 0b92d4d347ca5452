"""Augmented folders: the same tree again, whatever interrupts the work, and nothing outside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.arrays import Pixels
from shiftbench.errors import DatasetError, SettingError, ShiftbenchError, StoreError, UnknownNameError
from shiftbench.hardening.augmentations.base import (
    ImageAugmentation,
    image_augmentations,
    make_image_augmentation,
    stream,
)
from shiftbench.hardening.augmentations.copies import RECORD, augment_folder, names_of_copies
from shiftbench.hardening.errors import AugmentationError
from shiftbench.io.locks import file_lock
from shiftbench.jobs.base import Shard
from shiftbench.outputs.checksums import CHECKSUM_FILE
from tests.hardening.augmentations.kill_target import OPTIONS, augment_slowly
from tests.outputs.helpers import bytes_below, opened, picture_folder, scene
from tests.processes import kill_often


@pytest.fixture
def source(tmp_path: Path) -> Path:
    root = picture_folder(tmp_path / "source")
    (root / "cat" / "deeper" / "still").mkdir(parents=True)
    Image.fromarray(scene(99)).save(root / "cat" / "deeper" / "still" / "x.png")
    Image.fromarray(scene(98)).save(root / "top.png")
    (root / "notes.txt").write_text("no image")
    return root


def pictures(root: Path) -> dict[str, str]:
    return {path: digest for path, digest in bytes_below(root).items() if path not in (RECORD, CHECKSUM_FILE)}


def test_the_same_tree_with_the_pixels_of_the_augmentation(source: Path, tmp_path: Path) -> None:
    done = augment_folder(source, tmp_path / "out", "augmix", seed=5, workers=1)
    assert (done.images, done.written, done.already, done.skipped) == (12, 12, 0, {})
    found = set(pictures(tmp_path / "out"))
    expected = {
        str(path.relative_to(source)).replace(".bmp", ".png")
        for path in source.rglob("*")
        if path.is_file() and path.suffix != ".txt"
    }
    assert found == expected
    for name in ("top.png", "cat/deeper/still/x.png"):
        pixels = make_image_augmentation("augmix")(opened(source / name), stream(5, "augment", name, 0))
        assert np.array_equal(opened(tmp_path / "out" / name), pixels)
    assert not (tmp_path / "out" / ".writing").exists()


def test_jpeg_stays_jpeg_of_high_quality_unless_lossless(source: Path, tmp_path: Path) -> None:
    name = next(str(path.relative_to(source)) for path in source.rglob("*.JPEG"))
    augment_folder(source, tmp_path / "out", "flip", options={"probability": 1})
    image = Image.open(tmp_path / "out" / name)
    clean = opened(source / name)[:, ::-1].astype(float)
    assert image.format == "JPEG" and np.abs(np.asarray(image) - clean).mean() < 6
    augment_folder(source, tmp_path / "png", "flip", options={"probability": 1}, lossless=True)
    exact = opened((tmp_path / "png" / name).with_suffix(".png"))
    assert np.array_equal(exact, clean)


def test_workers_shards_and_order_change_nothing(source: Path, tmp_path: Path) -> None:
    augment_folder(source, tmp_path / "one", "augmix", copies=2, workers=1)
    augment_folder(source, tmp_path / "two", "augmix", copies=2, workers=2)
    for number in (3, 1, 2):
        part = augment_folder(source, tmp_path / "parts", "augmix", copies=2, shard=Shard(number, 3))
        assert part.images == 4 and part.written == 8
    assert bytes_below(tmp_path / "one") == bytes_below(tmp_path / "two") == bytes_below(tmp_path / "parts")
    again = augment_folder(source, tmp_path / "parts", "augmix", copies=2)
    assert (again.written, again.already) == (0, 24)


def test_copies_differ_and_seeds_too(source: Path, tmp_path: Path) -> None:
    augment_folder(source, tmp_path / "a", "augmix", copies=3)
    augment_folder(source, tmp_path / "b", "augmix", copies=3, seed=1)
    names = [f"top-{i}.png" for i in (1, 2, 3)]
    views = [opened(tmp_path / folder / name) for folder in "ab" for name in names]
    assert len({view.tobytes() for view in views}) == 6


def test_what_is_there_is_not_made_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    augment_folder(source, out, "augmix")
    whole = bytes_below(out)
    (out / "top.png").unlink()
    (out / "cat" / "deeper" / "still" / "x.png").write_bytes(b"")  # what a power failure leaves
    kept = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file() and path.stat().st_size}
    again = augment_folder(source, out, "augmix")
    assert (again.written, again.already) == (2, 10) and bytes_below(out) == whole
    rewritten = [path.name for path, time_then in kept.items() if path.stat().st_mtime_ns != time_then]
    assert set(rewritten) <= {RECORD, CHECKSUM_FILE}


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"name": "speckle"}, "augmentation"),
        ({"options": {"severity": 2}}, "option 'severity'"),
        ({"copies": 2}, "copies"),
        ({"seed": 1}, "seed"),
        ({"lossless": True}, "lossless"),
    ],
)
def test_other_options_are_refused_by_name(source: Path, tmp_path: Path, change: dict[str, Any], word: str) -> None:
    augment_folder(source, tmp_path / "out", "augmix")
    before = bytes_below(tmp_path / "out")
    with pytest.raises(StoreError, match=f"different {word}"):
        augment_folder(source, tmp_path / "out", **{"name": "augmix", **change})
    assert bytes_below(tmp_path / "out") == before


def test_another_source_is_refused_and_a_moved_one_is_not(source: Path, tmp_path: Path) -> None:
    augment_folder(source, tmp_path / "out", "flip")
    moved = source.rename(tmp_path / "moved")
    assert augment_folder(moved, tmp_path / "out", "flip").written == 0
    Image.fromarray(scene(1)).save(moved / "new.png")
    with pytest.raises(StoreError, match="different source"):
        augment_folder(moved, tmp_path / "out", "flip")


def test_options_are_written_down_with_their_defaults(source: Path, tmp_path: Path) -> None:
    augment_folder(source, tmp_path / "out", "augmix", options={"severity": 1})
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    assert record["recipe"]["options"] == {
        "severity": 1,
        "width": 3,
        "depth": -1,
        "alpha": 1.0,
        "all_operations": False,
        "fill": 0,
    }


def test_a_bad_picture_is_named_and_the_others_are_made(source: Path, tmp_path: Path) -> None:
    (source / "cat" / "page.jpg").write_text("<html>")
    done = augment_folder(source, tmp_path / "out", "flip", copies=2, workers=2)
    assert list(done.skipped) == ["cat/page.jpg"] and "web page" in done.skipped["cat/page.jpg"]
    assert done.written == 24
    record = json.loads((tmp_path / "out" / RECORD).read_text())
    assert [entry["id"] for entry in record["skipped"]] == ["cat/page.jpg"]
    assert augment_folder(source, tmp_path / "out", "flip", copies=2).written == 0


def test_a_picture_that_the_augmentation_refuses_is_left_out(source: Path, tmp_path: Path) -> None:
    @image_augmentations.register("wide-only")
    def wide_only() -> ImageAugmentation:
        def checked(image: Pixels, generator: np.random.Generator) -> Pixels:
            if image.shape[1] < 50:
                raise AugmentationError("a narrow image", found=f"{image.shape[1]} columns")
            return image

        return checked

    try:
        done = augment_folder(source, tmp_path / "out", "wide-only")
    finally:
        image_augmentations._items.pop("wide-only")
    files = [path for path in source.rglob("*") if path.is_file() and path.suffix != ".txt"]
    narrow = [path for path in files if Image.open(path).width < 50]
    assert 0 < len(narrow) == len(done.skipped) < done.images == done.written + len(narrow)
    assert all(why.endswith("columns") for why in done.skipped.values())


def test_a_shard_of_nothing_but_bad_pictures_is_no_error(source: Path, tmp_path: Path) -> None:
    (source / "0.png").write_text("no")
    done = augment_folder(source, tmp_path / "out", "flip", shard=Shard(1, 13))
    assert (done.images, done.written, list(done.skipped)) == (1, 0, ["0.png"])


def test_only_bad_pictures_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "s" / "a").mkdir(parents=True)
    (tmp_path / "s" / "a" / "1.png").write_text("no")
    with pytest.raises(DatasetError, match="no image"):
        augment_folder(tmp_path / "s", tmp_path / "out", "flip")


def test_places_that_would_mix_things_up_are_refused(source: Path, tmp_path: Path) -> None:
    for destination in (source, source / "out", source / "cat" / ".." / "out"):
        with pytest.raises(StoreError, match="inside the source"):
            augment_folder(source, destination, "flip")
    with pytest.raises(StoreError, match="inside the destination"):
        augment_folder(source, tmp_path, "flip")
    (tmp_path / "link").symlink_to(source)
    with pytest.raises(StoreError, match="inside the source"):
        augment_folder(source, tmp_path / "link" / "out", "flip")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(StoreError, match="holds other files"):
        augment_folder(source, tmp_path / "other", "flip")
    with pytest.raises(StoreError, match="not a folder"):
        augment_folder(source, tmp_path / "other" / "thesis.txt", "flip")
    with pytest.raises(ShiftbenchError, match="not a folder"):
        augment_folder(tmp_path / "nowhere", tmp_path / "out", "flip")
    assert not (tmp_path / "out").exists()


def test_links_lead_nowhere_else(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    out = tmp_path / "out"
    augment_folder(source, out, "flip")
    for file in (out / "cat").rglob("*"):
        if file.is_file():
            file.unlink()
    (out / "cat" / "deeper" / "still").rmdir()
    (out / "cat" / "deeper" / "still").symlink_to(outside)
    with pytest.raises(StoreError, match="leads out of it"):
        augment_folder(source, out, "flip")
    assert not any(outside.iterdir())


def test_a_file_that_is_a_link_is_replaced_not_followed(source: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious.png"
    precious.write_bytes(b"")
    out = tmp_path / "out"
    augment_folder(source, out, "flip")
    (out / "top.png").unlink()
    (out / "top.png").symlink_to(precious)
    augment_folder(source, out, "flip")
    assert precious.read_bytes() == b"" and not (out / "top.png").is_symlink()


def test_the_destination_seen_from_the_source_is_refused(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    augment_folder(source, out, "flip")
    (source / "loop").symlink_to(out)
    with pytest.raises(StoreError, match="leads into the destination"):
        augment_folder(source, out, "flip")


def test_a_broken_record_is_told(source: Path, tmp_path: Path) -> None:
    augment_folder(source, tmp_path / "out", "flip")
    (tmp_path / "out" / RECORD).write_text("{")
    with pytest.raises(StoreError, match="not a valid record"):
        augment_folder(source, tmp_path / "out", "flip")


def test_two_runs_of_one_shard_do_not_meet(source: Path, tmp_path: Path) -> None:
    with file_lock(tmp_path / "out" / ".writing" / "1-of-1" / "lock", wait=False) as mine:
        assert mine
        with pytest.raises(StoreError, match="another run"):
            augment_folder(source, tmp_path / "out", "flip")


def test_wrong_words(source: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        augment_folder(source, tmp_path / "out", "augmixx")
    with pytest.raises(AugmentationError, match="unknown key"):
        augment_folder(source, tmp_path / "out", "augmix", options={"strength": 1})
    with pytest.raises(AugmentationError, match="copies"):
        augment_folder(source, tmp_path / "out", "augmix", copies=0)
    for text in ("0/2", "3/2", "x", "1/0", "-1/2", "1/2/3"):
        with pytest.raises(SettingError):
            Shard.parse(text)
    assert not (tmp_path / "out").exists()


def test_names_never_meet() -> None:
    paths = ["a.tif", "a.png", "a.bmp", "b.jpg", "b-1.jpg", "A.png", "c.v2.jpeg", "d/x.webp"]
    for copies in (1, 2, 12):
        for lossless in (False, True):
            names = [name for row in names_of_copies(paths, copies, lossless=lossless) for name in row]
            assert len(set(names)) == copies * len(paths)
    with pytest.raises(DatasetError, match="one file"):
        names_of_copies(["a.tif", "a.png", "a.tif.png"], 1)


@pytest.mark.slow
@pytest.mark.reliability("kills")
def test_killed_at_any_moment_it_continues_to_the_same_bytes(source: Path, tmp_path: Path) -> None:
    whole = augment_folder(source, tmp_path / "whole", "augmix", workers=1, **OPTIONS)
    broken = tmp_path / "broken"
    killed = kill_often(
        augment_slowly, lambda chance: (str(source), str(broken), chance.choice([1, 2])), broken, 4, 0.1
    )
    assert killed >= 2, "the run ended before it was killed often enough; make it longer"
    last = augment_folder(source, broken, "augmix", workers=2, **OPTIONS)
    assert last.written + last.already == whole.written
    assert bytes_below(broken) == bytes_below(tmp_path / "whole")
