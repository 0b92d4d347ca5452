"""One sheet of an image under every corruption at every severity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from PIL import Image, ImageDraw, ImageFont

from shiftbench.arrays import Pixels
from shiftbench.grouping import by_key
from shiftbench.shifts.corruptions.api import Corruption
from shiftbench.shifts.corruptions.catalogue import CORRUPTIONS

Colour = tuple[int, int, int]
_PAPER = (255, 255, 255)
_INK = (28, 32, 38)
_PALE = (112, 118, 128)
#: A calm colour for each group of corruptions, with enough contrast to read text in it.
_GROUP_INK = {"noise": (158, 42, 43), "blur": (29, 78, 137), "weather": (15, 110, 86), "digital": (110, 63, 150)}
#: Sizes of text in pixels.
_TITLE = 40
_TEXT = 25
_SMALL = 19
#: From one line of a name to the next.
_LINE = _TEXT + 5
#: Around the page.
_MARGIN = 32
#: Between two images.
_GAP = 6
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
    shifts_of = by_key((shift.corruption, shift) for shift in shifts)
    severities = sorted({shift.severity for shift in shifts})
    layout = _row_layout(pixels, list(shifts_of), len(severities), longest)
    original = _row(layout, ["original"], "", _INK, {0: pixels})
    _describe_original(original, layout, image_id, f"{pixels.shape[1]} x {pixels.shape[0]} pixels, seed {seed}")
    rows = [original]
    for name, corruption_shifts in shifts_of.items():
        group = CORRUPTIONS.get(name).group
        words = name.split("_")
        images = {}
        for shift in corruption_shifts:
            images[severities.index(shift.severity)] = shift(pixels, image_id=image_id, seed=seed)
        below = group if group not in words else ""
        rows.append(_row(layout, words, below, _GROUP_INK.get(group, _INK), images))
    return _page(_severity_titles(layout, severities), rows)


@dataclass(frozen=True)
class _RowLayout:
    """Sizes in pixels that all rows share."""

    #: From the left edge to the first image: the width of the names.
    label_width: int
    image_width: int
    image_height: int
    #: Of a whole row.
    width: int
    height: int

    def left(self, column: int) -> int:
        """Where the image of a column begins."""
        return self.label_width + column * (self.image_width + _GAP)


def _row_layout(pixels: Pixels, corruptions: Sequence[str], columns: int, longest: int) -> _RowLayout:
    words = ["severity", "original"]
    # A row is as high as an image, or as the longest name.
    heights = []
    for name in corruptions:
        name_words = name.split("_")
        words += name_words
        heights.append(len(name_words) * _LINE)
    label_width = max(ceil(_font(_TEXT).getlength(word)) for word in words) + 20
    scale = min(1.0, longest / max(pixels.shape[:2]))
    image_height, image_width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    return _RowLayout(
        label_width=label_width,
        image_width=image_width,
        image_height=image_height,
        width=label_width + columns * (image_width + _GAP) - _GAP,
        height=max([image_height, *heights]),
    )


def _row(
    layout: _RowLayout, words: Sequence[str], below: str, colour: Colour, images: Mapping[int, Pixels]
) -> Image.Image:
    """A name, and images by column."""
    row = _named(words, below, colour, (layout.width, layout.height))
    size = (layout.image_width, layout.image_height)
    for column, pixels in images.items():
        image = Image.fromarray(pixels)
        if image.size != size:
            image = image.resize(size, Image.Resampling.LANCZOS)
        row.paste(image, (layout.left(column), (layout.height - layout.image_height) // 2))
    return row


def _describe_original(row: Image.Image, layout: _RowLayout, image_id: str, description: str) -> None:
    """Write what the original is into the empty columns beside it."""
    left = layout.left(1) + 14
    middle = layout.height // 2
    room = layout.width - left
    if room < 8 * _TEXT:  # In one or two small columns three letters and dots would be useless.
        return
    draw = ImageDraw.Draw(row)
    draw.text((left, middle - 2), _fitted(image_id, _TITLE, room), _INK, _font(_TITLE), anchor="ls")
    draw.text((left, middle + 12), _fitted(description, _TEXT, room), _PALE, _font(_TEXT), anchor="lt")


def _severity_titles(layout: _RowLayout, severities: Sequence[float]) -> Image.Image:
    """The line above a block that names the severities."""
    titles = Image.new("RGB", (layout.width, _TITLES), _PAPER)
    draw = ImageDraw.Draw(titles)
    draw.text((0, 20), "severity", _PALE, _font(_SMALL), anchor="lm")
    for column, severity in enumerate(severities):
        middle = layout.left(column) + layout.image_width / 2
        draw.text((middle, 20), f"{severity:g}", _INK, _font(_TEXT), anchor="mm")
    return titles


def _named(words: Sequence[str], below: str, colour: Colour, size: tuple[int, int]) -> Image.Image:
    """A row with the words of a name below each other at its left; what stands below only if there is room."""
    row = Image.new("RGB", size, _PAPER)
    draw = ImageDraw.Draw(row)
    room = size[1] - len(words) * _LINE
    if room < _SMALL:
        below = ""
    y = (room - _SMALL if below else room) // 2
    for word in words:
        draw.text((0, y), word, colour, _font(_TEXT))
        y += _LINE
    draw.text((0, y + 1), below, _PALE, _font(_SMALL))
    return row


def _page(titles: Image.Image, rows: Sequence[Image.Image]) -> Image.Image:
    """Blocks of rows below the titles, side by side until the page is about as wide as high."""
    width, height = rows[0].size
    # Rows of a block, by the size of the page.
    block_rows: dict[tuple[int, int], int] = {}
    for blocks in range(1, min(4, len(rows)) + 1):
        n_rows = ceil(len(rows) / blocks)
        if (blocks - 1) * n_rows < len(rows):  # No block stays empty.
            across = blocks * (width + _GUTTER) - _GUTTER
            down = _TITLES + n_rows * (height + _GAP) - _GAP
            block_rows[2 * _MARGIN + across, 2 * _MARGIN + down] = n_rows
    size = min(block_rows, key=lambda size: abs(size[0] / size[1] - 1.1))
    page = Image.new("RGB", size, _PAPER)
    for number, row in enumerate(rows):
        block, position = divmod(number, block_rows[size])
        left = _MARGIN + block * (width + _GUTTER)
        page.paste(titles, (left, _MARGIN))
        page.paste(row, (left, _MARGIN + _TITLES + position * (height + _GAP)))
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
