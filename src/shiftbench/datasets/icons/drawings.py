"""Match the images of a package to icons, and draw them: SVG, PNG or WebP in, a square RGB image on white out.

Icons have no background of their own; white is that of the original's images. SVG is drawn at the wanted size; images
of another size are resized after they were laid on white, so that transparent pixels bring no colour in.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.icons.sources import Icon, IconSource, code_key, without_tone
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.registry_packages import fetch, read_members
from shiftbench.errors import DatasetError, required

if TYPE_CHECKING:
    from PIL.Image import Image

_FRAME = 512  # the default size of an iconify drawing


@dataclass(frozen=True)
class Drawing:
    """An icon as a package has it."""

    icon: Icon
    subtype: str
    codepoint: str
    data: bytes


def drawings(source: IconSource, wanted: Sequence[Icon], *, skin_tones: bool = False) -> Iterator[Drawing]:
    """The package's drawings of the wanted icons, each once; fetches the package if need be."""
    seen: set[str] = set()
    for drawing in _READERS[source.naming](source, wanted, skin_tones):
        if drawing.subtype not in seen:  # some packages have an image under two spellings of its name
            seen.add(drawing.subtype)
            yield drawing


def _by_codepoints(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """``<folder>/1f468-200d-2708-fe0f.png``."""
    known = {icon.key: icon for icon in wanted if source.means(icon.subtype)}

    def found(name: str) -> tuple[Icon | None, str | None]:
        key, tone = without_tone(code_key(name))
        return (known.get(key), tone) if tone is None or skin_tones else (None, None)

    for name, data in _images(source, lambda name: found(name)[0] is not None):
        icon, tone = found(name)
        if icon is not None and tone is None:
            yield Drawing(icon, icon.subtype, icon.codepoint, data)
        elif icon is not None:
            yield Drawing(icon, f"{icon.subtype}_{tone}", name.upper(), data)


def _by_aliases(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """``<folder>/airplane.png``; such packages are older than skin tones."""
    known = {icon.alias: icon for icon in wanted if source.means(icon.alias)}
    for name, data in _images(source, known.__contains__):
        yield Drawing(known[name], known[name].subtype, known[name].codepoint, data)


def _from_iconify(source: IconSource, wanted: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """One JSON file of drawings without their frames, under words run together (``articulatedlorry``)."""

    def run_together(name: str) -> str:
        return name.replace("_", "").replace("-", "").replace("+", "")

    known = {run_together(name): icon for icon in wanted for name in (icon.alias, icon.subtype)}
    try:
        [(_, data)] = read_members(fetch(source.package), lambda member: member == source.folder)
        found = json.loads(data)["icons"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{source.package} lacks its drawings"
        raise DatasetError(message, expected=f"drawings in {source.folder}") from error
    for name, drawing in found:
        icon = known.get(run_together(name))
        if icon is not None and source.means(name):
            frame = (float(drawing.get(side, _FRAME)) for side in ("width", "height"))
            yield Drawing(icon, icon.subtype, icon.codepoint, iconify_svg(str(drawing["body"]), *frame))


_READERS = {"codepoints": _by_codepoints, "aliases": _by_aliases, "iconify": _from_iconify}


def _images(source: IconSource, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The wanted images directly in the source's folder, by their names without the extension."""
    start, end = len(source.folder), -len(source.suffix)

    def is_wanted(member: str) -> bool:
        fits = member.startswith(source.folder) and member.endswith(source.suffix)
        return fits and "/" not in member[start:] and wanted(member[start:end])

    for member, data in read_members(fetch(source.package), is_wanted):
        yield member[start:end], data


#: A package's icons are 64 to 512 pixels wide.
_MAX_PIXELS = 2048 * 2048
#: An icon needs nothing outside itself. What reads files, defines entities or embeds an image is refused unread.
_FOREIGN = re.compile(
    r"<!(?!--)|<image\b|<script\b|<foreignObject\b|@import|href\s*=\s*[\"'](?!#)|url\(\s*[\"']?(?!#)", re.I
)


def rasterise(data: bytes, size: int, name: str) -> Pixels:
    """(size, size, 3) pixels; raises BadImageError, naming the image, for what is none."""
    from PIL import Image

    try:
        drawn = _drawn(data.decode("utf-8"), size, name) if data.lstrip()[:1] == b"<" else data
        with Image.open(io.BytesIO(drawn), formats=("PNG", "WEBP")) as opened:
            if opened.width * opened.height > _MAX_PIXELS:
                raise bad_image(name, f"{opened.width} x {opened.height} pixels are too many for an icon")
            image = opened.convert("RGBA")
        side = max(image.size)
        ground = Image.new("RGBA", (side, side), "white")
        ground.alpha_composite(image, ((side - image.width) // 2, (side - image.height) // 2))
        return np.array(_resized(ground.convert("RGB"), size))
    except (OSError, ValueError, SyntaxError, MemoryError) as error:  # Pillow's and resvg's ways to refuse
        raise bad_image(name, str(error) or type(error).__name__) from error


def _drawn(svg: str, size: int, name: str) -> bytes:
    resvg = required("resvg_py", "icons", "drawing SVG icons", "resvg-py")
    foreign = _FOREIGN.search(svg)
    if foreign is not None:
        raise bad_image(name, f"the drawing refers to something outside itself ({foreign.group()!r})")
    # fonts of the machine would make pixels differ from machine to machine; the icons have no text
    return bytes(resvg.svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True))


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


def _resized(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    return image if image.size == (size, size) else image.resize((size, size), Resampling.LANCZOS)


def _from_pixels(pixels: Pixels) -> Image:
    from PIL import Image

    return Image.fromarray(pixels)
