"""Where the icons come from: registry packages, each with one vendor's drawings of one time (``sources.csv``).

The packages are fetched by the ordinary clients and pinned by their hashes. The
images belong to their owners: they are for the user's own experiments, are not part of this project and must not be
passed on where the licence does not allow it. The styles of the group ``open`` have a licence that does.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
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
    return tuple(_source(row) for row in csv.DictReader(text.splitlines()))


def _source(row: dict[str, str]) -> IconSource:
    return IconSource(
        row["style"],
        int(row["rendition"]),
        row["version"],
        Package(row["registry"], row["package"], row["release"], row["file"], row["sha256"]),
        row["folder"],
        row["suffix"],
        row["naming"],
        row["licence"],
        row["open"] == "yes",
        row["holder"],
        frozenset(row["variants"].split()),
        frozenset(row["not_meant"].split()),
    )


def style_names(*, open_only: bool = False) -> tuple[str, ...]:
    """All styles, or those of which every rendition has an open licence.

    >>> style_names(open_only=True)
    ('google', 'microsoft', 'mozilla', 'openmoji', 'twitter')
    """
    full = [source for source in all_sources() if FULL in source.variants]
    closed = {source.style for source in full if not source.is_open}
    return tuple(dict.fromkeys(s.style for s in full if not (open_only and s.style in closed)))


def choose_sources(styles: str | Iterable[str] = "all") -> tuple[str, tuple[IconSource, ...]]:
    """The variant, and its sources of the styles: ``all``, ``open``, ``offline`` (PyPI only), or names, with commas.

    >>> variant, chosen = choose_sources("google")
    >>> variant, [source.version for source in chosen]
    ('full', ['3.0.0', '4.0.4', '16.0.0'])
    """
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
