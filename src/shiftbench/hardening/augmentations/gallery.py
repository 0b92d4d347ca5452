"""One figure of an image under the augmentations: one row each, one column per draw."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shiftbench.arrays import Pixels
from shiftbench.datasets.geometry import Geometry
from shiftbench.errors import ShiftbenchError
from shiftbench.hardening.augmentations.base import (
    BatchAugmentation,
    ImageAugmentation,
    batch_augmentations,
    image_augmentations,
    in_words,
    make_batch_augmentation,
    make_image_augmentation,
    stream,
)

_PAPER, _INK, _PALE = (255, 255, 255), (28, 32, 38), (112, 118, 128)
_TEXT, _SMALL, _MARGIN, _GAP = 24, 17, 28, 6
#: A long option may not push the images off the page.
_MOST_LABEL = 220


@dataclass(frozen=True)
class Row:
    """One augmentation with its options."""

    name: str
    options: Mapping[str, Any]
    augmentation: ImageAugmentation

    @property
    def title(self) -> str:
        given = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{given}" if given else self.name

    def label(self) -> list[tuple[int, str]]:
        """Lines with the size of their letters: the words of the name, then the options."""
        lines = [(_TEXT, word) for word in self.name.split("-")]
        for key, value in self.options.items():
            # Of a path, its end: where the file lies is nobody's business on a sheet.
            line = f"{key}={in_words(value).rpartition('/')[2]}"
            while ImageFont.load_default(_SMALL).getlength(line) > _MOST_LABEL:
                line = line.rstrip("…")[:-1] + "…"
            lines.append((_SMALL, line))
        return lines


def choose(
    wanted: Sequence[tuple[str, Mapping[str, object]]], partner: Pixels | None = None
) -> tuple[list[Row], dict[str, str]]:
    """Rows for the wanted augmentations, or for all; and those that cannot be shown without more, with the reason.

    Batch augmentations mix the image with ``partner``, of the same size, or else with its mirror image.
    """

    def row(name: str, options: Mapping[str, object]) -> Row:
        if name in batch_augmentations and name not in image_augmentations:
            return Row(name, options, _alone(make_batch_augmentation(name, **options), partner))
        return Row(name, options, make_image_augmentation(name, **options))

    if wanted:
        return [row(name, options) for name, options in wanted], {}
    rows, left_out = [], {}
    for name, factory in [*image_augmentations, *batch_augmentations]:
        # What is done to a share of the images is done to every one here: else there would be little to see.
        known = {} if name == "flip" else inspect.signature(factory).parameters
        always = {key: 1.0 for key in ("probability", "share") if key in known and known[key].default != 1.0}
        try:
            rows.append(row(name, always))
        except ShiftbenchError as error:  # it needs a network or a folder of the user's
            left_out[name] = error.message
    return rows, left_out


def render_gallery(
    pixels: Pixels, rows: Sequence[Row], *, title: str = "", columns: int = 6, seed: int = 0
) -> Image.Image:
    """A labelled grid: the image itself, then ``columns`` draws of each augmentation."""
    height, width = pixels.shape[:2]
    label = 22 + max(ceil(ImageFont.load_default(size).getlength(line)) for row in rows for size, line in row.label())
    page_width = 2 * _MARGIN + label + columns * (width + _GAP) - _GAP
    page = Image.new("RGB", (page_width, 2 * _MARGIN + (len(rows) + 1) * (height + _GAP) - _GAP), _PAPER)
    draw = ImageDraw.Draw(page)

    def draw_label(top: int, lines: Sequence[tuple[int, str]]) -> None:
        y = top + height // 2 - sum(size + 4 for size, _ in lines) // 2
        for size, line in lines:
            draw.text((_MARGIN, y), line, _INK if size == _TEXT else _PALE, ImageFont.load_default(size))
            y += size + 4

    page.paste(Image.fromarray(pixels), (_MARGIN + label, _MARGIN))
    draw_label(_MARGIN, [(_TEXT, "original"), (_SMALL, f"seed {seed}")])
    draw.text(
        (_MARGIN + label + width + 16, _MARGIN + height // 2), title, _PALE, ImageFont.load_default(_TEXT), anchor="lm"
    )
    for number, row in enumerate(rows, start=1):
        top = _MARGIN + number * (height + _GAP)
        draw_label(top, row.label())
        for column in range(columns):
            shown = Image.fromarray(row.augmentation(pixels, stream(seed, "gallery", row.title, column)))
            shown = shown if shown.size == (width, height) else shown.resize((width, height))
            page.paste(shown, (_MARGIN + label + column * (width + _GAP), top))
    return page


def square(pixels: Pixels, side: int) -> Pixels:
    """The middle of an image, ``side`` pixels in both directions."""
    return Geometry(resize=side, crop=side)(pixels)


def demo_photograph() -> tuple[str, Pixels]:
    """The first photograph of the demo set."""
    from shiftbench.datasets.catalogue import open_named

    dataset = open_named("demo")
    return dataset.ids[0], dataset.read(0).pixels


def _alone(augment: BatchAugmentation, partner: Pixels | None) -> ImageAugmentation:
    """A batch augmentation on one image, with one other for company."""
    import torch

    def alone(image: Pixels, generator: np.random.Generator) -> Pixels:
        other = image[:, ::-1] if partner is None else partner
        pair = torch.from_numpy(np.stack([image, other])).permute(0, 3, 1, 2).float() / 255
        numbers = torch.Generator().manual_seed(int(generator.integers(2**62)))
        for _ in range(20):  # a permutation that mixes the image with itself shows nothing
            changed = augment(pair, torch.eye(2), numbers)[0][0]
            if not torch.equal(changed, pair[0]):
                break
        return np.rint(255 * changed.permute(1, 2, 0).numpy()).astype(np.uint8)  # type: ignore[no-any-return]

    return alone
