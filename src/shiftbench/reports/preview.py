"""One sheet of an image under every corruption at every severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PIL import Image, ImageDraw, ImageFont

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions import CORRUPTIONS, Corruption

_PAPER, _INK, _PALE = (255, 255, 255), (28, 32, 38), (112, 118, 128)
#: A calm colour for each group of corruptions, with enough contrast to read text in it.
_GROUP_INK = {"noise": (158, 42, 43), "blur": (29, 78, 137), "weather": (15, 110, 86), "digital": (110, 63, 150)}
_TITLE, _TEXT, _SMALL = 40, 25, 19
_MARGIN, _GAP = 32, 6
#: Between two blocks of corruptions that stand side by side.
_GUTTER = 44
#: The line above each block that names the severities.
_TITLES = 38


@dataclass(frozen=True)
class _Page:
    """Where things are. The first row holds the original; each further one a corruption."""

    cell: tuple[int, int]
    columns: int
    rows: int
    blocks: int
    label: int

    @property
    def block_width(self) -> int:
        return self.label + self.columns * (self.cell[0] + _GAP) - _GAP

    @property
    def size(self) -> tuple[int, int]:
        width = 2 * _MARGIN + self.blocks * self.block_width + (self.blocks - 1) * _GUTTER
        return width, 2 * _MARGIN + _TITLES + self.rows * (self.cell[1] + _GAP) - _GAP

    def corner(self, row: int) -> tuple[int, int]:
        """Top left of a row, its label included."""
        block, place = divmod(row, self.rows)
        left = _MARGIN + block * (self.block_width + _GUTTER)
        return left, _MARGIN + _TITLES + place * (self.cell[1] + _GAP)

    def place(self, row: int, column: int) -> tuple[int, int]:
        left, top = self.corner(row)
        return left + self.label + column * (self.cell[0] + _GAP), top


def render_preview(
    pixels: Pixels, shifts: Sequence[Corruption], *, image_id: str = "0", seed: int = 0, longest: int = 256
) -> Image.Image:
    """A labelled grid: the original, then a row for each corruption with a column for each severity.

    Images are shown pixel for pixel up to ``longest``; larger ones are corrupted at full size and then reduced.

    >>> import numpy as np
    >>> render_preview(np.zeros((64, 64, 3), np.uint8), [Corruption("fog", 1), Corruption("fog", 5)]).mode
    'RGB'
    """
    names = list(dict.fromkeys(shift.corruption for shift in shifts))
    severities = sorted({shift.severity for shift in shifts})
    scale = min(1.0, longest / max(pixels.shape[:2]))
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    page = _layout((width, height), names, len(severities))
    canvas = Image.new("RGB", page.size, _PAPER)
    draw = ImageDraw.Draw(canvas)

    def paste(shown: Pixels, row: int, column: int) -> None:
        image = Image.fromarray(shown)
        resized = image if image.size == page.cell else image.resize(page.cell, Image.Resampling.LANCZOS)
        canvas.paste(resized, page.place(row, column))

    paste(pixels, 0, 0)
    _draw_label(draw, page, 0, ["original"], "", _INK)
    # What the original is stands in the empty columns beside it.
    left, top = page.place(0, 1)
    room = _MARGIN + page.block_width - left - 14
    if room >= 8 * _TEXT:  # in one or two small columns three letters and dots would be useless
        about = f"{pixels.shape[1]} x {pixels.shape[0]} pixels, seed {seed}"
        middle = top + page.cell[1] // 2
        draw.text((left + 14, middle - 2), _fitted(image_id, _TITLE, room), _INK, _font(_TITLE), anchor="ls")
        draw.text((left + 14, middle + 12), _fitted(about, _TEXT, room), _PALE, _font(_TEXT), anchor="lt")
    for block in range(page.blocks):
        left, top = page.corner(block * page.rows)
        draw.text((left, top - 18), "severity", _PALE, _font(_SMALL), anchor="lm")
        for column, severity in enumerate(severities):
            x = page.place(block * page.rows, column)[0] + page.cell[0] / 2
            draw.text((x, top - 18), f"{severity:g}", _INK, _font(_TEXT), anchor="mm")
    for row, name in enumerate(names, start=1):
        group, words = CORRUPTIONS.get(name).group, name.split("_")
        _draw_label(draw, page, row, words, group if group not in words else "", _GROUP_INK.get(group, _INK))
    for shift in shifts:
        at = 1 + names.index(shift.corruption), severities.index(shift.severity)
        paste(shift(pixels, image_id=image_id, seed=seed), *at)
    return canvas


def _layout(cell: tuple[int, int], names: Sequence[str], columns: int) -> _Page:
    """Blocks side by side until the page is about as wide as high."""
    words = ["severity", "original", *(word for name in names for word in name.split("_"))]
    label = max(ceil(_font(_TEXT).getlength(word)) for word in words) + 20
    rows = len(names) + 1
    pages = [_Page(cell, columns, ceil(rows / blocks), blocks, label) for blocks in range(1, min(4, rows) + 1)]
    # No block stays empty.
    usable = [page for page in pages if (page.blocks - 1) * page.rows < rows]
    return min(usable, key=lambda page: abs(page.size[0] / page.size[1] - 1.1))


def _draw_label(
    draw: ImageDraw.ImageDraw, page: _Page, row: int, words: Sequence[str], below: str, colour: tuple[int, int, int]
) -> None:
    """The words of a name below each other, centred on their row; what stands below only if there is room."""
    left, top = page.corner(row)
    step = _TEXT + 5
    height = len(words) * step + (_SMALL if below else 0)
    if height > page.cell[1]:
        height, below = len(words) * step, ""
    y = top + max(0, (page.cell[1] - height) // 2)
    for word in words:
        draw.text((left, y), word, colour, _font(_TEXT))
        y += step
    draw.text((left, y + 1), below, _PALE, _font(_SMALL))


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
