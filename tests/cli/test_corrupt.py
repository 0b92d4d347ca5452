"""``shiftbench corrupt`` and ``preview`` as a person types them."""

from __future__ import annotations

import json
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import shiftbench as sb
from shiftbench.errors import ShiftbenchError, StoreError
from tests.commands import answer, call, output
from tests.outputs.helpers import cifar_like, picture_folder, scene


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return picture_folder(tmp_path / "s", per_class=1)


def test_corrupt_tells_what_it_did_and_continues(source: Path, tmp_path: Path) -> None:
    (source / "cat" / "bad.jpg").write_text("<html>")
    words = ("corrupt", source, tmp_path / "c", "-c", "fog,extra", "-s", "1-2", "--size", 32)
    first = call(*words)
    assert first.exit_code == 0, first.output
    assert "50 written" in first.output.replace("\n", " ")
    assert "cat/bad.jpg" in first.output
    again = call(*words, "--json", "--quiet")
    told = json.loads(again.stdout)
    assert (told["written"], told["already"], told["format"]) == (0, 50, "tree")
    assert told["skipped"] == [{"id": "cat/bad.jpg", "why": "it is a web page or SVG, not an image"}]
    assert Path(told["record"]).is_file()


def test_all_layouts_by_option(source: Path, tmp_path: Path) -> None:
    array = cifar_like(tmp_path / "a", count=10)
    common = ("-c", "contrast", "-s", "1-5", "--json", "-q")
    assert (
        json.loads(call("corrupt", array, tmp_path / "1", "--labels", "cifar-10", *common).stdout)["format"] == "arrays"
    )
    shards = call(
        "corrupt", source, tmp_path / "2", "--format", "shards", "--labels", "folders", "--size", "32", *common
    )
    assert json.loads(shards.stdout)["written"] == 25
    lossless = call("corrupt", source, tmp_path / "3", "--lossless", "--no-resize", "-j", "2", *common)
    assert json.loads(lossless.stdout)["written"] == 25
    found = Image.open(next((tmp_path / "3" / "contrast" / "1" / "cat").glob("*.png")))
    clean = Image.open(next((source / "cat").iterdir()))
    assert found.size == clean.size and found.format == "PNG"


def test_orientation_and_transparency_are_treated_as_stated_and_recorded(tmp_path: Path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    pixels = np.zeros((32, 48, 4), np.uint8)
    pixels[:, 24:] = (200, 100, 50, 255)
    exif = Image.Exif()
    exif[0x0112] = 3
    Image.fromarray(pixels).save(tmp_path / "photos" / "cat" / "0.png", exif=exif)
    words = ("corrupt", tmp_path / "photos", tmp_path / "c", "-c", "fog", "-s", "1", "--no-resize", "--lossless", "-q")
    output(*words, "--exif", "apply", "--alpha", "white")
    record = json.loads((tmp_path / "c" / "shiftbench-corruptions.json").read_text())
    assert record["recipe"]["decoding"] == {"exif": "apply", "alpha": "white"}
    upright = np.full((32, 48, 3), 255, np.uint8)
    upright[:, :24] = (200, 100, 50)
    expected = sb.corrupt(upright, "fog", 1, image_id="cat/0.png")
    np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "c" / "fog" / "1" / "cat" / "0.png")), expected)
    # A folder with upright images is not continued with others.
    assert isinstance(call(*words).exception, StoreError)
    assert call(*words, "--exif", "turn").exit_code == 2
    # Both are ignored unless something is stated, and the copies would not show it.
    target = tmp_path / "d"
    write = partial(sb.write_corruptions, tmp_path / "photos", target, names="fog", severities=[1], resize=False)
    with pytest.warns(sb.ResultWarning, match="not applied: 1, alpha dropped: 1.*exif='apply' or ignore and alpha="):
        write()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stated = write(exif="ignore", alpha="drop")
    assert (stated.written, stated.already) == (0, 1)


def test_a_part_of_a_split_is_chosen(source: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    source.rename(tmp_path / "all" / "test")
    words = ("corrupt", tmp_path / "all", tmp_path / "c", "--split", "test", "-c", "fog", "-q")
    written = call(*words, "-s", "1", "--limit", "3", "--json")
    assert json.loads(written.stdout)["written"] == 3
    # The folder is extended by the same images, and refuses others.
    more = call(*words, "-s", "2", "--limit", "3", "--json")
    assert json.loads(more.stdout)["written"] == 3
    names = []
    for severity in ("1", "2"):
        folder = tmp_path / "c" / "fog" / severity
        names.append({path.relative_to(folder) for path in folder.rglob("*") if path.is_file()})
    assert names[0] == names[1] and len(names[0]) == 3
    assert isinstance(call(*words, "-s", "2", "--limit", "4").exception, StoreError)


def test_wrong_options_are_told(source: Path, tmp_path: Path) -> None:
    assert "arrays" in call("corrupt", source, tmp_path / "c", "--format", "zip").output
    assert "--no-resize" in call("corrupt", source, tmp_path / "c", "--size", 9, "--no-resize").output
    assert call("corrupt", source, tmp_path / "c", "-s", "many").exit_code == 2
    assert isinstance(call("corrupt", source, tmp_path / "c", "-c", "fogg").exception, ShiftbenchError)
    assert isinstance(call("corrupt", source, source, "-c", "fog").exception, StoreError)
    impossible = call("corrupt", source, tmp_path / "n", "-c", "fog,style_transfer")
    assert isinstance(impossible.exception, ShiftbenchError) and not (tmp_path / "n").exists()


def test_preview_writes_one_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.fromarray(scene(0, 60, 80)).save(tmp_path / "holiday.jpg")
    monkeypatch.chdir(tmp_path)
    output("preview", "holiday.jpg", "-c", "noise,fog", "-s", "1,5", "--size", 64)
    page = Image.open("holiday-corruptions.png")
    assert page.format == "PNG" and page.width > 128
    told = answer("preview", "holiday.jpg", "-o", "x/y.png", "-c", "fog", "--size", 32)
    assert told["corruptions"] == ["fog"] and told["severities"] == [1, 2, 3, 4, 5]
    assert Image.open("x/y.png").size == (told["width"], told["height"])


def test_preview_of_what_is_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("text")
    result = call("preview", tmp_path / "a.jpg", "-o", tmp_path / "p.png")
    assert isinstance(result.exception, ShiftbenchError) and "a.jpg" in str(result.exception)
    assert call("preview", tmp_path / "a.jpg", "-o", tmp_path / "p.gif").exit_code == 2
