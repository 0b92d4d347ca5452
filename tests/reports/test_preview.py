"""The picture of all corruptions by severities: every cell in its place, nothing on top of another."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from PIL import Image

from shiftbench.reports.preview import render_preview
from shiftbench.shifts.corruptions.api import Corruption, corrupt
from shiftbench.shifts.corruptions.catalogue import corruptions
from tests.outputs.helpers import scene


def shifts(names: list[str], severities: list[float]) -> list[Corruption]:
    return [Corruption(name, severity) for name in names for severity in severities]


def find(page: Image.Image, cell: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[tuple[int, int]]:
    """(left, top) of every exact copy of a picture on the page."""
    pixels = np.asarray(page)
    height, width = cell.shape[:2]
    inside = pixels[: pixels.shape[0] - height + 1, : pixels.shape[1] - width + 1]
    rows, columns = np.nonzero((inside == cell[0, 0]).all(axis=2) & (cell[0, 0] != 255).any())
    places = zip(columns.tolist(), rows.tolist(), strict=True)
    return [(x, y) for x, y in places if (pixels[y : y + height, x : x + width] == cell).all()]


def test_every_corruption_is_in_its_row_and_column() -> None:
    image = scene(4, 48, 64)
    names = ["gaussian_noise", "fog", "elastic_transform", "saturate"]
    page = render_preview(image, shifts(names, [1, 3, 5]), image_id="a.png", seed=2)
    (original,) = find(page, image)
    places = {}
    for name in names:
        for severity in (1, 3, 5):
            found = find(page, corrupt(image, name, severity, seed=2, image_id="a.png"))
            assert len(found) == 1, (name, severity)
            places[name, severity] = found[0]
    for name in names:
        x, y = zip(*(places[name, severity] for severity in (1, 3, 5)), strict=True)
        assert len(set(y)) == 1 and x[1] - x[0] == x[2] - x[1] >= 64
    tops = {places[name, 1] for name in names} | {original}
    assert len(tops) == 5
    assert original[0] in {place[0] for place in places.values()}


def test_names_in_two_lines_do_not_overlap_beside_small_images() -> None:
    image = scene(4, 32, 32)
    names = [name for name in corruptions("all") if "_" in name]
    page = render_preview(image, shifts(names, [3]))
    places = sorted(find(page, corrupt(image, name, 3, image_id="0"))[0] for name in names)
    steps = {after[1] - before[1] for before, after in itertools.pairwise(places) if before[0] == after[0]}
    assert len(places) == len(names) > 4 and min(steps) >= 60, "two lines of 30 pixels"


@pytest.mark.parametrize("count", [1, 2, 15, 19])
def test_pages_are_about_as_wide_as_high_and_labelled(count: int) -> None:
    image = scene(1, 64, 64)
    chosen = corruptions("all")[:count]
    page = render_preview(image, shifts(chosen, [1, 2, 3, 4, 5]), image_id="a rather long name of a picture.jpeg")
    if count >= 15:
        assert 0.6 < page.width / page.height < 2
    pixels = np.asarray(page)
    # a margin of paper all around, and text somewhere in the first column
    for edge in (pixels[:16], pixels[-16:], pixels[:, :16], pixels[:, -16:]):
        assert (edge == 255).all()
    assert (pixels[:, 32:100] != 255).any()


def test_a_large_picture_is_corrupted_at_its_size_and_then_reduced() -> None:
    image = scene(2, 300, 600)
    page = render_preview(image, shifts(["contrast"], [2]), image_id="a")
    reduced = Image.fromarray(corrupt(image, "contrast", 2, image_id="a")).resize((256, 128), Image.Resampling.LANCZOS)
    assert len(find(page, np.asarray(reduced))) == 1


def test_the_same_call_gives_the_same_picture() -> None:
    image = scene(2, 32, 32)
    pages = [render_preview(image, shifts(corruptions("all"), [2.5])).tobytes() for _ in range(2)]
    assert pages[0] == pages[1]
