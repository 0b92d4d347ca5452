"""A drawing as pixels: SVG, PNG or WebP in, a square RGB image on white out.

Icons have no ground of their own; white is that of the original's images. SVG is drawn at the wanted size, images
of another size are resized after they were laid on white, so that transparent pixels bring no colour in.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.images import bad_image
from shiftbench.errors import MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image

#: A package's icons are 64 to 512 pixels wide.
_MAX_PIXELS = 2048 * 2048
#: An icon needs nothing outside itself. What reads files, defines entities or embeds an image is refused unread.
_FOREIGN = re.compile(
    r"<!(?!--)|<image\b|<script\b|<foreignObject\b|@import|href\s*=\s*[\"'](?!#)|url\(\s*[\"']?(?!#)", re.I
)


def rasterise(data: bytes, size: int, name: str) -> Pixels:
    """(size, size, 3) pixels; raises BadImageError, naming the image, for what is none."""
    try:
        image = _open(_drawn(data, size, name) if _is_svg(data) else data, name)
        return _square(image, size)
    except (OSError, ValueError, SyntaxError, MemoryError) as error:  # Pillow's and resvg's ways to refuse
        raise bad_image(name, str(error) or type(error).__name__) from error


def is_blank(pixels: Pixels) -> bool:
    """White all over: the package has a place for this icon and no drawing."""
    return bool((pixels >= 250).all())


def difference(one: Pixels, other: Pixels) -> float:
    """Mean absolute difference at 32 pixels, of 255."""
    pair = [np.asarray(_resized(_from_pixels(p), 32), dtype=np.float32) for p in (one, other)]
    return float(np.abs(pair[0] - pair[1]).mean())


def png_bytes(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    _from_pixels(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def iconify_svg(body: str, width: float, height: float) -> bytes:
    """A whole drawing from one that lacks its frame."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {names} viewBox="0 0 {width} {height}">{body}</svg>'.encode()


def _is_svg(data: bytes) -> bool:
    return data.lstrip()[:1] == b"<"


def _drawn(data: bytes, size: int, name: str) -> bytes:
    try:
        import resvg_py
    except ImportError as error:
        raise MissingExtraError("resvg-py", "icons", "drawing SVG icons") from error
    text = data.decode("utf-8")
    foreign = _FOREIGN.search(text)
    if foreign is not None:
        raise bad_image(name, f"the drawing refers to something outside itself ({foreign.group()!r})")
    # fonts of the machine would make pixels differ from machine to machine; the icons have no text
    return bytes(resvg_py.svg_to_bytes(svg_string=text, width=size, height=size, skip_system_fonts=True))


def _open(data: bytes, name: str) -> Image:
    from PIL import Image

    with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as image:
        if image.width * image.height > _MAX_PIXELS:
            raise bad_image(name, f"{image.width} x {image.height} pixels are too many for an icon")
        return image.convert("RGBA")


def _square(image: Image, size: int) -> Pixels:
    from PIL import Image

    side = max(image.size)
    ground = Image.new("RGBA", (side, side), "white")
    ground.alpha_composite(image, ((side - image.width) // 2, (side - image.height) // 2))
    return np.array(_resized(ground.convert("RGB"), size))


def _resized(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    return image if image.size == (size, size) else image.resize((size, size), Resampling.LANCZOS)


def _from_pixels(pixels: Pixels) -> Image:
    from PIL import Image

    return Image.fromarray(pixels)
