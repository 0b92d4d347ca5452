"""Odd input gives a clear error or a defined result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shiftbench.errors import ShiftbenchError, ShiftError, UnknownNameError
from shiftbench.shifts.compose import Greyscale
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS, GROUPS, corruption, corruptions
from shiftbench.shifts.corruptions.frost import PACKAGE, resolve_textures
from tests.raised import raises
from tests.shifts.pictures import landscape, patches

ALL = corruptions("all")


@pytest.mark.parametrize("severity", (0, 6, 0.99, 5.01, -1, float("nan"), float("inf"), "3", None, True))
def test_impossible_severities(severity: Any) -> None:
    with raises(ShiftError, expected="a number from 1 to 5, whole or not"):
        corrupt(landscape(32), "fog", severity)


@pytest.mark.parametrize(
    ("image", "says"),
    (
        (np.zeros((32, 32, 3), np.int32), "type of pixel values"),
        (np.full((32, 32, 3), 1.5), "corrupt before Normalize"),
        (np.full((32, 32, 3), -0.1, np.float32), "corrupt before Normalize"),
        (np.full((32, 32, 3), np.nan), "on \\[0, 1\\]"),
        ([[1, 2], [3, 4]], "not an image"),
        (np.zeros((32, 32, 2), np.uint8), "not an image"),
        (np.zeros((16, 32, 32), np.uint8), "not an image"),
        (Image.new("P", (32, 32)), "convert"),
        (np.zeros(32, np.uint8), "not an image"),
        (np.zeros((2, 2, 32, 32, 3), np.uint8), "not an image"),
        (np.zeros((1, 1, 3), np.uint8), "too small"),
        (np.zeros((7, 300), np.uint8), "too small"),
        (np.zeros((0, 0, 3), np.uint8), "too small"),
    ),
)
def test_impossible_images(image: Any, says: str) -> None:
    with pytest.raises(ShiftError, match=says):
        corrupt(image, "fog", 1)


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gaussian_noise'"):
        corrupt(landscape(32), "gausian_noise", 1)
    with raises(ShiftError, found="'nosuch'"):
        corruptions("nosuch")


def test_unknown_options_are_refused() -> None:
    with raises(ShiftError, expected="no options"):
        corrupt(landscape(32), "fog", 1, true_swap=True)


def test_ids_must_fit() -> None:
    with raises(ShiftError, found="1 ids", expected="2 ids"):
        corrupt(np.stack([landscape(32)] * 2), "fog", 1, image_id=["a"])
    with raises(ShiftError, found="list", expected="a string"):
        corrupt(landscape(32), "fog", 1, image_id=["a"])


@pytest.mark.parametrize("name", ALL)
def test_odd_sizes(name: str) -> None:
    for shape in ((8, 8), (31, 31), (33, 200), (301, 9), (50, 8)):
        image = np.random.RandomState(0).randint(0, 256, (*shape, 3)).astype(np.uint8)
        for severity in (1, 5):
            out = corrupt(image, name, severity)
            assert out.shape == image.shape
            assert (out == corrupt(image, name, severity)).all()


def test_a_very_wide_image() -> None:
    image = np.tile(landscape(40), (1, 60, 1))
    assert image.shape == (40, 2_400, 3)
    for name in ALL:
        assert corrupt(image, name, 3).shape == image.shape


@pytest.mark.parametrize("name", ALL)
def test_constant_images(name: str) -> None:
    """Black images have no brightest pixel, no hue and no contrast to divide by."""
    for value in (0, 1, 128, 254, 255):
        image = np.full((40, 40, 3), value, np.uint8)
        for severity in (1, 3, 5):
            out = corrupt(image, name, severity).astype(int)
            if name in ("defocus_blur", "gaussian_blur", "zoom_blur", "pixelate", "contrast", "motion_blur"):
                assert np.abs(out - value).max() <= (4 if name == "defocus_blur" else 1)


@pytest.mark.parametrize("name", ALL)
def test_greyscale_pictures_keep_their_shape(name: str) -> None:
    grey = landscape(48)[..., 0].copy()
    out = corrupt(grey, name, 2)
    assert out.shape == grey.shape
    assert out.dtype == np.uint8
    if name in ("contrast", "gaussian_blur", "defocus_blur", "pixelate", "motion_blur", "brightness"):
        colour = corrupt(np.repeat(grey[..., None], 3, axis=2), name, 2)
        assert (out == colour[..., 0]).all()


@pytest.mark.parametrize("name", ALL)
def test_any_memory_layout(name: str) -> None:
    image = landscape(40)
    turned = np.asfortranarray(image)
    assert (corrupt(turned, name, 2) == corrupt(image, name, 2)).all()
    sliced = np.repeat(np.repeat(image, 2, axis=0), 2, axis=1)[::2, ::2]
    assert (corrupt(sliced, name, 2) == corrupt(image, name, 2)).all()


@pytest.mark.parametrize("name", ALL)
def test_read_only_input_is_accepted_and_unchanged(name: str) -> None:
    image = patches(40)
    image.flags.writeable = False
    before = image.copy()
    out = corrupt(image, name, 3)
    assert (image == before).all()
    assert out.flags.writeable
    assert not np.shares_memory(out, image)


def test_groups_cover_everything() -> None:
    assert corruptions() == ALL[:15]
    assert sorted(name for group in GROUPS for name in corruptions(group)) == sorted(ALL)
    assert "style_transfer" not in corruptions("registered")
    assert corruptions("extra") == ALL[15:]


def test_a_third_party_corruption_is_one_function() -> None:
    @corruption("darker (test)", group="digital")
    def darker(image: Any, severity: float, draws: Any) -> Any:
        return (image * (1 - 0.1 * severity)).astype(np.uint8)

    @corruption("broken (test)", group="digital")
    def broken(image: Any, severity: float, draws: Any) -> Any:
        return image[:-1]

    try:
        assert corrupt(np.full((8, 8, 3), 100, np.uint8), "darker (test)", 2.5)[0, 0, 0] == 75
        assert "darker (test)" in corruptions("registered")
        assert Corruption("darker (test)", 2).describe()["rule"] == "severity as given"
        with raises(ShiftError, found="ndarray (7, 8, 3) uint8", expected="a uint8 array (8, 8, 3)"):
            corrupt(np.zeros((8, 8, 3), np.uint8), "broken (test)", 1)
    finally:
        for name in ("darker (test)", "broken (test)"):
            CORRUPTIONS._items.pop(name)


def test_style_transfer_says_what_it_needs() -> None:
    with pytest.raises(ShiftbenchError, match="needs an image-to-image network"):
        corrupt(landscape(32), "style_transfer", 1)


def test_frost_textures() -> None:
    procedural = Corruption("frost", 3, {"frost_textures": "procedural"})
    assert procedural.describe()["frost"] == {"textures": "procedural v1"}
    with pytest.raises(ShiftError, match="not found"):
        corrupt(landscape(32), "frost", 1, frost_textures="/no/such/folder")


def test_original_frost_pictures_are_recorded(reference_data: Path) -> None:
    shift = Corruption("frost", 3, {"frost_textures": reference_data / "frost"})
    assert shift.describe()["frost"]["textures"] == "original pictures"
    assert len(shift.describe()["frost"]["content"]) == 16
    assert "frost" not in str(shift.describe().get("options", ""))  # no folder of this machine in the record


def test_frost_pictures_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_textures("procedural") == "procedural"
    folder = tmp_path / "imagecorruptions" / "frost"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert resolve_textures(None) == "procedural"  # no pictures in it yet
    for name in ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg"):
        (folder / name).write_bytes(b"")
    assert resolve_textures(None) == PACKAGE


def test_descriptions_are_plain_data() -> None:
    import json

    for name in ALL:
        text = json.dumps(Corruption(name, 2.5).describe())
        assert name in text
    assert Corruption("fog", 3).name == "fog.3"
    assert Corruption("fog", 2.5).name == "fog.2.5"
    assert json.dumps(Greyscale().describe())


def test_greyscale() -> None:
    image = landscape(16)
    grey = Greyscale()(image, image_id="a", seed=0)
    assert (grey[..., 0] == grey[..., 2]).all()
    assert np.abs(grey[..., 0] - image @ np.array([0.299, 0.587, 0.114])).max() <= 0.501
