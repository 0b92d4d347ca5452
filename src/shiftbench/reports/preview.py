"""One sheet of an image under every corruption at every severity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from PIL import Image, ImageDraw, ImageFont

from shiftbench.arrays import Pixels
from shiftbench.shifts.corruptions import CORRUPTIONS, Corruption

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
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
    page = _layout(_cell(pixels, longest), names, len(severities))
    canvas = Image.new("RGB", page.size, _PAPER)
    draw = ImageDraw.Draw(canvas)
    canvas.paste(_shown(pixels, page.cell), page.place(0, 0))
    _draw_label(draw, page, 0, ["original"], "", _INK)
    _draw_about(draw, page, image_id, f"{pixels.shape[1]} x {pixels.shape[0]} pixels, seed {seed}")
    _draw_severities(draw, page, severities)
    for row, name in enumerate(names, start=1):
        group = CORRUPTIONS.get(name).group
        words = name.split("_")
        _draw_label(draw, page, row, words, group if group not in words else "", _GROUP_INK.get(group, _INK))
    for shift in shifts:
        place = page.place(1 + names.index(shift.corruption), severities.index(shift.severity))
        canvas.paste(_shown(shift(pixels, image_id=image_id, seed=seed), page.cell), place)
    return canvas


def _cell(pixels: Pixels, longest: int) -> tuple[int, int]:
    height, width = pixels.shape[:2]
    scale = min(1.0, longest / max(height, width))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _shown(pixels: Pixels, cell: tuple[int, int]) -> Image.Image:
    image = Image.fromarray(pixels)
    return image if image.size == cell else image.resize(cell, Image.Resampling.LANCZOS)


def _layout(cell: tuple[int, int], names: Sequence[str], columns: int) -> _Page:
    """Blocks side by side until the page is about as wide as high."""
    words = ["severity", "original", *(word for name in names for word in name.split("_"))]
    label = max(_width(word, _font(_TEXT)) for word in words) + 20
    rows = len(names) + 1
    pages = [_Page(cell, columns, ceil(rows / blocks), blocks, label) for blocks in range(1, min(4, rows) + 1)]
    # No block stays empty.
    usable = [page for page in pages if (page.blocks - 1) * page.rows < rows]
    return min(usable, key=lambda page: abs(page.size[0] / page.size[1] - 1.1))


def _draw_about(draw: ImageDraw.ImageDraw, page: _Page, title: str, about: str) -> None:
    """What the original is, in the empty columns beside it."""
    left, top = page.place(0, 1)
    left += 14
    room = _MARGIN + page.block_width - left
    if room < 8 * _TEXT:  # one or two small columns: three letters and dots would be useless
        return
    middle = top + page.cell[1] // 2
    draw.text((left, middle - 2), _fitted(title, _font(_TITLE), room), _INK, _font(_TITLE), anchor="ls")
    draw.text((left, middle + 12), _fitted(about, _font(_TEXT), room), _PALE, _font(_TEXT), anchor="lt")


def _draw_severities(draw: ImageDraw.ImageDraw, page: _Page, severities: Sequence[float]) -> None:
    for block in range(page.blocks):
        left, top = page.corner(block * page.rows)
        middle = top - 18
        draw.text((left, middle), "severity", _PALE, _font(_SMALL), anchor="lm")
        for column, severity in enumerate(severities):
            x = page.place(block * page.rows, column)[0] + page.cell[0] / 2
            draw.text((x, middle), f"{severity:g}", _INK, _font(_TEXT), anchor="mm")


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


def _font(size: int) -> Font:
    return ImageFont.load_default(size)


def _width(text: str, font: Font) -> int:
    return ceil(font.getlength(text))


def _fitted(text: str, font: Font, room: int) -> str:
    """As much of a text as fits, with dots where it was cut."""
    if _width(text, font) <= room:
        return text
    while text and _width(f"{text}...", font) > room:
        text = text[:-1]
    return f"{text}..."
