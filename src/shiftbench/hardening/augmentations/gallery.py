"""One figure of an image under the augmentations, with a row for each augmentation and a column for each draw."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from shiftbench import Geometry, ShiftbenchError
from shiftbench.extend.types import Pixels
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

#: Colours.
_PAPER = (255, 255, 255)
_INK = (28, 32, 38)
_PALE = (112, 118, 128)
#: Sizes of letters.
_TEXT = 24
_SMALL = 17
#: Distances, in pixels.
_MARGIN = 28
_GAP = 6
#: The largest width of a line of a label, so that a long option does not push the images off the page.
_MAX_LABEL_WIDTH = 220


@dataclass(frozen=True)
class Row:
    """A row of the figure: an augmentation with its options."""

    name: str
    options: Mapping[str, Any]
    augmentation: ImageAugmentation

    @property
    def title(self) -> str:
        options = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{options}" if options else self.name

    def label(self) -> list[tuple[int, str]]:
        """Lines with the size of their letters: first the words of the name, then the options."""
        lines = [(_TEXT, word) for word in self.name.split("-")]
        for key, value in self.options.items():
            # Contact sheets do not show file paths, only the file's name.
            line = f"{key}={in_words(value).rpartition('/')[2]}"
            while ImageFont.load_default(_SMALL).getlength(line) > _MAX_LABEL_WIDTH:
                line = line.rstrip("…")[:-1] + "…"
            lines.append((_SMALL, line))
        return lines


def choose(
    augmentations: Sequence[tuple[str, Mapping[str, object]]], partner: Pixels | None = None
) -> tuple[list[Row], dict[str, str]]:
    """Rows for these augmentations, or for all if there are none; and those that are left out, with the reason.

    Batch augmentations mix the image with ``partner``, of the same size, or else with its mirror image.
    """

    def row(name: str, options: Mapping[str, object]) -> Row:
        if name in batch_augmentations and name not in image_augmentations:
            return Row(name, options, _alone(make_batch_augmentation(name, **options), partner))
        return Row(name, options, make_image_augmentation(name, **options))

    if augmentations:
        return [row(name, options) for name, options in augmentations], {}
    rows = []
    left_out = {}
    for name, factory in [*image_augmentations, *batch_augmentations]:
        try:
            rows.append(row(name, _always_applied(name, factory)))
        except ShiftbenchError as error:  # It needs a network or a folder that only the user has.
            left_out[name] = error.message
    return rows, left_out


def _always_applied(name: str, factory: Callable[..., object]) -> dict[str, float]:
    """The options by which an augmentation changes every image, because unchanged images would show nothing."""
    if name == "flip":
        return {}
    parameters = inspect.signature(factory).parameters
    options = {}
    for key in ("probability", "share"):
        if key in parameters and parameters[key].default != 1.0:
            options[key] = 1.0
    return options


def render_gallery(
    pixels: Pixels, rows: Sequence[Row], *, title: str = "", columns: int = 6, seed: int = 0
) -> Image.Image:
    """A labelled grid: the image itself, then ``columns`` draws of each augmentation."""
    height, width = pixels.shape[:2]
    label_width = 22 + max(_text_width(row.label()) for row in rows)
    page_width = 2 * _MARGIN + label_width + columns * (width + _GAP) - _GAP
    page_height = 2 * _MARGIN + (len(rows) + 1) * (height + _GAP) - _GAP
    page = Image.new("RGB", (page_width, page_height), _PAPER)
    draw = ImageDraw.Draw(page)

    def draw_label(top: int, lines: Sequence[tuple[int, str]]) -> None:
        y = top + height // 2 - sum(size + 4 for size, _ in lines) // 2
        for size, line in lines:
            colour = _INK if size == _TEXT else _PALE
            draw.text((_MARGIN, y), line, colour, ImageFont.load_default(size))
            y += size + 4

    images_left = _MARGIN + label_width
    page.paste(Image.fromarray(pixels), (images_left, _MARGIN))
    draw_label(_MARGIN, [(_TEXT, "original"), (_SMALL, f"seed {seed}")])
    title_position = (images_left + width + 16, _MARGIN + height // 2)
    draw.text(title_position, title, _PALE, ImageFont.load_default(_TEXT), anchor="lm")
    for number, row in enumerate(rows, start=1):
        top = _MARGIN + number * (height + _GAP)
        draw_label(top, row.label())
        for column in range(columns):
            augmented = Image.fromarray(row.augmentation(pixels, stream(seed, "gallery", row.title, column)))
            if augmented.size != (width, height):
                augmented = augmented.resize((width, height))
            page.paste(augmented, (images_left + column * (width + _GAP), top))
    return page


def _text_width(lines: Sequence[tuple[int, str]]) -> int:
    """The width of the longest line, in pixels."""
    return max(ceil(ImageFont.load_default(size).getlength(line)) for size, line in lines)


def square(pixels: Pixels, side: int) -> Pixels:
    """The middle of an image, ``side`` pixels in both directions."""
    return Geometry(resize=side, crop=side)(pixels)


def demo_photograph() -> tuple[str, Pixels]:
    """The first photograph of the demo set."""
    from shiftbench.extend.datasets import open_named

    dataset = open_named("demo")
    return dataset.ids[0], dataset.read(0).pixels


def _alone(augment: BatchAugmentation, partner: Pixels | None) -> ImageAugmentation:
    """A batch augmentation as one of single images: the batch is the image and its partner."""
    import torch

    def alone(image: Pixels, generator: np.random.Generator) -> Pixels:
        second = image[:, ::-1] if partner is None else partner
        pair = torch.from_numpy(np.stack([image, second])).permute(0, 3, 1, 2).float() / 255
        numbers = torch.Generator().manual_seed(int(generator.integers(2**62)))
        # A permutation that mixes the image with itself shows nothing, so another one is drawn.
        for _ in range(20):
            changed = augment(pair, torch.eye(2), numbers)[0][0]
            if not torch.equal(changed, pair[0]):
                break
        return np.rint(255 * changed.permute(1, 2, 0).numpy()).astype(np.uint8)  # type: ignore[no-any-return]

    return alone
