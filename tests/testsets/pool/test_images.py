"""The store of pictures: by content, once, and copies that tell nothing."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image as Pillow
from sqlalchemy import select

from shiftbench.datasets.images import decode
from shiftbench.errors import BadImageError
from shiftbench.testsets.database import Image
from shiftbench.testsets.pool import images
from shiftbench.testsets.pool.entries import import_images
from shiftbench.testsets.pool.images import ImageStore, image_digest
from tests.datasets.odd_pictures import cabinet, encoded, scene
from tests.raised import raises
from tests.testsets.conftest import NewProject

GPS = 0x8825


def photograph(width: int = 900, height: int = 600) -> bytes:
    """A JPEG with what cameras write: place, orientation, maker, comment."""
    exif = Pillow.Exif()
    exif[0x0112] = 6
    exif[0x010F] = "Camera & Sons"
    exif.get_ifd(GPS).update({1: "N", 2: (47.0, 22.0, 0.0), 3: "E", 4: (8.0, 32.0, 0.0)})
    return encoded(scene(width, height), "JPEG", exif=exif, comment=b"secret", quality=90)


def test_a_copy_is_small_and_bare(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, 500)
    data = photograph()
    with Pillow.open(io.BytesIO(data)) as original:
        assert original.getexif().get_ifd(GPS) and original.info["comment"] == b"secret"
    stored = store.put(data, "holiday.jpg")
    assert (stored.width, stored.height, stored.suffix, stored.size) == (900, 600, ".jpg", len(data))
    with Pillow.open(store.copy(stored.digest, stored.suffix)) as copy:
        assert copy.size == (500, 500) and copy.format == "JPEG"
        assert len(copy.getexif()) == 0 and "comment" not in copy.info and "icc_profile" not in copy.info
    raw = store.copy(stored.digest, stored.suffix).read_bytes()
    assert b"Exif" not in raw and b"Camera" not in raw and b"secret" not in raw


@pytest.mark.parametrize(("brightest", "is_stored"), [(0, False), (8, False), (9, True), (255, True)])
def test_pitch_black_images_are_refused(brightest: int, is_stored: bool, tmp_path: Path) -> None:
    """ImageNet-Sketch has some, which ImageNet-R leaves out."""
    pixels = np.zeros((20, 30, 3), np.uint8)
    pixels[7, 11] = brightest
    store = ImageStore(tmp_path, 64)
    data = encoded(Pillow.fromarray(pixels), "PNG")
    if is_stored:
        assert store.put(data, "drawing.png").width == 30
    else:
        with pytest.raises(BadImageError, match="pitch black"):
            store.put(data, "drawing.png")


def test_copies_have_one_size(tmp_path: Path) -> None:
    """Whatever the image's size and aspect ratio: the whole image on grey, or its centre."""
    for fit, corner in (("pad", [128, 128, 128]), ("crop", None)):
        store = ImageStore(tmp_path, 64, fit)  # type: ignore[arg-type]
        for width, height in ((32, 20), (200, 640), (64, 64), (1, 90)):
            stored = store.put(encoded(scene(width, height), "PNG"), "a")
            with Pillow.open(store.copy(stored.digest, stored.suffix)) as copy:
                assert copy.size == (64, 64)
                if corner and (width, height) == (200, 640):
                    assert np.abs(np.asarray(copy)[0, 0].astype(int) - corner).max() < 6


def test_the_original_is_kept_to_the_byte_under_its_digest(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, 500)
    data = photograph()
    stored = store.put(data, "../../etc/passwd")
    path = store.original(stored.digest, stored.suffix)
    assert path.read_bytes() == data and stored.digest == image_digest(data)
    assert path == tmp_path / "images" / stored.digest[:2] / f"{stored.digest[2:]}.jpg"
    assert len(stored.digest) == 40
    assert path.stat().st_mode & 0o222 == 0  # frozen sets hold the same file under another name


def test_the_same_bytes_are_stored_once(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, 500)
    data = photograph()
    first = store.put(data, "a")
    stamp = store.original(first.digest, first.suffix).stat().st_mtime_ns
    assert store.put(data, "b") == first
    assert store.original(first.digest, first.suffix).stat().st_mtime_ns == stamp
    assert sum(path.is_file() for path in tmp_path.rglob("*")) == 2


def test_a_lost_copy_is_made_anew(tmp_path: Path) -> None:
    store = ImageStore(tmp_path, 500)
    stored = store.put(photograph(), "a")
    before = store.copy(stored.digest, stored.suffix).read_bytes()
    store.copy(stored.digest, stored.suffix).unlink()
    assert store.copy(stored.digest, stored.suffix).read_bytes() == before


@pytest.mark.parametrize("odd", cabinet(), ids=lambda odd: odd.file)
def test_odd_and_broken_pictures(odd: object, tmp_path: Path) -> None:
    """What can be read is kept with the same pixels under an ending that datasets know; the rest leaves nothing."""
    from tests.datasets.odd_pictures import Odd

    assert isinstance(odd, Odd)
    store = ImageStore(tmp_path, 64)
    if odd.reason is not None:
        with pytest.raises(BadImageError):
            store.put(odd.data, odd.file)
        assert not any(path.is_file() for path in tmp_path.rglob("*"))
        return
    stored = store.put(odd.data, odd.file)
    path = store.original(stored.digest, stored.suffix)
    assert path.suffix in (".jpg", ".png", ".bmp", ".tif", ".ppm", ".pgm", ".webp")
    assert np.array_equal(decode(path, "a").pixels, decode(odd.data, "b").pixels)
    assert (stored.width, stored.height) == odd.size


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = ImageStore(tmp_path, 64)
    data = encoded(scene(100, 100), "PNG")
    monkeypatch.setattr(images, "MAX_PIXELS", 9_999)
    with pytest.raises(BadImageError, match="decompression bomb"):
        store.put(data, "large.png")
    monkeypatch.setattr(images, "MAX_BYTES", len(data) - 1)
    with raises(BadImageError, found="332 bytes are more than the limit of 331"):
        store.put(data, "large.png")


def test_whole_images_in_the_size_of_most_references(new_project: NewProject, tmp_path: Path) -> None:
    """As in paper 004: nobody is shown a part of an image, and the size reveals nothing."""
    project = new_project(copy_pixels=80)
    project.images = ImageStore(project.folder, 80, "resize", project._common_reference_size)
    folder = tmp_path / "photographs"
    sizes = {"wide-1": (100, 75), "wide-2": (100, 75), "tall": (60, 90)}
    for name, size in sizes.items():
        path = folder / "cat" / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        # The left edge is white: a centre crop would not show it.
        picture = Pillow.new("RGB", size, (10, 10, 10))
        picture.paste((255, 255, 255), (0, 0, size[0] // 8, size[1]))
        picture.save(path)
    import_images(project, folder, "reference")
    with project.reading() as session:
        rows = session.execute(select(Image.digest, Image.suffix)).all()
    for digest, suffix in rows:
        with Pillow.open(project.images.copy(digest, suffix)) as copy:
            assert copy.size == (80, 60)
            assert copy.convert("L").getpixel((2, 30)) > 200  # type: ignore[operator]
