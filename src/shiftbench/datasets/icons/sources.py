"""Where the icons come from: registry packages, each with one vendor's drawings of one time (``sources.csv``).

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import resources

from shiftbench.datasets.registry_packages import Package
from shiftbench.errors import DatasetError, UnknownNameError

#: Two choices of packages: those of npm and PyPI together, and those that PyPI alone carries (two styles).
FULL, OFFLINE = "full", "offline"


@dataclass(frozen=True)
class IconSource:
    """One package's drawings: a rendition of a style."""

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
    """One subtype: an emoji of one of the classes."""

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
    """All icons, by class and name."""
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
    """At most ``cap`` subtypes of a class: else every fourth icon were a flag.

    Up to half of them are those that the subtype protocol holds out; the others are drawn by a hash of their names, so
    that the choice is the same for every style and on every machine, and a larger cap contains the smaller one.
    """
    if cap is None:
        return list(chosen)
    classes: dict[str, list[Icon]] = {}
    for icon in sorted(chosen, key=lambda icon: hashlib.blake2b(icon.subtype.encode(), digest_size=8).digest()):
        classes.setdefault(icon.label, []).append(icon)
    kept: set[Icon] = set()
    for members in classes.values():
        held_out = [icon for icon in members if is_held_out(icon.subtype)]
        others = [icon for icon in members if not is_held_out(icon.subtype)]
        kept.update([*held_out[: cap // 2], *others, *held_out[cap // 2 :]][:cap])
    return [icon for icon in chosen if icon in kept]
