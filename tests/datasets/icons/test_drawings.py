"""Drawings to pixels: against arithmetic and geometry, and what is refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from shiftbench.datasets.icons.sources import difference, iconify_svg, is_blank, png_bytes, rasterise
from shiftbench.errors import BadImageError
from tests.datasets.icons.making import png, svg
from tests.raised import raises


def encoded(pixels: np.ndarray, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **({"lossless": True} if kind == "WEBP" else {}))
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparency_is_laid_on_white(kind: str) -> None:
    rgba = np.random.default_rng(0).integers(0, 256, (32, 32, 4), dtype=np.uint8)
    rgba[..., 3] |= 1  # lossless WebP forgets the colour of what is wholly transparent
    alpha = rgba[..., 3:].astype(float) / 255
    expected = rgba[..., :3] * alpha + 255 * (1 - alpha)
    found = rasterise(encoded(rgba, kind), 32, "icon")
    assert found.shape == (32, 32, 3) and found.dtype == np.uint8
    assert np.abs(found - expected).max() <= 1


def test_transparent_pixels_bring_no_colour_when_resized() -> None:
    """Black under full transparency: resized first, it would give the edges a dark rim."""
    rgba = np.zeros((64, 64, 4), np.uint8)
    rgba[:, :32] = (255, 255, 255, 255)
    assert rasterise(encoded(rgba), 16, "icon").min() >= 250


def test_a_circle_is_drawn_where_geometry_puts_it() -> None:
    found = rasterise(svg("#ff0000"), 72, "icon").astype(int)
    y, x = np.mgrid[:72, :72] + 0.5
    distance = np.hypot(x - 36, y - 36)
    assert (found[distance < 23] == (255, 0, 0)).all()
    assert (found[distance > 25] == 255).all()
    covered = (255 - found[..., 1]).sum() / 255
    assert covered == pytest.approx(np.pi * 24**2, rel=0.005)


def test_what_is_not_square_is_centred_and_keeps_its_shape() -> None:
    wide = np.zeros((20, 40, 3), np.uint8)
    found = rasterise(encoded(wide), 40, "icon")
    assert (found[:10] == 255).all() and (found[10:30] == 0).all() and (found[30:] == 255).all()
    drawn = rasterise(iconify_svg('<rect width="512" height="256"/>', 512, 256), 64, "icon")
    assert (drawn[:15] == 255).all() and (drawn[17:47] == 0).all() and (drawn[49:] == 255).all()


@pytest.mark.parametrize(
    "extra",
    [
        '<image href="/etc/passwd" width="9" height="9"/>',
        '<image xlink:href="file:///etc/passwd" width="9" height="9"/>',
        '<use href="other.svg#a"/>',
        "<style>@import 'x.css';</style>",
        '<rect fill="url(http://example.org/a)"/>',
        "<script>alert(1)</script>",
    ],
)
def test_a_drawing_that_looks_outside_itself_is_refused(extra: str) -> None:
    with pytest.raises(BadImageError, match="outside itself"):
        rasterise(svg("red", extra), 32, "icon")


def test_entities_are_refused_before_they_can_multiply() -> None:
    bomb = b'<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>' + svg("red", "<text>&b;</text>")
    with raises(BadImageError, found="the drawing refers to something outside itself ('<!')"):
        rasterise(bomb, 32, "icon")


def test_references_inside_are_fine() -> None:
    inside = '<defs><g id="a"><rect width="36" height="36" fill="blue"/></g></defs><use xlink:href="#a"/>'
    assert (rasterise(svg("red", inside), 16, "icon") == (0, 0, 255)).all()


@pytest.mark.parametrize(
    "data",
    [b"", b"no picture", b"<svg", b"<svg xmlns='http://www.w3.org/2000/svg'>", png("red")[:50], b"GIF89a" + bytes(20)],
)
def test_what_is_no_picture_is_named(data: bytes) -> None:
    with pytest.raises(BadImageError, match=r"maker/2708 can't be used"):
        rasterise(data, 32, "maker/2708")


def test_a_picture_that_is_too_large_is_refused() -> None:
    with raises(BadImageError, found="3000 x 3000 pixels are too many for an icon"):
        rasterise(encoded(np.zeros((3000, 3000, 3), np.uint8)), 32, "icon")


def test_a_png_whose_bytes_spell_svg_is_a_png() -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("Comment", "<svg")
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(buffer, "PNG", pnginfo=info)
    assert (rasterise(buffer.getvalue(), 8, "icon") == (255, 0, 0)).all()


def test_blank_and_difference() -> None:
    red = rasterise(png("red"), 64, "icon")
    empty = rasterise(png("red", alpha=0), 64, "icon")
    assert is_blank(empty) and not is_blank(red)
    assert difference(red, red) == 0
    black = np.zeros((64, 64, 3), np.uint8)
    white = np.full((64, 64, 3), 255, np.uint8)
    assert difference(black, white) == 255
    again = np.asarray(Image.open(io.BytesIO(png_bytes(red))))
    np.testing.assert_array_equal(again, red)
