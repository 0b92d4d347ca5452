"""One sheet of an image under every corruption at every severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

from PIL import Image, ImageDraw, ImageFont

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS

Colour = tuple[int, int, int]
_PAPER, _INK, _PALE = (255, 255, 255), (28, 32, 38), (112, 118, 128)
#: A calm colour for each group of corruptions, with enough contrast to read text in it.
_GROUP_INK = {"noise": (158, 42, 43), "blur": (29, 78, 137), "weather": (15, 110, 86), "digital": (110, 63, 150)}
_TITLE, _TEXT, _SMALL = 40, 25, 19
#: From one line of a name to the next.
_LINE = _TEXT + 5
_MARGIN, _GAP = 32, 6
#: Between two blocks of corruptions that stand side by side.
_GUTTER = 44
#: The line above each block that names the severities.
_TITLES = 38


def render_preview(
    pixels: Pixels, shifts: Sequence[Corruption], *, image_id: str = "0", seed: int = 0, longest: int = 256
) -> Image.Image:
    """A labelled grid: the original, then a row for each corruption with a column for each severity.

    Images are shown pixel for pixel up to ``longest``; larger ones are corrupted at full size and then reduced.

    >>> import numpy as np
    >>> render_preview(np.zeros((64, 64, 3), np.uint8), [Corruption("fog", 1), Corruption("fog", 5)]).mode
    'RGB'
    """
    names = {name: name.split("_") for name in dict.fromkeys(shift.corruption for shift in shifts)}
    severities = sorted({shift.severity for shift in shifts})
    words = ["severity", "original", *(word for parts in names.values() for word in parts)]
    label = max(ceil(_font(_TEXT).getlength(word)) for word in words) + 20
    scale = min(1.0, longest / max(pixels.shape[:2]))
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    step = width + _GAP
    # A row is as high as an image, or as the longest name.
    size = label + len(severities) * step - _GAP, max([height, *(len(parts) * _LINE for parts in names.values())])

    def row(parts: Sequence[str], below: str, colour: Colour, images: Mapping[int, Pixels]) -> Image.Image:
        """A name, and images by column."""
        made = _named(parts, below, colour, size)
        for column, shown in images.items():
            image = Image.fromarray(shown)
            resized = image if scale == 1.0 else image.resize((width, height), Image.Resampling.LANCZOS)
            made.paste(resized, (label + column * step, (size[1] - height) // 2))
        return made

    original = row(["original"], "", _INK, {0: pixels})
    # What the original is stands in the empty columns beside it.
    left, middle = label + step + 14, size[1] // 2
    room = size[0] - left
    if room >= 8 * _TEXT:  # in one or two small columns three letters and dots would be useless
        draw, about = ImageDraw.Draw(original), f"{pixels.shape[1]} x {pixels.shape[0]} pixels, seed {seed}"
        draw.text((left, middle - 2), _fitted(image_id, _TITLE, room), _INK, _font(_TITLE), anchor="ls")
        draw.text((left, middle + 12), _fitted(about, _TEXT, room), _PALE, _font(_TEXT), anchor="lt")
    rows = [original]
    for name, parts in names.items():
        group, own = CORRUPTIONS.get(name).group, [shift for shift in shifts if shift.corruption == name]
        made = {severities.index(one.severity): one(pixels, image_id=image_id, seed=seed) for one in own}
        rows.append(row(parts, group if group not in parts else "", _GROUP_INK.get(group, _INK), made))
    titles = Image.new("RGB", (size[0], _TITLES), _PAPER)
    draw = ImageDraw.Draw(titles)
    draw.text((0, 20), "severity", _PALE, _font(_SMALL), anchor="lm")
    for column, severity in enumerate(severities):
        draw.text((label + column * step + width / 2, 20), f"{severity:g}", _INK, _font(_TEXT), anchor="mm")
    return _page(titles, rows)


def _named(words: Sequence[str], below: str, colour: Colour, size: tuple[int, int]) -> Image.Image:
    """A row with the words of a name below each other at its left; what stands below only if there is room."""
    made = Image.new("RGB", size, _PAPER)
    draw, room = ImageDraw.Draw(made), size[1] - len(words) * _LINE
    below = below if room >= _SMALL else ""
    y = (room - _SMALL if below else room) // 2
    for word in words:
        draw.text((0, y), word, colour, _font(_TEXT))
        y += _LINE
    draw.text((0, y + 1), below, _PALE, _font(_SMALL))
    return made


def _page(titles: Image.Image, rows: Sequence[Image.Image]) -> Image.Image:
    """Blocks of rows below the titles, side by side until the page is about as wide as high."""
    width, height = rows[0].size
    pages: dict[tuple[int, int], int] = {}
    for blocks in range(1, min(4, len(rows)) + 1):
        each = ceil(len(rows) / blocks)
        if (blocks - 1) * each < len(rows):  # no block stays empty
            across, down = blocks * (width + _GUTTER) - _GUTTER, _TITLES + each * (height + _GAP) - _GAP
            pages[2 * _MARGIN + across, 2 * _MARGIN + down] = each
    size = min(pages, key=lambda size: abs(size[0] / size[1] - 1.1))
    page = Image.new("RGB", size, _PAPER)
    for number, row in enumerate(rows):
        block, place = divmod(number, pages[size])
        left = _MARGIN + block * (width + _GUTTER)
        page.paste(titles, (left, _MARGIN))
        page.paste(row, (left, _MARGIN + _TITLES + place * (height + _GAP)))
    return page


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _fitted(text: str, size: int, room: int) -> str:
    """As much of a text as fits, with dots where it was cut."""
    font = _font(size)
    if ceil(font.getlength(text)) <= room:
        return text
    while text and ceil(font.getlength(f"{text}...")) > room:
        text = text[:-1]
    return f"{text}..."
