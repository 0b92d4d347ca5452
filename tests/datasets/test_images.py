"""Decoding: the cabinet of odd pictures, equality with Pillow, and nothing but BadImageError on broken bytes."""

from __future__ import annotations

import io
import os
import random
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from shiftbench.datasets.base import DecodedImage
from shiftbench.datasets.folder import open_folder
from shiftbench.datasets.images import MAX_PIXELS, decode
from shiftbench.errors import BadImageError
from shiftbench.jobs.threads import on_threads
from tests.datasets.odd_pictures import Odd, cabinet, encoded, png, png_16_bit, scene
from tests.raised import raises

pytestmark = pytest.mark.reliability("bad images")

CABINET = cabinet()


def test_the_cabinet_is_large_and_its_names_differ() -> None:
    assert len(CABINET) >= 60
    assert len({odd.file for odd in CABINET}) == len(CABINET)


@pytest.mark.parametrize("odd", CABINET, ids=lambda odd: odd.file)
def test_odd_picture(odd: Odd) -> None:
    if odd.reason is not None:
        with pytest.raises(BadImageError) as caught:
            decode(odd.data, f"class/{odd.file}")
        assert odd.reason in str(caught.value)
        assert f"class/{odd.file}" in str(caught.value)
        assert str(caught.value.found) in str(caught.value)
        return
    picture = decode(odd.data, odd.file)
    assert picture.converted == odd.note
    assert picture.pixels.shape == (odd.size[1], odd.size[0], 3)
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.flags.writeable and picture.pixels.flags.c_contiguous


#: Pillow clips the others, which is why we do not leave them to it.
AS_PILLOW = [o for o in CABINET if o.reason is None and not o.file.startswith(("grey_16", "float"))]


def test_equals_what_an_image_folder_gives() -> None:
    for odd in AS_PILLOW:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.asarray(Image.open(io.BytesIO(odd.data)).convert("RGB"))
        np.testing.assert_array_equal(decode(odd.data, odd.file).pixels, expected, err_msg=odd.file)


def test_16_bits_are_scaled_not_clipped() -> None:
    grey = decode(png_16_bit(0, 1), "grey").pixels
    expected = np.linspace(0, 65535, 24 * 16).astype(np.uint16).reshape(16, 24) >> 8
    np.testing.assert_array_equal(grey, np.repeat(expected[:, :, None], 3, axis=2))
    colour = decode(png_16_bit(2, 3), "colour").pixels
    expected = np.linspace(0, 65535, 24 * 16 * 3).astype(np.uint16).reshape(16, 24, 3) >> 8
    np.testing.assert_array_equal(colour, expected)


@pytest.mark.parametrize("file", ["grey_16.tif", "grey_16.pgm"])
def test_16_bits_of_other_formats(file: str) -> None:
    data = next(odd.data for odd in CABINET if odd.file == file)
    if file.endswith("pgm"):
        values = np.frombuffer(data[-768:], ">u2")
    else:
        values = (np.linspace(0, 1, 384, dtype=np.float32) * 65535).astype(np.uint16)
    np.testing.assert_array_equal(decode(data, file).pixels[..., 1].ravel(), values >> 8)


def test_floats_span_black_to_white() -> None:
    pixels = decode(next(o.data for o in CABINET if o.file == "float_unit.tif"), "f").pixels
    assert pixels[0, 0].tolist() == [0, 0, 0] and pixels[-1, -1].tolist() == [255, 255, 255]


def test_exif_orientation_is_ignored() -> None:
    assert decode(next(o.data for o in CABINET if o.file == "exif_rotated.jpg"), "e").pixels.shape == (16, 24, 3)


def test_the_pixel_limit_can_be_set() -> None:
    data = encoded(scene(100, 100), "PNG")
    assert decode(data, "x", max_pixels=10_000).pixels.shape == (100, 100, 3)
    with pytest.raises(BadImageError, match="100 x 100 pixels are more than the limit of 9999"):
        decode(data, "x", max_pixels=9_999)
    assert MAX_PIXELS == 2 * (1024 * 1024 * 1024 // 4 // 3)


def test_no_warning_reaches_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for a large image (Pillow warns above 89 Mpx, here above 1,000 px) nor for a transparent palette."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1_000)
    with warnings.catch_warnings(record=True) as caught:
        decode(png(48, 40, 1, 0, bytes((48 // 8 + 1) * 40)), "large")
    monkeypatch.undo()
    with warnings.catch_warnings(record=True) as more:
        for odd in CABINET:
            if odd.note is not None:
                decode(odd.data, odd.file)
    assert [str(w.message) for w in (*caught, *more)] == []


def test_truncated_files_are_bad_whatever_other_code_has_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training scripts set it, and grey would stand for what is missing; it is theirs again afterwards."""
    whole = {form: encoded(scene(200, 200), form) for form in ("JPEG", "PNG")}
    for allowed in (False, True):
        monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", allowed)

        def attempt(number: int) -> str:
            data = whole["JPEG" if number % 2 else "PNG"]
            decode(data, "whole")
            with pytest.raises(BadImageError) as caught:
                decode(data[: len(data) // 2], "half")
            return str(caught.value)

        assert len(on_threads(attempt, range(40), 4)) == 40
        assert ImageFile.LOAD_TRUNCATED_IMAGES is allowed


def test_paths_that_are_no_readable_file(tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    (tmp_path / "dangling.jpg").symlink_to(tmp_path / "nothing.jpg")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    for name, reason in [("folder.jpg", "folder"), ("dangling.jpg", "No such file"), ("loop.jpg", "can't be read")]:
        with pytest.raises(BadImageError, match=re.escape(reason)):
            decode(tmp_path / name, name)
    with raises(BadImageError, found="the file can't be read (embedded null byte)"):
        decode("a\0b.jpg", "null")


def test_a_file_without_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.jpg"
    path.write_bytes(encoded(scene(), "JPEG"))
    path.chmod(0)
    if os.access(path, os.R_OK):  # this user may read everything: let the system's answer be played

        def refuse(self: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
    with raises(BadImageError, found="the file can't be read (Permission denied)"):
        decode(path, "secret")


def test_a_folder_of_all_of_them_names_and_counts_the_bad_ones(tmp_path: Path) -> None:
    for odd in CABINET:
        path = tmp_path / "odd" / odd.file
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(odd.data)
    (tmp_path / "odd" / "folder.jpg").mkdir()
    (tmp_path / "odd" / "dangling.jpg").symlink_to("nothing.jpg")
    dataset = open_folder(tmp_path, space="folders")
    assert len(dataset) == len(CABINET) + 1  # the folder is none of the pictures, the dangling link is
    bad = []
    for i in range(len(dataset)):
        try:
            dataset.read(i)
        except BadImageError as error:
            bad.append(str(error))
    assert len(bad) == sum(o.reason is not None for o in CABINET) + 1
    assert len(dataset.fingerprint) == 32


@pytest.mark.parametrize("form", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000"])
def test_mutated_bytes_give_a_picture_or_the_one_error(form: str) -> None:
    chance = random.Random(form)
    noise = np.random.default_rng(1).integers(0, 256, (40, 56, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), form)
    outcomes = {"picture": 0, "bad": 0}
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chance.randint(1, 12)):
            # headers are where decoders go wrong, so most changes fall there
            at = chance.randrange(min(len(data), 200) if chance.random() < 0.7 else len(data))
            data[at] = chance.randrange(256)
        if chance.random() < 0.3:
            del data[chance.randrange(len(data)) :]
        try:
            picture = decode(bytes(data), "mutant", max_pixels=1 << 22)
            assert isinstance(picture, DecodedImage) and picture.pixels.dtype == np.uint8
            outcomes["picture"] += 1
        except BadImageError:
            outcomes["bad"] += 1
    assert outcomes["bad"] > 10


def test_threads_decode_the_same() -> None:
    good = [odd for odd in CABINET if odd.reason is None]
    alone = [decode(odd.data, odd.file).pixels for odd in good]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda odd: decode(odd.data, odd.file).pixels, good * 8))
    for i, pixels in enumerate(together):
        np.testing.assert_array_equal(pixels, alone[i % len(good)])


@pytest.mark.parametrize("grey_scale", [False, True])
def test_a_jpeg_that_was_cut_before_its_end_marker(grey_scale: bool) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (128, 96, 3), np.uint8)
    image = Image.fromarray(pixels)
    if grey_scale:
        image = image.convert("L")
    buffer = io.BytesIO()
    image.save(buffer, "JPEG")
    data = buffer.getvalue()
    assert decode(data, "whole").converted == ""
    cut = decode(data[: len(data) // 2] + b"\xff\xd9", "cut")
    assert cut.converted.startswith("incomplete")


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("comment", [b"", b"a comment with \xff\xda and \xff\xd9 in it"])
def test_a_progressive_jpeg_whose_last_scans_are_missing(mode: str, comment: bytes) -> None:
    """Every pixel has a value, but a coarse one."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 48, 3), np.uint8)
    buffer = io.BytesIO()
    image = Image.fromarray(pixels).convert(mode)
    image.save(buffer, "JPEG", progressive=True, quality=90, comment=comment, exif=b"Exif\0\0\xff\xd9")
    data = buffer.getvalue()
    assert "incomplete" not in decode(data, "whole").converted
    assert "incomplete" not in decode(data + b"trailing", "followed").converted
    scans = [place.start() for place in re.finditer(rb"\xff\xda", data) if data[place.start() + 2] == 0][1:]
    assert len(scans) > 3
    for scan in scans[-3:]:
        cut = decode(data[:scan] + b"\xff\xd9", "cut")
        assert "incomplete" in cut.converted


def test_a_complete_jpeg_with_grey_rows_at_the_end() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (128, 96, 3), np.uint8)
    pixels[64:] = 128
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=95)
    whole = decode(buffer.getvalue(), "whole")
    assert (whole.pixels[-1, -8:] == 128).all()
    assert whole.converted == ""


WITH_LITTLE_MEMORY = """
import resource, sys
from shiftbench.datasets.images import decode
from shiftbench.errors import BadImageError, DatasetError
decode(sys.argv[1], "small")  # what is imported at the first use is imported before the limit
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 60_000_000, -1))
try:
    decode(sys.argv[2], "large")
except (BadImageError, DatasetError) as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the limit is set on top of what Linux reports")
def test_running_out_of_memory_is_not_the_fault_of_the_image(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "small.png")
    Image.new("RGB", (7000, 7000)).save(tmp_path / "large.png")
    words = [sys.executable, "-c", WITH_LITTLE_MEMORY, str(tmp_path / "small.png"), str(tmp_path / "large.png")]
    answer = subprocess.run(words, capture_output=True, text=True, check=False)
    assert answer.stdout.split() == ["DatasetError"], answer.stderr
